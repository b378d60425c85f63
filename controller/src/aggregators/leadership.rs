//! The leadership of this controller: other controllers that aggregators name, and the epoch that
//! exceeds all earlier epochs.

use std::time::Duration;

use plimsoll_core::directive::{EPOCH_STEP_MAX, Epoch, Leader};
use plimsoll_core::exchange::other_controllers::OtherControllers;
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::{InstanceId, ReportedLead, Role};

use super::AggregatorKey;

/// Another controller counts as alive if it confirmed a report this long after the start of this one. Before,
/// it may have been the last sign of a process that this one replaces.
const REPLACED_WITHIN: Duration = Duration::from_secs(5);
/// The shortest time between two steps past epochs that children have seen.
const STEP_EVERY: Duration = Duration::from_secs(1);

/// The source of the right to lead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mandate {
    /// The state directory, of which copies may exist. Of two controllers one rule decides.
    #[default]
    Directory,
    /// An election at the store, and only the store deposes. Not `confirmed` while the store has not answered for as
    /// long as the lead lasts without it: another member may lead.
    Elected {
        /// True while no other member can have been elected.
        confirmed: bool,
    },
}

/// What this controller knows of its lead and of other controllers.
#[derive(Debug)]
pub(crate) struct Leadership {
    pub(crate) mandate: Mandate,
    own: InstanceId,
    started_at: MonoTime,
    /// The time of the latest step past a claimed epoch.
    stepped_at: Option<MonoTime>,
    lost: Option<LostLead>,
    pub(crate) others: OtherControllers,
}

/// The loss of the lead to a controller that was alive; an elected controller has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LostLead {
    pub(crate) to: Leader,
    /// The aggregator that names it, as `aggregator ZONE/NAME`.
    pub(crate) through: String,
}

impl Leadership {
    pub(crate) fn new(now: MonoTime, own: InstanceId) -> Self {
        Self {
            mandate: Mandate::default(),
            own,
            started_at: now,
            stepped_at: None,
            lost: None,
            others: OtherControllers::default(),
        }
    }

    /// The controller that leads in place of this one. The lead is lost for good: whether the other controller
    /// has ended is not known here, and the next process of this one may lead again.
    pub(crate) const fn lost(&self) -> Option<&LostLead> {
        self.lost.as_ref()
    }

    /// True if another member may have been elected: the store has not confirmed the lead for too long.
    pub(crate) fn is_unconfirmed(&self) -> bool {
        self.mandate == Mandate::Elected { confirmed: false }
    }

    pub(crate) const fn leader(&self, epoch: Epoch) -> Leader {
        Leader {
            epoch,
            instance: Some(self.own),
        }
    }

    /// Takes the controllers that an aggregator names, while this one has `epoch`. Returns the next epoch if this
    /// controller has to exceed that of an earlier one: its state was restored from a backup, or lost. The caller saves it
    /// before it is sent. At most one step in a second, and by at most [`EPOCH_STEP_MAX`]; other claims are only noted.
    ///
    /// A controller that was alive after this one started is no earlier one. Then the greater of
    /// the two leads, and no epoch is raised: two controllers would raise theirs in turn forever. An elected
    /// controller exceeds them all while its lead is confirmed: the store has deposed the others.
    pub(crate) fn on_report(
        &mut self,
        now: MonoTime,
        epoch: Epoch,
        place: &AggregatorKey,
        lead: ReportedLead,
    ) -> Option<Epoch> {
        let own = self.leader(epoch);
        let name = || format!("aggregator {}/{}", place.0, place.1);
        if let Some(other) = lead.other.filter(|other| other.instance != own.instance) {
            self.others.note(now, own, other, Role::Aggregator, name);
        }
        let claimed = lead
            .leader
            .filter(|claimed| claimed.epoch > epoch || claimed.is_rival_of(own))?;
        let is_other = claimed
            .instance
            .is_some_and(|instance| instance != self.own);
        let uptime = now.since(self.started_at);
        let is_alive = is_other
            && self.mandate == Mandate::Directory
            && lead.age.is_some_and(|age| uptime > age + REPLACED_WITHIN);
        let is_soon = self.stepped_at.is_some_and(|at| now.since(at) < STEP_EVERY);
        if self.is_unconfirmed()
            || self.lost.is_some()
            || is_alive
            || is_soon
            || claimed.epoch.0 - epoch.0 > EPOCH_STEP_MAX
        {
            self.others.note(now, own, claimed, Role::Aggregator, name);
            if is_alive && claimed > own {
                self.lost.get_or_insert_with(|| LostLead {
                    to: claimed,
                    through: name(),
                });
            }
            return None;
        }
        self.stepped_at = Some(now);
        Some(Epoch(claimed.epoch.0 + 1))
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::names::{Name, Zone};

    use super::*;

    fn at(ms: u64) -> MonoTime {
        MonoTime::from_elapsed(Duration::from_millis(ms))
    }

    fn leader(epoch: u64, instance: u128) -> Leader {
        Leader {
            epoch: Epoch(epoch),
            instance: Some(InstanceId(instance)),
        }
    }

    fn place() -> AggregatorKey {
        (Zone::new("a").unwrap(), Name::new("one").unwrap())
    }

    fn claims(leader: Leader, age_ms: Option<u64>) -> ReportedLead {
        ReportedLead {
            leader: Some(leader),
            age: age_ms.map(Duration::from_millis),
            other: None,
        }
    }

    fn started() -> Leadership {
        Leadership::new(at(10_000), InstanceId(5))
    }

    #[test]
    fn greatest_living_controller_leads() {
        // (time, claimed, age) and (the next epoch, lost, shown) of a controller at epoch 7.
        for (ms, claimed, age, (next, lost, shown)) in [
            (10_100, leader(6, 9), Some(100), (None, false, false)),
            (10_100, leader(7, 5), Some(100), (None, false, false)),
            // Earlier processes: the last confirmation is from before the start, or unknown.
            (10_100, leader(9, 9), Some(100), (Some(10), false, false)),
            (60_000, leader(9, 9), Some(50_000), (Some(10), false, false)),
            (60_000, leader(9, 9), None, (Some(10), false, false)),
            (60_000, leader(7, 1), Some(50_000), (Some(8), false, false)),
            (15_000, leader(9, 9), Some(0), (Some(10), false, false)),
            (
                60_000,
                Leader {
                    epoch: Epoch(9),
                    instance: None,
                },
                Some(0),
                (Some(10), false, false),
            ),
            // Living ones.
            (15_001, leader(9, 1), Some(0), (None, true, false)),
            (60_000, leader(7, 9), Some(44_999), (None, true, true)),
            (60_000, leader(7, 1), Some(100), (None, false, true)),
        ] {
            let mut leadership = started();
            let got = leadership.on_report(at(ms), Epoch(7), &place(), claims(claimed, age));
            let is_shown = leadership.others.has_rival(at(ms));
            let got = (
                got.map(|epoch| epoch.0),
                leadership.lost().is_some(),
                is_shown,
            );
            assert_eq!(got, (next, lost, shown), "{claimed:?} {age:?} at {ms}");
            if lost {
                let later = claims(leader(12, 9), None);
                let got = leadership.on_report(at(90_000), Epoch(7), &place(), later);
                assert_eq!(got, None, "a lost lead raises no epoch");
            }
        }
    }

    #[test]
    fn elected_controller_exceeds_living_ones_while_confirmed() {
        let mut leadership = started();
        // From a controller that confirmed a report 50 s after the start of this one.
        let living = claims(leader(9, 9), Some(0));
        for (confirmed, next) in [(false, None), (true, Some(Epoch(10)))] {
            leadership.mandate = Mandate::Elected { confirmed };
            let got = leadership.on_report(at(60_000), Epoch(7), &place(), living);
            assert_eq!(
                (got, leadership.lost()),
                (next, None),
                "confirmed: {confirmed}"
            );
        }
    }

    #[test]
    fn epoch_exceeds_claims_by_bounded_steps() {
        let mut leadership = started();
        let mut claim = |ms, epoch: u64, claimed| {
            leadership.on_report(
                at(ms),
                Epoch(epoch),
                &place(),
                claims(leader(claimed, 9), None),
            )
        };
        let far = 7 + EPOCH_STEP_MAX;
        assert_eq!(claim(20_000, 7, far + 1), None);
        assert_eq!(claim(20_000, 7, u64::MAX), None);
        assert_eq!(claim(20_000, 7, far), Some(Epoch(far + 1)));
        assert_eq!(claim(20_999, far + 1, far + 2), None);
        assert_eq!(claim(21_000, far + 1, far + 2), Some(Epoch(far + 3)));
    }

    /// The controllers of two copies of one state, and an aggregator that reaches either: one of
    /// them leads, and neither raises its epoch forever.
    #[test]
    fn two_controllers_do_not_race_epochs() {
        for (first, second) in [(5_u128, 9_u128), (9, 5)] {
            let mut sides = [(first, 10_000), (second, 10_400)]
                .map(|(own, ms)| (Leadership::new(at(ms), InstanceId(own)), Epoch(7)));
            let mut held: Option<Leader> = None;
            let mut led = 0;
            for step in 0..200_u64 {
                let ms = 11_000 + 1_000 * step;
                let (side, epoch) = &mut sides[(step % 2) as usize];
                let lead = held
                    .map(|held| claims(held, Some(1_000)))
                    .unwrap_or_default();
                if let Some(next) = side.on_report(at(ms), *epoch, &place(), lead) {
                    *epoch = next;
                }
                if side.lost().is_none() && Some(side.leader(*epoch)) >= held {
                    held = Some(side.leader(*epoch));
                    led = step;
                }
            }
            assert!(led > 190, "one of them leads to the end");
            assert_eq!(
                sides
                    .iter()
                    .filter(|(side, _)| side.lost().is_none())
                    .count(),
                1
            );
            assert!(sides.iter().all(|(_, epoch)| epoch.0 <= 12), "{sides:?}");
        }
    }
}
