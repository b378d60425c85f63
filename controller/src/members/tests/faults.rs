//! Faults, their end, and what must hold of the whole world.

use super::child::Child;
use super::world::{Member, World};

impl World {
    pub(super) fn fault(&mut self) {
        let member = self.rng.pick(self.members.len());
        let child = self.rng.pick(self.children.len());
        match self.rng.below(10) {
            0..3 => {
                let reaches = &mut self.members[member].reaches_store;
                *reaches = !*reaches;
                let text = format!("m{member}: reaches the store: {reaches}");
                self.tell(text);
            }
            3 => {
                for member in &mut self.members {
                    member.reaches_store = true;
                }
                self.is_store_slow = false;
                self.tell("the store is well".to_owned());
            }
            4 => {
                self.is_store_slow = true;
                self.tell("the store is slow".to_owned());
            }
            5..8 => {
                let reaches = &mut self.children[child].reaches[member];
                *reaches = !*reaches;
                let text = format!("c{child}: reaches m{member}: {reaches}");
                self.tell(text);
            }
            8 => {
                let away = 100 + self.rng.below(4_000);
                self.tell(format!("m{member}: crashes for {away} ms"));
                let files = self.members[member].files;
                let reaches_store = self.members[member].reaches_store;
                self.members[member] = Member::new(self.now + away, files);
                self.members[member].reaches_store = reaches_store;
            }
            _ => self.members[member].resigns = true,
        }
    }

    /// Everything works again, for good.
    pub(super) fn heal(&mut self) {
        self.tell("everything is well".to_owned());
        self.is_store_slow = false;
        for member in &mut self.members {
            member.reaches_store = true;
            member.up_at = member.up_at.min(self.now);
        }
        for child in &mut self.children {
            child.reaches.fill(true);
        }
    }

    /// One member leads and has saved everything, and all children follow it.
    pub(super) fn check_settled(&mut self) -> Result<(), String> {
        let lead = self.store.lead();
        let leads = |member: &Member| lead.is_some() && member.lead.part().lead() == lead;
        let Some(leader) = self.members.iter().position(leads) else {
            return Err(format!("settled: {lead:?} is the lead of no member"));
        };
        let is_saved = self.members[leader].serves(u64::MAX)
            && self.members[leader]
                .brain()
                .is_some_and(|brain| brain.is_saved());
        if !is_saved || self.store.orders().next().is_some() {
            return Err(format!(
                "settled: m{leader} leads and has not saved everything"
            ));
        }
        let epoch = self.members[leader].epoch();
        let follows = |child: &Child| {
            child.parent.is_some_and(|(at, _)| at == leader) && child.sequence.epoch() == epoch
        };
        match self.children.iter().position(|child| !follows(child)) {
            Some(lost) => Err(format!("settled: c{lost} does not follow m{leader}")),
            None => Ok(()),
        }
    }

    /// The invariants that hold at every moment.
    pub(super) fn check(&mut self) -> Result<(), String> {
        let now = self.instant(self.now);
        for (number, member) in self.members.iter().enumerate() {
            let part = member.lead.part();
            if part.is_confirmed(now) && part.lead() != self.store.lead() {
                return Err(format!(
                    "one leader: m{number} is confirmed as the leader {:?}, and {:?} leads",
                    part.lead(),
                    self.store.lead()
                ));
            }
        }
        Ok(())
    }
}
