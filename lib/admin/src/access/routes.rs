//! The routes of an admin port, each with the role that it needs. Other crates cannot write a route without one.

use std::fmt;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::handler::Handler;
use axum::http::Method;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::{MethodFilter, MethodRouter, on};

use super::{Access, Role};

/// The largest request body accepted, in bytes, unless a handler sets its own limit.
const BODY_BYTES_MAX: usize = 4 * 1024;

/// Routes with their handlers, before or after their state is known.
#[derive(Debug)]
pub struct Routes<S = ()> {
    entries: Vec<(Route, MethodRouter<S>)>,
}

/// One route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The method. A route of GET answers HEAD, too.
    pub method: Method,
    /// The path.
    pub path: &'static str,
    /// The callers that it answers.
    pub needs: Needs,
}

/// The callers that a route answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// All callers.
    Nothing,
    /// All callers, or with `--metrics-need-token` callers with any role.
    Metrics,
    /// Callers with this role or a higher one.
    Role(Role),
}

impl<S: Clone + Send + Sync + 'static> Routes<S> {
    /// Begins with no routes.
    pub fn new() -> Self {
        Self {
            entries: Vec::new(),
        }
    }

    /// Adds a route that changes nothing, for every role.
    pub fn viewer<T: 'static>(
        self,
        method: Method,
        path: &'static str,
        handler: impl Handler<T, S>,
    ) -> Self {
        self.with(method, path, Needs::Role(Role::Viewer), handler)
    }

    /// Adds a route for operators and admins.
    pub fn operator<T: 'static>(
        self,
        method: Method,
        path: &'static str,
        handler: impl Handler<T, S>,
    ) -> Self {
        self.with(method, path, Needs::Role(Role::Operator), handler)
    }

    /// Adds a route for admins.
    pub fn admin<T: 'static>(
        self,
        method: Method,
        path: &'static str,
        handler: impl Handler<T, S>,
    ) -> Self {
        self.with(method, path, Needs::Role(Role::Admin), handler)
    }

    /// Adds a route that answers everyone.
    pub fn open<T: 'static>(
        self,
        method: Method,
        path: &'static str,
        handler: impl Handler<T, S>,
    ) -> Self {
        self.with(method, path, Needs::Nothing, handler)
    }

    pub(crate) fn with<T: 'static>(
        mut self,
        method: Method,
        path: &'static str,
        needs: Needs,
        handler: impl Handler<T, S>,
    ) -> Self {
        // Only methods outside of HTTP's own have no filter, and no route has such a method.
        let filter = MethodFilter::try_from(method.clone()).unwrap_or(MethodFilter::GET);
        let route = Route {
            method,
            path,
            needs,
        };
        self.entries.push((route, on(filter, handler)));
        self
    }

    /// Adds the routes of another part.
    pub fn merge(mut self, other: Self) -> Self {
        self.entries.extend(other.entries);
        self
    }

    /// Gives the handlers their state.
    #[must_use]
    pub fn with_state(self, state: S) -> Routes {
        let entries = self.entries.into_iter();
        Routes {
            entries: entries
                .map(|(route, handler)| (route, handler.with_state(state.clone())))
                .collect(),
        }
    }
}

impl Routes {
    /// Lists the routes.
    pub fn iter(&self) -> impl Iterator<Item = &Route> {
        self.entries.iter().map(|(route, _)| route)
    }

    pub(crate) fn into_router(self, access: &Access) -> Router {
        let mut router = Router::new();
        for (route, handler) in self.entries {
            let needs = match route.needs {
                Needs::Nothing => None,
                Needs::Metrics => access.metrics_need_token().then_some(Role::Viewer),
                Needs::Role(role) => Some(role),
            };
            let handler = match needs {
                Some(role) => {
                    handler.route_layer(from_fn_with_state((access.clone(), role), check))
                }
                None => handler,
            };
            router = router.route(route.path, handler);
        }
        router.layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
    }
}

impl<S: Clone + Send + Sync + 'static> Default for Routes<S> {
    fn default() -> Self {
        Self::new()
    }
}

/// Hands a request on with its caller, or answers why not.
async fn check(
    State((access, needed)): State<(Access, Role)>,
    mut request: Request,
    next: Next,
) -> Response {
    match access.admit(needed, &request) {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(refusal) => access.refuse(needed, &request, &refusal),
    }
}

/// The line of a table of all routes.
impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ", self.method, self.path)?;
        match self.needs {
            Needs::Nothing => f.write_str("nothing"),
            Needs::Metrics => f.write_str("metrics"),
            Needs::Role(role) => f.write_str(role.as_str()),
        }
    }
}
