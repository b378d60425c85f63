//! The setup problems of one limiter, each logged once.

use std::collections::BTreeSet;
use std::sync::Mutex;

use super::SetupProblem;
use crate::hot::sync::lock;

/// Maximum number of problems of one kind that a limiter holds, and that it logs. Further ones are
/// left out: a limiter with so many is wired wrongly in one way many times, and may be in another
/// way as well.
pub(crate) const SETUP_PROBLEMS_MAX: usize = 64;

#[derive(Default)]
pub(crate) struct SetupProblems(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    held: Vec<SetupProblem>,
    /// By kind and subject.
    logged: BTreeSet<(&'static str, String)>,
}

impl SetupProblems {
    /// Holds a problem until it is [cleared](Self::clear), and logs it if no problem of its kind and subject was
    /// logged before. A later one of the same kind and subject replaces the one held.
    pub(crate) fn raise(&self, problem: SetupProblem) {
        self.hold(problem, None);
    }

    /// Raises a problem, and logs the number of unreported decisions with it.
    pub(crate) fn raise_unreported(&self, problem: SetupProblem, unreported: u64) {
        self.hold(problem, Some(unreported));
    }

    fn hold(&self, problem: SetupProblem, unreported: Option<u64>) {
        let mut inner = lock(&self.0);
        let kind = problem.kind();
        match inner.held.iter().position(|held| held.is_same(&problem)) {
            Some(at) => inner.held[at] = problem,
            None if inner.held.iter().filter(|held| held.kind() == kind).count()
                >= SETUP_PROBLEMS_MAX => {}
            None => {
                let logged = inner
                    .logged
                    .iter()
                    .filter(|(of_kind, _)| *of_kind == kind)
                    .count();
                let is_new = logged < SETUP_PROBLEMS_MAX
                    && inner.logged.insert((kind, problem.subject().to_owned()));
                inner.held.push(problem.clone());
                drop(inner);
                if is_new {
                    tracing::warn!(problem = kind, unreported, "{problem}");
                }
            }
        }
    }

    /// Raises a problem if it holds now, and else clears it.
    pub(crate) fn set(&self, problem: SetupProblem, holds: bool) {
        if holds {
            self.raise(problem);
        } else {
            self.clear(&problem);
        }
    }

    /// Clears the problem of the same kind and subject.
    pub(crate) fn clear(&self, problem: &SetupProblem) {
        lock(&self.0).held.retain(|held| !held.is_same(problem));
    }

    pub(crate) fn list(&self) -> Vec<SetupProblem> {
        lock(&self.0).held.clone()
    }
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests {
    use super::*;

    fn unknown(bucket: &str, nearest: Option<&str>) -> SetupProblem {
        SetupProblem::UnknownBucket {
            bucket: bucket.to_owned(),
            nearest: nearest.map(str::to_owned),
        }
    }

    #[test]
    fn problem_holds_until_cleared_or_replaced() {
        let problems = SetupProblems::default();
        problems.raise(unknown("chekout", None));
        problems.raise(SetupProblem::FeedNotRun);
        problems.raise(unknown("chekout", Some("checkout")));
        assert_eq!(
            problems.list(),
            [
                unknown("chekout", Some("checkout")),
                SetupProblem::FeedNotRun
            ]
        );
        problems.clear(&unknown("other", None));
        problems.clear(&unknown("chekout", None));
        assert_eq!(problems.list(), [SetupProblem::FeedNotRun]);
    }

    #[test]
    fn problems_of_a_kind_are_bounded() {
        let problems = SetupProblems::default();
        (0..10 * SETUP_PROBLEMS_MAX)
            .for_each(|number| problems.raise(unknown(&format!("b{number}"), None)));
        assert_eq!(problems.list().len(), SETUP_PROBLEMS_MAX);
        assert_eq!(lock(&problems.0).logged.len(), SETUP_PROBLEMS_MAX);
        problems.raise(SetupProblem::FeedStopped);
        assert_eq!(
            problems.list().last(),
            Some(&SetupProblem::FeedStopped),
            "another kind has room of its own"
        );
    }
}
