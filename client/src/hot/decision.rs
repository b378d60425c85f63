//! The decision: what becomes of one request, by what is directed for its key, a coin and a guard.

use std::hint::select_unpredictable;

use plimsoll_core::decision::coin;
use plimsoll_core::decision::trace::TraceId;
use plimsoll_core::decision::{Reason, Refusal, Verdict};

use crate::hot::rng::{Draw, Draws};
use crate::hot::thread_counters::{Outcome, Row, Slab};
use crate::hot::table::{KeyPlace, Table};
use crate::hot::directive_word::Word;

/// Who decides: the cells that are written to, and where draws come from.
pub(crate) struct Desk<'a, D> {
    pub(crate) slab: &'a Slab,
    pub(crate) draws: D,
}

/// The answer, and how long a refused caller should wait.
#[inline]
fn verdict(refused: bool, draw: Draw) -> Verdict {
    let refusal = Refusal { reason: Reason::ClusterOverload, retry_after: draw.retry_after() };
    select_unpredictable(refused, Verdict::Refuse(refusal), Verdict::Admit)
}

impl Table {
    /// Decides and counts. Never blocks, allocates, makes a system call or fails.
    ///
    /// What the coin says is hard to foretell, so no branch is taken by it on the usual paths, where refusals are carried
    /// out: the processor would guess wrong half of the time, which costs more than all the rest. The simplest cases come
    /// first and are all that is put into the caller's code.
    #[inline]
    pub(crate) fn decide(&self, place: KeyPlace, desk: &mut Desk<'_, impl Draws>) -> Verdict {
        let (directing, word) = self.directing(place);
        if word.admits() {
            desk.slab.add(place.key, Outcome::Admitted, 1);
            return Verdict::Admit;
        }
        match desk.slab.row(place.key) {
            Some(row) if word.is_plain() => {
                let draw = desk.draws.draw();
                let refused = coin::refuses(word.ratio(), draw.coin());
                row.count(refused);
                verdict(refused, draw)
            }
            Some(row) if word.is_enforced() => self.weigh(row, place.key, directing, word, desk),
            _ => self.weigh_slowly(place.key, directing, word, desk),
        }
    }

    /// Decides for a request that may belong to a trace, which is asked for only where it matters: where the coin is coherent,
    /// by the trace's draw. Without a trace, and for every other coin, as for any request.
    pub(crate) fn decide_traced(
        &self,
        place: KeyPlace,
        trace: impl FnOnce() -> Option<TraceId>,
        desk: &mut Desk<'_, impl Draws>,
    ) -> Verdict {
        let (_, word) = self.directing(place);
        let trace = if word.goes_by_trace() { trace() } else { None };
        let Some(trace) = trace else { return self.decide(place, desk) };
        let drawn = self.draw_key.load().draw(trace);
        match desk.slab.row(place.key) {
            Some(row) if word.is_plain() => {
                let refused = coin::refuses(word.ratio(), drawn);
                row.count(refused);
                verdict(refused, desk.draws.draw())
            }
            _ => self.decide_by(place, 1, Some(drawn), desk),
        }
    }

    /// The usual path where the coin is a dithered one or there is a guard.
    #[inline(never)]
    fn weigh(
        &self,
        row: Row<'_>,
        key: u32,
        directing: u32,
        word: Word,
        desk: &mut Desk<'_, impl Draws>,
    ) -> Verdict {
        let Some(of_directive) = desk.slab.row(directing) else { return Verdict::Admit };
        let ratio = word.ratio();
        let (refused, draw) = if word.is_independent() {
            let draw = desk.draws.draw();
            (coin::refuses(ratio, draw.coin()), draw)
        } else {
            // The coin is that of the directive, not of each tenant that follows it: tenants whose names come and go
            // would otherwise all begin anew.
            of_directive.with_coin(|coin| {
                let refused = coin.refuses(ratio, || desk.draws.draw().both());
                (refused, Draw::of(coin.phase()))
            })
        };
        // A request that the coin refuses takes no token.
        if word.is_guarded()
            && !of_directive.take(self.refill_number(), !refused)
            && !self.take(directing, 1, desk.slab)
        {
            desk.slab.add(key, Outcome::GuardDropped, 1);
            return verdict(true, desk.draws.draw());
        }
        row.count(refused);
        verdict(refused, draw)
    }

    /// Where refusals are only counted, and for threads that have no cells of their own.
    #[inline(never)]
    fn weigh_slowly(&self, key: u32, directing: u32, word: Word, desk: &mut Desk<'_, impl Draws>) -> Verdict {
        let draw = desk.draws.draw();
        let refused = if word.is_independent() {
            coin::refuses(word.ratio(), draw.coin())
        } else {
            desk.slab.with_coin(directing, |coin| coin.refuses(word.ratio(), || desk.draws.draw().both()))
        };
        let outcome = self.guard(directing, word, refused, 1, desk.slab);
        desk.slab.add(key, outcome, 1);
        verdict(outcome.is_refusal(), draw)
    }

    /// Decides for a request that counts for `cost`, or by a number that the caller drew: by one independent toss, whole.
    pub(crate) fn decide_by(
        &self,
        place: KeyPlace,
        cost: u32,
        drawn: Option<u32>,
        desk: &mut Desk<'_, impl Draws>,
    ) -> Verdict {
        let (directing, word) = self.directing(place);
        let draw = desk.draws.draw();
        let refused = coin::refuses(word.ratio(), drawn.unwrap_or(draw.coin()));
        let outcome = self.guard(directing, word, refused, cost, desk.slab);
        desk.slab.add(place.key, outcome, cost);
        verdict(outcome.is_refusal(), draw)
    }

    /// Decides for a request that several keys are asked for: by one draw, refused by the strictest of them, counted for
    /// all. One that is refused takes no token of anybody. The draw is that of the request's trace, if it has one and any of
    /// the coins is coherent.
    pub(crate) fn decide_all<const N: usize>(
        &self,
        places: [KeyPlace; N],
        trace: Option<TraceId>,
        desk: &mut Desk<'_, impl Draws>,
    ) -> Verdict {
        let draw = desk.draws.draw();
        let held = places.map(|place| self.directing(place));
        let trace = trace.filter(|_| held.iter().any(|(_, word)| word.goes_by_trace()));
        let drawn = trace.map_or(draw.coin(), |trace| self.draw_key.load().draw(trace));
        let tossed = held.map(|(directing, word)| (directing, word, coin::refuses(word.ratio(), drawn)));
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
        verdict(outcomes.iter().any(|outcome| outcome.is_refusal()), draw)
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
