//! The life cycle of a feed: not run, running, or stopped, and the setup problems of a feed that should run.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use plimsoll_core::names::Name;
use tokio::time::Instant;

use super::{Control, FeedError};
use crate::hot::sync::lock;
use crate::setup::SetupProblem;

/// The age of a limiter at which decisions without a running feed become a setup problem.
const NOT_RUN_MAX: Duration = Duration::from_secs(10);

/// The instances that feeds of this process run for, by service and name. Only names that the service has chosen.
static RUNNING: Mutex<BTreeSet<(Name, Name)>> = Mutex::new(BTreeSet::new());

/// The state of a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FeedState {
    /// The feed was not run yet.
    NotRun,
    /// The feed exchanges reports and directives, or tries to.
    Running,
    /// The feed has ended: by a shutdown, or with its runtime.
    Stopped,
}

pub(crate) struct Lifecycle {
    state: Mutex<FeedState>,
    built: Instant,
    /// The service, and the name that it has chosen for this instance; `None` with a name made up here.
    instance: Option<(Name, Name)>,
}

impl Lifecycle {
    pub(crate) fn new(instance: Option<(Name, Name)>) -> Self {
        Self {
            state: Mutex::new(FeedState::NotRun),
            built: Instant::now(),
            instance,
        }
    }

    pub(super) fn state(&self) -> FeedState {
        *lock(&self.state)
    }

    fn set(&self, state: FeedState) {
        *lock(&self.state) = state;
    }
}

impl Control {
    /// Raises a setup problem if requests were decided for a while and the feed was never run. Called before
    /// problems, health and metrics are read.
    pub(crate) fn check_running(&self) {
        let is_overdue = self.lifecycle.state() == FeedState::NotRun
            && self.lifecycle.built.elapsed() >= NOT_RUN_MAX;
        if is_overdue && self.has_work() {
            let unreported = self.unreported();
            if unreported > 0 {
                self.table
                    .problems
                    .raise_unreported(SetupProblem::FeedNotRun, unreported);
            }
        }
    }

    /// Logs a feed that is dropped without ever having run, unless its limiter went before it and has decided nothing:
    /// then the process gave up its start.
    pub(super) fn on_dropped(self: &Arc<Self>) {
        if self.lifecycle.state() == FeedState::NotRun && self.has_work() {
            self.lifecycle.set(FeedState::Stopped);
            let unreported = self.unreported();
            if Arc::strong_count(self) > 1 || unreported > 0 {
                self.table
                    .problems
                    .raise_unreported(SetupProblem::FeedNotRun, unreported);
            }
        }
    }
}

/// A feed while it runs. Dropped before its [end](Self::end), the feed was cut short.
#[derive(Debug)]
pub(super) struct Running {
    control: Arc<Control>,
    has_ended: bool,
}

impl Running {
    pub(super) fn begin(control: Arc<Control>) -> Result<Self, FeedError> {
        if let Some(instance) = &control.lifecycle.instance
            && !running(|running| running.insert(instance.clone()))
        {
            let (service, name) = instance;
            return Err(FeedError::AlreadyRunning {
                service: service.to_string(),
                name: name.to_string(),
            });
        }
        control.lifecycle.set(FeedState::Running);
        control.table.problems.clear(&SetupProblem::FeedNotRun);
        Ok(Self {
            control,
            has_ended: false,
        })
    }

    pub(super) fn end(mut self) {
        self.has_ended = true;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.control.lifecycle.set(FeedState::Stopped);
        if let Some(instance) = &self.control.lifecycle.instance {
            running(|running| running.remove(instance));
        }
        if !self.has_ended {
            let unreported = self.control.unreported();
            self.control
                .table
                .problems
                .raise_unreported(SetupProblem::FeedStopped, unreported);
        }
    }
}

fn running<R>(f: impl FnOnce(&mut BTreeSet<(Name, Name)>) -> R) -> R {
    f(&mut lock(&RUNNING))
}
