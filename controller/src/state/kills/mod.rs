//! The durable state of the kill switch: generations, the commands that keep them killed, and the buckets
//! that stay in shadow after a kill.

mod command;
mod reported;

pub(crate) use command::Now;
pub(super) use command::command_or_flag;
pub use command::{Command, End};

use plimsoll_core::decision::Mode;
use plimsoll_core::kill::{KILLED_BUCKETS_MAX, Kill, KillGeneration, KilledBucketsFull, Scope};
use plimsoll_core::names::Bucket;
use plimsoll_policy::Policy;
use serde::{Deserialize, Serialize};

use super::{Cause, DurableState};

/// The kill switch of one bucket that was ever killed alone, or for which a kill was ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketSwitch {
    /// The generation; odd means killed.
    pub generation: KillGeneration,
    /// The command that keeps it killed.
    pub command: Option<Command>,
    /// Present while the bucket stays in shadow after a kill, until its entry is promoted.
    pub held: Option<Held>,
    /// The latest end by command.
    #[serde(default)]
    pub ended: Option<End>,
}

/// The stage of a bucket's entry when it was last read, by which a promotion is noticed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The policy entry that covers the bucket; absent if none matches.
    pub entry: Option<String>,
    /// The stage of the entry.
    pub at: Mode,
}

impl DurableState {
    /// The generation of a scope.
    #[must_use]
    pub fn generation(&self, scope: &Scope) -> KillGeneration {
        match scope {
            Scope::Fleet => self.kill,
            Scope::Bucket(bucket) => {
                self.bucket_kills.get(bucket).map_or(KillGeneration(0), |of| of.generation)
            }
        }
    }

    /// The two generations that concern a bucket.
    #[must_use]
    pub fn kill_of(&self, bucket: &Bucket) -> Kill {
        Kill { fleet: self.kill, bucket: self.generation(&Scope::Bucket(bucket.clone())) }
    }

    /// Returns the mode in force for a bucket with its entry at `stage`.
    pub(crate) fn mode_of(&self, bucket: &Bucket, stage: Mode) -> Mode {
        let is_held = self.bucket_kills.get(bucket).is_some_and(|of| of.held.is_some());
        let kill = self.kill_of(bucket);
        kill.mode(if is_held { Mode::Shadow } else { stage }, kill)
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
        let given_at = self.command(scope).map(|earlier| earlier.given_at.clone()).unwrap_or_default();
        self.set(scope, Some(Command { given_at, ..command }), policy)
    }

    /// Ends the command for a scope; its buckets stay in shadow. Orders for it that were given at aggregators
    /// before now have ended as well. Returns true if there was a command.
    pub(crate) fn on_command_ends(&mut self, scope: &Scope, now: Now, policy: &Policy) -> bool {
        let was_killed = self.generation(scope).is_killed();
        let end = Some(End { at: Some(now.at), at_s: now.unix_s, was_killed });
        match scope {
            Scope::Fleet => self.fleet_kill_ended = end,
            Scope::Bucket(bucket) if self.switch(scope).is_ok() => {
                self.bucket_kills.entry(bucket.clone()).or_default().ended = end;
            }
            // Without room for the bucket, no order for it has any either.
            Scope::Bucket(_) => {}
        }
        self.command(scope).is_some() && self.set(scope, None, policy).unwrap_or(false)
    }

    /// The command in force for a scope.
    pub(crate) fn command(&self, scope: &Scope) -> Option<&Command> {
        match scope {
            Scope::Fleet => self.killed_by_command.as_ref(),
            Scope::Bucket(bucket) => self.bucket_kills.get(bucket)?.command.as_ref(),
        }
    }

    /// Ends the commands that have expired at the time of day `unix_s`, but no orders given at aggregators.
    /// Returns true if any has.
    pub(crate) fn on_time(&mut self, unix_s: i64, policy: &Policy) -> bool {
        let scopes = self.bucket_kills.keys().cloned().map(Scope::Bucket).chain([Scope::Fleet]);
        let is_expired =
            |scope: &Scope| self.command(scope).is_some_and(|command| command.is_expired(unix_s));
        let expired: Vec<Scope> = scopes.filter(is_expired).collect();
        let mut changed = false;
        for scope in &expired {
            let rest = self.command(scope).and_then(|command| command.rest(unix_s));
            changed |= self.set(scope, rest, policy).unwrap_or(false);
        }
        changed
    }

    /// Releases the buckets whose entries were promoted from the shadow that followed a kill. Returns true if
    /// anything changed. Linear in the buckets ever killed alone.
    pub(crate) fn settle_held(&mut self, policy: &Policy) -> bool {
        let fleet = self.kill;
        let mut changed = false;
        for (bucket, switch) in &mut self.bucket_kills {
            let Some(held) = &switch.held else { continue };
            let entry = policy.entry(bucket);
            let at = entry
                .as_ref()
                .and_then(|entry| self.stages.get(entry))
                .map_or(Mode::Enforce, |stage| stage.stage);
            let kill = Kill { fleet, bucket: switch.generation };
            let next = if entry == held.entry && at > held.at && !kill.is_on() {
                None
            } else {
                // A change to another entry is no promotion of this bucket, and a promotion while killed does
                // not outlive the kill.
                Some(Held { entry, at })
            };
            if next.as_ref() != Some(held) {
                switch.held = next;
                changed = true;
            }
        }
        changed
    }

    /// The entries of the policy that a kill put in shadow and that were not promoted since it has ended.
    pub(crate) fn in_shadow_since_kill(&self) -> impl Iterator<Item = &str> {
        self.stages.keys().map(String::as_str).filter(|entry| {
            let mut moves = self.history.iter().rev().filter(|change| change.from != Some(change.to));
            let last = moves.find(|change| change.entry == *entry);
            last.is_some_and(|last| last.cause == Cause::Kill) && !self.is_entry_killed(entry)
        })
    }

    /// Updates the generation of a scope from the policy file and the command. A kill puts every bucket that
    /// it concerns into shadow; its end releases none.
    pub(super) fn settle_generation(&mut self, scope: &Scope, policy: &Policy) {
        let killed = self.is_ordered(scope);
        let Ok((generation, _)) = self.switch(scope) else { return };
        *generation = generation.switched(killed);
        if killed {
            self.lower(scope, policy);
        }
    }

    /// Returns true if the policy file or a command kills a scope.
    fn is_ordered(&self, scope: &Scope) -> bool {
        matches!(scope, Scope::Fleet) && self.killed_by_file || self.command(scope).is_some()
    }

    fn commands(&self) -> impl Iterator<Item = &Command> {
        let of_buckets = self.bucket_kills.values().filter_map(|switch| switch.command.as_ref());
        self.killed_by_command.iter().chain(of_buckets)
    }

    fn ended_mut(&mut self, scope: &Scope) -> Option<&mut End> {
        match scope {
            Scope::Fleet => self.fleet_kill_ended.as_mut(),
            Scope::Bucket(bucket) => self.bucket_kills.get_mut(bucket)?.ended.as_mut(),
        }
    }

    fn set(
        &mut self,
        scope: &Scope,
        command: Option<Command>,
        policy: &Policy,
    ) -> Result<bool, KilledBucketsFull> {
        let (_, held) = self.switch(scope)?;
        if *held == command {
            return Ok(false);
        }
        *held = command;
        self.settle_generation(scope, policy);
        Ok(true)
    }

    fn switch(
        &mut self,
        scope: &Scope,
    ) -> Result<(&mut KillGeneration, &mut Option<Command>), KilledBucketsFull> {
        match scope {
            Scope::Fleet => Ok((&mut self.kill, &mut self.killed_by_command)),
            Scope::Bucket(bucket) => {
                let has_room = self.bucket_kills.len() < KILLED_BUCKETS_MAX;
                if !has_room && !self.bucket_kills.contains_key(bucket) {
                    self.make_room()?;
                }
                let switch = self.bucket_kills.entry(bucket.clone()).or_default();
                Ok((&mut switch.generation, &mut switch.command))
            }
        }
    }

    /// Forgets the earliest end for a bucket that was never killed: an older order for it can kill it again.
    fn make_room(&mut self) -> Result<(), KilledBucketsFull> {
        let never_killed = self.bucket_kills.iter().filter(|(_, switch)| {
            matches!(switch, BucketSwitch { generation: KillGeneration(0), command: None, held: None, .. })
        });
        let earliest = never_killed.min_by_key(|(_, switch)| switch.ended.as_ref().map(|end| end.at_s));
        let bucket = earliest.map(|(bucket, _)| bucket.clone()).ok_or(KilledBucketsFull)?;
        self.bucket_kills.remove(&bucket);
        Ok(())
    }

    fn lower(&mut self, scope: &Scope, policy: &Policy) {
        let mut why = self.why(scope);
        if why.is_empty() {
            why.push("killed at an aggregator, where the kill has ended".to_owned());
        }
        match scope {
            Scope::Fleet => self.put_in_shadow(None, Cause::Kill, &why),
            Scope::Bucket(bucket) => {
                // Only an entry of the bucket's own name goes to shadow: a pattern covers other buckets, too.
                self.put_in_shadow(Some(bucket.as_str()), Cause::Kill, &why);
                let entry = policy.entry(bucket);
                let stage = entry.as_ref().and_then(|entry| self.stages.get(entry));
                let at = stage.map_or(Mode::Enforce, |stage| stage.stage);
                if let Some(switch) = self.bucket_kills.get_mut(bucket) {
                    switch.held = Some(Held { entry, at });
                }
            }
        }
    }

    /// The causes of a kill as text.
    fn why(&self, scope: &Scope) -> Vec<String> {
        let file =
            (matches!(scope, Scope::Fleet) && self.killed_by_file).then(|| "kill_switch: true".to_owned());
        file.into_iter().chain(self.command(scope).map(Command::why)).collect()
    }
}

#[cfg(test)]
mod tests;
