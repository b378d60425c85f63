//! The readings of a request's path: as it was sent, decoded, and with its dot segments resolved. A handler may act on
//! any of them, so rules are compared with all.

/// The longest path in bytes that is decoded without an allocation.
const ON_STACK_MAX: usize = 512;

/// The paths that a rule applies to.
#[derive(Clone, Debug)]
pub(super) enum PathPattern {
    Exact(String),
    Prefix(String),
}

impl PathPattern {
    /// Parses a path, or a prefix that ends in `*`; returns `None` for a pattern that no request could match.
    pub(super) fn parse(pattern: &str) -> Option<Self> {
        let prefix = pattern.strip_suffix('*');
        let fixed = prefix.unwrap_or(pattern);
        let has_escape = (0..fixed.len()).any(|at| escaped(&fixed.as_bytes()[at..]).is_some());
        if !fixed.starts_with('/') || fixed.contains(['*', '{', '}']) || has_escape {
            return None;
        }
        let make = if prefix.is_some() { Self::Prefix } else { Self::Exact };
        Some(make(fixed.to_owned()))
    }

    pub(super) fn matches(&self, path: &[u8]) -> bool {
        match self {
            Self::Exact(exact) => path == exact.as_bytes(),
            Self::Prefix(prefix) => path.starts_with(prefix.as_bytes()),
        }
    }
}

/// Calls `read` with each reading of a path: as it is, percent-decoded once, and decoded with dot segments resolved
/// and empty segments removed. A path without escapes, dot segments and empty segments has one reading.
pub(super) fn each_reading(path: &[u8], mut read: impl FnMut(&[u8])) {
    read(path);
    if is_plain(path) {
        return;
    }
    let (mut short, mut long) = ([0; ON_STACK_MAX], Vec::new());
    let buffer = match short.get_mut(..path.len()) {
        Some(buffer) => buffer,
        None => {
            long.resize(path.len(), 0);
            &mut long[..]
        }
    };
    let decoded = decode(path, buffer);
    read(&buffer[..decoded]);
    let resolved = resolve(&mut buffer[..decoded]);
    read(&buffer[..resolved]);
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
        each_reading(path, |reading| readings.push(String::from_utf8_lossy(reading).into_owned()));
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
        each_reading(b"/a%c0%afb", |reading| last = reading.to_owned());
        assert_eq!(last, b"/a\xc0\xafb");
    }
}
