//! The readings of a request's path: as it was sent, decoded, and with its dot segments resolved. A handler may act on
//! any of them, so rules are compared with all.

/// The longest path in bytes that is decoded without an allocation.
const ON_STACK_MAX: usize = 512;

/// One reading of a request's path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading<'a> {
    /// The path as the layer sees it.
    path: &'a [u8],
    /// The path with the prefixes that routers around the layer have stripped, if they have.
    whole: Option<&'a [u8]>,
    pub(super) is_decoded: bool,
}

impl Reading<'_> {
    /// Returns true if `matches` the path as the layer sees it or the whole one.
    #[inline]
    pub(super) fn any(self, matches: impl Fn(&[u8]) -> bool) -> bool {
        matches(self.path) || self.whole.is_some_and(matches)
    }
}

/// Calls `read` with each reading of a path: as it is, percent-decoded once, and decoded with dot segments resolved
/// and empty segments removed. A path without escapes, dot segments and empty segments has one reading. If a router
/// has stripped a prefix, `whole` is the path before, which is read in the same way.
pub(super) fn each_reading(path: &[u8], whole: Option<&[u8]>, mut read: impl FnMut(Reading<'_>)) {
    read(Reading { path, whole, is_decoded: false });
    if is_plain(path) && whole.is_none_or(is_plain) {
        return;
    }
    let Some(whole) = whole else {
        return with_buffer(path, |path| {
            read(Reading { path: path.decoded(), whole: None, is_decoded: true });
            read(Reading { path: path.resolved(), whole: None, is_decoded: true });
        });
    };
    with_buffer(path, |path| {
        with_buffer(whole, |whole| {
            read(Reading { path: path.decoded(), whole: Some(whole.decoded()), is_decoded: true });
            read(Reading { path: path.resolved(), whole: Some(whole.resolved()), is_decoded: true });
        });
    });
}

/// A path, with room to decode it in place.
struct Buffer<'a> {
    path: &'a [u8],
    room: &'a mut [u8],
    length: usize,
}

impl Buffer<'_> {
    fn decoded(&mut self) -> &[u8] {
        self.length = decode(self.path, self.room);
        &self.room[..self.length]
    }

    /// Resolves what was decoded.
    fn resolved(&mut self) -> &[u8] {
        let resolved = resolve(&mut self.room[..self.length]);
        &self.room[..resolved]
    }
}

/// Calls `read` with a path and room for it, on the stack unless the path is long.
fn with_buffer(path: &[u8], read: impl FnOnce(&mut Buffer<'_>)) {
    let (mut short, mut long) = ([0; ON_STACK_MAX], Vec::new());
    let room = match short.get_mut(..path.len()) {
        Some(room) => room,
        None => {
            long.resize(path.len(), 0);
            &mut long[..]
        }
    };
    read(&mut Buffer { path, room, length: 0 });
}

/// Returns true if a text has an escape.
pub(super) fn has_escape(text: &[u8]) -> bool {
    (0..text.len()).any(|at| escaped(&text[at..]).is_some())
}

/// Decodes every valid escape once.
pub(super) fn decoded(text: &[u8]) -> Vec<u8> {
    let mut decoded = vec![0; text.len()];
    let length = decode(text, &mut decoded);
    decoded.truncate(length);
    decoded
}

/// Returns false if a path has an escape, or a segment that is empty or begins with a dot. Without branches, so that
/// the compiler uses vector instructions.
#[inline]
fn is_plain(path: &[u8]) -> bool {
    let special = |pair: &[u8]| (pair[0] == b'/') & ((pair[1] == b'/') | (pair[1] == b'.'));
    !path.contains(&b'%') && !path.windows(2).fold(false, |found, pair| found | special(pair))
}

/// Decodes every valid escape once, as axum does for captures; returns the length.
fn decode(path: &[u8], decoded: &mut [u8]) -> usize {
    let (mut read, mut written) = (0, 0);
    while read < path.len() {
        let (byte, length) = escaped(&path[read..]).map_or((path[read], 1), |byte| (byte, 3));
        decoded[written] = byte;
        written += 1;
        read += length;
    }
    written
}

/// Returns the byte that an escape at the start of `text` stands for.
fn escaped(text: &[u8]) -> Option<u8> {
    let [b'%', high, low, ..] = *text else { return None };
    let digit = |hex: u8| char::from(hex).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some(digit(high)? << 4 | digit(low)?)
}

/// Resolves `.` and `..` (RFC 3986, 5.2.4) and removes empty segments, in place; returns the length. A path that does
/// not begin with a slash has no segments.
fn resolve(path: &mut [u8]) -> usize {
    if path.first() != Some(&b'/') {
        return path.len();
    }
    // The length of the result, which always ends in a slash before a segment is read.
    let mut written = 1;
    let mut start = 1;
    loop {
        let end = path[start..].iter().position(|byte| *byte == b'/').map_or(path.len(), |at| start + at);
        let is_last = end == path.len();
        match &path[start..end] {
            b"" | b"." => {}
            b".." => {
                let parent = path[..written - 1].iter().rposition(|byte| *byte == b'/');
                written = parent.map_or(1, |slash| slash + 1);
            }
            segment => {
                let length = segment.len() + usize::from(!is_last);
                path.copy_within(start..start + length, written);
                written += length;
            }
        }
        if is_last {
            return written;
        }
        start = end + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readings(path: &[u8]) -> Vec<String> {
        let mut readings = Vec::new();
        each_reading(path, None, |reading| readings.push(String::from_utf8_lossy(reading.path).into_owned()));
        readings
    }

    #[test]
    fn path_has_its_decoded_and_its_resolved_reading() {
        for (path, decoded, resolved) in [
            ("/%63heckout", "/checkout", "/checkout"),
            ("/%2563heckout", "/%63heckout", "/%63heckout"),
            ("/a%2Fb%2fc", "/a/b/c", "/a/b/c"),
            ("/a%2", "/a%2", "/a%2"),
            ("/%zz%", "/%zz%", "/%zz%"),
            ("/%+1", "/%+1", "/%+1"),
            ("/a/./b", "/a/./b", "/a/b"),
            ("/a/../b", "/a/../b", "/b"),
            ("/a/%2e%2E/b", "/a/../b", "/b"),
            ("/a/b/..", "/a/b/..", "/a/"),
            ("/a/b/.", "/a/b/.", "/a/b/"),
            ("/../../a", "/../../a", "/a"),
            ("/..", "/..", "/"),
            ("//a//b//", "//a//b//", "/a/b/"),
            ("/.well-known/x", "/.well-known/x", "/.well-known/x"),
            ("/a/.../b", "/a/.../b", "/a/.../b"),
            ("a%2f..", "a/..", "a/.."),
            ("%2fa", "/a", "/a"),
        ] {
            assert_eq!(readings(path.as_bytes()), [path, decoded, resolved]);
        }
        for plain in ["/", "/orders/7", "/orders/", "*", "", "/a.b/c..d", "/a/b."] {
            assert_eq!(readings(plain.as_bytes()), [plain], "one reading");
        }
        let long = "/%61".repeat(1_000);
        assert_eq!(readings(long.as_bytes())[2], "/a".repeat(1_000));
    }

    #[test]
    fn overlong_utf8_is_no_slash() {
        let mut last = Vec::new();
        each_reading(b"/a%c0%afb", None, |reading| last = reading.path.to_owned());
        assert_eq!(last, b"/a\xc0\xafb");
    }

    #[test]
    fn stripped_path_is_read_with_the_whole_one() {
        for (path, whole, expected) in [
            ("/b", "/a/b", &[("/b", "/a/b")][..]),
            ("/%62", "/a/%62", &[("/%62", "/a/%62"), ("/b", "/a/b"), ("/b", "/a/b")]),
            ("/b", "/%61/../b", &[("/b", "/%61/../b"), ("/b", "/a/../b"), ("/b", "/b")]),
            ("/../b", "/a/../b", &[("/../b", "/a/../b"), ("/../b", "/a/../b"), ("/b", "/b")]),
        ] {
            let mut found = Vec::new();
            each_reading(path.as_bytes(), Some(whole.as_bytes()), |reading| {
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                found.push((text(reading.path), text(reading.whole.unwrap())));
            });
            let expected: Vec<_> = expected.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect();
            assert_eq!(found, expected, "{path} of {whole}");
        }
    }
}
