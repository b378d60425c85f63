//! The head of a request.

pub(super) mod trace;

use http::{Extensions, HeaderMap, Method, Request, Uri};

/// The head of a request, borrowed: all that decides about it, and not its body.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Head<'a> {
    /// The method.
    pub method: &'a Method,
    /// The URI.
    pub uri: &'a Uri,
    /// The headers.
    pub headers: &'a HeaderMap,
    /// The extensions, such as those of an authentication layer.
    pub extensions: &'a Extensions,
}

impl<'a> Head<'a> {
    /// Borrows the head of a request.
    pub fn of<B>(request: &'a Request<B>) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            extensions: request.extensions(),
        }
    }
}
