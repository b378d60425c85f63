//! Both drivers over real sockets, with state machines that do what a test tells them to.

#[cfg(test)]
mod conversation;
#[cfg(test)]
mod endings;
#[cfg(test)]
mod scripted;
#[cfg(test)]
mod slow_reader;
