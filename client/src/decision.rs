//! The decision: what becomes of one request, by what is directed for its key, a coin and a guard.

use plimsoll_core::coin;
use plimsoll_core::ratio::DropRatio;
use plimsoll_core::verdict::{Reason, Refusal, Verdict};

use crate::draws::Draws;
use crate::slab::{Outcome, Slab};
use crate::table::{KeyPlace, Table};
use crate::word::Word;

/// Who decides: the cells that are written to, and where draws come from.
pub(crate) struct Desk<'a, D> {
    pub(crate) slab: &'a Slab,
    pub(crate) draws: D,
}

impl<D: Draws> Desk<'_, D> {
    #[inline]
    fn verdict(&mut self, outcome: Outcome) -> Verdict {
        if outcome.is_refusal() {
            Verdict::Refuse(Refusal {
                reason: Reason::ClusterOverload,
                retry_after: self.draws.retry_after(),
            })
        } else {
            Verdict::Admit
        }
    }
}

impl Table {
    /// Decides and counts. Never blocks, allocates, makes a system call or fails.
    #[inline]
    pub(crate) fn decide(&self, place: KeyPlace, desk: &mut Desk<'_, impl Draws>) -> Verdict {
        let (directing, word) = self.directing(place);
        let outcome = if word.admits() {
            Outcome::Admitted
        } else {
            let refused = self.toss(directing, word, desk);
            self.guard(directing, word, refused, 1, desk.slab)
        };
        desk.slab.add(place.key, outcome, 1);
        desk.verdict(outcome)
    }

    /// Decides for a request that counts for `cost`, or by a draw that the caller made: by one independent toss, whole.
    #[inline]
    pub(crate) fn decide_by(
        &self,
        place: KeyPlace,
        cost: u32,
        draw: u32,
        desk: &mut Desk<'_, impl Draws>,
    ) -> Verdict {
        let (directing, word) = self.directing(place);
        let refused = coin::refuses(word.ratio(), draw);
        let outcome = self.guard(directing, word, refused, cost, desk.slab);
        desk.slab.add(place.key, outcome, cost);
        desk.verdict(outcome)
    }

    /// Decides for a request that several keys are asked for: by one draw, refused by the strictest of them, counted for
    /// all. One that is refused takes no token of anybody.
    pub(crate) fn decide_all<const N: usize>(
        &self,
        places: [KeyPlace; N],
        desk: &mut Desk<'_, impl Draws>,
    ) -> Verdict {
        let draw = desk.draws.draw();
        let tossed = places.map(|place| {
            let (directing, word) = self.directing(place);
            (directing, word, coin::refuses(word.ratio(), draw))
        });
        let mut outcomes = [Outcome::Admitted; N];
        if tossed.iter().any(|(_, word, refused)| *refused && word.is_enforced()) {
            outcomes = [Outcome::Dropped; N];
        } else {
            for (at, (directing, word, refused)) in tossed.into_iter().enumerate() {
                outcomes[at] = self.guard(directing, word, refused, 1, desk.slab);
                if outcomes[at] == Outcome::GuardDropped {
                    for (taken, (directing, word, _)) in outcomes.iter().zip(tossed).take(at) {
                        if *taken == Outcome::Admitted && word.is_guarded() {
                            self.give_back(directing, desk.slab);
                        }
                    }
                    // To the other keys it was refused as well, though not by their guards.
                    outcomes = [Outcome::Dropped; N];
                    outcomes[at] = Outcome::GuardDropped;
                    break;
                }
            }
        }
        places.iter().zip(outcomes).for_each(|(place, outcome)| desk.slab.add(place.key, outcome, 1));
        let refusal = outcomes.into_iter().find(|outcome| outcome.is_refusal());
        desk.verdict(refusal.unwrap_or(Outcome::Admitted))
    }

    /// Whether the coin refuses.
    #[inline]
    fn toss(&self, directing: u32, word: Word, desk: &mut Desk<'_, impl Draws>) -> bool {
        let ratio = word.ratio();
        if ratio == DropRatio::NONE {
            false
        } else if word.is_independent() {
            coin::refuses(ratio, desk.draws.draw())
        } else {
            // The coin is that of the directive, not of each tenant that follows it: tenants whose names come and go
            // would otherwise all begin anew.
            desk.slab.with_coin(directing, |state| state.refuses(ratio, || desk.draws.draw()))
        }
    }

    /// The guard comes after the coin: a request that the coin refuses takes no token. Both decide alike whether refusals
    /// are carried out or not, or what is counted in shadow would say nothing about what enforcing brings.
    #[inline]
    fn guard(&self, directing: u32, word: Word, by_coin: bool, cost: u32, slab: &Slab) -> Outcome {
        match (by_coin, word.is_enforced()) {
            (true, true) => Outcome::Dropped,
            (true, false) => Outcome::WouldDropped,
            (false, _) if !word.is_guarded() || self.take(directing, cost, slab) => Outcome::Admitted,
            (false, true) => Outcome::GuardDropped,
            (false, false) => Outcome::WouldGuardDropped,
        }
    }
}
