//! Operators: they kill, end kills, promote, abort, and edit the policy files of members.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use plimsoll_admin::kill_api::KillOn;
use plimsoll_core::decision::Mode;
use plimsoll_core::names::Text;
use plimsoll_policy::Policy;

use super::super::kill_orders::StoredOrder;
use super::invariants::{What, moved};
use super::leader::Slot;
use super::model_store::Ask;
use super::scopes;
use super::world::{Event, World};
use crate::brain::Offer;
use crate::rollout::Promotion;
use crate::state::Command;

const ANSWER_MAX: u64 = 3_000;
const POLICIES: u64 = 3;

/// A change that is being recorded in the audit log, because it may add refusals.
#[derive(Clone, Debug)]
pub(super) enum Planned {
    End(usize),
    Promote,
    Policy(u64),
}

/// The policy files of this number.
pub(super) fn policy(number: u64) -> Arc<Policy> {
    static ALL: LazyLock<Vec<Arc<Policy>>> = LazyLock::new(|| {
        let read = |number| {
            let text = format!(
                "buckets: {{ api: {{ limit: {}, mode: enforce }} }}\nrollout: {{ require_gates: false }}\nguardrails: off\n",
                1_000 + number
            );
            crate::brain::tests::policy(&text)
        };
        (0..POLICIES).map(read).collect()
    });
    Arc::clone(&ALL[number as usize])
}

fn text(text: &str) -> Text {
    Text::new(text).unwrap()
}

impl World {
    pub(super) fn operate(&mut self) -> Result<(), String> {
        let member = self.rng.pick(self.members.len());
        let scope = self.rng.pick(2);
        if self.rng.percent(15) {
            self.order_at_child(scope);
            return Ok(());
        }
        if self.now < self.members[member].up_at {
            return Ok(());
        }
        let (serves, confirmed) = match self.members[member].leading() {
            Some(leading) => (leading.serves, leading.confirmed),
            None => (false, false),
        };
        let kind = self.rng.below(12);
        if !serves {
            match kind {
                0..5 => self.append(member, scope),
                11 => self.members[member].files = self.rng.below(POLICIES),
                _ => {}
            }
            return Ok(());
        }
        let planned = match kind {
            0..5 => {
                self.kill(member, scope);
                return self.settle(member);
            }
            5..7 => Planned::End(scope),
            7..9 => Planned::Promote,
            9 => {
                self.abort(member);
                return self.settle(member);
            }
            _ => Planned::Policy(self.rng.below(POLICIES)),
        };
        let lead = self.members[member].lead.part().lead().unwrap_or_default();
        if let Planned::Policy(files) = planned {
            self.members[member].files = files;
        }
        if confirmed {
            let wait = match self.rng.percent(10) {
                true => self.rng.below(2_000),
                false => self.rng.below(30),
            };
            self.after(wait, Event::Recorded(member, lead, planned));
        } else if let (Planned::Policy(files), Some(leading)) =
            (planned, self.members[member].leading())
        {
            leading.unrecorded = Some(files);
            leading
                .brain
                .hold_unlogged(policy(files), "unconfirmed".to_owned());
        }
        Ok(())
    }

    /// A kill at an aggregator. It is not ended there: such an end is one of all kills that the aggregator holds, and so of
    /// later ones elsewhere that it has not heard of.
    fn order_at_child(&mut self, scope: usize) {
        let (now, mono) = (self.now, self.mono());
        let number = self.rng.pick(self.children.len());
        let child = &mut self.children[number];
        if child.kills.order(mono, &scopes()[scope], true).is_ok() {
            child.carried[scope] = Some(now);
            self.tell(format!("c{number}: orders a kill of {}", scopes()[scope]));
        }
    }

    fn kill(&mut self, member: usize, scope: usize) {
        let (now, since_s) = (self.now, self.unix_s());
        let act = self.ledger.note(now, What::Kill(scope));
        let command = Command {
            reason: Some(text(&format!("kill {act}"))),
            since_s: Some(since_s),
            ..Command::default()
        };
        if let Some(leading) = self.members[member].leading()
            && leading.brain.on_kill(&scopes()[scope], command).is_ok()
        {
            leading.waiting.push((act, now + ANSWER_MAX));
        }
        self.tell(format!("m{member}: act {act} kills {}", scopes()[scope]));
        self.save(member);
    }

    /// A kill at a standby.
    fn append(&mut self, member: usize, scope: usize) {
        if self.members[member].append.is_some() || self.members[member].leading().is_some() {
            return;
        }
        let act = self.ledger.note(self.now, What::Kill(scope));
        let order = StoredOrder {
            order: KillOn {
                reason: text(&format!("kill {act}")),
                bucket: scopes()[scope].bucket().cloned(),
                ttl_s: None,
                by: None,
            },
            by: None,
            since_s: self.unix_s(),
        };
        self.tell(format!(
            "m{member}: act {act} orders a kill of {}",
            scopes()[scope]
        ));
        let request = self.ask(member, Slot::Append, Ask::Append(order));
        self.members[member].append = Some((request, act));
    }

    fn abort(&mut self, member: usize) {
        let now = self.now;
        let Some(leading) = self.members[member].leading() else {
            return;
        };
        if let Ok(Some(change)) = leading.brain.abort("api", None) {
            let what = moved(&change);
            let act = self
                .ledger
                .note(now, What::Move(change.number, what.clone()));
            self.tell(format!("m{member}: act {act} aborts: {what}"));
            if let Some(leading) = self.members[member].leading() {
                leading.waiting.push((act, now + ANSWER_MAX));
            }
        }
        self.save(member);
    }

    /// Makes a change whose record is written.
    pub(super) fn carry_out(
        &mut self,
        member: usize,
        lead: u64,
        planned: Planned,
    ) -> Result<(), String> {
        let (now, mono) = (self.now, self.mono());
        if self.members[member].lead.part().lead() != Some(lead) {
            return Ok(());
        }
        let Some(leading) = self.members[member].leading() else {
            return Ok(());
        };
        let what = match planned {
            Planned::End(scope) => {
                let kills: BTreeSet<usize> = self
                    .ledger
                    .active(leading.brain.durable(), scope)
                    .into_iter()
                    .collect();
                leading.brain.on_kill_ends(mono, &scopes()[scope]);
                Some(What::End(scope, kills))
            }
            Planned::Promote => {
                let force = text("drill");
                let promotion = Promotion {
                    entry: "api",
                    to: Some(Mode::Enforce),
                    force: Some(&force),
                    reason: None,
                };
                let moved_to = leading.brain.promote(mono, promotion);
                moved_to
                    .ok()
                    .map(|change| What::Move(change.number, moved(&change)))
            }
            Planned::Policy(files) => {
                self.offer(member, files);
                None
            }
        };
        if let Some(what) = what {
            let text = format!("{what:?}");
            let act = self.ledger.note(now, what);
            self.tell(format!("m{member}: act {act} is {text}"));
            if let Some(leading) = self.members[member].leading() {
                leading.waiting.push((act, now + ANSWER_MAX));
            }
        }
        self.save(member);
        self.settle(member)
    }

    pub(super) fn offer(&mut self, member: usize, files: u64) {
        let now = self.now;
        let Some(leading) = self.members[member].leading() else {
            return;
        };
        leading.unrecorded = None;
        if leading.brain.offer(policy(files)) == Offer::Taken {
            let texts = Arc::clone(policy(files).texts());
            let act = self.ledger.note(now, What::Policy(texts));
            self.tell(format!("m{member}: act {act} is policy {files}"));
            if let Some(leading) = self.members[member].leading() {
                leading.waiting.push((act, now + ANSWER_MAX));
            }
        }
        self.save(member);
    }
}
