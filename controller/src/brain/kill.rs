//! The kill switch and drills at the brain: operators' orders, kills reported by aggregators, and the
//! aggregators that a drill waits for.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_core::kill::drill::{Drill, DrillTiming, DueChild};
use plimsoll_core::kill::{Claims, KillClaim, KillOrder, KilledBucketsFull, Kills, OrderId, Scope};
use plimsoll_core::names::Bucket;
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::{ClientCounts, Identity, InstanceId, Report, Role};

use super::{Brain, Downstream};
use crate::aggregators::leadership::Mandate;
use crate::aggregators::{AggregatorKey, place_of};
use crate::state::{Command, DurableState, Now, hex};

/// Maximum number of kills that aggregators are sent as orders, because they could not be saved. Of further ones they
/// are sent the generations only.
const UNSAVED_ORDERS_MAX: usize = 100;

impl Brain {
    /// Kills by an operator's command, which replaces an earlier command for the same scope. The generation moves
    /// past every claim, as with every command.
    ///
    /// # Errors
    /// If there is no room for another bucket with its own kill.
    pub fn on_kill(
        &mut self,
        scope: &Scope,
        mut command: Command,
    ) -> Result<(), KilledBucketsFull> {
        command.given_at = Some(hex(self.downstream.sessions.own()));
        let has_passed = self
            .durable
            .pass_claim(scope, self.kills.claims().highest(scope));
        let changed = self
            .durable
            .on_command(scope, command, &self.policies.in_force)?;
        self.pending_saves.kills.insert(scope.clone());
        self.on_moves(changed || has_passed);
        if self.pending_saves.failure.is_some() {
            self.order_unsaved();
        }
        Ok(())
    }

    /// Kills by an order in the store that was created at this revision. Returns false if that was done before: an
    /// operator may have ended the kill since.
    ///
    /// # Errors
    /// As for [`on_kill`](Self::on_kill). The order counts as done.
    pub(crate) fn on_stored_kill(
        &mut self,
        created: u64,
        scope: &Scope,
        command: Command,
    ) -> Result<bool, KilledBucketsFull> {
        let is_new = self.durable.orders_done.insert(created);
        self.pending_saves.note_change(is_new);
        if is_new {
            self.on_kill(scope, command)?;
        }
        Ok(is_new)
    }

    /// Forgets the orders that are not in the store any more.
    pub(crate) fn retain_stored_kills(&mut self, stored: &BTreeSet<u64>) {
        self.durable
            .orders_done
            .retain(|created| stored.contains(created));
    }

    /// Makes orders of kills that are about to be sent unsaved, unless a directory has the state: another elected
    /// controller, which does not know them, hears of them from the aggregators.
    pub(super) fn order_unsaved(&mut self) {
        let kills = std::mem::take(&mut self.pending_saves.kills);
        if self.leadership.mandate == Mandate::Directory {
            return;
        }
        let mut has_passed = false;
        for scope in kills {
            if self.durable.command(&scope).is_none() {
                continue;
            }
            let given = &mut self.pending_saves.orders;
            if let Some((earlier, _)) = given.get(&scope) {
                // Another leader may have ended the earlier kill: this one is younger.
                has_passed |= self.durable.pass_claim(&scope, earlier.switched(false));
            } else if given.len() >= UNSAVED_ORDERS_MAX {
                continue;
            }
            let generation = self.durable.generation(&scope);
            given.insert(scope, (generation, None));
        }
        self.on_moves(has_passed);
    }

    /// The kills that could not be saved, until they are, and from then on the ends of such kills.
    pub(super) fn unsaved_orders(&self, now: MonoTime) -> BTreeMap<OrderId, KillOrder> {
        let orders = self
            .pending_saves
            .orders
            .iter()
            .map(|(scope, (generation, at))| {
                let held = self.durable.generation(scope);
                let (generation, at) = match held.is_killed() {
                    true => (*generation, at.unwrap_or(now)),
                    false => (held, now),
                };
                let order = KillOrder {
                    generation,
                    age: now.since(at),
                    ends_held: false,
                };
                let id = OrderId {
                    scope: scope.clone(),
                    given_at: self.downstream.sessions.own(),
                };
                (id, order)
            });
        orders
            .filter(|(_, order)| !order.is_in_force() || !self.is_saved())
            .collect()
    }

    /// Ends the command for a scope. Its buckets stay in shadow. Orders for it that were given at aggregators
    /// before `now` do not come back. Returns whether there was a command, and whether the generation moved past a
    /// claim.
    pub fn on_kill_ends(&mut self, now: MonoTime, scope: &Scope) -> (bool, bool) {
        let now = self.time(now);
        let passed = self
            .durable
            .pass_claim(scope, self.kills.claims().highest(scope));
        let ended = self
            .durable
            .on_command_ends(scope, now, &self.policies.in_force);
        self.on_moves(true);
        (ended, passed)
    }

    /// The known aggregators without a stream: the controller does not know the orders given there.
    pub(crate) fn aggregators_away(&self) -> impl Iterator<Item = AggregatorKey> {
        let mut away = self.known_aggregators();
        for child in self.downstream.sessions.connected() {
            away.remove(&place_of(&child.identity));
        }
        away.into_iter()
    }

    /// The kill generations that aggregators are sent.
    pub const fn kills(&self) -> &Kills {
        self.kills.kills()
    }

    pub(crate) fn knows(&self, bucket: &Bucket) -> bool {
        self.buckets.states.contains_key(bucket) || self.policies.in_force.entry(bucket).is_some()
    }

    /// The buckets that the policy names, and those in use; some are in both.
    pub(crate) fn known_buckets(&self) -> impl Iterator<Item = &Bucket> {
        let named = self
            .policies
            .in_force
            .exact_buckets()
            .map(|(bucket, _)| bucket);
        named.chain(self.buckets.states.values().map(|bucket| &bucket.name))
    }

    pub(crate) fn clients(&self) -> ClientCounts {
        self.downstream.sessions.clients()
    }

    /// Begins a drill among the aggregators.
    pub fn begin_drill(&mut self, now: MonoTime) -> Drill {
        self.kills
            .begin_drill(now, None, due_children(&self.downstream))
    }

    /// The confirmations of the latest drill.
    pub const fn drill_timing(&self) -> &DrillTiming {
        self.kills.timing()
    }

    /// Joins a drill that began at an aggregator. Returns true if it is later than the latest one.
    pub(super) fn join_drill(&mut self, now: MonoTime, drill: Drill) -> bool {
        self.kills
            .on_drill(now, drill, None, due_children(&self.downstream))
    }

    /// Counts down the times to live of kills, and ends expired ones. Notes the time of orders: if it is unsure whether
    /// another leader has ended a kill, it has not.
    pub(super) fn on_time(&mut self, now: MonoTime, unix_s: i64) {
        for (_, at) in self.pending_saves.orders.values_mut() {
            at.get_or_insert(now);
        }
        let is_due = self.durable.count_down(now, unix_s);
        self.pending_saves.note_wanted(is_due);
        let changed = self.durable.on_time(unix_s, &self.policies.in_force);
        self.on_moves(changed);
    }

    /// Takes the orders in an aggregator's report. Generations without an order are claims, or evidence for a
    /// controller that has lost its state, which also recovers its stages. Returns true if the report has a later
    /// drill than the latest one here.
    pub(super) fn learn_kills(&mut self, now: MonoTime, child: &Identity, report: &Report) -> bool {
        let (evidence, time) = (self.recovers(now), self.time(now));
        let changed =
            self.durable
                .on_report(&report.kills, evidence, time, &self.policies.in_force);
        let place = place_of(child);
        let changed = self.recover(now, &place, report) || changed;
        self.on_moves(changed);
        self.note_claims(now, child, report);
        self.kills
            .on_confirmation(now, child.instance, Role::Aggregator, report);
        self.join_drill(now, report.kills.drill)
    }

    /// Notes the generations in the report that are above the ones here, its own and those of clients that it
    /// passes on.
    fn note_claims(&mut self, now: MonoTime, child: &Identity, report: &Report) {
        let (durable, claims) = (&self.durable, self.kills.claims_mut());
        let mut note = |scope: &Scope, claim: KillClaim| {
            claims.note(now, durable.generation(scope), scope, claim, child);
        };
        for (scope, generation) in report.kills.generations() {
            note(&scope, KillClaim::of(child, generation));
        }
        report
            .kills_below
            .claims
            .iter()
            .for_each(|(scope, claim)| note(scope, claim.clone()));
    }

    /// The generations that aggregators and clients claim without an order.
    pub(crate) const fn kill_claims(&self) -> &Claims {
        self.kills.claims()
    }

    pub(crate) fn take_kill_claims(&mut self, now: MonoTime) -> Vec<(Scope, KillClaim)> {
        self.kills.claims_mut().take_unlogged(now)
    }

    const fn time(&self, now: MonoTime) -> Now {
        Now {
            at: now,
            unix_s: self.clock.unix_s,
        }
    }

    /// Updates the generations that aggregators are sent from the durable state, before directives are
    /// computed.
    pub(super) fn settle_kills(&mut self) {
        let changed = self.durable.settle_held(&self.policies.in_force);
        self.pending_saves.note_change(changed);
        let DurableState {
            kill,
            forgotten,
            bucket_kills,
            ..
        } = &self.durable;
        self.kills.forget(*forgotten);
        self.kills.raise(&Scope::Fleet, *kill);
        for (bucket, switch) in bucket_kills {
            if self.kills.kills().bucket(bucket).max(*forgotten) < switch.generation {
                self.kills
                    .raise(&Scope::Bucket(bucket.clone()), switch.generation);
            }
        }
        let durable = &self.durable;
        let claims = self.kills.claims_mut();
        claims.prune(self.clock.at);
        claims.settle(|scope| durable.generation(scope));
    }
}

/// The connected aggregators, as a drill waits for them.
fn due_children(downstream: &Downstream) -> impl Iterator<Item = (InstanceId, DueChild)> {
    downstream.sessions.connected().map(|child| {
        let place = place_of(&child.identity);
        let clients = downstream.aggregators.clients(&place).map_or(1, u64::from);
        (
            child.identity.instance,
            DueChild {
                zone: place.0,
                role: Role::Aggregator,
                clients,
            },
        )
    })
}
