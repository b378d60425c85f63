//! The token of a request, as its header `authorization` presents it, or a header of a port's own.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

/// The scheme of the header, in any case.
const SCHEME: &str = "bearer";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Credential<'a> {
    Nothing,
    Token(&'a str),
    Malformed(&'static str),
}

impl<'a> Credential<'a> {
    /// Reads the headers of a request. Parameters of the address are no place for a token: proxies log them.
    pub(super) fn of(headers: &'a HeaderMap) -> Self {
        let mut values = headers.get_all(header::AUTHORIZATION).iter();
        match (values.next(), values.next()) {
            (None, _) => Self::Nothing,
            (Some(value), None) => Self::of_value(value),
            (Some(_), Some(_)) => Self::Malformed("it has two headers `authorization`"),
        }
    }

    /// Reads the port's own header, which has only the token; `None` without the header.
    pub(super) fn of_header(headers: &'a HeaderMap, name: &HeaderName) -> Option<Self> {
        let mut values = headers.get_all(name).iter();
        match (values.next(), values.next()) {
            (None, _) => None,
            (Some(value), None) => {
                let token = value.to_str().map_err(|_| "its token is not visible ASCII");
                Some(token.map_or_else(Self::Malformed, Self::Token))
            }
            (Some(_), Some(_)) => Some(Self::Malformed("it has its token in two headers")),
        }
    }

    fn of_value(value: &'a HeaderValue) -> Self {
        let fields = value.to_str().ok().and_then(|text| text.split_once(' '));
        match fields {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case(SCHEME) => {
                Self::Token(token.trim_start_matches(' '))
            }
            _ => Self::Malformed("its header `authorization` is not `Bearer TOKEN`"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(values: &[&'static [u8]]) -> HeaderMap {
        let named = |value: &&'static [u8]| {
            (
                header::AUTHORIZATION,
                HeaderValue::from_bytes(value).unwrap(),
            )
        };
        values.iter().map(named).collect()
    }

    #[test]
    fn own_header_presents_a_bare_token() {
        let own = HeaderName::from_static("x-own");
        let of = |values: &[&'static [u8]]| -> HeaderMap {
            values
                .iter()
                .map(|value| (own.clone(), HeaderValue::from_bytes(value).unwrap()))
                .collect()
        };
        assert_eq!(
            Credential::of_header(&headers(&[b"Bearer abc"]), &own),
            None
        );
        assert_eq!(
            Credential::of_header(&of(&[b"abc"]), &own),
            Some(Credential::Token("abc"))
        );
        for values in [&[&b"a"[..], b"b"][..], &[b"\xff"]] {
            let headers = of(values);
            let credential = Credential::of_header(&headers, &own);
            assert!(
                matches!(credential, Some(Credential::Malformed(_))),
                "{values:?}"
            );
        }
    }

    #[test]
    fn one_bearer_header_presents_a_token() {
        assert_eq!(Credential::of(&HeaderMap::new()), Credential::Nothing);
        for value in [&b"Bearer abc"[..], b"bearer abc", b"BEARER   abc"] {
            assert_eq!(
                Credential::of(&headers(&[value])),
                Credential::Token("abc"),
                "{value:?}"
            );
        }
        // Blanks inside belong to the text, which then is no token.
        assert_eq!(
            Credential::of(&headers(&[b"Bearer abc def"])),
            Credential::Token("abc def")
        );
        for values in [
            &[&b"Bearer a"[..], b"Bearer b"][..],
            &[b"Basic YWJj"],
            &[b"abc"],
            &[b"Bearer"],
            &[b"Bearer\tabc"],
            &[b"Bearer \xff"],
            &[b""],
        ] {
            assert!(
                matches!(Credential::of(&headers(values)), Credential::Malformed(_)),
                "{values:?}"
            );
        }
    }
}
