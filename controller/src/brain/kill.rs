//! The brain and the kill switch: orders that people give, kills that children tell of, and how long a drill takes.

use plimsoll_core::kill::drill::{Drill, Due};
use plimsoll_core::kill::{NoRoom, Scope};

use super::*;
use crate::state::Command;

impl Brain {
    /// Somebody orders a kill by command; another order for the same takes its place.
    ///
    /// # Errors
    /// When there is no room for another bucket that is killed alone.
    pub fn on_kill(&mut self, scope: &Scope, command: Command) -> Result<(), NoRoom> {
        let changed = self.durable.on_command(scope, command, &self.policy)?;
        self.on_switched(changed);
        Ok(())
    }

    /// Somebody takes such an order back; true when there was one. What was killed stays in shadow.
    pub fn on_kill_ends(&mut self, scope: &Scope) -> bool {
        let changed = self.durable.on_command_ends(scope, &self.policy);
        self.on_switched(changed);
        changed
    }

    /// The kill generations as aggregators are told them.
    #[must_use]
    pub const fn kills(&self) -> &Kills {
        &self.kills
    }

    /// Whether the policy has an entry for a bucket, or somebody has asked for it.
    #[must_use]
    pub fn knows(&self, bucket: &Bucket) -> bool {
        self.by_name.contains_key(bucket) || self.policy.entry(bucket).is_some()
    }

    /// Begins a drill.
    pub fn begin_drill(&mut self, now: MonoTime) -> Drill {
        let drill = self.kills.drill().next();
        self.hear_drill(now, drill);
        drill
    }

    /// How the latest drill fares.
    #[must_use]
    pub const fn timing(&self) -> &Timing {
        &self.timing
    }

    /// The time of day is known: orders for a while end.
    pub(super) fn on_time(&mut self, unix_s: i64) {
        self.unix_s = Some(unix_s);
        let changed = self.durable.on_time(unix_s, &self.policy);
        self.on_switched(changed);
    }

    /// A child tells what it holds.
    pub(super) fn learn_kills(&mut self, report: &Report) {
        let before: Vec<_> = report.ended.iter().map(|scope| self.durable.generation(scope)).collect();
        let mut changed = self.durable.on_learned(report.kill, &report.kills, self.unix_s, &self.policy);
        for scope in &report.ordered {
            changed |= self.durable.on_ordered_below(scope, self.unix_s, &self.policy);
        }
        for (scope, before) in report.ended.iter().zip(before) {
            // One whose number was new has just been learned with its end.
            if self.durable.generation(scope) == before {
                changed |= self.durable.on_ended_below(scope, &self.policy);
            }
        }
        self.on_switched(changed);
    }

    /// Takes up a later drill, which may have begun below; true when it is one.
    pub(super) fn hear_drill(&mut self, now: MonoTime, drill: Drill) -> bool {
        if !self.kills.hear_drill(drill) {
            return false;
        }
        let children = self.roster.connected().map(|child| {
            let place = (child.identity.zone.clone(), child.identity.name.clone());
            let clients = self.sources.children(&place).map_or(1, u64::from);
            (child.identity.instance, Due { zone: place.0, role: Role::Aggregator, clients })
        });
        self.timing.begin(now, drill, None, children);
        true
    }

    /// Brings what aggregators are told of kills in line with what holds, before they are told.
    pub(super) fn settle_kills(&mut self) {
        let changed = self.durable.settle_held(&self.policy);
        self.note_change(changed);
        self.kills.raise(&Scope::Fleet, self.durable.kill);
        for (bucket, switch) in &self.durable.bucket_kills {
            if self.kills.bucket(bucket) < switch.generation {
                self.kills.raise(&Scope::Bucket(bucket.clone()), switch.generation);
            }
        }
    }

    fn on_switched(&mut self, changed: bool) {
        if changed {
            self.rollout.settle(&mut self.durable, &self.policy, self.ticked);
            self.note_change(true);
            self.post();
        }
    }
}
