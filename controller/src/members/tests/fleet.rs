//! Children that report to the leader they reach, and what each of them holds afterwards.

use plimsoll_core::exchange::{Parent, StreamId};

use super::invariants::number_of;
use super::world::World;
use super::{is_without, scopes};

impl World {
    pub(super) fn child(&mut self, number: usize) -> Result<(), String> {
        let now = self.mono();
        let (held, unconfirmed) = {
            let child = &self.children[number];
            (child.sequence.epoch(), child.unconfirmed)
        };
        if let Some((member, stream)) = self.children[number].parent {
            let is_there =
                self.members[member].serves(stream) && self.children[number].reaches[member];
            if !is_there {
                self.close(number);
            }
        }
        let current = self.children[number].parent;
        if current.is_none() || unconfirmed {
            let reached: Vec<usize> = (0..self.members.len())
                .filter(|at| {
                    self.children[number].reaches[*at] && self.members[*at].serves(u64::MAX)
                })
                .filter(|at| current.is_none_or(|(parent, _)| parent != *at))
                .filter(|at| current.is_none() || self.members[*at].epoch() > held)
                .collect();
            if !reached.is_empty() {
                let member = reached[self.rng.pick(reached.len())];
                self.close(number);
                self.numbers += 1;
                let stream = self.numbers;
                self.members[member].open(stream);
                self.children[number].open(member, stream);
                self.seen.moves += 1;
                self.tell(format!("c{number}: follows m{member}, holds {held:?}"));
            }
        }
        let Some((member, stream)) = self.children[number].parent else {
            return Ok(());
        };
        let report = self.children[number].report(now);
        let Some(brain) = self.members[member].brain() else {
            return Ok(());
        };
        if let Err(error) = brain.on_report(now, StreamId(stream), report) {
            self.tell(format!("c{number}: m{member} refuses the report: {error}"));
            self.close(number);
            return Ok(());
        }
        if !self.heals && self.rng.percent(5) {
            // Cut before the answer.
            self.close(number);
            return Ok(());
        }
        self.deliver(number)
    }

    /// Hands a child what its parent has for it now.
    fn deliver(&mut self, number: usize) -> Result<(), String> {
        let now = self.mono();
        let Some((member, stream)) = self.children[number].parent else {
            return Ok(());
        };
        let Some(brain) = self.members[member].brain() else {
            return Ok(());
        };
        let Some(directives) = brain.directives(now, StreamId(stream)) else {
            return Ok(());
        };
        let durable = brain.durable().clone();
        let was = scopes().map(|scope| self.children[number].is_killed(&scope));
        let is_taken = self.children[number].take(now, directives);
        for scope in scopes() {
            let at = number_of(&scope);
            let is = self.children[number].is_killed(&scope);
            let kill = self.ledger.active(&durable, at).filter(|_| is);
            if let Some(kill) = kill {
                let given = Some(self.ledger.acts[kill].given);
                let carried = &mut self.children[number].carried[at];
                *carried = (*carried).max(given);
            }
            if was[at] != is {
                self.tell(format!("c{number}: {scope} killed: {is}, from m{member}"));
            }
            if was[at] && !is && !is_taken && !is_without("stale ends") {
                // A deposed leader has ended an earlier kill with a higher number. What the child holds of the leader was
                // decided without that number, so that it refuses nothing.
                self.seen.stale_ends += 1;
            } else if was[at] && !is {
                let carried = self.children[number].carried[at].take();
                self.ledger.on_dropped((number, at), carried)?;
            }
        }
        self.check_shadow(number)?;
        if !is_taken {
            self.tell(format!("c{number}: stale directives of m{member}"));
        }
        Ok(())
    }

    /// A child refuses nothing while it is killed, or carries a kill that no operator has ended.
    fn check_shadow(&self, number: usize) -> Result<(), String> {
        let child = &self.children[number];
        let [fleet, api] = scopes();
        let is_killed = child.is_killed(&fleet) || child.is_killed(&api);
        let carries = |at: usize| {
            child.carried[at]
                .is_some_and(|given| self.ledger.ended[at].is_none_or(|end| end < given))
        };
        match child.enforces(&api) && (is_killed || carries(0) || carries(1)) {
            true => Err(format!(
                "no kill dropped: child {number} refuses while killed"
            )),
            false => Ok(()),
        }
    }

    pub(super) fn close(&mut self, number: usize) {
        let now = self.mono();
        if let Some((member, stream)) = self.children[number].parent.take()
            && let Some(brain) = self.members[member].brain()
        {
            brain.on_close(now, StreamId(stream));
        }
    }
}
