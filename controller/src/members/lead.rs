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
    stands_back_until: Option<Instant>,
    /// This member is handing the lead over, until the store says that it has taken it.
    resigns: bool,
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

    /// Returns the renewal of the lease that is due.
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

    /// Returns what to ask the store about the lead.
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

    /// Takes the leader's key as the store has it. The answer to a campaign may be lost after the store has elected this
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

    /// Notes that the store has deleted the leader's key of this member.
    pub(super) fn on_resigned(&mut self) {
        self.stand_by(None);
    }

    fn stand_by(&mut self, leader: Option<Member>) {
        self.resigns = false;
        self.part = Part::Standby { leader };
    }
}

impl Part {
    /// True for a leader while no other member can have been elected.
    pub(crate) fn is_confirmed(&self, now: Instant) -> bool {
        matches!(self, Self::Leading { confirmed_until, .. } if now < *confirmed_until)
    }
}
