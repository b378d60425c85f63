//! The stage that a kill took from an entry, so that an operator can bring it back once the kill has ended.
//! The history of changes has it too, but forgets the oldest changes of a large policy.

use std::collections::BTreeSet;

use plimsoll_core::decision::Mode;
use plimsoll_core::names::Bucket;
use serde::{Deserialize, Serialize};

use crate::state::{DurableState, Held};

/// The stage before a kill, until the entry moves again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BeforeKill {
    /// The stage.
    pub stage: Mode,
    /// True if the policy of the entry changed since: what it refused then says little about now.
    pub edited: bool,
    /// True once the kill has ended.
    pub ended: bool,
}

impl BeforeKill {
    pub(crate) const fn of(stage: Mode) -> Self {
        Self {
            stage,
            edited: false,
            ended: false,
        }
    }
}

impl DurableState {
    /// The entries that a kill put in shadow, ended or not, and the buckets that a kill of their own holds in shadow below
    /// their pattern.
    fn before_kills(&self) -> impl Iterator<Item = (&str, BeforeKill)> {
        let entries = self
            .stages
            .iter()
            .filter_map(|(name, stage)| Some((name.as_str(), stage.before_kill?)));
        let held = self
            .bucket_kills
            .iter()
            .filter_map(|(bucket, switch)| Some((bucket.as_str(), switch.held.as_ref()?.before?)));
        entries.chain(held)
    }

    /// The names of entries and buckets that can return to a stage above shadow once their kill has ended. A bucket below a
    /// pattern in shadow returns with the pattern.
    pub(crate) fn returning(&self) -> impl Iterator<Item = &str> {
        let waits = |name: &str| {
            let pattern = self
                .held_below(name)
                .and_then(|pattern| self.stages.get(pattern));
            pattern.is_some_and(|pattern| pattern.stage == Mode::Shadow)
        };
        self.before_kills()
            .filter(move |(name, before)| before.stage > Mode::Shadow && !waits(name))
            .map(|(name, _)| name)
    }

    /// The stage that an entry, or a bucket held in shadow below its pattern, had before a kill.
    pub(crate) fn before_kill(&self, name: &str) -> Option<BeforeKill> {
        let of_bucket = || {
            let switch = self.bucket_kills.get(&Bucket::new(name).ok()?)?;
            switch.held.as_ref()?.before
        };
        match self.stages.get(name) {
            Some(stage) => stage.before_kill,
            None => of_bucket(),
        }
    }

    /// The pattern below which a kill of its own holds this bucket in shadow.
    pub(crate) fn held_below(&self, name: &str) -> Option<&str> {
        let held = self
            .bucket_kills
            .get(&Bucket::new(name).ok()?)?
            .held
            .as_ref()?;
        held.entry.as_deref().filter(|entry| *entry != name)
    }

    /// The entries and buckets that stay in shadow after a kill that has ended.
    pub(crate) fn in_shadow_since_kill(&self) -> impl Iterator<Item = &str> {
        self.before_kills()
            .map(|(name, _)| name)
            .filter(|name| !self.is_entry_killed(name))
    }

    /// Lets a bucket that is held in shadow follow its pattern again.
    pub(crate) fn release(&mut self, bucket: &str) {
        let switch = Bucket::new(bucket)
            .ok()
            .and_then(|bucket| self.bucket_kills.get_mut(&bucket));
        if let Some(switch) = switch {
            switch.held = None;
        }
    }

    /// Notes which kills have ended.
    pub(in crate::state) fn note_ended_kills(&mut self) {
        let ended: BTreeSet<String> = self.in_shadow_since_kill().map(str::to_owned).collect();
        self.before_kills_mut()
            .filter(|(name, ..)| ended.contains(*name))
            .for_each(|(.., before)| before.ended = true);
    }

    /// Notes the entries with a changed policy.
    pub(crate) fn note_edits(&mut self, is_edited: impl Fn(&str) -> bool) {
        self.before_kills_mut()
            .filter(|(_, entry, _)| is_edited(entry))
            .for_each(|(.., before)| before.edited = true);
    }

    /// Each with its name, and the entry of the policy that it is or is below.
    fn before_kills_mut(&mut self) -> impl Iterator<Item = (&str, &str, &mut BeforeKill)> {
        let entries = self.stages.iter_mut().filter_map(|(name, stage)| {
            Some((name.as_str(), name.as_str(), stage.before_kill.as_mut()?))
        });
        let held = self.bucket_kills.iter_mut().filter_map(|(bucket, switch)| {
            let Held { entry, before, .. } = switch.held.as_mut()?;
            Some((bucket.as_str(), entry.as_deref()?, before.as_mut()?))
        });
        entries.chain(held)
    }
}
