//! The source of a connection. A parent uses it to share its room among hosts.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

use super::{StreamId, StreamRejected};
use crate::report::InstanceId;

/// The part of the children of a parent that one source may have connected, as a divisor.
const CHILDREN_PART: usize = 2;

/// The address of a peer, as far as it distinguishes hosts: an IPv4 address, or the first 64 bits
/// of an IPv6 address, since any host has 2^64 addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Source(IpAddr);

impl From<IpAddr> for Source {
    fn from(address: IpAddr) -> Self {
        // A socket for both versions shows IPv4 peers as IPv6 addresses.
        Self(match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(
                address.to_bits() >> u64::BITS << u64::BITS,
            )),
            address @ IpAddr::V4(_) => address,
        })
    }
}

/// Returns true for the loopback addresses of both versions, also of one mapped into the other. Their traffic stays on
/// this machine.
pub fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// Returns true for the host of a URI that is loopback as it is written: `localhost` or an address.
pub fn names_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(is_loopback)
}

/// The connected children of a parent by source. One source has half of the places at most.
#[derive(Debug, Default)]
pub struct ChildrenBySource {
    /// The source of each child, and the stream of its latest greeting.
    children: HashMap<InstanceId, (Source, StreamId)>,
    counts: HashMap<Source, usize>,
}

impl ChildrenBySource {
    /// Checks that a child of a source may greet. `children_max` is the bound of the parent on the children of all
    /// sources.
    ///
    /// # Errors
    /// If the source has half of them, unless the child is one of those.
    pub fn check(
        &self,
        child: InstanceId,
        source: Source,
        children_max: usize,
    ) -> Result<(), StreamRejected> {
        let is_here = self
            .children
            .get(&child)
            .is_some_and(|(held, _)| *held == source);
        let count = self.counts.get(&source).copied().unwrap_or(0);
        if is_here || count < children_max.div_ceil(CHILDREN_PART) {
            Ok(())
        } else {
            Err(StreamRejected::SourceFull(count))
        }
    }

    /// Takes a place for a child that has greeted on a stream, or moves its present place.
    pub fn greet(&mut self, child: InstanceId, source: Source, stream: StreamId) {
        if let Some((held, _)) = self.children.insert(child, (source, stream)) {
            self.release(held);
        }
        *self.counts.entry(source).or_default() += 1;
    }

    /// Returns the stream of the latest greeting of a child.
    pub fn stream_of(&self, child: InstanceId) -> Option<StreamId> {
        self.children.get(&child).map(|(_, stream)| *stream)
    }

    /// Gives the place of a child back, unless it has greeted on a later stream.
    pub fn close(&mut self, child: InstanceId, stream: StreamId) {
        if let Some((source, _)) = self
            .children
            .get(&child)
            .copied()
            .filter(|(_, held)| *held == stream)
        {
            self.children.remove(&child);
            self.release(source);
        }
    }

    fn release(&mut self, source: Source) {
        if let Some(count) = self.counts.get_mut(&source) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(address: &str) -> Source {
        Source::from(address.parse::<IpAddr>().unwrap())
    }

    #[test]
    fn ipv6_network_is_one_source() {
        assert_eq!(
            source("2001:db8:0:1::1"),
            source("2001:db8:0:1:ffff:ffff:ffff:ffff")
        );
        assert_ne!(source("2001:db8:0:1::1"), source("2001:db8:0:2::1"));
        assert_eq!(
            source("::ffff:10.0.0.1"),
            source("10.0.0.1"),
            "a socket for both versions"
        );
        assert_ne!(source("::ffff:10.0.0.1"), source("::ffff:10.0.0.2"));
        assert_ne!(source("127.0.0.1"), source("127.0.0.2"));
    }

    #[test]
    fn one_source_has_half_the_places() {
        let mut children = ChildrenBySource::default();
        let (a, b) = (source("10.0.0.1"), source("10.0.0.2"));
        let greet = |children: &mut ChildrenBySource, child, source, stream| {
            let child = InstanceId(child);
            children
                .check(child, source, 4)
                .map(|()| children.greet(child, source, StreamId(stream)))
        };
        let full = Err(StreamRejected::SourceFull(2));
        assert_eq!(greet(&mut children, 0, a, 0), Ok(()));
        assert_eq!(greet(&mut children, 1, a, 1), Ok(()));
        assert_eq!(greet(&mut children, 2, a, 2), full);
        assert_eq!(greet(&mut children, 2, b, 3), Ok(()));
        // A child that opens another stream has a place, regardless of which stream ends first.
        assert_eq!(greet(&mut children, 1, a, 4), Ok(()));
        children.close(InstanceId(1), StreamId(1));
        assert_eq!(greet(&mut children, 3, a, 5), full);
        // A child that moves to another host leaves its place.
        assert_eq!(greet(&mut children, 1, b, 6), Ok(()));
        assert_eq!(greet(&mut children, 3, a, 7), Ok(()));
        for (child, stream) in [(0, 0), (1, 6), (2, 3), (3, 7)] {
            children.close(InstanceId(child), StreamId(stream));
        }
        assert!(
            children.children.is_empty() && children.counts.is_empty(),
            "no source is remembered"
        );
    }
}
