//! The reasons why a feed cannot run.

use crate::setup::readable_debug;

readable_debug!(FeedError);

/// The reason why a feed cannot run.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum FeedError {
    /// Another feed of this process runs for an instance of this name.
    #[error(
        "a feed for the instance `{name}` of the service `{service}` is already running in this process: keep one limiter \
         and clone it, or give LimiterBuilder::name another name"
    )]
    AlreadyRunning {
        /// The service.
        service: String,
        /// The name of the instance.
        name: String,
    },
    /// The feed was spawned outside of a tokio runtime.
    #[error(
        "no tokio runtime to spawn the feed on: call LimiterBuilder::build inside of one, such as in `#[tokio::main]` or after \
         `let _guard = runtime.enter()`, or use build_detached and Feed::run"
    )]
    NoRuntime,
}
