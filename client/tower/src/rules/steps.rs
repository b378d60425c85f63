//! The steps of services between a request's path and its route: the one table of spellings for
//! rules.

/// A test for the mark of a change, and the change in place, which returns the new length.
pub(super) type Step = (fn(&[u8]) -> bool, fn(&mut [u8]) -> usize);

/// A service takes some of these steps in some order, and may take one twice.
pub(super) const STEPS: [Step; 6] = [
    (|path| path.contains(&b'%'), decode),
    (
        |path| path.contains(&b'\\') || has_pair(path, b'%', b"5"),
        split_at_backslashes,
    ),
    (|path| path.contains(&b';'), cut_parameters),
    (|path| has_pair(path, b'/', b"/"), merge_slashes),
    (|path| has_pair(path, b'/', b".%"), resolve),
    (
        |path| path.iter().any(|byte| CONTROLS.contains(byte)),
        drop_controls,
    ),
];
/// Bytes that parsers of URLs ignore, and the byte that ends a text of C.
const CONTROLS: &[u8] = b"\t\n\r\0";
pub(super) const DECODE: usize = 0;

pub(super) fn has_escape(text: &[u8]) -> bool {
    (0..text.len()).any(|at| escaped(&text[at..]).is_some())
}

pub(super) fn decoded(text: &[u8]) -> Vec<u8> {
    let mut decoded = text.to_vec();
    let length = decode(&mut decoded);
    decoded.truncate(length);
    decoded
}

/// Returns false if a path has the mark of any step. Control characters are not looked for: a path has none before it
/// is decoded. Without branches, so that the compiler uses vector instructions.
#[inline]
pub(super) fn is_plain(path: &[u8]) -> bool {
    let special = |byte: u8| (byte == b'%') | (byte == b';') | (byte == b'\\');
    let is_pair = |pair: &[u8]| (pair[0] == b'/') & ((pair[1] == b'/') | (pair[1] == b'.'));
    !path.first().is_some_and(|first| special(*first))
        && !path.windows(2).fold(false, |found, pair| {
            found | special(pair[1]) | is_pair(pair)
        })
}

/// Returns true if one of `seconds` follows `first` anywhere.
fn has_pair(path: &[u8], first: u8, seconds: &[u8]) -> bool {
    path.windows(2)
        .any(|pair| pair[0] == first && seconds.contains(&pair[1]))
}

/// Decodes every valid escape once, as axum does for captures.
fn decode(path: &mut [u8]) -> usize {
    rewrite(path, |rest| {
        escaped(rest).map_or((rest[0], 1), |byte| (byte, 3))
    })
}

/// Turns backslashes into slashes, also escaped ones: some services do before they decode.
fn split_at_backslashes(path: &mut [u8]) -> usize {
    rewrite(path, |rest| match *rest {
        [b'\\', ..] => (b'/', 1),
        [b'%', b'5', b'c' | b'C', ..] => (b'/', 3),
        _ => (rest[0], 1),
    })
}

/// Removes the parameters of segments, `;` and what follows.
fn cut_parameters(path: &mut [u8]) -> usize {
    let (mut written, mut is_cut) = (0, false);
    for read in 0..path.len() {
        is_cut = path[read] == b';' || (is_cut && path[read] != b'/');
        if !is_cut {
            path[written] = path[read];
            written += 1;
        }
    }
    written
}

/// Removes tabs and line breaks, and what follows a zero byte. Paths have them once they are decoded.
fn drop_controls(path: &mut [u8]) -> usize {
    let end = path
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(path.len());
    let mut written = 0;
    for read in 0..end {
        if !CONTROLS.contains(&path[read]) {
            path[written] = path[read];
            written += 1;
        }
    }
    written
}

fn merge_slashes(path: &mut [u8]) -> usize {
    rewrite(path, |rest| {
        let slashes = rest.iter().take_while(|byte| **byte == b'/').count();
        (rest[0], slashes.max(1))
    })
}

/// Replaces bytes in place by the results of `next` for the rest of a path: a byte, and the number
/// of bytes that it replaces, from 1 on.
fn rewrite(path: &mut [u8], next: impl Fn(&[u8]) -> (u8, usize)) -> usize {
    let (mut read, mut written) = (0, 0);
    while read < path.len() {
        let (byte, length) = next(&path[read..]);
        path[written] = byte;
        written += 1;
        read += length;
    }
    written
}

fn escaped(text: &[u8]) -> Option<u8> {
    let [b'%', high, low, ..] = *text else {
        return None;
    };
    let digit = |hex: u8| {
        char::from(hex)
            .to_digit(16)
            .and_then(|digit| u8::try_from(digit).ok())
    };
    Some(digit(high)? << 4 | digit(low)?)
}

/// Resolves `.` and `..` (RFC 3986, 5.2.4). A path that does not begin with a slash has no segments.
fn resolve(path: &mut [u8]) -> usize {
    if path.first() != Some(&b'/') {
        return path.len();
    }
    // The length of the result, which always ends in a slash before a segment is read.
    let mut written = 1;
    let mut start = 1;
    loop {
        let end = path[start..]
            .iter()
            .position(|byte| *byte == b'/')
            .map_or(path.len(), |at| start + at);
        let is_last = end == path.len();
        match dots(&path[start..end]) {
            1 => {}
            2 => {
                let parent = path[..written - 1].iter().rposition(|byte| *byte == b'/');
                written = parent.map_or(1, |slash| slash + 1);
            }
            _ => {
                let length = end - start + usize::from(!is_last);
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

/// Returns the number of dots of a segment that has nothing else. They may be escaped: some services resolve before
/// they decode.
fn dots(segment: &[u8]) -> usize {
    let (mut rest, mut dots) = (segment, 0);
    while let [b'.', after @ ..] | [b'%', b'2', b'e' | b'E', after @ ..] = rest {
        rest = after;
        dots += 1;
    }
    if rest.is_empty() { dots } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_changes_its_marks() {
        let [decode, split, cut, merge, resolve] = [0, 1, 2, 3, 4];
        for (step, path, expected) in [
            (decode, "/%63heckout", "/checkout"),
            (decode, "/%2563heckout", "/%63heckout"),
            (decode, "/a%2Fb%2fc", "/a/b/c"),
            (decode, "/a%2", "/a%2"),
            (decode, "/%zz%", "/%zz%"),
            (decode, "/%+1", "/%+1"),
            (decode, "%2fa", "/a"),
            (split, "\\a\\b%5cc%5Cd%5e%5", "/a/b/c/d%5e%5"),
            (cut, "/a;x=1/b;/;y/..;z", "/a/b//.."),
            (cut, ";a", ""),
            (merge, "//a///b//", "/a/b/"),
            (resolve, "/a/./b", "/a/b"),
            (resolve, "/a/../b", "/b"),
            (resolve, "/a//../b", "/a/b"),
            (resolve, "/a/%2e%2E/.%2e/b", "/b"),
            (resolve, "/a/b/..", "/a/"),
            (resolve, "/a/b/.", "/a/b/"),
            (resolve, "/../../a", "/a"),
            (resolve, "/..", "/"),
            (resolve, "/.well-known/x", "/.well-known/x"),
            (resolve, "/a/.../b", "/a/.../b"),
            (resolve, "a/..", "a/.."),
        ] {
            let mut text = path.as_bytes().to_vec();
            let length = STEPS[step].1(&mut text);
            assert_eq!(str::from_utf8(&text[..length]).unwrap(), expected, "{path}");
            let (has_mark, changes) = (STEPS[step].0(path.as_bytes()), path != expected);
            assert!(has_mark || !changes, "{path}");
            assert!(!is_plain(path.as_bytes()) || !changes, "{path}");
        }
    }

    #[test]
    fn overlong_utf8_is_no_slash() {
        assert_eq!(decoded(b"/a%c0%afb"), b"/a\xc0\xafb");
    }
}
