//! The relay of kills and drills. At an aggregator it merges the generations of parent and children, keeps
//! kill orders that the controller has not confirmed, and times drills. A controller uses it to send generations, to
//! keep the claims of its children and to time drills; its durable state does the rest.

mod evidence;
mod orders;
mod sent;
#[cfg(test)]
mod tests;

pub use sent::SentKills;

use evidence::Evidence;
use orders::Orders;
use sent::is_repeated;

use super::drill::{Drill, DrillTiming, DueChild};
use super::{
    Claims, KillClaim, KillGeneration, KillNews, KilledBucketsFull, Kills, OrderId, Scope,
};
use crate::decision::Mode;
use crate::directive::{Directives, StaleDirective, Terms};
use crate::names::{Bucket, Zone};
use crate::quantity::MonoTime;
use crate::report::{Identity, InstanceId, Report, Role};

/// The kill state of an aggregator or a controller. A controller raises generations and gives no orders,
/// which no parent would confirm.
#[derive(Debug)]
pub struct KillRelay {
    /// The process that identifies its own orders.
    own: InstanceId,
    kills: Kills,
    orders: Orders,
    evidence: Evidence,
    claims: Claims,
    timing: DrillTiming,
    sent: SentKills,
    /// The versions of claims and timing that the present stream carried; 0 for none.
    sent_claims: u64,
    sent_timing: u64,
}

impl KillRelay {
    /// The kill state of a process that knows of no kill.
    pub fn new(own: InstanceId) -> Self {
        Self {
            own,
            kills: Kills::default(),
            orders: Orders::default(),
            evidence: Evidence::default(),
            claims: Claims::default(),
            timing: DrillTiming::default(),
            sent: SentKills::default(),
            sent_claims: 0,
            sent_timing: 0,
        }
    }

    /// The generations held. For the current mode use [`Self::mode`], which also respects orders.
    pub const fn kills(&self) -> &Kills {
        &self.kills
    }

    /// The generations that children claim without an order.
    pub const fn claims(&self) -> &Claims {
        &self.claims
    }

    /// The same, to be logged or to enter a claim.
    pub const fn claims_mut(&mut self) -> &mut Claims {
        &mut self.claims
    }

    /// The replies of the children to the latest drill.
    pub const fn timing(&self) -> &DrillTiming {
        &self.timing
    }

    /// The current mode for a bucket with these terms. It is shadow while an unconfirmed order
    /// concerns the bucket, since the terms may have been decided without knowledge of the order.
    pub fn mode(&self, bucket: &Bucket, terms: &Terms) -> Mode {
        if self.orders.concern(bucket) {
            Mode::Shadow
        } else {
            self.kills.mode(bucket, terms)
        }
    }

    /// Enters an operator's kill order at this aggregator, or its end. The end leaves a scope killed that is also
    /// killed by an order of an aggregator below; without an order given here, and without a kill held that no order
    /// explains, it does nothing. Returns true if the generation changed.
    ///
    /// # Errors
    /// If there is no room for another bucket with its own kill.
    pub fn order(
        &mut self,
        now: MonoTime,
        scope: &Scope,
        killed: bool,
    ) -> Result<bool, KilledBucketsFull> {
        if !self.kills.has_room(scope) {
            return Err(KilledBucketsFull);
        }
        let id = OrderId {
            scope: scope.clone(),
            given_at: self.own,
        };
        let (given, held) = (self.orders.generation(&id), self.kills.generation(scope));
        let ends_held = !killed && held.is_killed() && !self.is_ordered(scope);
        if !killed && given.is_none() && !ends_held {
            return Ok(false);
        }
        self.evidence.on_order(scope);
        // Past every claim, so that children with a stray number follow again.
        let latest = self.next_base(scope).max(given.unwrap_or_default());
        self.orders
            .give(now, id, latest.switched(killed), ends_held);
        let is_killed = killed || self.is_ordered(scope);
        let has_changed = self.kills.raise(scope, latest.switched(is_killed));
        self.settle_claims();
        Ok(has_changed)
    }

    /// The generation that the next one of a scope follows.
    fn next_base(&self, scope: &Scope) -> KillGeneration {
        let forgotten = scope
            .bucket()
            .map_or(KillGeneration(0), |_| self.kills.forgotten);
        self.kills
            .generation(scope)
            .max(self.claims.highest(scope))
            .max(forgotten)
    }

    fn settle_claims(&mut self) {
        let (evidence, kills) = (&self.evidence, &self.kills);
        self.claims.settle(|scope| evidence.without(kills, scope));
    }

    /// Returns true if an unconfirmed active order, given below, kills a scope.
    pub fn is_ordered_below(&self, scope: &Scope) -> bool {
        self.orders
            .in_force()
            .any(|id| id.scope == *scope && id.given_at != self.own)
    }

    fn is_ordered(&self, scope: &Scope) -> bool {
        self.orders.in_force().any(|id| id.scope == *scope)
    }

    /// Takes a larger generation of a scope. Returns true if it changed.
    pub fn raise(&mut self, scope: &Scope, generation: KillGeneration) -> bool {
        let has_changed = self.kills.raise(scope, generation);
        if has_changed {
            self.settle_claims();
        }
        has_changed
    }

    /// Forgets kills of buckets that have ended; see [`Kills::forget`].
    pub fn forget(&mut self, through: KillGeneration) {
        self.kills.forget(through);
    }

    // === as a child ===

    /// Starts a new stream to the parent: everything is sent again.
    pub fn on_open(&mut self) {
        (self.sent, self.sent_claims, self.sent_timing) = (SentKills::default(), 0, 0);
        self.orders.on_open();
    }

    /// Fills the kill fields of a report after its number was set.
    pub fn fill(&mut self, now: MonoTime, report: &mut Report) {
        report.kills = KillNews {
            orders: self.orders.next(now, report.seq),
            ..self.sent.next(&self.kills, report.seq)
        };
        let below = &mut report.kills_below;
        below.claims = self.claims.since(if is_repeated(report.seq) {
            0
        } else {
            self.sent_claims
        });
        self.sent_claims = self.claims.version();
        below.drill = self.kills.claimed_drill;
        if self.sent_timing != self.timing.version() {
            self.sent_timing = self.timing.version();
            below.spreads = self.timing.spreads();
        }
    }

    /// Returns true if the parent waits for the confirmation of a drill.
    pub fn is_report_due(&self) -> bool {
        self.sent.is_report_due(&self.kills)
    }

    /// Takes the generations and the orders in a parent's message, and its confirmation of orders. All hold even
    /// if the directives in the message are stale. A controller that cannot confirm its lead confirms no order: its
    /// state is lost if another one leads. Evidence of children is over once a controller
    /// sends directives. Returns true if a generation changed.
    ///
    /// # Errors
    /// [`StaleDirective::KillJump`] if the parent claims an implausible generation; nothing is taken, but
    /// evidence may be over.
    pub fn on_directives(
        &mut self,
        now: MonoTime,
        directives: &Directives,
    ) -> Result<bool, StaleDirective> {
        self.evidence.on_parent(&directives.kills, &self.kills);
        let is_evidence_over =
            directives.lead.leader.is_some() && self.evidence.on_controller(&mut self.kills);
        let changed = self.kills.merge_directives(directives)? || is_evidence_over;
        if !directives.lead.unconfirmed {
            self.orders.confirm(directives.echo.confirmed);
        }
        for (id, order) in &directives.kills.orders {
            self.orders.on_parent(now, id, *order);
        }
        if changed {
            self.enforce_orders();
            self.settle_claims();
        }
        Ok(changed)
    }

    // === as a parent ===

    /// Takes the claims of children as evidence, while this process lacks its own state. Returns
    /// true if a generation changed and must be sent to all children.
    pub fn on_tick(&mut self, now: MonoTime) -> bool {
        self.claims.prune(now);
        self.evidence.on_tick(now, &self.claims, &mut self.kills)
    }

    /// Takes the confirmation of a drill in a child's report, the orders of a child aggregator, and the
    /// generations in the report: with an order they move the scope, without one they are claims.
    /// Returns true if a generation or an order changed, which all children must be sent.
    pub fn on_report(&mut self, now: MonoTime, child: &Identity, report: &Report) -> bool {
        self.on_confirmation(now, child.instance, child.role, report);
        let mut changed = false;
        for (scope, generation) in report.kills.generations() {
            // The child is about to forget the other buckets.
            if scope == Scope::Fleet || generation > self.kills.forgotten {
                changed |= self.claim(now, child, &scope, generation, &report.kills);
            }
        }
        if child.role == Role::Aggregator {
            for (scope, claim) in &report.kills_below.claims {
                let held = self.evidence.without(&self.kills, scope);
                self.claims.note(now, held, scope, claim.clone(), child);
            }
            changed |= self.relay_orders(now, &report.kills);
        }
        self.enforce_orders() || changed
    }

    /// Takes the generation that a child reports for a scope. Returns true if it moves the generation here.
    fn claim(
        &mut self,
        now: MonoTime,
        child: &Identity,
        scope: &Scope,
        generation: KillGeneration,
        news: &KillNews,
    ) -> bool {
        let held = self.kills.generation(scope);
        if generation <= held {
            return false;
        }
        let is_ordered = child.role == Role::Aggregator && news.has_order(scope);
        if is_ordered && held.accepts(generation) && self.kills.has_room_to_learn(scope) {
            self.evidence.on_order(scope);
            return self.raise(scope, generation);
        }
        let held = self.evidence.without(&self.kills, scope);
        self.claims
            .note(now, held, scope, KillClaim::of(child, generation), child);
        false
    }

    /// Takes only the drill numbers in a child's report.
    pub fn on_confirmation(
        &mut self,
        now: MonoTime,
        instance: InstanceId,
        role: Role,
        report: &Report,
    ) {
        self.kills.note_drill(report);
        self.timing.on_report(now, instance, role, report);
    }

    /// Stops waiting for the confirmation of a child after its stream closed.
    pub fn on_close(&mut self, instance: InstanceId) {
        self.timing.on_close(instance);
    }

    /// Begins the next drill among these children. `own` is the zone of this tier, if it has clients.
    pub fn begin_drill(
        &mut self,
        now: MonoTime,
        own: Option<&Zone>,
        children: impl Iterator<Item = (InstanceId, DueChild)>,
    ) -> Drill {
        let drill = self.kills.next_drill();
        self.on_drill(now, drill, own, children);
        drill
    }

    /// Joins a drill that began elsewhere, if it is later than the latest one. Returns true if it joined.
    pub fn on_drill(
        &mut self,
        now: MonoTime,
        drill: Drill,
        own: Option<&Zone>,
        children: impl Iterator<Item = (InstanceId, DueChild)>,
    ) -> bool {
        let is_new = self.kills.merge_drill(drill);
        if is_new {
            self.timing.begin(now, drill, own.cloned(), children);
        }
        is_new
    }

    /// Raises the generation to killed again for every active order that is not confirmed. An end
    /// from elsewhere may have been meant for another kill, even if its generation is higher.
    /// Returns true if a generation changed.
    fn enforce_orders(&mut self) -> bool {
        let mut changed = false;
        for OrderId { scope, .. } in self.orders.in_force() {
            changed |= self.kills.switch(scope, true);
        }
        changed
    }

    /// Takes over the orders of a child aggregator, and their ends. The end of the last order for a scope ends
    /// the kill here. Returns true if any is new.
    fn relay_orders(&mut self, now: MonoTime, news: &KillNews) -> bool {
        let mut is_new = false;
        for (id, order) in &news.orders {
            let was_ordered = self.is_ordered(&id.scope);
            let is_own = id.given_at == self.own;
            if is_own
                || !self.kills.has_room_to_learn(&id.scope)
                || !self.orders.relay(now, id, *order)
            {
                continue;
            }
            is_new = true;
            self.evidence.on_order(&id.scope);
            if order.is_in_force() {
                self.kills.switch(&id.scope, true);
            }
            if was_ordered && !self.is_ordered(&id.scope) {
                self.kills.switch(&id.scope, false);
            }
        }
        is_new
    }
}
