//! The kills that aggregators report: orders that were given there, and generations as evidence of orders that
//! are lost.

use plimsoll_core::decision::Mode;
use plimsoll_core::kill::{KILL_ORDERS_MAX, KillGeneration, KillNews, KillOrder, OrderId, Scope};
use plimsoll_core::names::Bucket;
use plimsoll_policy::Policy;

use super::{Command, Held, Now, Source, Switch, hex};
use crate::state::DurableState;

impl DurableState {
    /// Takes the orders in an aggregator's report, and the generations of the scopes that they name. Returns true
    /// if anything changed.
    ///
    /// All other generations move nothing, unless this controller has lost its state: then they are `evidence`.
    /// An odd one counts as a command without a reason, an even one ends such a command, but no command given
    /// here.
    pub(crate) fn on_report(
        &mut self,
        news: &KillNews,
        evidence: bool,
        now: Now,
        policy: &Policy,
    ) -> bool {
        let mut changed = false;
        for (id, order) in &news.orders {
            let generation = news.generation(&id.scope).unwrap_or_default();
            changed |= self.on_order(id, *order, generation, now, policy);
        }
        let is_taken = |(scope, generation): &(Scope, KillGeneration)| {
            evidence && !news.has_order(scope) && self.generation(scope).accepts(*generation)
        };
        let taken: Vec<_> = news.generations().filter(is_taken).collect();
        for (scope, generation) in taken {
            changed |= self.on_generation(&scope, generation, now.unix_s, policy);
        }
        changed
    }

    /// Takes a generation of an aggregator. A larger generation of a kill puts every bucket that it
    /// concerns in shadow.
    fn on_generation(
        &mut self,
        scope: &Scope,
        reported: KillGeneration,
        unix_s: Option<i64>,
        policy: &Policy,
    ) -> bool {
        if reported <= self.generation(scope) {
            return false;
        }
        let Ok(Switch {
            generation,
            command,
            ..
        }) = self.switch(scope, Source::Aggregator)
        else {
            return false;
        };
        *generation = reported;
        if reported.is_killed() {
            command.get_or_insert(Command::learned(unix_s));
        } else {
            command.take_if(|command| command.is_learned());
            command
                .iter_mut()
                .for_each(|command| command.ordered_by.clear());
        }
        // The end of a kill moves a number, never a stage.
        if reported.is_killed() {
            self.lower(scope, policy);
        }
        self.settle_generation(scope, policy);
        true
    }

    /// Holds a bucket in shadow that its own kill, which has ended, left there.
    pub(crate) fn hold_bucket(&mut self, bucket: &Bucket, policy: &Policy) {
        let Some(entry) = policy
            .entry(bucket)
            .filter(|entry| entry != bucket.as_str())
        else {
            return;
        };
        let at = self
            .stages
            .get(&entry)
            .map_or(Mode::Enforce, |stage| stage.stage);
        if let Some(switch) = self.bucket_kills.get_mut(bucket) {
            switch.held = Some(Held {
                entry: Some(entry),
                at,
                before: None,
            });
        }
    }

    /// Takes an order that was given at an aggregator, or its end, and the generation reported with
    /// it. The aggregator did not know the state here, so an order kills regardless of the
    /// generations, unless a command given here has ended it since.
    fn on_order(
        &mut self,
        id: &OrderId,
        order: KillOrder,
        reported: KillGeneration,
        now: Now,
        policy: &Policy,
    ) -> bool {
        let scope = &id.scope;
        let has_room = self
            .commands()
            .map(|command| command.ordered_by.len())
            .sum::<usize>()
            < KILL_ORDERS_MAX;
        let has_given = self.has_given(id);
        let Ok(Switch {
            generation,
            command,
            ended,
        }) = self.switch(scope, Source::Aggregator)
        else {
            return false;
        };
        let before = (*generation, command.clone());
        let is_new = reported > *generation && generation.accepts(reported);
        let reported = if is_new { reported } else { *generation };
        *generation = reported;
        let instance = hex(id.given_at);
        if let Some(end) = ended.as_mut().filter(|end| end.is_after(order.age, now)) {
            // Buckets that were promoted since the end stay as they are if they were in shadow before it.
            let was_killed = std::mem::replace(&mut end.was_killed, true);
            if is_new || !was_killed {
                self.pass_kill(scope, is_new, policy);
            }
        } else if order.is_in_force() {
            if !has_given {
                let command = command.get_or_insert_with(|| Command::learned(now.unix_s));
                if let Some(given) = command.ordered_by.get_mut(&instance) {
                    given.merge(order.generation);
                } else if has_room {
                    command.ordered_by.insert(instance, order.generation);
                }
            }
            self.settle_generation(scope, policy);
        } else {
            command.take_if(|command| {
                // Another aggregator may know of a later order of this process.
                let given = command.ordered_by.get(&instance);
                let was_given = given.is_some_and(|given| *given < order.generation);
                if was_given {
                    command.ordered_by.remove(&instance);
                }
                if order.ends_held && is_new && !reported.is_killed() {
                    command.ordered_by.clear();
                }
                command.is_learned() && command.ordered_by.is_empty() && (was_given || is_new)
            });
            self.pass_kill(scope, is_new, policy);
        }
        before != (self.generation(scope), self.command(scope).cloned())
    }

    /// Returns true if the command for the scope is this order: the controller that gave it did not know that it was saved.
    fn has_given(&self, id: &OrderId) -> bool {
        let command = self.command(&id.scope);
        command.is_some_and(|command| command.given_at == Some(hex(id.given_at)))
    }

    /// Moves the generation past a kill that began and ended at an aggregator, and puts the buckets in shadow, unless
    /// the scope is killed anyway: the current modes were decided without knowledge of it. A generation that
    /// `is_new` from there has passed the kill already.
    fn pass_kill(&mut self, scope: &Scope, is_new: bool, policy: &Policy) {
        let killed = self.is_ordered(scope);
        let Some(Switch { generation, .. }) = self.present(scope) else {
            return;
        };
        let passed = if is_new {
            *generation
        } else {
            generation.switched(true)
        };
        *generation = passed.switched(killed);
        if !killed {
            self.lower(scope, policy);
        }
    }
}
