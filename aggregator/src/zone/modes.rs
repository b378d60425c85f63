//! The modes whose evidence is passed on to the controller: the current one of each bucket, and for a short while
//! the one before it. The controller leaves out evidence of another mode than the stage.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use plimsoll_core::decision::Mode;
use plimsoll_core::names::Bucket;
use plimsoll_core::quantity::MonoTime;

/// Time that evidence of the previous mode still arrives: until the directive has arrived, and the
/// report of the client.
const STRAGGLING: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(super) struct Modes {
    by_bucket: BTreeMap<Bucket, InForce>,
}

#[derive(Debug)]
struct InForce {
    mode: Mode,
    /// The mode before, and the time when it was found to have ended.
    before: Option<(Mode, MonoTime)>,
}

impl Modes {
    /// Returns true if evidence of `mode` is passed on for a bucket where `in_force` is active now.
    pub(super) fn accepts(
        &mut self,
        now: MonoTime,
        bucket: &Bucket,
        in_force: Mode,
        mode: Mode,
    ) -> bool {
        let held = self.by_bucket.entry(bucket.clone()).or_insert(InForce {
            mode: in_force,
            before: None,
        });
        if held.mode != in_force {
            held.before = Some((held.mode, now));
            held.mode = in_force;
        }
        let is_straggler =
            |(before, ended): (Mode, MonoTime)| before == mode && now.since(ended) < STRAGGLING;
        mode == in_force || held.before.is_some_and(is_straggler)
    }

    pub(super) fn remove(&mut self, gone: &BTreeSet<Bucket>) {
        self.by_bucket.retain(|bucket, _| !gone.contains(bucket));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evidence_of_the_former_mode_counts_briefly() {
        let (mut modes, bucket) = (Modes::default(), Bucket::new("api").unwrap());
        let mut accepts = |ms, in_force, mode| {
            modes.accepts(
                MonoTime::from_elapsed(Duration::from_millis(ms)),
                &bucket,
                in_force,
                mode,
            )
        };
        assert!(accepts(0, Mode::Shadow, Mode::Shadow));
        assert!(
            !accepts(0, Mode::Shadow, Mode::Enforce) && !accepts(0, Mode::Shadow, Mode::Canary)
        );
        assert!(
            accepts(100, Mode::Canary, Mode::Shadow) && accepts(5_099, Mode::Canary, Mode::Shadow)
        );
        assert!(
            accepts(5_099, Mode::Canary, Mode::Canary)
                && !accepts(5_099, Mode::Canary, Mode::Enforce)
        );
        assert!(!accepts(5_100, Mode::Canary, Mode::Shadow));
    }
}
