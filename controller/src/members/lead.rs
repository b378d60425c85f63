//! The decisions of a session: when the lead is won, confirmed and lost. Pure: it takes the time and the answers of the
//! store, and returns what to ask next.
//!
//! The lead is lost only by the word of the store. While the store does not answer, it is unconfirmed once it may have
//! ended there: a lease counts from the moment at which the last answered renewal was *sent*, by the own clock.

use std::time::{Duration, Instant};

use plimsoll_etcd::{KeyValue, LeaseId};

use super::session::decode;
use super::{Member, Part};

/// A lease is renewed this many times before it would end.
const RENEWALS: u32 = 5;
/// A member that handed the lead over leaves it to others for this long.
const RESIGNED_FOR: Duration = Duration::from_secs(10);

/// A member's lease and its part.
#[derive(Debug)]
pub(super) struct Lead {
    ttl: Duration,
    lease: Option<Held>,
    /// This member does not campaign before.
    stands_back_until: Option<Instant>,
    /// This member is handing the lead over, until the store says that it has taken it.
    resigns: bool,
    has_resigned: bool,
    /// The store is to say whether the lead stands.
    is_asked: bool,
    part: Part,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    id: LeaseId,
    /// When the last answered renewal was sent.
    renewed: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Renewal {
    Grant,
    KeepAlive(LeaseId),
}

/// What the store is asked about the lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// Create the leader's key with this lease, or say who has it.
    Campaign(LeaseId),
    /// Who leads?
    Look,
    /// Delete the leader's key that was created at this revision.
    Resign(u64),
}

impl Lead {
    pub(super) const fn new(ttl: Duration) -> Self {
        Self {
            ttl,
            lease: None,
            stands_back_until: None,
            resigns: false,
            has_resigned: false,
            is_asked: false,
            part: Part::Standby { leader: None },
        }
    }

    pub(super) const fn part(&self) -> &Part {
        &self.part
    }

    pub(super) fn lease(&self) -> Option<LeaseId> {
        self.lease.map(|held| held.id)
    }

    /// Returns the renewal of the lease; `None` while none is due.
    pub(super) fn renewal(&self, now: Instant) -> Option<Renewal> {
        let Some(held) = self.lease else {
            return Some(Renewal::Grant);
        };
        let is_due = now.duration_since(held.renewed) >= self.ttl / RENEWALS;
        is_due.then_some(Renewal::KeepAlive(held.id))
    }

    /// Notes that the store has answered a renewal that was `sent` then.
    pub(super) fn on_renewed(&mut self, id: LeaseId, sent: Instant) {
        self.lease = Some(Held { id, renewed: sent });
        self.is_asked = true;
    }

    /// Notes that the lease has ended, and with it the keys of this member.
    pub(super) fn on_lease_ended(&mut self) {
        self.lease = None;
        self.stand_by(None);
    }

    /// Asks the store again whether the lead stands: it has refused a write.
    pub(super) const fn ask(&mut self) {
        self.is_asked = true;
    }

    /// Returns what to ask the store about the lead; `None` without a lease, and for a leader that nothing puts in doubt.
    pub(super) fn question(&self, now: Instant) -> Option<Question> {
        let held = self.lease?;
        match self.part.lead() {
            None if self.stands_back_until.is_none_or(|until| now >= until) => {
                Some(Question::Campaign(held.id))
            }
            None => Some(Question::Look),
            Some(lead) if self.resigns => Some(Question::Resign(lead)),
            Some(_) => self.is_asked.then_some(Question::Look),
        }
    }

    /// Notes that the store has created the leader's key for this member at a `revision`.
    pub(super) fn on_elected(&mut self, revision: u64) {
        self.is_asked = false;
        if let Some(held) = self.lease {
            self.part = Part::Leading {
                lead: revision,
                confirmed_until: held.renewed + self.ttl,
            };
        }
    }

    /// Takes the leader's key as the store has it, `None` without one. The answer to a campaign may be lost after the store has elected this
    /// member: the next one finds its own key.
    pub(super) fn on_leader(&mut self, question: Question, key: Option<&KeyValue>) {
        self.is_asked = false;
        let own = match (question, self.part.lead()) {
            (Question::Campaign(lease), _) => key.filter(|key| key.lease == Some(lease)),
            (_, lead) => key.filter(|key| Some(key.created_revision) == lead),
        };
        match own {
            Some(own) => self.on_elected(own.created_revision),
            None => {
                self.stand_by(key.and_then(|key| decode(&key.value)));
            }
        }
    }

    /// Begins to hand the lead over. It is unconfirmed from now on: a request whose answer is lost may have deleted the key.
    pub(super) fn resign(&mut self, now: Instant) {
        self.stands_back_until = Some(now + RESIGNED_FOR);
        if let Part::Leading {
            confirmed_until, ..
        } = &mut self.part
        {
            (self.resigns, *confirmed_until) = (true, now);
        }
    }

    /// Returns true if this member stands by because it has handed the lead over.
    pub(super) const fn has_resigned(&self) -> bool {
        self.has_resigned
    }

    /// Notes that the store has deleted the leader's key of this member.
    pub(super) fn on_resigned(&mut self) {
        self.stand_by(None);
    }

    fn stand_by(&mut self, leader: Option<Member>) {
        self.has_resigned = std::mem::take(&mut self.resigns);
        self.part = Part::Standby { leader };
    }
}

impl Part {
    /// True for a leader while no other member can have been elected.
    pub(crate) fn is_confirmed(&self, now: Instant) -> bool {
        matches!(self, Self::Leading { confirmed_until, .. } if now < *confirmed_until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(5);
    const LEASE: LeaseId = LeaseId(7);

    fn key(created_revision: u64, lease: i64) -> KeyValue {
        KeyValue {
            key: Default::default(),
            value: Default::default(),
            created_revision,
            modified_revision: created_revision,
            lease: Some(LeaseId(lease)),
        }
    }

    fn elected(at: Instant) -> Lead {
        let mut lead = Lead::new(TTL);
        assert_eq!(lead.renewal(at), Some(Renewal::Grant));
        lead.on_renewed(LEASE, at);
        assert_eq!(lead.question(at), Some(Question::Campaign(LEASE)));
        lead.on_elected(3);
        lead
    }

    #[test]
    fn lead_is_confirmed_from_sent_renewals() {
        let start = Instant::now();
        let mut lead = elected(start);
        assert_eq!((lead.renewal(start), lead.question(start)), (None, None));
        assert!(
            lead.part()
                .is_confirmed(start + TTL - Duration::from_millis(1))
        );
        assert!(!lead.part().is_confirmed(start + TTL));
        let later = start + TTL / RENEWALS;
        assert_eq!(lead.renewal(later), Some(Renewal::KeepAlive(LEASE)));
        lead.on_renewed(LEASE, later);
        assert!(
            !lead.part().is_confirmed(start + TTL),
            "the key is to be read"
        );
        assert_eq!(lead.question(later), Some(Question::Look));
        lead.on_leader(Question::Look, Some(&key(3, 7)));
        assert!(lead.part().is_confirmed(start + TTL));
        // The store has refused a write.
        lead.ask();
        assert_eq!(lead.question(later), Some(Question::Look));
        lead.on_leader(Question::Look, Some(&key(9, 8)));
        assert_eq!(lead.part().lead(), None);
    }

    #[test]
    fn election_is_found_after_a_lost_answer() {
        let start = Instant::now();
        let mut lead = Lead::new(TTL);
        lead.on_renewed(LEASE, start);
        lead.on_leader(Question::Campaign(LEASE), Some(&key(3, 8)));
        assert_eq!(lead.part().lead(), None);
        lead.on_leader(Question::Campaign(LEASE), Some(&key(4, 7)));
        assert_eq!(lead.part().lead(), Some(4));
        lead.on_lease_ended();
        assert_eq!((lead.part().lead(), lead.lease()), (None, None));
    }

    #[test]
    fn resignation_is_repeated_until_answered() {
        let start = Instant::now();
        let mut lead = elected(start);
        lead.resign(start);
        for at in [start, start + TTL] {
            assert_eq!(lead.question(at), Some(Question::Resign(3)));
            assert!(!lead.part().is_confirmed(at));
            lead.on_renewed(LEASE, at);
        }
        lead.on_resigned();
        assert_eq!(lead.question(start + TTL), Some(Question::Look));
        let over = start + RESIGNED_FOR;
        assert_eq!(lead.question(over), Some(Question::Campaign(LEASE)));
    }
}
