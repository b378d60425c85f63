//! The zone and the kill switch: what it holds, what is ordered at its admin port while no controller lives, and how long a
//! drill takes to reach its clients.

use plimsoll_core::names::Zone as ZoneName;
use plimsoll_core::directive::Terms;
use plimsoll_core::kill::drill::{Due, Spread};
use plimsoll_core::kill::NoRoom;
use plimsoll_core::decision::Mode;

use super::*;
use crate::downstream::Branch;

impl Zone {
    /// Somebody kills here, or ends a kill: the generation moves to the next odd or even number, and everybody below and
    /// above will hear of it. True when it moved. What was killed stays in shadow until a controller that knows of this
    /// generation says otherwise, since every earlier word on a mode is void by it.
    ///
    /// # Errors
    /// When there is no room for another bucket.
    pub fn turn(&mut self, now: MonoTime, scope: &Scope, killed: bool) -> Result<bool, NoRoom> {
        let held = self.kills.generation(scope);
        if !self.kills.has_room_for(scope) {
            return Err(NoRoom);
        }
        let turned = self.kills.raise(scope, held.turned(killed));
        if killed {
            self.ordered.insert(scope.clone(), Ordered { killed, told: None });
        } else if let Some(ordered) = self.ordered.get_mut(scope) {
            *ordered = Ordered { killed, told: None };
        }
        if turned {
            self.on_turn(now);
        }
        Ok(turned)
    }

    /// The controller has covered the reports up to this one: it knows of the orders in them, and whatever it says from now
    /// on was said in that knowledge.
    pub(super) fn on_confirmed_orders(&mut self, confirmed: u64) {
        self.ordered.retain(|_, ordered| ordered.told.is_none_or(|told| told > confirmed));
    }

    /// A later generation came from elsewhere. Whoever ended a kill there could not mean one that was ordered here and had
    /// not reached the controller: two who count apart come to the same numbers. Such an order stands.
    pub(super) fn stand_by_orders(&mut self) -> bool {
        let mut turned = false;
        for (scope, _) in self.ordered.iter().filter(|(_, ordered)| ordered.killed) {
            turned |= self.kills.raise(scope, self.kills.generation(scope).turned(true));
        }
        turned
    }

    /// Orders that were given at an aggregator below are passed on as if they had been given here. The end of one does not
    /// end another that is passed on as well.
    pub(super) fn take_orders(&mut self, ordered: BTreeSet<Scope>, ended: BTreeSet<Scope>) -> bool {
        let mut is_new = false;
        for scope in ordered.into_iter().filter(|scope| self.kills.has_room_for(scope)) {
            let before = self.ordered.insert(scope, Ordered { killed: true, told: None });
            is_new |= before.is_none_or(|before| !before.killed);
        }
        for scope in ended.into_iter().filter(|scope| self.kills.has_room_for(scope)) {
            self.ordered.entry(scope).or_insert_with(|| {
                is_new = true;
                Ordered { killed: false, told: None }
            });
        }
        is_new
    }

    /// The orders that the parent has not been told of on the present stream: those that hold, or those that have ended.
    pub(super) fn orders_to_tell(&self, killed: bool) -> BTreeSet<Scope> {
        let untold = |ordered: &Ordered| ordered.killed == killed && ordered.told.is_none();
        self.ordered.iter().filter(|(_, each)| untold(each)).map(|(scope, _)| scope.clone()).collect()
    }

    /// What is left of a mode that was told from above: nothing while it may have been decided without knowing what was
    /// ordered here.
    pub(super) fn mode(&self, bucket: &Bucket, terms: &Terms) -> Mode {
        let concerns = |scope: &Scope| scope.bucket().is_none_or(|alone| alone == bucket);
        if self.ordered.keys().any(concerns) { Mode::Shadow } else { self.kills.mode(bucket, terms) }
    }

    /// Begins a drill among those below.
    pub fn begin_drill(&mut self, now: MonoTime) -> Drill {
        let drill = self.kills.drill().next();
        self.hear_drill(now, drill);
        drill
    }

    /// How the latest drill fares below.
    #[must_use]
    pub const fn timing(&self) -> &Timing {
        &self.timing
    }

    /// A generation has moved: modes that were decided without knowing of it are void, and everybody hears that at once.
    pub(super) fn on_turn(&mut self, now: MonoTime) {
        self.pushes.on_decision(now);
        self.direct(now, true);
    }

    /// Takes up a later drill; true when it is one.
    pub(super) fn hear_drill(&mut self, now: MonoTime, drill: Drill) -> bool {
        if !self.kills.hear_drill(drill) {
            return false;
        }
        let clients = |branch: &Branch| branch.children.map_or(1, u64::from);
        let below: BTreeMap<InstanceId, u64> =
            self.below.iter().map(|(instance, branch)| (instance, clients(branch))).collect();
        let children = self.roster.connected().map(|child| {
            let Identity { instance, zone, role, .. } = &child.identity;
            let clients = below.get(instance).copied().unwrap_or(1);
            (*instance, Due { zone: zone.clone(), role: *role, clients })
        });
        self.timing.begin(now, drill, Some(self.identity.zone.clone()), children);
        true
    }

    /// What the parent has not been told yet of how the latest drill fares.
    pub(super) fn spreads_to_tell(&mut self) -> BTreeMap<ZoneName, Spread> {
        if self.timing_told == self.timing.version() {
            return BTreeMap::new();
        }
        self.timing_told = self.timing.version();
        self.timing.spreads()
    }
}
