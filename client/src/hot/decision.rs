//! The decision about one request, by its key's directive: first the coin, then the guard.

use std::hint::select_unpredictable;

use plimsoll_core::decision::coin;
use plimsoll_core::decision::trace::TraceId;
use plimsoll_core::decision::{Reason, Refusal, Verdict};

use crate::hot::directive_word::DirectiveWord;
use crate::hot::rng::{Draw, DrawSource};
use crate::hot::table::{KeyPlace, Table};
use crate::hot::thread_counters::{CounterBlock, CounterRow, Outcome};

/// Per-thread counters and random generator of one decision.
pub(crate) struct DecideCtx<'a, D> {
    pub(crate) counters: &'a CounterBlock,
    pub(crate) draws: D,
}

/// Makes the verdict; a refused caller waits as long as the draw says.
#[inline]
fn verdict(refused: bool, draw: Draw) -> Verdict {
    let refusal = Refusal { reason: Reason::ClusterOverload, retry_after: draw.retry_after() };
    select_unpredictable(refused, Verdict::Refuse(refusal), Verdict::Admit)
}

impl Table {
    /// Decides and counts. Never blocks, allocates, makes a system call or fails.
    ///
    /// A coin's result is unpredictable, so the common paths, where refusals are enforced, do not branch on
    /// it: the mispredictions would cost more than all the rest. Only the simplest cases are inlined into the
    /// caller.
    #[inline]
    pub(crate) fn decide(&self, place: KeyPlace, ctx: &mut DecideCtx<'_, impl DrawSource>) -> Verdict {
        let (source, word) = self.directive_of(place);
        if word.admits() {
            ctx.counters.add(place.key, Outcome::Admitted, 1);
            return Verdict::Admit;
        }
        match ctx.counters.row(place.key) {
            Some(row) if word.is_plain() => {
                let draw = ctx.draws.draw();
                let refused = coin::refuses(word.ratio(), draw.coin());
                row.count(refused);
                verdict(refused, draw)
            }
            Some(row) if word.is_enforced() => self.decide_enforced(row, place.key, source, word, ctx),
            _ => self.decide_slowly(place.key, source, word, ctx),
        }
    }

    /// Decides for a request that may belong to a trace: by the trace's draw where the coin is coherent.
    /// `trace` is evaluated only in that case. Without a trace, and for every other coin, this is
    /// [`decide`](Self::decide).
    pub(crate) fn decide_traced(
        &self,
        place: KeyPlace,
        trace: impl FnOnce() -> Option<TraceId>,
        ctx: &mut DecideCtx<'_, impl DrawSource>,
    ) -> Verdict {
        let (_, word) = self.directive_of(place);
        let trace = if word.uses_trace() { trace() } else { None };
        let Some(trace) = trace else { return self.decide(place, ctx) };
        let drawn = self.draw_key.load().draw(trace);
        match ctx.counters.row(place.key) {
            Some(row) if word.is_plain() => {
                let refused = coin::refuses(word.ratio(), drawn);
                row.count(refused);
                verdict(refused, ctx.draws.draw())
            }
            _ => self.decide_by(place, 1, Some(drawn), ctx),
        }
    }

    /// The common path for a dithered coin or a guard.
    #[inline(never)]
    fn decide_enforced(
        &self,
        row: CounterRow<'_>,
        key: u32,
        source: u32,
        word: DirectiveWord,
        ctx: &mut DecideCtx<'_, impl DrawSource>,
    ) -> Verdict {
        let Some(source_row) = ctx.counters.row(source) else { return Verdict::Admit };
        let ratio = word.ratio();
        let (refused, draw) = if word.is_independent() {
            let draw = ctx.draws.draw();
            (coin::refuses(ratio, draw.coin()), draw)
        } else {
            // The coin state belongs to the directive's key, not to each tenant that shares the directive:
            // otherwise every short-lived tenant would start with a fresh state.
            source_row.with_coin(|coin| {
                let refused = coin.refuses(ratio, || ctx.draws.draw().both());
                (refused, Draw::from_number(coin.phase()))
            })
        };
        // A request that the coin refuses takes no token.
        if word.is_guarded()
            && !source_row.take(self.refill_number(), !refused)
            && !self.take(source, 1, ctx.counters)
        {
            ctx.counters.add(key, Outcome::GuardDropped, 1);
            return verdict(true, ctx.draws.draw());
        }
        row.count(refused);
        verdict(refused, draw)
    }

    /// The path for refusals that are only counted, and for threads without counters of their own.
    #[inline(never)]
    fn decide_slowly(
        &self,
        key: u32,
        source: u32,
        word: DirectiveWord,
        ctx: &mut DecideCtx<'_, impl DrawSource>,
    ) -> Verdict {
        let draw = ctx.draws.draw();
        let refused = if word.is_independent() {
            coin::refuses(word.ratio(), draw.coin())
        } else {
            ctx.counters.with_coin(source, |coin| coin.refuses(word.ratio(), || ctx.draws.draw().both()))
        };
        let outcome = self.guard(source, word, refused, 1, ctx.counters);
        ctx.counters.add(key, outcome, 1);
        verdict(outcome.is_refusal(), draw)
    }

    /// Decides for a request that counts as `cost` requests, or by the caller's draw: by one independent
    /// draw, as a whole.
    pub(crate) fn decide_by(
        &self,
        place: KeyPlace,
        cost: u32,
        drawn: Option<u32>,
        ctx: &mut DecideCtx<'_, impl DrawSource>,
    ) -> Verdict {
        let (source, word) = self.directive_of(place);
        let draw = ctx.draws.draw();
        let refused = coin::refuses(word.ratio(), drawn.unwrap_or(draw.coin()));
        let outcome = self.guard(source, word, refused, cost, ctx.counters);
        ctx.counters.add(place.key, outcome, cost);
        verdict(outcome.is_refusal(), draw)
    }

    /// Decides for a request that is subject to several keys: by one draw, which the strictest key decides.
    /// The request is counted for all keys. A refused request takes no token. The draw is the trace's, if
    /// there is a trace and any of the coins is coherent.
    pub(crate) fn decide_all<const N: usize>(
        &self,
        places: [KeyPlace; N],
        trace: Option<TraceId>,
        ctx: &mut DecideCtx<'_, impl DrawSource>,
    ) -> Verdict {
        let draw = ctx.draws.draw();
        let directives = places.map(|place| self.directive_of(place));
        let trace = trace.filter(|_| directives.iter().any(|(_, word)| word.uses_trace()));
        let drawn = trace.map_or(draw.coin(), |trace| self.draw_key.load().draw(trace));
        let drawn_by_key =
            directives.map(|(source, word)| (source, word, coin::refuses(word.ratio(), drawn)));
        let mut outcomes = [Outcome::Admitted; N];
        if drawn_by_key.iter().any(|(_, word, refused)| *refused && word.is_enforced()) {
            outcomes = [Outcome::Dropped; N];
        } else {
            for (at, (source, word, refused)) in drawn_by_key.into_iter().enumerate() {
                outcomes[at] = self.guard(source, word, refused, 1, ctx.counters);
                if outcomes[at] == Outcome::GuardDropped {
                    for (taken, (source, word, _)) in outcomes.iter().zip(drawn_by_key).take(at) {
                        if *taken == Outcome::Admitted && word.is_guarded() {
                            self.give_back(source, ctx.counters);
                        }
                    }
                    // The other keys count it as dropped, because their guards did not refuse it.
                    outcomes = [Outcome::Dropped; N];
                    outcomes[at] = Outcome::GuardDropped;
                    break;
                }
            }
        }
        places.iter().zip(outcomes).for_each(|(place, outcome)| ctx.counters.add(place.key, outcome, 1));
        verdict(outcomes.iter().any(|outcome| outcome.is_refusal()), draw)
    }

    /// Applies the guard after the coin: a request that the coin refuses takes no token. Both decide alike in
    /// shadow mode, so that its counts predict the effect of enforcing.
    #[inline]
    fn guard(
        &self,
        source: u32,
        word: DirectiveWord,
        by_coin: bool,
        cost: u32,
        counters: &CounterBlock,
    ) -> Outcome {
        match (by_coin, word.is_enforced()) {
            (true, true) => Outcome::Dropped,
            (true, false) => Outcome::WouldDropped,
            (false, _) if !word.is_guarded() || self.take(source, cost, counters) => Outcome::Admitted,
            (false, true) => Outcome::GuardDropped,
            (false, false) => Outcome::WouldGuardDropped,
        }
    }
}
