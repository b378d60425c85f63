//! The condition of a rule on paths: one path, a prefix by segments, or a template.

use super::PathFault;
use super::steps::{decoded, has_escape};
use super::template::Template;

#[derive(Clone, Debug)]
pub(super) struct PathPattern {
    written: Shape,
    /// Compared with the decoded readings of a path, if the pattern has escapes and none is a slash.
    decoded: Option<Shape>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Exact,
    Prefix,
    Template,
}

#[derive(Clone, Debug)]
enum Shape {
    Exact(Vec<u8>),
    /// A path and all paths below it. With a slash at its end, only the paths below it.
    Prefix(Vec<u8>),
    Template(Template),
}

impl PathPattern {
    pub(super) fn parse(kind: Kind, text: &str) -> Result<Self, PathFault> {
        let written = Shape::parse(kind, text)?;
        // With an escaped slash the decoded text is another path, which an exemption of this one must not exempt.
        let has_slash = text.to_ascii_lowercase().contains("%2f");
        let decoded = (has_escape(text.as_bytes()) && !has_slash).then(|| written.map(decoded));
        Ok(Self { written, decoded })
    }

    /// Makes the pattern in lower case, for readings in lower case.
    pub(super) fn lowered(&self) -> Self {
        let lower = |shape: &Shape| shape.map(<[u8]>::to_ascii_lowercase);
        Self {
            written: lower(&self.written),
            decoded: self.decoded.as_ref().map(lower),
        }
    }

    pub(super) fn matches(&self, path: &[u8], is_decoded: bool) -> bool {
        self.shape(is_decoded).matches(path)
    }

    fn shape(&self, is_decoded: bool) -> &Shape {
        self.decoded
            .as_ref()
            .filter(|_| is_decoded)
            .unwrap_or(&self.written)
    }

    /// Returns true if this pattern matches every path that `other` matches. Never true by mistake.
    pub(super) fn covers(&self, other: &Self) -> bool {
        [false, true]
            .into_iter()
            .all(|decoded| self.shape(decoded).covers(other.shape(decoded)))
    }

    /// Returns true if every path matches, and also a request's target that is no path.
    pub(super) fn is_everything(&self) -> bool {
        matches!(&self.written, Shape::Prefix(base) if base.is_empty())
    }
}

impl Kind {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Prefix => "prefix",
            Self::Template => "path",
        }
    }
}

impl Shape {
    fn parse(kind: Kind, text: &str) -> Result<Self, PathFault> {
        if text.starts_with('/') && text.contains('?') {
            return Err(PathFault::Query);
        }
        if kind == Kind::Template {
            let template = Template::parse(text)?;
            return Ok(template
                .as_literal()
                .map_or(Self::Template(template), Self::Exact));
        }
        if !text.starts_with('/') {
            return Err(PathFault::NoSlash);
        }
        if text.contains(['{', '}']) {
            return Err(PathFault::LiteralBraces);
        }
        match kind {
            Kind::Prefix if text.ends_with('*') => Err(PathFault::star(text)),
            Kind::Prefix if text == "/" => Ok(Self::Prefix(Vec::new())),
            Kind::Prefix => Ok(Self::Prefix(text.into())),
            _ => Ok(Self::Exact(text.into())),
        }
    }

    fn map(&self, change: impl Fn(&[u8]) -> Vec<u8>) -> Self {
        match self {
            Self::Exact(path) => Self::Exact(change(path)),
            Self::Prefix(path) => Self::Prefix(change(path)),
            Self::Template(template) => Self::Template(template.map(change)),
        }
    }

    fn matches(&self, path: &[u8]) -> bool {
        match self {
            Self::Exact(exact) => path == exact,
            Self::Prefix(base) => is_in(base, path),
            Self::Template(template) => template.matches(path),
        }
    }

    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Prefix(base), _) if base.is_empty() => true,
            (_, Self::Exact(path)) => self.matches(path),
            (Self::Exact(_), _) => false,
            (Self::Prefix(base), Self::Prefix(other)) => !other.is_empty() && is_in(base, other),
            (Self::Prefix(base), Self::Template(other)) => is_below(base, &other.head()),
            (Self::Template(template), Self::Prefix(base)) => template.covers_below(base),
            (Self::Template(template), Self::Template(other)) => template.covers(other),
        }
    }
}

fn is_in(base: &[u8], path: &[u8]) -> bool {
    path.strip_prefix(base).is_some_and(|below| {
        matches!(below.first(), None | Some(b'/')) || matches!(base.last(), None | Some(b'/'))
    })
}

/// Returns true if a path with any continuation is below `base`.
fn is_below(base: &[u8], path: &[u8]) -> bool {
    path.strip_prefix(base)
        .is_some_and(|below| below.first() == Some(&b'/') || base.last() == Some(&b'/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pattern(kind: Kind, text: &str) -> PathPattern {
        PathPattern::parse(kind, text).unwrap()
    }

    #[test]
    fn prefix_ends_at_a_segment() {
        for (prefix, matched, unmatched) in [
            (
                "/orders",
                &["/orders", "/orders/", "/orders/7", "/orders//"][..],
                &["/orders2", "/order", "/"][..],
            ),
            (
                "/orders/",
                &["/orders/", "/orders/7"],
                &["/orders", "/orders2/"],
            ),
            ("/", &["/", "/a", "//", "*", ""], &[]),
        ] {
            let pattern = pattern(Kind::Prefix, prefix);
            matched.iter().for_each(|path| {
                assert!(pattern.matches(path.as_bytes(), false), "{prefix} {path}")
            });
            unmatched.iter().for_each(|path| {
                assert!(!pattern.matches(path.as_bytes(), false), "{prefix} {path}")
            });
        }
    }

    #[test]
    fn literal_pattern_without_a_meaning_is_rejected() {
        for kind in [Kind::Exact, Kind::Prefix] {
            for bad in ["", "orders", "*", "https://shop.example/"] {
                assert_eq!(
                    PathPattern::parse(kind, bad).unwrap_err(),
                    PathFault::NoSlash,
                    "{bad}"
                );
            }
            assert_eq!(
                PathPattern::parse(kind, "/orders/{id}").unwrap_err(),
                PathFault::LiteralBraces
            );
        }
        let star = PathPattern::parse(Kind::Prefix, "/orders/*").unwrap_err();
        assert_eq!(
            star,
            PathFault::Star {
                prefix: "/orders".to_owned()
            }
        );
        assert!(
            pattern(Kind::Exact, "/a*").matches(b"/a*", false),
            "a literal star"
        );
    }

    /// As in axum, a route is compared with the path as it is sent.
    #[test]
    fn pattern_escapes_match_raw_and_decoded() {
        for (kind, text, suffix) in [
            (Kind::Exact, "/caf%C3%A9", ""),
            (Kind::Prefix, "/caf%C3%A9", "/a"),
            (Kind::Template, "/caf%C3%A9/{id}", "/a"),
        ] {
            let pattern = pattern(kind, text);
            for (path, is_decoded, expected) in [
                ("/caf%C3%A9", false, true),
                ("/café", true, true),
                ("/café", false, false),
            ] {
                let path = format!("{path}{suffix}");
                assert_eq!(
                    pattern.matches(path.as_bytes(), is_decoded),
                    expected,
                    "{text} {path}"
                );
            }
        }
        let exempt = pattern(Kind::Exact, "/a%2fb");
        assert!(exempt.matches(b"/a%2fb", false));
        assert!(
            !exempt.matches(b"/a/b", false) && !exempt.matches(b"/a/b", true),
            "another path"
        );
    }

    #[test]
    fn pattern_covers_when_no_path_escapes_it() {
        use Kind::{Exact, Prefix, Template};
        for (one, other, expected) in [
            ((Prefix, "/"), (Prefix, "/a"), true),
            ((Prefix, "/"), (Template, "/{*rest}"), true),
            ((Prefix, "/a"), (Prefix, "/a/"), true),
            ((Prefix, "/a/"), (Prefix, "/a"), false),
            ((Prefix, "/a"), (Prefix, "/ab"), false),
            ((Prefix, "/a"), (Exact, "/a"), true),
            ((Prefix, "/a"), (Template, "/a/{b}"), true),
            ((Prefix, "/a"), (Template, "/a{b}"), false),
            ((Prefix, "/a/"), (Template, "/a/{b}"), true),
            ((Template, "/{*rest}"), (Prefix, "/a"), true),
            ((Template, "/{*rest}"), (Prefix, "/"), false),
            ((Template, "/a/{*rest}"), (Prefix, "/a"), false),
            ((Template, "/{a}"), (Prefix, "/a"), false),
            ((Template, "/{a}"), (Exact, "/x"), true),
            ((Exact, "/x"), (Template, "/{a}"), false),
            ((Exact, "/x"), (Template, "/x"), true),
        ] {
            let covers = pattern(one.0, one.1).covers(&pattern(other.0, other.1));
            assert_eq!(covers, expected, "{one:?} {other:?}");
        }
    }

    fn any_pattern() -> impl Strategy<Value = PathPattern> {
        let kinds = proptest::sample::select(vec![Kind::Exact, Kind::Prefix, Kind::Template]);
        let segments = ["/", "/a", "/b", "/{p}", "/a{p}", "/{*r}", "/%61"];
        let segments = proptest::collection::vec(proptest::sample::select(segments.to_vec()), 1..4);
        (kinds, segments).prop_filter_map("malformed", |(kind, segments)| {
            PathPattern::parse(kind, &segments.concat()).ok()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn covered_pattern_matches_no_other_path(
            one in any_pattern(), other in any_pattern(), is_decoded: bool,
            paths in proptest::collection::vec("(/|a|b|/a|/b|%61){0,5}", 20)
        ) {
            let covers = one.covers(&other);
            for path in paths.iter().map(String::as_bytes) {
                prop_assert!(!covers || !other.matches(path, is_decoded) || one.matches(path, is_decoded));
            }
        }
    }
}
