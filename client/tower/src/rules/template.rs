//! Templates of paths in the syntax of axum 0.8: literal segments, `{param}`, `{*rest}`, and `{{` and `}}` for literal
//! braces. A test compares them with axum's own matcher.

use super::PathFault;

/// Maximum number of parameters of a template, as in axum.
pub(super) const PARAMS_MAX: usize = 25;

/// A path with parameters, by segment. It is matched without an allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Template(Vec<Segment>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Segment {
    literal: Vec<u8>,
    then: Then,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Nothing,
    /// The rest of the segment. As in axum, it may be empty unless the segment is the last.
    Param,
    /// The rest of the path, which must not be empty.
    Rest,
}

impl Segment {
    fn matches(&self, segment: &[u8], is_last: bool) -> bool {
        match self.then {
            Then::Nothing => segment == self.literal,
            Then::Param => segment
                .strip_prefix(&*self.literal)
                .is_some_and(|rest| !is_last || !rest.is_empty()),
            Then::Rest => segment
                .strip_prefix(&*self.literal)
                .is_some_and(|rest| !rest.is_empty()),
        }
    }

    /// Returns true if this segment matches every segment that `other` matches. Both are the last, or neither.
    fn covers(&self, other: &Self, is_last: bool) -> bool {
        match (self.then, other.then) {
            (_, Then::Nothing) => self.matches(&other.literal, is_last),
            (Then::Param, Then::Param) => other.literal.starts_with(&self.literal),
            _ => false,
        }
    }
}

impl Template {
    pub(super) fn parse(template: &str) -> Result<Self, PathFault> {
        let Some(rest) = template.strip_prefix('/') else {
            return Err(PathFault::NoSlash);
        };
        // A star at the end would be literal in axum, and is meant for a prefix.
        if rest.ends_with('*') || rest.split('/').any(|segment| segment.starts_with('*')) {
            return Err(PathFault::star(template));
        }
        if rest.split('/').any(|segment| segment.starts_with(':')) {
            return Err(PathFault::Colon);
        }
        let symbols = unescape(rest.as_bytes());
        let mut segments = Vec::new();
        let mut at = 0;
        loop {
            let (segment, end) = segment(&symbols, at)?;
            let is_rest = segment.then == Then::Rest;
            segments.push(segment);
            if end == symbols.len() {
                break;
            }
            if is_rest {
                return Err(PathFault::RestNotLast);
            }
            at = end + 1;
        }
        let is_param = |segment: &&Segment| segment.then == Then::Param;
        if segments.iter().filter(is_param).count() > PARAMS_MAX {
            return Err(PathFault::TooManyParams);
        }
        Ok(Self(segments))
    }

    /// Returns the whole path, if it has no parameter.
    pub(super) fn as_literal(&self) -> Option<Vec<u8>> {
        self.0
            .iter()
            .all(|segment| segment.then == Then::Nothing)
            .then(|| self.head())
    }

    /// Returns the literal text before the first parameter.
    pub(super) fn head(&self) -> Vec<u8> {
        let mut head = Vec::new();
        for segment in &self.0 {
            head.push(b'/');
            head.extend_from_slice(&segment.literal);
            if segment.then != Then::Nothing {
                break;
            }
        }
        head
    }

    /// Changes each literal; `change` must not add a slash.
    pub(super) fn map(&self, change: impl Fn(&[u8]) -> Vec<u8>) -> Self {
        let changed = |segment: &Segment| Segment {
            literal: change(&segment.literal),
            then: segment.then,
        };
        Self(self.0.iter().map(changed).collect())
    }

    pub(super) fn matches(&self, path: &[u8]) -> bool {
        let [b'/', rest @ ..] = path else {
            return false;
        };
        let mut rest = rest;
        let mut segments = self.0.iter();
        while let Some(segment) = segments.next() {
            let is_last = segments.as_slice().is_empty();
            if segment.then == Then::Rest {
                return segment.matches(rest, is_last);
            }
            let slash = rest.iter().position(|byte| *byte == b'/');
            if !segment.matches(&rest[..slash.unwrap_or(rest.len())], is_last) {
                return false;
            }
            match slash {
                None => return is_last,
                Some(slash) => rest = &rest[slash + 1..],
            }
        }
        false
    }

    /// Returns true if this template matches every path that `other` matches. False is also returned where that
    /// cannot be decided segment by segment.
    pub(super) fn covers(&self, other: &Self) -> bool {
        let (mut ours, mut theirs) = (self.0.iter(), other.0.iter());
        loop {
            let (our, their) = match (ours.next(), theirs.next()) {
                (None, None) => return true,
                (Some(our), Some(their)) => (our, their),
                _ => return false,
            };
            let [our_last, their_last] = [&ours, &theirs].map(|rest| rest.as_slice().is_empty());
            if our.then == Then::Rest {
                // Something must follow the literal: of this segment, or a slash.
                let follows = their.then != Then::Nothing
                    || their.literal.len() > our.literal.len()
                    || !their_last;
                return their.literal.starts_with(&our.literal) && follows;
            }
            if our_last != their_last || their.then == Then::Rest || !our.covers(their, our_last) {
                return false;
            }
        }
    }

    /// Returns true if this template matches a prefix and every path below it.
    pub(super) fn covers_below(&self, base: &[u8]) -> bool {
        self.0.last().is_some_and(|last| last.then == Then::Rest) && self.matches(base)
    }
}

/// A byte of a template, and whether it is a brace that was written twice.
type Symbol = (u8, bool);

fn unescape(template: &[u8]) -> Vec<Symbol> {
    let mut symbols = Vec::with_capacity(template.len());
    let mut rest = template;
    while let [byte, after @ ..] = rest {
        let is_doubled = matches!(byte, b'{' | b'}') && after.first() == Some(byte);
        symbols.push((*byte, is_doubled));
        rest = &after[usize::from(is_doubled)..];
    }
    symbols
}

/// Reads the segment that begins at an index, without its parameter's name. Returns the index of its end, too.
fn segment(symbols: &[Symbol], from: usize) -> Result<(Segment, usize), PathFault> {
    let mut literal = Vec::new();
    let mut at = from;
    while let Some(symbol) = symbols.get(at) {
        match *symbol {
            (b'/', _) => break,
            (b'}', false) => return Err(PathFault::Braces),
            (b'{', false) => {
                let (then, end) = param(symbols, at)?;
                return match symbols.get(end) {
                    None | Some((b'/', _)) => Ok((Segment { literal, then }, end)),
                    Some(_) => Err(PathFault::TextAfterParam),
                };
            }
            (byte, _) => literal.push(byte),
        }
        at += 1;
    }
    Ok((
        Segment {
            literal,
            then: Then::Nothing,
        },
        at,
    ))
}

/// Reads the parameter whose brace is at an index. Returns the index after its other brace, too.
fn param(symbols: &[Symbol], open: usize) -> Result<(Then, usize), PathFault> {
    let byte = |at: usize| symbols.get(at).map(|symbol| symbol.0);
    if byte(open + 1) == Some(b'}') {
        return Err(PathFault::Braces);
    }
    let is_rest = byte(open + 1) == Some(b'*');
    for (at, symbol) in symbols.iter().enumerate().skip(open + 2) {
        match symbol {
            (b'}', false) if is_rest && at == open + 2 => return Err(PathFault::Braces),
            (b'}', false) => return Ok((if is_rest { Then::Rest } else { Then::Param }, at + 1)),
            (b'*' | b'/', _) => return Err(PathFault::Braces),
            _ => {}
        }
    }
    Err(PathFault::Braces)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn template(template: &str) -> Template {
        Template::parse(template).unwrap()
    }

    #[test]
    fn template_matches_as_axum_does() {
        for (pattern, matched, unmatched) in [
            (
                "/orders/{id}",
                &["/orders/7", "/orders/a.b"][..],
                &["/orders", "/orders/", "/orders/7/", "/orders/7/x"][..],
            ),
            (
                "/orders/{id}/items",
                &["/orders/7/items", "/orders//items"],
                &["/orders/items", "/orders/7/items/"],
            ),
            (
                "/v{version}/orders",
                &["/v1/orders", "/v1.2/orders"],
                &["/1/orders", "/v1/orders/"],
            ),
            (
                "/files/{*rest}",
                &["/files/a", "/files/a/b", "/files//"],
                &["/files", "/files/"],
            ),
            ("/{*rest}", &["/a", "//", "/a/"], &["/", "", "*"]),
            ("/{{id}}/{id}", &["/{id}/7"], &["/id/7", "/{{id}}/7"]),
            ("/", &["/"], &["", "//", "/a", "*"]),
            ("/a/", &["/a/"], &["/a", "/a//"]),
        ] {
            matched.iter().for_each(|path| {
                assert!(
                    template(pattern).matches(path.as_bytes()),
                    "{pattern} {path}"
                )
            });
            unmatched.iter().for_each(|path| {
                assert!(
                    !template(pattern).matches(path.as_bytes()),
                    "{pattern} {path}"
                )
            });
        }
    }

    #[test]
    fn template_foreign_to_axum_is_rejected() {
        let many = "/{a}".repeat(PARAMS_MAX + 1);
        for (bad, fault) in [
            ("", PathFault::NoSlash),
            ("orders", PathFault::NoSlash),
            ("*", PathFault::NoSlash),
            (
                "/orders/*",
                PathFault::Star {
                    prefix: "/orders".to_owned(),
                },
            ),
            (
                "/orders*",
                PathFault::Star {
                    prefix: "/orders".to_owned(),
                },
            ),
            (
                "/*",
                PathFault::Star {
                    prefix: "/".to_owned(),
                },
            ),
            ("/orders/:id", PathFault::Colon),
            ("/orders/{}", PathFault::Braces),
            ("/orders/{id", PathFault::Braces),
            ("/orders/id}", PathFault::Braces),
            ("/orders/{*}", PathFault::Braces),
            ("/orders/{a/b}", PathFault::Braces),
            ("/{id}.json", PathFault::TextAfterParam),
            ("/{a}{b}", PathFault::TextAfterParam),
            ("/{*rest}/a", PathFault::RestNotLast),
            (&many, PathFault::TooManyParams),
        ] {
            assert_eq!(Template::parse(bad).unwrap_err(), fault, "{bad}");
        }
    }

    #[test]
    fn template_covers_when_no_path_escapes_it() {
        for (covering, covered, uncovered) in [
            (
                "/{a}",
                &["/x", "/{b}", "/x{b}"][..],
                &["/", "/{*r}", "/a/b", "/{a}/"][..],
            ),
            ("/x{a}", &["/xy", "/xy{b}"], &["/x", "/{b}", "/y{a}"]),
            ("/{*rest}", &["/a", "/{a}", "/{a}/b", "/{*r}", "//"], &["/"]),
            (
                "/a/{*rest}",
                &["/a/b", "/a/{b}/c", "/a//", "/a/x{*r}"],
                &["/a", "/a/", "/{*r}", "/{a}/b"],
            ),
            ("/x{*rest}", &["/xy", "/x/y", "/x{a}"], &["/x", "/{a}"]),
            ("/{a}/b", &["/x/b", "/{c}/b", "//b"], &["/x/{b}", "/{c}/d"]),
        ] {
            covered.iter().for_each(|other| {
                assert!(
                    template(covering).covers(&template(other)),
                    "{covering} {other}"
                )
            });
            uncovered.iter().for_each(|other| {
                assert!(
                    !template(covering).covers(&template(other)),
                    "{covering} {other}"
                )
            });
        }
    }

    /// Returns true if axum's router takes a template, by its checks and its matcher's.
    fn is_taken(template: &str) -> bool {
        let is_old = |segment: &str| segment.starts_with([':', '*']);
        let inserted =
            std::panic::catch_unwind(|| matchit::Router::new().insert(template, ()).is_ok());
        template.starts_with('/') && !template.split('/').any(is_old) && inserted.unwrap_or(false)
    }

    fn piece() -> impl Strategy<Value = &'static str> {
        let pieces = [
            "/", "/", "a", "b", "{", "}", "{a}", "{*r}", "{{", "}}", "*", ":", "%2f", ".", "é",
        ];
        proptest::sample::select(pieces.to_vec())
    }

    fn text() -> impl Strategy<Value = String> {
        let wild = proptest::collection::vec(piece(), 0..8).prop_map(|pieces| pieces.concat());
        let segments = [
            "/", "/a", "/b", "/{a}", "/a{b}", "/{{a}}", "/a}}", "/{*r}", "/b{*r}", "/{a", "/é",
        ];
        let tame = proptest::collection::vec(proptest::sample::select(segments.to_vec()), 0..5);
        prop_oneof![
            wild.prop_map(|text| format!("/{text}")),
            tame.prop_map(|segments| segments.concat())
        ]
    }

    fn path() -> impl Strategy<Value = String> {
        let pieces = proptest::sample::select(vec!["/", "/", "a", "b", "{a}", "}", "é", "%2f"]);
        proptest::collection::vec(pieces, 0..8).prop_map(|pieces| format!("/{}", pieces.concat()))
    }

    fn likely(template: &str, value: &str) -> String {
        let path = template
            .replace("{a}", value)
            .replace("{b}", value)
            .replace("{*r}", value);
        path.replace("{{", "{").replace("}}", "}")
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn template_matches_as_in_axum(
            text in text(), paths in proptest::collection::vec(path(), 8), value in "[ab/]{0,3}"
        ) {
            // A literal star at the end was the syntax of prefixes.
            prop_assume!(!text.ends_with('*'));
            let ours = Template::parse(&text);
            prop_assert_eq!(ours.is_ok(), is_taken(&text), "{}: {:?}", text, ours);
            if let Ok(ours) = ours {
                let mut axum = matchit::Router::new();
                axum.insert(text.clone(), ()).unwrap();
                for path in paths.into_iter().chain([likely(&text, &value), text.clone()]) {
                    prop_assert_eq!(ours.matches(path.as_bytes()), axum.at(&path).is_ok(), "{} {}", &text, path);
                }
            }
        }

        #[test]
        fn covered_template_matches_no_other_path(
            one in text(), other in text(), paths in proptest::collection::vec(path(), 8), value in "[ab/]{0,3}"
        ) {
            let (Ok(one), Ok(covered)) = (Template::parse(&one), Template::parse(&other)) else { return Ok(()) };
            if one.covers(&covered) {
                for path in paths.into_iter().chain([likely(&other, &value), other]) {
                    prop_assert!(!covered.matches(path.as_bytes()) || one.matches(path.as_bytes()), "{}", path);
                }
            }
        }
    }
}
