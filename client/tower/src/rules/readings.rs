//! The readings of a request's path. Services decode, cut and resolve a path, each in its own order, so rules are
//! compared with every result.

use std::ops::Range;

use smallvec::SmallVec;

use super::steps::{DECODE, STEPS, is_plain};

const READINGS_MAX: usize = 128;
/// Bytes that steps may read for any path, next to [`LENGTHS_MAX`] times its own: those of repeated readings, too.
const BYTES_MAX: usize = 8 * 1024;
const LENGTHS_MAX: usize = 8;

#[derive(Clone, Copy)]
pub(super) struct Reading<'a> {
    /// A reading of the path as the layer sees it.
    path: &'a [u8],
    /// The same reading of the path before routers stripped its prefix.
    whole: Option<&'a [u8]>,
    /// True after the step that decodes escapes, and after any step if the path as sent has none.
    pub(super) is_decoded: bool,
}

impl Reading<'_> {
    #[inline]
    pub(super) fn any(self, matches: impl Fn(&[u8]) -> bool) -> bool {
        matches(self.path) || self.whole.is_some_and(matches)
    }
}

/// Calls `read` with each reading of a path: as it is, and after any of the steps in any order. A path without their
/// marks has one reading. If a router has stripped a prefix, `whole` is the path before, which is read in the same
/// way. With `lower`, every reading is in lower case.
///
/// Returns false if there are more readings than the bounds allow: then some were left out.
#[inline]
pub(super) fn each_reading(
    path: &[u8],
    whole: Option<&[u8]>,
    lower: bool,
    mut read: impl FnMut(Reading<'_>),
) -> bool {
    let folds = lower && (has_upper(path) || whole.is_some_and(has_upper));
    if !folds {
        read(Reading {
            path,
            whole,
            is_decoded: false,
        });
        if is_plain(path) && whole.is_none_or(is_plain) {
            return true;
        }
    }
    each_derived(path, whole, lower, folds, &mut read)
}

/// Calls `read` with the readings of a path that is not plain, or not in lower case. Not inlined: its buffers would
/// lengthen the stack frame of every request.
#[cold]
#[inline(never)]
fn each_derived(
    path: &[u8],
    whole: Option<&[u8]>,
    lower: bool,
    folds: bool,
    read: &mut dyn FnMut(Reading<'_>),
) -> bool {
    let mut readings = Readings::new(path, whole, lower);
    let is_complete = readings.derive();
    let derived = readings.spans.iter().skip(usize::from(!folds));
    derived.for_each(|span| read(readings.reading(span)));
    is_complete
}

/// The readings of one path, and of the whole one if there is one, after each other in one buffer.
/// A usual path needs no allocation.
struct Readings {
    bytes: SmallVec<[u8; 1024]>,
    spans: SmallVec<[Span; 8]>,
    has_whole: bool,
    lower: bool,
}

#[derive(Clone)]
struct Span {
    path: Range<usize>,
    whole: Range<usize>,
    is_decoded: bool,
}

impl Readings {
    fn new(path: &[u8], whole: Option<&[u8]>, lower: bool) -> Self {
        let mut bytes = SmallVec::from_slice(path);
        bytes.extend_from_slice(whole.unwrap_or_default());
        if lower {
            bytes.make_ascii_lowercase();
        }
        let first = Span {
            path: 0..path.len(),
            whole: path.len()..bytes.len(),
            is_decoded: false,
        };
        Self {
            bytes,
            spans: smallvec::smallvec![first],
            has_whole: whole.is_some(),
            lower,
        }
    }

    fn reading(&self, span: &Span) -> Reading<'_> {
        let whole = self.has_whole.then(|| &self.bytes[span.whole.clone()]);
        Reading {
            path: &self.bytes[span.path.clone()],
            whole,
            is_decoded: span.is_decoded,
        }
    }

    /// Takes every step from every reading until nothing is new. Returns false at a bound.
    fn derive(&mut self) -> bool {
        let mut bytes_left = BYTES_MAX + LENGTHS_MAX * self.bytes.len();
        let has_escape = self.bytes.contains(&b'%');
        let mut at = 0;
        while let Some(from) = self.spans.get(at).cloned() {
            for (index, (has_mark, change)) in STEPS.iter().enumerate() {
                let text = from.path.start..from.whole.end;
                if !has_mark(&self.bytes[text.clone()]) {
                    continue;
                }
                let Some(left) = bytes_left.checked_sub(text.len()) else {
                    return false;
                };
                bytes_left = left;
                let is_decoded = from.is_decoded || index == DECODE || !has_escape;
                let path = self.push(from.path.clone(), *change);
                let whole = self.push(from.whole.clone(), *change);
                let span = Span {
                    path,
                    whole,
                    is_decoded,
                };
                if self.is_known(&span) {
                    self.bytes.truncate(span.path.start);
                } else if self.spans.len() == READINGS_MAX {
                    return false;
                } else {
                    self.spans.push(span);
                }
            }
            at += 1;
        }
        true
    }

    fn push(&mut self, text: Range<usize>, change: fn(&mut [u8]) -> usize) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.resize(start + text.len(), 0);
        self.bytes.copy_within(text, start);
        let copy = &mut self.bytes[start..];
        let length = change(copy);
        if self.lower {
            copy.make_ascii_lowercase();
        }
        self.bytes.truncate(start + length);
        start..start + length
    }

    fn is_known(&self, span: &Span) -> bool {
        let texts = |span: &Span| {
            (
                &self.bytes[span.path.clone()],
                &self.bytes[span.whole.clone()],
            )
        };
        self.spans
            .iter()
            .any(|known| known.is_decoded == span.is_decoded && texts(known) == texts(span))
    }
}

fn has_upper(text: &[u8]) -> bool {
    text.iter()
        .fold(false, |found, byte| found | byte.is_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readings(path: &str, whole: Option<&str>, lower: bool) -> (Vec<String>, bool) {
        let mut readings = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let is_complete = each_reading(
            path.as_bytes(),
            whole.map(str::as_bytes),
            lower,
            |reading| {
                let whole = reading
                    .whole
                    .map(|whole| format!(" of {}", text(whole)))
                    .unwrap_or_default();
                readings.push(text(reading.path) + &whole);
            },
        );
        (readings, is_complete)
    }

    #[test]
    fn reading_steps_apply_in_any_order() {
        for (path, expected) in [
            ("/a.b/c..d", &["/a.b/c..d"][..]),
            ("*", &["*"]),
            ("/a%20b", &["/a%20b", "/a b"]),
            ("/%2561", &["/%2561", "/%61", "/a"]),
            ("/a//../b", &["/a//../b", "/a/../b", "/a/b", "/b"]),
            ("/a;/../b", &["/a;/../b", "/a/../b", "/b"]),
        ] {
            assert_eq!(
                readings(path, None, false),
                (expected.iter().map(ToString::to_string).collect(), true)
            );
        }
    }

    #[test]
    fn stripped_path_is_read_beside_the_whole() {
        for (path, whole, expected) in [
            ("/b", "/a/b", &["/b of /a/b"][..]),
            ("/%62", "/a/%62", &["/%62 of /a/%62", "/b of /a/b"]),
            ("/../b", "/a/../b", &["/../b of /a/../b", "/b of /b"]),
        ] {
            assert_eq!(
                readings(path, Some(whole), false).0,
                expected,
                "{path} of {whole}"
            );
        }
    }

    #[test]
    fn readings_are_lowered_after_every_step() {
        assert_eq!(
            readings("/A%42%2543", None, true).0,
            ["/a%42%2543", "/ab%43", "/abc"]
        );
        assert_eq!(readings("/a", None, true).0, ["/a"]);
    }

    /// Callers choose the path, and each reading costs.
    #[test]
    fn readings_of_a_path_are_bounded() {
        let marks = [
            "a", "/", "//", ";x", "\\", "%5c", "%255c", "%3b", "%252f", "/../", "/.;/", "%2e%2e/",
            "%25",
        ];
        for seed in 0..2_000_usize {
            let parts = 1 + seed % 300;
            let path = (0..parts)
                .map(|part| marks[(seed * 31 + part * part * 7 + part * seed) % marks.len()]);
            let path = format!("/{}", path.collect::<String>());
            let mut readings = Readings::new(path.as_bytes(), None, false);
            readings.derive();
            assert!(readings.spans.len() <= READINGS_MAX);
            assert!(readings.bytes.len() <= BYTES_MAX + (LENGTHS_MAX + 1) * path.len());
        }
        let hostile = |times| readings(&"/%2561;x\\..//.;".repeat(times), None, false).1;
        assert!(!hostile(4_000), "no bound was met");
        assert!(readings(&"/%61".repeat(16_000), None, false).1);
    }
}
