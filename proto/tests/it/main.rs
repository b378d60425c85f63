//! Both drivers over real sockets, with scripted state machines, and the generated code.

#[cfg(test)]
mod conversation;
#[cfg(test)]
mod endings;
#[cfg(test)]
mod generated;
#[cfg(test)]
mod scripted;
#[cfg(test)]
mod silence;
#[cfg(test)]
mod standbys;
#[cfg(test)]
mod tls;
