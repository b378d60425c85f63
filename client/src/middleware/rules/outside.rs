//! Detection of a layer outside of the router: rules that name routes would match nothing, in silence.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::hot::table::Table;
use crate::setup::SetupProblem;

/// Requests without a route that a layer inside of some router meets before it counts as outside of the one that
/// matters. Fewer may be those that no route takes.
const ROUTELESS_MAX: u32 = 1_000;

/// The requests with and without a route that one list of rules has met.
#[derive(Debug, Default)]
pub(super) struct Outside {
    has_met_route: AtomicBool,
    routeless: AtomicU32,
    has_raised: AtomicBool,
}

impl Outside {
    /// Notes a request with a route. Writes with the first one only.
    #[inline]
    pub(super) fn note_route(&self, table: &Table, routes: impl Iterator<Item = String>) {
        if !self.has_met_route.load(Ordering::Relaxed) {
            self.end(table, routes);
        }
    }

    #[cold]
    fn end(&self, table: &Table, routes: impl Iterator<Item = String>) {
        self.has_met_route.store(true, Ordering::Relaxed);
        if self.has_raised.load(Ordering::Relaxed) {
            let problems = routes.map(|route| SetupProblem::RouteOutsideRouter { route });
            problems.for_each(|problem| table.problems.clear(problem.kind(), problem.subject()));
        }
    }

    /// Notes a request without a route. Raises a problem for each of the routes if the layer is outside of every router,
    /// or has met no route for long.
    #[cold]
    pub(super) fn note_routeless(
        &self,
        table: &Table,
        in_router: bool,
        routes: impl Iterator<Item = String>,
    ) {
        if self.has_met_route.load(Ordering::Relaxed) || self.has_raised.load(Ordering::Relaxed) {
            return;
        }
        let is_outside = !in_router || self.routeless.fetch_add(1, Ordering::Relaxed) >= ROUTELESS_MAX;
        if is_outside && !self.has_raised.swap(true, Ordering::Relaxed) {
            routes.for_each(|route| table.problems.raise(SetupProblem::RouteOutsideRouter { route }));
        }
    }
}

/// A copy is for another layer, which may be at another place.
impl Clone for Outside {
    fn clone(&self) -> Self {
        Self::default()
    }
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests {
    use super::*;
    use crate::Limiter;

    fn routes() -> impl Iterator<Item = String> {
        ["/a", "/b"].into_iter().map(str::to_owned)
    }

    /// Returns the problems about routes: this limiter has others.
    fn problems_of(limiter: &Limiter) -> Vec<SetupProblem> {
        let all = limiter.table.problems.list().into_iter();
        all.filter(|problem| matches!(problem, SetupProblem::RouteOutsideRouter { .. })).collect()
    }

    #[test]
    fn layer_outside_of_the_router_raises_a_problem_for_each_route() {
        let (limiter, _feed) = Limiter::builder("shop").build_detached().unwrap();
        let problems = || problems_of(&limiter);
        let outside = Outside::default();
        (0..3).for_each(|_| outside.note_routeless(&limiter.table, false, routes()));
        let raised = routes().map(|route| SetupProblem::RouteOutsideRouter { route });
        assert_eq!(problems(), raised.collect::<Vec<_>>());
        outside.note_route(&limiter.table, routes());
        assert_eq!(problems(), [], "a route was met after all");
    }

    #[test]
    fn requests_that_no_route_takes_raise_a_problem_only_without_any_other() {
        let (limiter, _feed) = Limiter::builder("shop").build_detached().unwrap();
        let problems = || problems_of(&limiter).len();
        let missed = |outside: &Outside, times| {
            (0..times).for_each(|_| outside.note_routeless(&limiter.table, true, routes()));
        };
        let outside = Outside::default();
        missed(&outside, ROUTELESS_MAX);
        assert_eq!(problems(), 0);
        missed(&outside, 1);
        assert_eq!(problems(), 2);

        let inside = outside.clone();
        outside.note_route(&limiter.table, routes());
        inside.note_route(&limiter.table, routes());
        missed(&inside, 2 * ROUTELESS_MAX);
        assert_eq!(problems(), 0);
    }
}
