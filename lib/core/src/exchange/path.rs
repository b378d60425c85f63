//! The chain of aggregators below a child. Parents use it to detect loops and chains that are too
//! long.

use std::fmt;

use crate::exchange::StreamRejected;
use crate::report::InstanceId;

/// The instance ids of the aggregators below a child, along its longest chain, the nearest first. Empty if
/// none is connected.
///
/// In a loop, the path of each member grows with every report, until a member finds its own id in it or the
/// chain is too long. So a loop is detected even if its members connected at the same time.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path(pub Vec<InstanceId>);

impl Path {
    /// Maximum number of ids in a path. A parent refuses a child with a longer one, so at most one
    /// aggregator more than this lies between a client and its controller.
    pub const IDS_MAX: usize = 4;

    /// Returns the path of an aggregator with this child on its longest chain. `below` is the child's own
    /// path.
    pub fn through(child: InstanceId, below: &Self) -> Self {
        Self(
            std::iter::once(child)
                .chain(below.0.iter().copied())
                .collect(),
        )
    }

    /// Checks the path of `child` at the parent `own`. Between the parent and the controller there are
    /// `further` aggregators, the parent included; a controller passes 0. Each of them adds an id to the
    /// path, so a chain that would become too long is refused at its lowest link, and no other aggregator
    /// loses its controller.
    ///
    /// `is_rooted` is true for a controller, and for an aggregator with a report that a controller
    /// has confirmed: its chain upwards ends there, so an id in a path is no sign of a loop but a
    /// claim of a hostile child, and the children in between must not lose their parent for it. A
    /// loop closes when one of its members starts, and that member finds it.
    ///
    /// # Errors
    /// If the path shows a loop, or the chain is too long.
    pub fn check(
        &self,
        own: InstanceId,
        child: InstanceId,
        further: u32,
        is_rooted: bool,
    ) -> Result<(), StreamRejected> {
        if child == own || !is_rooted && self.0.contains(&own) {
            return Err(StreamRejected::Loop);
        }
        let aggregators = self
            .0
            .len()
            .saturating_add(further as usize)
            .saturating_add(1);
        if self.fits(further) {
            Ok(())
        } else {
            Err(StreamRejected::TooDeep { aggregators })
        }
    }

    /// Returns true if a child with this path may be below `further` aggregators.
    pub fn fits(&self, further: u32) -> bool {
        self.0.len().saturating_add(further as usize) <= Self::IDS_MAX
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.0).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(ids: &[u128]) -> Path {
        Path(ids.iter().copied().map(InstanceId).collect())
    }

    #[test]
    fn loops_and_long_chains_are_found() {
        let too_deep = |aggregators| Err(StreamRejected::TooDeep { aggregators });
        // (parent, child, path of the child, aggregators from the parent up) and the outcome at a parent that no
        // controller leads
        for (own, child, ids, further, judged) in [
            (1, 2, &[][..], 0, Ok(())),
            (1, 2, &[3, 4, 5, 6], 0, Ok(())),
            (1, 2, &[3, 4, 5, 6, 7], 0, too_deep(6)),
            (1, 1, &[], 0, Err(StreamRejected::Loop)),
            (1, 2, &[1], 0, Err(StreamRejected::Loop)),
            (1, 2, &[3, 4, 5, 1], 0, Err(StreamRejected::Loop)),
            (1, 2, &[3, 4, 5, 6, 7, 1], 0, Err(StreamRejected::Loop)), // the nearer cause is named
            (1, 2, &[3, 4, 5], 1, Ok(())),
            (1, 2, &[3, 4, 5, 6], 1, too_deep(6)),
            (1, 2, &[], 4, Ok(())),
            (1, 2, &[], 5, too_deep(6)),
            (1, 2, &[3], u32::MAX, too_deep(u32::MAX as usize + 2)),
        ] {
            assert_eq!(
                path(ids).check(InstanceId(own), InstanceId(child), further, false),
                judged,
                "{ids:?} at {own}"
            );
        }
    }

    #[test]
    fn rooted_parent_refuses_its_own_child_id() {
        let check =
            |child, ids: &[u128]| path(ids).check(InstanceId(1), InstanceId(child), 0, true);
        assert_eq!(check(2, &[1]), Ok(()));
        assert_eq!(check(2, &[3, 1]), Ok(()));
        assert_eq!(check(1, &[]), Err(StreamRejected::Loop));
        assert_eq!(
            check(2, &[1, 1, 1, 1, 1]),
            Err(StreamRejected::TooDeep { aggregators: 6 })
        );
    }

    /// Every member of a ring reports its path to the next: one of them detects the ring,
    /// regardless of its length.
    #[test]
    fn ring_is_detected_in_time() {
        for members in 1..=12_u128 {
            let mut paths = vec![Path::default(); members as usize];
            let refused = (0..=Path::IDS_MAX + 1).find_map(|_| {
                let before = paths.clone();
                (0..members).find_map(|own| {
                    let child = (own + 1) % members;
                    let below = &before[child as usize];
                    paths[own as usize] = Path::through(InstanceId(child), below);
                    below
                        .check(InstanceId(own), InstanceId(child), 0, false)
                        .err()
                })
            });
            let found = matches!(refused, Some(StreamRejected::Loop));
            assert_eq!(
                found,
                members <= Path::IDS_MAX as u128 + 2,
                "{members}: {refused:?}"
            );
            assert!(refused.is_some(), "{members}");
        }
    }

    #[test]
    fn the_child_comes_before_those_below_it() {
        assert_eq!(
            Path::through(InstanceId(2), &path(&[3, 4])),
            path(&[2, 3, 4])
        );
        assert!(Path::default().0.is_empty());
    }
}
