//! The controllers that this aggregator and its children know of. A controller that lost its state learns
//! later epochs from here, and operators learn here that a second controller runs.

use std::time::Duration;

use plimsoll_core::directive::{EPOCH_STEP_MAX, Leader};
use plimsoll_core::exchange::other_controllers::OtherControllers;
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::{Identity, ReportedLead, Role};

/// Time that a claim is passed upwards after the last report with it.
const CLAIM_KEPT: Duration = Duration::from_secs(10);
/// Clients return for this long after the first directives, so their claims are still believed: a controller that
/// lost its state may have answered before the first client was back.
const RETURNING: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(crate) struct Leaders {
    /// The arrival of the first directives of a controller.
    led_since: Option<MonoTime>,
    /// The current controller with the time of the latest report that it confirmed.
    confirmed: Option<(Leader, MonoTime)>,
    /// The latest later controller that a child has named.
    claimed: Option<Claim>,
    pub(crate) others: OtherControllers,
}

#[derive(Clone, Copy, Debug)]
struct Claim {
    leader: Leader,
    /// The age of the latest report that this controller confirmed, when the claim arrived; `None` from a client.
    age: Option<Duration>,
    at: MonoTime,
}

impl Leaders {
    /// Takes the controller that a child names in its report, while `held` is active.
    ///
    /// An aggregator's claim is believed: its directives came from a controller. A client's is believed only if it is
    /// of a later epoch, and this process has lost that state: no directive of a controller has arrived since its
    /// start, or clients still return. A claim far above the current epoch is never believed.
    pub(crate) fn on_report(
        &mut self,
        now: MonoTime,
        held: Option<Leader>,
        child: &Identity,
        lead: ReportedLead,
    ) {
        let Some(leader) = lead.leader else {
            return;
        };
        let is_aggregator = child.role == Role::Aggregator;
        let own = held.unwrap_or_default();
        let has_lost_state = self.led_since.is_none_or(|at| now.since(at) < RETURNING);
        let is_plausible = leader.epoch.0.saturating_sub(own.epoch.0) <= EPOCH_STEP_MAX;
        let is_believed =
            is_plausible && (is_aggregator || has_lost_state && leader.epoch > own.epoch);
        if is_believed {
            let is_latest = self.claim(now).is_none_or(|claim| leader >= claim.leader);
            if leader > own && is_latest {
                let age = lead.age.filter(|_| is_aggregator);
                self.claimed = Some(Claim {
                    leader,
                    age,
                    at: now,
                });
            }
        }
        let name = || child.described();
        // While no controller leads here, a believed claim is no other controller: there is none to rival.
        if held.is_some() || !is_believed {
            self.others.note(now, own, leader, child.role, name);
        }
        if let Some(other) = lead.other.filter(|_| is_aggregator) {
            self.others.note(now, own, other, child.role, name);
        }
    }

    pub(crate) fn on_directives(
        &mut self,
        now: MonoTime,
        held: Option<Leader>,
        got: Option<Leader>,
    ) {
        if got.is_some() {
            self.led_since.get_or_insert(now);
        }
        if let Some((held, got)) = held.zip(got).filter(|(held, got)| held.is_rival_of(*got)) {
            self.others
                .note(now, held.max(got), held.min(got), Role::Aggregator, || {
                    "the parent".to_owned()
                });
        }
    }

    pub(crate) const fn on_confirmed(&mut self, held: Leader, sent: MonoTime) {
        self.confirmed = Some((held, sent));
    }

    /// Returns the controller that leads, or a later one that a child claims, and another one if known.
    pub(crate) fn reported(&self, now: MonoTime, held: Option<Leader>) -> ReportedLead {
        let confirmed = self.confirmed.filter(|(leader, _)| Some(*leader) == held);
        let mut age = confirmed.map(|(_, sent)| now.since(sent));
        let mut leader = held;
        if let Some(claim) = self.claim(now).filter(|claim| Some(claim.leader) > held) {
            age = claim.age.map(|age| age + now.since(claim.at));
            leader = Some(claim.leader);
        }
        let other = self.others.latest(now);
        ReportedLead {
            leader,
            age,
            other: other.filter(|other| Some(*other) != leader),
        }
    }

    fn claim(&self, now: MonoTime) -> Option<Claim> {
        self.claimed
            .filter(|claim| now.since(claim.at) < CLAIM_KEPT)
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::directive::Epoch;
    use plimsoll_core::names::{Name, Zone};
    use plimsoll_core::report::InstanceId;

    use super::*;

    fn at(s: u64) -> MonoTime {
        MonoTime::from_elapsed(Duration::from_secs(s))
    }

    fn leader(epoch: u64, instance: u128) -> Leader {
        Leader {
            epoch: Epoch(epoch),
            instance: Some(InstanceId(instance)),
        }
    }

    fn child(role: Role) -> Identity {
        Identity {
            instance: InstanceId(50),
            name: Name::new("host:1").unwrap(),
            service: Name::new("shop").unwrap(),
            zone: Zone::new("a").unwrap(),
            role,
        }
    }

    fn claims(leader: Leader, age_s: Option<u64>) -> ReportedLead {
        ReportedLead {
            leader: Some(leader),
            age: age_s.map(Duration::from_secs),
            other: None,
        }
    }

    /// The claim that is passed upwards, and the claim that is only shown.
    fn passed(
        leaders: &Leaders,
        s: u64,
        held: Option<Leader>,
    ) -> (Option<Leader>, Option<u64>, Option<Leader>) {
        let lead = leaders.reported(at(s), held);
        (lead.leader, lead.age.map(|age| age.as_secs()), lead.other)
    }

    #[test]
    fn client_claim_counts_until_led() {
        let (client, own) = (child(Role::Client), leader(3, 1));
        let mut leaders = Leaders::default();
        leaders.on_report(at(0), None, &client, claims(leader(41, 9), Some(0)));
        assert_eq!(
            passed(&leaders, 1, None),
            (Some(leader(41, 9)), None, None),
            "without any sign of life"
        );
        assert_eq!(
            passed(&leaders, 10, None),
            (None, None, None),
            "a claim that is not repeated ends"
        );
        leaders.on_directives(at(50), None, Some(own));
        leaders.on_report(at(79), Some(own), &client, claims(leader(41, 9), None));
        assert_eq!(
            passed(&leaders, 79, Some(own)).0,
            Some(leader(41, 9)),
            "clients return"
        );
        leaders.on_report(at(90), Some(own), &client, claims(leader(42, 9), None));
        assert_eq!(
            passed(&leaders, 90, Some(own)),
            (Some(own), None, Some(leader(42, 9)))
        );
        let mut leaders = Leaders::default();
        leaders.on_report(at(0), None, &client, claims(leader(u64::MAX, 9), None));
        assert_eq!(passed(&leaders, 1, None).0, None, "far above any epoch");
    }

    #[test]
    fn aggregator_claim_adds_one_step_at_most() {
        let (aggregator, own) = (child(Role::Aggregator), leader(3, 1));
        let mut leaders = Leaders::default();
        leaders.on_confirmed(own, at(0));
        assert_eq!(passed(&leaders, 2, Some(own)), (Some(own), Some(2), None));
        leaders.on_report(at(2), Some(own), &aggregator, claims(leader(5, 9), Some(7)));
        assert_eq!(passed(&leaders, 4, Some(own)).0, Some(leader(5, 9)));
        assert_eq!(
            passed(&leaders, 4, Some(own)).1,
            Some(9),
            "the wait here is added"
        );
        assert_eq!(
            passed(&leaders, 4, Some(leader(6, 1))).0,
            Some(leader(6, 1)),
            "a later one came from above"
        );
        let mut leaders = Leaders::default();
        let far = leader(3 + EPOCH_STEP_MAX + 1, 9);
        leaders.on_report(at(2), Some(own), &aggregator, claims(far, Some(0)));
        assert_eq!(
            passed(&leaders, 2, Some(own)),
            (Some(own), None, Some(far)),
            "it is shown all the same"
        );
    }

    #[test]
    fn second_controller_is_shown_and_passed_up() {
        let own = leader(3, 5);
        for other in [leader(3, 1), leader(3, 9)] {
            let mut leaders = Leaders::default();
            leaders.on_report(at(0), Some(own), &child(Role::Client), claims(other, None));
            assert!(leaders.others.has_rival(at(0)));
            assert_eq!(
                passed(&leaders, 0, Some(own)),
                (Some(own), None, Some(other))
            );
            let mut above = Leaders::default();
            let lead = ReportedLead {
                other: Some(other),
                ..claims(own, None)
            };
            above.on_report(at(0), Some(own), &child(Role::Aggregator), lead);
            assert!(above.others.has_rival(at(0)));
        }
        let mut leaders = Leaders::default();
        leaders.on_directives(at(0), Some(own), Some(leader(4, 1)));
        assert!(
            !leaders.others.has_rival(at(0)),
            "a controller that restarted"
        );
        leaders.on_directives(at(0), Some(own), Some(leader(3, 1)));
        assert!(leaders.others.has_rival(at(0)));
    }
}
