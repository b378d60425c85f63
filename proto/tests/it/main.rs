//! Both drivers over real sockets, with scripted state machines.

#[cfg(test)]
mod conversation;
#[cfg(test)]
mod endings;
#[cfg(test)]
mod scripted;
#[cfg(test)]
mod slow_reader;
