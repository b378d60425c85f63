//! How a service is wrapped.

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
    /// A layer that refuses what the limiter refuses for the key that `extract` finds in a request.
    pub fn new(extract: impl Extract) -> Self {
        Self { extract: Arc::new(extract), problem_type: PROBLEM_TYPE.into() }
    }

    /// The `type` of the problem documents of refusals, by default [`PROBLEM_TYPE`]: a URI, best one that leads to
    /// something a caller's programmer can read.
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
