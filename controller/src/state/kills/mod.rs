//! Which kills are in force, who says so, and what stays in shadow after them: what a controller must not forget of the
//! kill switch.

use std::collections::BTreeMap;

use plimsoll_core::names::Bucket;
use plimsoll_core::kill::{KILLED_BUCKETS_MAX, Kill, KillGeneration, NoRoom, Scope};
use plimsoll_policy::Policy;
use plimsoll_core::decision::Mode;
use plimsoll_core::names::Text;
use serde::{Deserialize, Deserializer, Serialize};

use super::{Cause, Durable};

/// A person's order to kill, given by command; or what was learned from below, where nobody here knows who gave it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// Why; absent where it was learned from a child.
    pub reason: Option<Text>,
    /// Who says that it was them; nobody checks.
    pub by: Option<Text>,
    /// Since when, in seconds since 1970 by this machine's clock; absent where that was not known.
    pub since_s: Option<i64>,
    /// When it ends by itself, likewise; absent: when somebody ends it.
    pub until_s: Option<i64>,
}

/// The switch of one bucket that was killed alone at some time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketSwitch {
    /// Odd means killed.
    pub generation: KillGeneration,
    /// What says so.
    pub command: Option<Command>,
    /// It is kept in shadow until somebody raises its entry.
    pub held: Option<Held>,
}

/// What a bucket's stage was when it was last looked at, so that a rise of it is noticed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The entry of the policy it falls under; absent where none matches.
    pub entry: Option<String>,
    /// That entry's stage.
    pub at: Mode,
}

impl Command {
    /// One whose reason is not known, because it was given elsewhere.
    #[must_use]
    pub const fn learned(since_s: Option<i64>) -> Self {
        Self { reason: None, by: None, since_s, until_s: None }
    }

    fn is_over(&self, unix_s: i64) -> bool {
        self.until_s.is_some_and(|until| unix_s >= until)
    }

    fn is_learned(&self) -> bool {
        self.reason.is_none()
    }
}

/// Reads the cause as it is written now, and as it was before there were commands: whether there is one.
pub(super) fn command_or_flag<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Command>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Saved {
        Flag(bool),
        Command(Option<Command>),
    }
    Ok(match Saved::deserialize(from)? {
        Saved::Flag(killed) => killed.then(Command::default),
        Saved::Command(command) => command,
    })
}

impl Durable {
    /// The generation of what is named.
    #[must_use]
    pub fn generation(&self, scope: &Scope) -> KillGeneration {
        match scope {
            Scope::Fleet => self.kill,
            Scope::Bucket(bucket) => {
                self.bucket_kills.get(bucket).map_or(KillGeneration(0), |of| of.generation)
            }
        }
    }

    /// The generations that concern a bucket.
    #[must_use]
    pub fn kill_of(&self, bucket: &Bucket) -> Kill {
        Kill { fleet: self.kill, bucket: self.generation(&Scope::Bucket(bucket.clone())) }
    }

    /// What is in force for a bucket that falls under an entry whose stage is `stage`.
    #[must_use]
    pub fn mode_of(&self, bucket: &Bucket, stage: Mode) -> Mode {
        let is_held = self.bucket_kills.get(bucket).is_some_and(|of| of.held.is_some());
        let kill = self.kill_of(bucket);
        kill.of(if is_held { Mode::Shadow } else { stage }, kill)
    }

    /// Somebody orders a kill; another order for the same takes its place. True when anything changed.
    ///
    /// # Errors
    /// When there is no room for another bucket.
    pub fn on_command(&mut self, scope: &Scope, command: Command, policy: &Policy) -> Result<bool, NoRoom> {
        self.set(scope, Some(command), policy)
    }

    /// Somebody takes such an order back, or it ends by itself. What was killed stays in shadow. True when there was one.
    pub fn on_command_ends(&mut self, scope: &Scope, policy: &Policy) -> bool {
        self.command(scope).is_some() && self.set(scope, None, policy).unwrap_or(false)
    }

    /// The order in force.
    #[must_use]
    pub fn command(&self, scope: &Scope) -> Option<&Command> {
        match scope {
            Scope::Fleet => self.killed_by_command.as_ref(),
            Scope::Bucket(bucket) => self.bucket_kills.get(bucket)?.command.as_ref(),
        }
    }

    /// Time passes on the wall: orders that were given for a while end. True when one did.
    pub fn on_time(&mut self, unix_s: i64, policy: &Policy) -> bool {
        let scopes = self.bucket_kills.keys().cloned().map(Scope::Bucket).chain([Scope::Fleet]);
        let is_over = |scope: &Scope| self.command(scope).is_some_and(|command| command.is_over(unix_s));
        let over: Vec<Scope> = scopes.filter(is_over).collect();
        for scope in &over {
            self.on_command_ends(scope, policy);
        }
        !over.is_empty()
    }

    /// Takes over what a child holds. An odd generation counts as an order whose reason is not known; an even one ends such
    /// an order, and none that was given here. Whatever it is, somebody has turned the switch, and so everything it
    /// concerns goes to shadow. True when anything changed.
    pub fn on_learned(
        &mut self,
        fleet: KillGeneration,
        buckets: &BTreeMap<Bucket, KillGeneration>,
        unix_s: Option<i64>,
        policy: &Policy,
    ) -> bool {
        let of_buckets =
            buckets.iter().map(|(bucket, generation)| (Scope::Bucket(bucket.clone()), *generation));
        let mut changed = false;
        for (scope, learned) in of_buckets.chain([(Scope::Fleet, fleet)]) {
            if learned <= self.generation(&scope) || self.switch(&scope).is_err() {
                continue;
            }
            if let Ok((generation, command)) = self.switch(&scope) {
                *generation = learned;
                if learned.is_killed() {
                    command.get_or_insert(Command::learned(unix_s));
                } else {
                    command.take_if(|command| command.is_learned());
                }
            }
            self.lower(&scope, policy);
            self.turn(&scope, policy);
            changed = true;
        }
        changed
    }

    /// Something was ordered killed at an aggregator that did not know what is known here. Whatever generation it came to,
    /// and whatever that one is here: it is a kill. True when that changed anything.
    pub fn on_ordered_below(&mut self, scope: &Scope, unix_s: Option<i64>, policy: &Policy) -> bool {
        self.command(scope).is_none()
            && self.set(scope, Some(Command::learned(unix_s)), policy).unwrap_or(false)
    }

    /// Something was ordered killed and has ended at an aggregator, and nobody here knew of it: neither did whoever decided
    /// the modes that hold. A kill and its end, unless it is killed anyway. True when that changed anything.
    pub fn on_ended_below(&mut self, scope: &Scope, policy: &Policy) -> bool {
        let Ok((generation, _)) = self.switch(scope) else { return false };
        if generation.is_killed() {
            return false;
        }
        *generation = generation.turned(true).turned(false);
        self.lower(scope, policy);
        true
    }

    /// Notices what somebody has raised: it is no longer kept in shadow for having been killed. True when anything changed.
    /// Linear in the buckets that are.
    pub fn settle_held(&mut self, policy: &Policy) -> bool {
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
                // Another entry is nobody's word on this bucket, and what is raised while killed does not survive it.
                Some(Held { entry, at })
            };
            if next.as_ref() != Some(held) {
                switch.held = next;
                changed = true;
            }
        }
        changed
    }

    /// Brings the generation of what is named in line with its causes. An edge puts everything it concerns into shadow, and
    /// nothing leaves it by the edge back.
    pub(super) fn turn(&mut self, scope: &Scope, policy: &Policy) {
        let by_file = matches!(scope, Scope::Fleet) && self.killed_by_file;
        let Ok((generation, command)) = self.switch(scope) else { return };
        let killed = by_file || command.is_some();
        *generation = generation.turned(killed);
        if killed {
            self.lower(scope, policy);
        }
    }

    fn set(&mut self, scope: &Scope, command: Option<Command>, policy: &Policy) -> Result<bool, NoRoom> {
        let (_, held) = self.switch(scope)?;
        if *held == command {
            return Ok(false);
        }
        *held = command;
        self.turn(scope, policy);
        Ok(true)
    }

    fn switch(&mut self, scope: &Scope) -> Result<(&mut KillGeneration, &mut Option<Command>), NoRoom> {
        match scope {
            Scope::Fleet => Ok((&mut self.kill, &mut self.killed_by_command)),
            Scope::Bucket(bucket) => {
                let has_room = self.bucket_kills.len() < KILLED_BUCKETS_MAX;
                if !has_room && !self.bucket_kills.contains_key(bucket) {
                    return Err(NoRoom);
                }
                let switch = self.bucket_kills.entry(bucket.clone()).or_default();
                Ok((&mut switch.generation, &mut switch.command))
            }
        }
    }

    fn lower(&mut self, scope: &Scope, policy: &Policy) {
        let mut why = self.why(scope);
        if why.is_empty() {
            why.push("killed at an aggregator, where it has ended since".to_owned());
        }
        match scope {
            Scope::Fleet => self.put_in_shadow(None, Cause::Kill, &why),
            Scope::Bucket(bucket) => {
                // Its own entry goes to shadow; that of a pattern stands for other buckets, too.
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

    /// Who says that it is killed, in words.
    fn why(&self, scope: &Scope) -> Vec<String> {
        let file =
            (matches!(scope, Scope::Fleet) && self.killed_by_file).then(|| "kill_switch: true".to_owned());
        let command = self.command(scope).map(|command| match &command.reason {
            Some(reason) => reason.to_string(),
            None => "learned from an aggregator".to_owned(),
        });
        file.into_iter().chain(command).collect()
    }
}

#[cfg(test)]
mod tests;
