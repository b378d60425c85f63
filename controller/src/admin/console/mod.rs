//! The console: a page for the worst hour, which the binary holds whole, and one stream that keeps it current.
//!
//! * `assets`: the files of the page and their headers.
//! * `snapshot`: the fleet at one second, for all viewers.
//! * `view`: what a viewer asks for: a page of buckets, and one bucket with a page of its tenants.
//! * `rows`: the lines of these pages.
//! * `stream`: the route, and the task that makes a snapshot every second while there are viewers.

mod assets;
mod rows;
mod snapshot;
mod stream;
#[cfg(test)]
mod tests;
mod view;

pub(crate) use self::assets::routes as assets;
pub(crate) use self::stream::Console;
pub(super) use self::view::View;
