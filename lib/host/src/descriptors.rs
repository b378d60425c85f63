//! The limit of open descriptors. Every connection takes one, and the inherited limit is often far
//! below the permitted one.

use std::io;

/// Descriptors for files and the admin port, in addition to one for each child.
const RESERVED: u64 = 256;

/// Limits of open descriptors of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptors {
    /// Limit before it was raised; `u64::MAX` without one.
    pub inherited: u64,
    /// Current limit; `u64::MAX` without one.
    pub limit: u64,
}

impl Descriptors {
    /// Returns the number of children that can connect.
    #[must_use]
    pub const fn children(&self) -> u64 {
        children(self.limit)
    }
}

/// Returns the number of children that can connect under a limit. Half of a small limit stays
/// reserved.
#[must_use]
pub const fn children(limit: u64) -> u64 {
    let half = limit / 2;
    limit - if half < RESERVED { half } else { RESERVED }
}

/// Raises the limit of this process as far as possible without privileges.
///
/// # Errors
/// When the system refuses. The limit is then unchanged.
#[cfg(unix)]
pub fn raise() -> io::Result<Descriptors> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let inherited = limit();
    let hard = getrlimit(Resource::Nofile).maximum;
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: hard,
            maximum: hard,
        },
    )?;
    Ok(Descriptors {
        inherited,
        limit: limit(),
    })
}

/// Returns the limit of open descriptors of this process; `u64::MAX` without one.
#[must_use]
pub fn limit() -> u64 {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, getrlimit};
        getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
    }
    #[cfg(not(unix))]
    u64::MAX
}

/// Returns one `divisor`-th of the limit, and at least 2.
#[must_use]
pub fn part(divisor: u64) -> usize {
    usize::try_from(limit() / divisor)
        .unwrap_or(usize::MAX)
        .max(2)
}

/// Fails: this system has no such limit.
///
/// # Errors
/// Always.
#[cfg(not(unix))]
pub fn raise() -> io::Result<Descriptors> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use rustix::process::{Resource, getrlimit};

    use super::*;

    #[test]
    fn descriptor_limit_rises_to_the_maximum() {
        let raised = raise().unwrap();
        let now = getrlimit(Resource::Nofile);
        assert_eq!(now.current, now.maximum);
        assert_eq!(raised.limit, now.current.unwrap_or(u64::MAX));
        assert_eq!(raised.children(), raised.limit - RESERVED);
    }
}
