//! The tower layer that wraps a service.

use std::sync::Arc;

use tower_layer::Layer;

use super::{Extract, LoadShed, PROBLEM_TYPE};

/// Puts a limiter before a service.
#[derive(Clone)]
pub struct LoadShedLayer {
    extract: Arc<dyn Extract>,
    problem_type: Arc<str>,
}

impl LoadShedLayer {
    /// Makes a layer that asks the limiter for the key that `extract` returns for a request.
    pub fn new(extract: impl Extract) -> Self {
        Self { extract: Arc::new(extract), problem_type: PROBLEM_TYPE.into() }
    }

    /// Sets the `type` of problem documents, by default [`PROBLEM_TYPE`]: a URI, which should lead to
    /// documentation for callers.
    #[must_use]
    pub fn problem_type(mut self, uri: &str) -> Self {
        self.problem_type = uri.into();
        self
    }
}

impl<S> Layer<S> for LoadShedLayer {
    type Service = LoadShed<S>;

    fn layer(&self, inner: S) -> LoadShed<S> {
        LoadShed::new(inner, Arc::clone(&self.extract), Arc::clone(&self.problem_type))
    }
}
