//! The durable state of the kill switch: generations, the commands that keep them killed, and the buckets
//! that stay in shadow after a kill.

mod command;
mod reported;

pub use command::{Command, End};
pub(crate) use command::{Now, hex};

use plimsoll_core::decision::Mode;
use plimsoll_core::kill::{
    KILLED_BUCKETS_MAX, Kill, KillGeneration, KilledBucketsFull, LEARNED_BUCKETS_MAX, Scope,
};
use plimsoll_core::names::Bucket;
use plimsoll_core::quantity::MonoTime;
use plimsoll_policy::Policy;
use serde::{Deserialize, Serialize};

use super::{BeforeKill, Cause, DurableState};

/// The kill switch of one bucket with its own kill, or with an ended one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketSwitch {
    /// The generation; odd means killed.
    pub generation: KillGeneration,
    /// The command that keeps it killed.
    pub command: Option<Command>,
    /// Present from a kill of the bucket until it is resumed, or its entry is promoted, after the kill: the bucket stays in
    /// shadow.
    pub held: Option<Held>,
    /// The latest end by command.
    pub ended: Option<End>,
    /// True if an aggregator's report added it, and no command was given here since.
    pub learned: bool,
}

/// The parts of the kill switch of a scope, to be changed.
struct Switch<'a> {
    generation: &'a mut KillGeneration,
    command: &'a mut Option<Command>,
    ended: &'a mut Option<End>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Here,
    Aggregator,
}

/// The stage of a bucket's entry when it was last read, to notice a promotion.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The policy entry that covers the bucket; absent if none matches.
    pub entry: Option<String>,
    /// The stage of the entry.
    pub at: Mode,
    /// The stage of the pattern that covers it before the kill; absent if it has an entry of its own, or if a lost state was
    /// recovered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<BeforeKill>,
}

impl BucketSwitch {
    /// Returns true if the bucket is not killed and not held in shadow. A hold without an entry does not count: no
    /// promotion could end it.
    fn is_over(&self) -> bool {
        let is_held = self.held.as_ref().is_some_and(|held| held.entry.is_some());
        !self.generation.is_killed() && self.command.is_none() && !is_held
    }
}

impl DurableState {
    /// The generation of a scope.
    pub fn generation(&self, scope: &Scope) -> KillGeneration {
        match scope {
            Scope::Fleet => self.kill,
            Scope::Bucket(bucket) => self
                .bucket_kills
                .get(bucket)
                .map_or(self.forgotten, |of| of.generation),
        }
    }

    /// The two generations that concern a bucket.
    pub fn kill_of(&self, bucket: &Bucket) -> Kill {
        Kill {
            fleet: self.kill,
            bucket: self.generation(&Scope::Bucket(bucket.clone())),
        }
    }

    /// The mode of a bucket whose entry is in `stage`: shadow while it is killed or held.
    pub(crate) fn mode_of(&self, bucket: &Bucket, stage: Mode) -> Mode {
        let is_held = self
            .bucket_kills
            .get(bucket)
            .is_some_and(|of| of.held.is_some());
        let kill = self.kill_of(bucket);
        kill.mode(if is_held { Mode::Shadow } else { stage }, kill)
    }

    /// Moves the generation of a scope to at least a claim, before a command for the scope, without changing whether it
    /// is killed by an order here. Moves no bucket to shadow. Returns true if the generation moved.
    pub(crate) fn pass_claim(&mut self, scope: &Scope, claimed: KillGeneration) -> bool {
        let killed = self.is_ordered(scope);
        if claimed <= self.generation(scope) {
            return false;
        }
        let Ok(switch) = self.switch(scope, Source::Here) else {
            return false;
        };
        *switch.generation = claimed.switched(killed);
        true
    }

    /// Kills a scope by command, which replaces an earlier command for it, but no orders given at aggregators.
    /// Returns true if anything changed.
    ///
    /// # Errors
    /// If there is no room for another bucket.
    pub(crate) fn on_command(
        &mut self,
        scope: &Scope,
        command: Command,
        policy: &Policy,
    ) -> Result<bool, KilledBucketsFull> {
        let ordered_by = self
            .command(scope)
            .map(|earlier| earlier.ordered_by.clone())
            .unwrap_or_default();
        self.set(
            scope,
            Some(Command {
                ordered_by,
                ..command
            }),
            policy,
        )
    }

    /// Ends the command for a scope; its buckets stay in shadow. Orders for it that were given at aggregators
    /// before now have ended as well. Returns true if there was a command.
    pub(crate) fn on_command_ends(&mut self, scope: &Scope, now: Now, policy: &Policy) -> bool {
        let was_killed = self.generation(scope).is_killed();
        // Without room for the bucket, no order for it has any either.
        if let Ok(switch) = self.switch(scope, Source::Here) {
            *switch.ended = Some(End {
                at: Some(now.at),
                at_s: now.unix_s,
                was_killed,
            });
        }
        self.command(scope).is_some() && self.set(scope, None, policy).unwrap_or(false)
    }

    pub(crate) fn command(&self, scope: &Scope) -> Option<&Command> {
        match scope {
            Scope::Fleet => self.killed_by_command.as_ref(),
            Scope::Bucket(bucket) => self.bucket_kills.get(bucket)?.command.as_ref(),
        }
    }

    /// Counts down the times to live, by the clock of this process. Returns true if one should be saved.
    pub(crate) fn count_down(&mut self, now: MonoTime, unix_s: i64) -> bool {
        let of_buckets = self
            .bucket_kills
            .values_mut()
            .filter_map(|switch| switch.command.as_mut());
        let mut is_due = false;
        for command in self.killed_by_command.iter_mut().chain(of_buckets) {
            is_due |= command.count_down(now, unix_s);
        }
        is_due
    }

    /// Ends the commands with an expired time to live, but no orders given at aggregators. Returns true if one has
    /// ended. `unix_s` is the time of day.
    pub(crate) fn on_time(&mut self, unix_s: i64, policy: &Policy) -> bool {
        let scopes = self
            .bucket_kills
            .keys()
            .cloned()
            .map(Scope::Bucket)
            .chain([Scope::Fleet]);
        let is_expired = |scope: &Scope| self.command(scope).is_some_and(Command::is_expired);
        let expired: Vec<Scope> = scopes.filter(is_expired).collect();
        let mut changed = false;
        for scope in &expired {
            let rest = self
                .command(scope)
                .and_then(|command| command.after_expiry(unix_s));
            changed |= self.set(scope, rest, policy).unwrap_or(false);
        }
        changed
    }

    /// Releases the buckets with entries that were promoted from the shadow that followed a kill.
    /// Returns true if anything changed. Linear in the buckets that ever had their own kill.
    pub(crate) fn settle_held(&mut self, policy: &Policy) -> bool {
        let fleet = self.kill;
        let mut changed = false;
        for (bucket, switch) in &mut self.bucket_kills {
            let Some(held) = &switch.held else { continue };
            let entry = policy.entry(bucket);
            // Without a stage it is enforce: no stage is above that, so nothing counts as a promotion.
            let at = entry
                .as_ref()
                .and_then(|entry| self.stages.get(entry))
                .map_or(Mode::Enforce, |stage| stage.stage);
            let kill = Kill {
                fleet,
                bucket: switch.generation,
            };
            let next = if entry == held.entry && at > held.at && !kill.is_on() {
                None
            } else {
                // A change to another entry is no promotion of this bucket. A promotion while killed raises `at`, so
                // that only a further one after the kill releases the bucket.
                let edited = held.before.map(|before| BeforeKill {
                    edited: before.edited || entry != held.entry,
                    ..before
                });
                Some(Held {
                    entry,
                    at,
                    before: edited,
                })
            };
            if next.as_ref() != Some(held) {
                switch.held = next;
                changed = true;
            }
        }
        changed
    }

    /// Updates the generation of a scope from the policy file and the command. A kill puts every bucket that
    /// it concerns into shadow; its end releases none.
    pub(super) fn settle_generation(&mut self, scope: &Scope, policy: &Policy) {
        let killed = self.is_ordered(scope);
        let Some(Switch { generation, .. }) = self.present(scope) else {
            return;
        };
        *generation = generation.switched(killed);
        if killed {
            self.lower(scope, policy);
        } else {
            self.note_ended_kills();
        }
    }

    fn is_ordered(&self, scope: &Scope) -> bool {
        matches!(scope, Scope::Fleet) && self.killed_by_file || self.command(scope).is_some()
    }

    fn commands(&self) -> impl Iterator<Item = &Command> {
        let of_buckets = self
            .bucket_kills
            .values()
            .filter_map(|switch| switch.command.as_ref());
        self.killed_by_command.iter().chain(of_buckets)
    }

    /// The switch of the fleet, or of a bucket that has one.
    fn present(&mut self, scope: &Scope) -> Option<Switch<'_>> {
        let (generation, command, ended) = match scope {
            Scope::Fleet => (
                &mut self.kill,
                &mut self.killed_by_command,
                &mut self.fleet_kill_ended,
            ),
            Scope::Bucket(bucket) => {
                let of = self.bucket_kills.get_mut(bucket)?;
                (&mut of.generation, &mut of.command, &mut of.ended)
            }
        };
        Some(Switch {
            generation,
            command,
            ended,
        })
    }

    /// Replaces the command for a scope, and updates its generation. Returns true if anything changed.
    fn set(
        &mut self,
        scope: &Scope,
        command: Option<Command>,
        policy: &Policy,
    ) -> Result<bool, KilledBucketsFull> {
        let switch = self.switch(scope, Source::Here)?;
        if *switch.command == command {
            return Ok(false);
        }
        *switch.command = command;
        self.settle_generation(scope, policy);
        Ok(true)
    }

    /// The switch of a scope. A bucket without one gets one if there is room.
    fn switch(&mut self, scope: &Scope, from: Source) -> Result<Switch<'_>, KilledBucketsFull> {
        if let Scope::Bucket(bucket) = scope {
            if !self.bucket_kills.contains_key(bucket) {
                self.make_room(from)?;
            }
            let learned = from == Source::Aggregator;
            let new = BucketSwitch {
                generation: self.forgotten,
                learned,
                ..BucketSwitch::default()
            };
            let switch = self.bucket_kills.entry(bucket.clone()).or_insert(new);
            switch.learned &= learned;
        }
        self.present(scope).ok_or(KilledBucketsFull)
    }

    /// Makes room for one more bucket. If the switches are full, forgets one that is over: first those without the time
    /// of an end, then the earliest ended. An older order for it can kill it again.
    fn make_room(&mut self, from: Source) -> Result<(), KilledBucketsFull> {
        // Reports of aggregators have a bound of their own and displace only learned switches; a command here, any.
        let shares_bound = |switch: &BucketSwitch| from == Source::Here || switch.learned;
        let bound = if from == Source::Here {
            KILLED_BUCKETS_MAX
        } else {
            LEARNED_BUCKETS_MAX
        };
        let is_full = self.bucket_kills.len() >= KILLED_BUCKETS_MAX
            || self
                .bucket_kills
                .values()
                .filter(|switch| shares_bound(switch))
                .count()
                >= bound;
        if !is_full {
            return Ok(());
        }
        let over = self
            .bucket_kills
            .iter()
            .filter(|(_, switch)| shares_bound(switch) && switch.is_over());
        let earliest = over.min_by_key(|(_, switch)| switch.ended.as_ref().map(|end| end.at_s));
        let bucket = earliest
            .map(|(bucket, _)| bucket.clone())
            .ok_or(KilledBucketsFull)?;
        self.forget(&bucket);
        Ok(())
    }

    /// Forgets a kill that has ended. Every bucket's generation becomes at least the forgotten one, so that all later
    /// decisions know it, and a later kill of the bucket has a higher one; none changes between killed and not.
    fn forget(&mut self, bucket: &Bucket) {
        let Some(over) = self.bucket_kills.remove(bucket) else {
            return;
        };
        self.forgotten.merge(over.generation);
        for switch in self.bucket_kills.values_mut() {
            if switch.generation < self.forgotten {
                switch.generation = self.forgotten.switched(switch.generation.is_killed());
            }
        }
    }

    /// Puts the buckets of a scope in shadow.
    fn lower(&mut self, scope: &Scope, policy: &Policy) {
        let mut why = self.why(scope);
        if why.is_empty() {
            why.push("killed at an aggregator, where the kill has ended".to_owned());
        }
        match scope {
            Scope::Fleet => self.put_in_shadow(None, Cause::Kill, &why),
            Scope::Bucket(bucket) => {
                // Only an entry of the bucket's own name is put in shadow: a pattern covers other
                // buckets, too.
                self.put_in_shadow(Some(bucket.as_str()), Cause::Kill, &why);
                let entry = policy.entry(bucket);
                let stage = entry.as_ref().and_then(|entry| self.stages.get(entry));
                let at = stage.map_or(Mode::Enforce, |stage| stage.stage);
                // A kill of the fleet may have put the pattern in shadow earlier.
                let earlier = stage.and_then(|stage| stage.before_kill);
                let was = earlier.map_or(at, |before| before.stage);
                let is_own = entry.as_deref() == Some(bucket.as_str());
                if let Some(switch) = self.bucket_kills.get_mut(bucket) {
                    let before = match switch.held.take() {
                        Some(held) => held.before,
                        None => (!is_own).then(|| BeforeKill::of(was)),
                    };
                    switch.held = Some(Held { entry, at, before });
                }
            }
        }
    }

    fn why(&self, scope: &Scope) -> Vec<String> {
        let file = (matches!(scope, Scope::Fleet) && self.killed_by_file)
            .then(|| "kill_switch: true".to_owned());
        file.into_iter()
            .chain(self.command(scope).map(Command::why))
            .collect()
    }
}

#[cfg(test)]
mod tests;
