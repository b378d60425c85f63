//! The session of a member: asks the store what its `Lead` decides, one request at a time.

use super::super::lead::{Question, Renewal};
use super::Ms;
use super::leader::Slot;
use super::model_store::{Answer, Ask};
use super::world::World;

impl World {
    pub(super) fn session(&mut self, member: usize) {
        let now = self.instant(self.now);
        let of = &mut self.members[member];
        if of.session.is_some() || self.now < of.session_at {
            return;
        }
        if std::mem::take(&mut of.resigns) {
            of.lead.resign(now);
        }
        match of.lead.renewal(now) {
            Some(Renewal::Grant) => self.ask_session(member, Ask::Grant),
            Some(Renewal::KeepAlive(id)) => self.ask_session(member, Ask::KeepAlive(id)),
            None => self.question(member),
        }
    }

    fn question(&mut self, member: usize) {
        let now = self.instant(self.now);
        match self.members[member].lead.question(now) {
            Some(Question::Campaign(lease)) => self.ask_session(member, Ask::Campaign(lease)),
            Some(Question::Look) => self.ask_session(member, Ask::Look),
            Some(Question::Resign(lead)) => self.ask_session(member, Ask::Resign(lead)),
            None => self.members[member].session_at = self.now + 250,
        }
    }

    fn ask_session(&mut self, member: usize, ask: Ask) {
        let request = self.ask(member, Slot::Session, ask.clone());
        self.members[member].session = Some((request, self.now, ask));
    }

    pub(super) fn on_session(&mut self, member: usize, sent: Ms, ask: Ask, answer: Option<Answer>) {
        let sent = self.instant(sent);
        let now = self.now;
        let of = &mut self.members[member];
        of.session_at = now + 250;
        let had = of.lead.part().lead();
        match (ask, answer) {
            (_, Some(Answer::Lease(id))) => {
                of.lead.on_renewed(id, sent);
                self.question(member);
            }
            (_, Some(Answer::NoLease)) => of.lead.on_lease_ended(),
            (_, Some(Answer::Elected(revision))) => of.lead.on_elected(revision),
            (Ask::Campaign(lease), Some(Answer::Leader(key))) => {
                of.lead.on_leader(Question::Campaign(lease), key.as_ref());
            }
            (Ask::Look, Some(Answer::Leader(key))) => {
                of.lead.on_leader(Question::Look, key.as_ref());
            }
            (Ask::Resign(_), Some(_)) => of.lead.on_resigned(),
            _ => {}
        }
        let has = self.members[member].lead.part().lead();
        if had != has {
            self.tell(format!("m{member}: leads {had:?} -> {has:?}"));
            self.end_turn(member);
        }
    }
}
