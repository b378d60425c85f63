//! What must hold after each step, and what operators were told.

use std::collections::BTreeSet;
use std::sync::Arc;

use plimsoll_core::kill::Scope;
use plimsoll_core::names::Text;
use plimsoll_policy::PolicyTexts;

use super::model_store::ModelStore;
use super::{Ms, scopes};
use crate::state::DurableState;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum What {
    Kill(usize),
    /// The end of the kills that the leader knew.
    End(usize, BTreeSet<usize>),
    /// The number of the change, and its entry and stage.
    Move(u64, String),
    Policy(Arc<PolicyTexts>),
}

/// A change that an operator made.
#[derive(Clone, Debug)]
pub(super) struct Act {
    pub(super) given: Ms,
    pub(super) what: What,
    pub(super) saved: bool,
}

#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) acts: Vec<Act>,
    /// When the latest end for each scope was given, at any process.
    pub(super) ended: [Option<Ms>; 2],
    /// The state as it was last checked.
    before: Option<DurableState>,
}

type Checked = Result<(), String>;

impl Ledger {
    /// Notes a change, and returns its number.
    pub(super) fn note(&mut self, given: Ms, what: What) -> usize {
        if let What::End(scope, _) = what {
            self.ended[scope] = Some(given);
        }
        self.acts.push(Act {
            given,
            what,
            saved: false,
        });
        self.acts.len() - 1
    }

    /// One writer: called when a member writes the state.
    pub(super) fn on_write(
        &mut self,
        writer: u64,
        lead: Option<u64>,
        store: &ModelStore,
    ) -> Checked {
        if lead != Some(writer) {
            return Err(format!(
                "one writer: the leader of {writer} wrote the state, and {lead:?} leads"
            ));
        }
        let after = store.stored.durable.clone().unwrap_or_default();
        if let Some(before) = self.before.replace(after.clone()) {
            if after.epoch < before.epoch {
                return Err(format!(
                    "one writer: epoch {} follows {}",
                    after.epoch.0, before.epoch.0
                ));
            }
            for scope in scopes() {
                let (was, is) = (before.generation(&scope), after.generation(&scope));
                if is < was {
                    return Err(format!(
                        "nothing lost: {scope} falls from {was:?} to {is:?}"
                    ));
                }
            }
            if let Some(lost) = lost_change(&before, &after) {
                return Err(format!("nothing lost: {lost} is not in the history"));
            }
        }
        self.check_saved(store)
    }

    /// Everything that was answered as saved is in the store.
    pub(super) fn check_saved(&self, store: &ModelStore) -> Checked {
        let Some(stored) = &store.stored.durable else {
            return Ok(());
        };
        let ended = |scope: usize, given: Ms| self.ended[scope].is_some_and(|end| end >= given);
        for (number, act) in self.acts.iter().enumerate().filter(|(_, act)| act.saved) {
            match &act.what {
                What::Kill(scope) => {
                    let is_there = stored.command(&scopes()[*scope]).is_some()
                        || store
                            .orders()
                            .any(|order| kill_of(&order.order.reason) == Some(number));
                    if !is_there && !ended(*scope, act.given) {
                        return Err(format!("nothing lost: kill {number} was saved"));
                    }
                }
                What::End(scope, kills) => {
                    let kill = self.active(stored, *scope);
                    if let Some(back) = kill.filter(|kill| kills.contains(kill)) {
                        return Err(format!(
                            "nothing comes back: kill {back} was ended by {number}"
                        ));
                    }
                }
                What::Move(change, what) => {
                    let known = stored.change(*change);
                    let is_other = known.is_some_and(|known| moved(known) != *what);
                    if is_other || stored.changes < *change {
                        return Err(format!("nothing lost: {what} ({number}) was saved"));
                    }
                }
                What::Policy(_) => {}
            }
        }
        self.check_policy(stored)
    }

    /// The policy in the store is the one saved last, or a later one.
    fn check_policy(&self, stored: &DurableState) -> Checked {
        let is_policy = |act: &&Act| matches!(act.what, What::Policy(_));
        let last = self
            .acts
            .iter()
            .rposition(|act| is_policy(&act) && act.saved);
        let Some(last) = last else { return Ok(()) };
        let mut allowed = self.acts[last..].iter().filter(is_policy);
        let texts = stored.policy.as_ref();
        match texts.is_some_and(|texts| {
            allowed.any(|act| matches!(&act.what, What::Policy(known) if known == texts))
        }) {
            true => Ok(()),
            false => Err(format!("nothing lost: the policy of {last} was saved")),
        }
    }

    /// The kill that a state has for a scope, if an operator gave it.
    pub(super) fn active(&self, durable: &DurableState, scope: usize) -> Option<usize> {
        kill_of(durable.command(&scopes()[scope])?.reason.as_ref()?)
    }

    /// A kill that a child carries ends by an operator only.
    pub(super) fn on_dropped(
        &self,
        (child, scope): (usize, usize),
        carried: Option<Ms>,
    ) -> Checked {
        if carried.is_none_or(|given| self.ended[scope].is_some_and(|end| end >= given)) {
            return Ok(());
        }
        Err(format!(
            "no kill dropped: child {child} dropped that of {} of {} ms",
            scopes()[scope],
            carried.unwrap_or_default()
        ))
    }
}

fn kill_of(reason: &Text) -> Option<usize> {
    reason.as_str().strip_prefix("kill ")?.parse().ok()
}

pub(super) fn moved(change: &crate::state::Change) -> String {
    format!("{} to {} by {:?}", change.entry, change.to, change.cause)
}

/// Returns a change of stage that the later state has lost.
fn lost_change(before: &DurableState, after: &DurableState) -> Option<String> {
    let first = after
        .history
        .front()
        .map_or(u64::MAX, |change| change.number);
    let kept = before
        .history
        .iter()
        .filter(|change| change.number >= first);
    let lost = kept.clone().find(|change| {
        after
            .change(change.number)
            .is_none_or(|now| moved(now) != moved(change))
    });
    let shrunk = after.changes < before.changes;
    lost.map(moved)
        .or_else(|| shrunk.then(|| "the latest change".to_owned()))
}

/// The scope of the fleet is the first.
pub(super) fn number_of(scope: &Scope) -> usize {
    usize::from(scope.bucket().is_some())
}
