//! The kill switch and drills at a zone: operators' orders at its admin port, and the children that a drill
//! waits for.

use plimsoll_core::kill::drill::{Drill, DrillTiming, DueChild};
use plimsoll_core::kill::{KilledBucketsFull, Kills, Scope};
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::{Identity, InstanceId, Report, Role};

use super::Zone;
use crate::downstream::Downstream;

impl Zone {
    /// Enters an operator's kill order, or its end, as [`KillRelay::order`](plimsoll_core::kill::KillRelay::order). The
    /// generation becomes the first one of the right parity (odd = killed) that is not below any held, claimed or
    /// forgotten one. It is sent to all children immediately and to the parent with the next report. After the end the
    /// buckets stay in shadow until a controller has confirmed it and sends modes that it chose since.
    ///
    /// # Errors
    /// If there is no room for another bucket with its own kill.
    pub fn order_kill(
        &mut self,
        now: MonoTime,
        scope: &Scope,
        killed: bool,
    ) -> Result<bool, KilledBucketsFull> {
        let changed = self.kills.order(now, scope, killed)?;
        if changed {
            self.on_kill_change(now);
        }
        Ok(changed)
    }

    /// Ends the kill of a scope that was ordered here, or that no order explains. Returns whether it ended a kill, and
    /// whether the generation moved past a claim.
    ///
    /// # Errors
    /// If there is no room for another bucket with its own kill.
    pub fn end_kill(
        &mut self,
        now: MonoTime,
        scope: &Scope,
    ) -> Result<(bool, bool), KilledBucketsFull> {
        let (held, claimed) = (
            self.kills().generation(scope),
            self.kills.claims().highest(scope),
        );
        let has_changed = self.order_kill(now, scope, false)?;
        Ok((
            has_changed && held.is_killed(),
            has_changed && claimed > held,
        ))
    }

    /// The kill generations held.
    pub const fn kills(&self) -> &Kills {
        self.kills.kills()
    }

    /// Begins a drill among the children.
    pub fn begin_drill(&mut self, now: MonoTime) -> Drill {
        self.kills.begin_drill(
            now,
            Some(&self.identity.zone),
            due_children(&self.downstream),
        )
    }

    /// The replies to the latest drill.
    pub const fn drill_timing(&self) -> &DrillTiming {
        self.kills.timing()
    }

    /// Takes the generations, orders and drill in a child's report. A client starts no drill. Returns true if the
    /// streams of all children must be woken.
    pub(super) fn take_kills(&mut self, now: MonoTime, child: &Identity, report: &Report) -> bool {
        let has_changed = self.kills.on_report(now, child, report);
        let is_new_drill =
            child.role == Role::Aggregator && self.join_drill(now, report.kills.drill);
        if has_changed {
            self.on_kill_change(now);
        }
        has_changed || is_new_drill
    }

    /// Joins a drill that arrived from the parent or from a child. Returns true if it is later than the
    /// latest one.
    pub(super) fn join_drill(&mut self, now: MonoTime, drill: Drill) -> bool {
        self.kills.on_drill(
            now,
            drill,
            Some(&self.identity.zone),
            due_children(&self.downstream),
        )
    }

    /// Sends new directives to the children immediately, since modes decided without the new
    /// generation are void.
    pub(super) fn on_kill_change(&mut self, now: MonoTime) {
        self.schedule.pushes.on_decision(now);
        self.direct(now, true);
    }
}

/// The connected children, as a drill waits for them.
fn due_children(downstream: &Downstream) -> impl Iterator<Item = (InstanceId, DueChild)> {
    downstream.sessions.connected().map(|child| {
        let of = &child.identity;
        let aggregator = downstream.aggregators.by_instance.get(&of.instance);
        // The children of an aggregator count as its clients; before it has reported any, it counts as one.
        let clients = aggregator
            .and_then(|aggregator| aggregator.children)
            .map_or(1, u64::from);
        let due = DueChild {
            zone: of.zone.clone(),
            role: of.role,
            clients,
        };
        (of.instance, due)
    })
}
