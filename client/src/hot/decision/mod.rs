//! The decision about one request, by its key's directive: first the coin, then the guard and the headroom
//! of its bucket.

mod decided;
mod together;
mod withheld;

pub use decided::{COST_MAX, Decided, Peek};
pub(crate) use together::Part;

use std::hint::select_unpredictable;

use plimsoll_core::decision::trace::TraceId;
use plimsoll_core::decision::{Reason, Verdict};

use crate::hot::directive_word::DirectiveWord;
use crate::hot::rng::DrawSource;
use crate::hot::table::{Table, Target};
use crate::hot::thread_counters::{CounterBlock, CounterRow, Outcome};

pub(crate) struct DecideCtx<'a, D> {
    pub(crate) counters: CounterBlock<'a>,
    pub(crate) draws: D,
}

/// Makes the verdict without a branch on `refused`. `jitter` spreads the waits of refused callers.
#[inline]
fn verdict(refused: bool, word: DirectiveWord, reason: Reason, jitter: u32) -> Verdict {
    let refusal = word.refusal(reason, jitter);
    select_unpredictable(refused, Verdict::Refuse(refusal), Verdict::Admit)
}

impl Table {
    /// Decides and counts. Never blocks, allocates, makes a system call or fails.
    ///
    /// A coin's result is unpredictable, so the common paths, where refusals are enforced, do not branch on
    /// it: the mispredictions would cost more than all the rest. Only the simplest cases are inlined into the
    /// caller.
    #[inline(always)]
    pub(crate) fn decide(
        &self,
        target: Target,
        mut ctx: DecideCtx<'_, impl DrawSource>,
    ) -> Verdict {
        let word = target.word();
        let Some(row) = ctx.counters.row(target.key) else {
            return self.decide_slowly(target, ctx);
        };
        if word.is_plain() {
            let draw = ctx.draws.draw();
            let refused = word.refuses(draw.coin());
            row.count(refused);
            verdict(refused, word, Reason::ClusterOverload, draw.other())
        } else if word.admits() {
            row.count(false);
            Verdict::Admit
        } else if word.is_enforced() {
            self.decide_enforced(row, target, ctx)
        } else {
            self.decide_slowly(target, ctx)
        }
    }

    /// Decides for a request that may belong to a trace: by the trace's draw where the coin is coherent.
    /// `trace` is evaluated only in that case. Without a trace, and for every other coin, this is
    /// [`decide`](Self::decide).
    pub(crate) fn decide_traced(
        &self,
        target: Target,
        trace: impl FnOnce() -> Option<TraceId>,
        mut ctx: DecideCtx<'_, impl DrawSource>,
    ) -> Verdict {
        let word = target.word();
        let trace = if word.uses_trace() { trace() } else { None };
        let Some(trace) = trace else {
            return self.decide(target, ctx);
        };
        let drawn = self.draw_key.load().draw(trace);
        match ctx.counters.row(target.key) {
            Some(row) if word.is_plain() => {
                let refused = word.refuses(drawn);
                row.count(refused);
                verdict(
                    refused,
                    word,
                    Reason::ClusterOverload,
                    ctx.draws.draw().other(),
                )
            }
            _ => {
                let (outcome, jitter) = self.count_by(target, 1, Some(drawn), ctx);
                verdict(outcome.is_refusal(), word, word.reason(outcome), jitter)
            }
        }
    }

    /// The common path for a dithered coin or a guard.
    #[inline(never)]
    fn decide_enforced(
        &self,
        row: CounterRow<'_>,
        target: Target,
        mut ctx: DecideCtx<'_, impl DrawSource>,
    ) -> Verdict {
        let word = target.word();
        let Some(state) = ctx.counters.state(target.source()) else {
            return Verdict::Admit;
        };
        let ratio = word.ratio();
        let (refused, jitter) = if word.is_independent() {
            let draw = ctx.draws.draw();
            (word.refuses(draw.coin()), draw.other())
        } else {
            // The coin state belongs to the directive's key, not to each tenant that shares the directive:
            // otherwise every short-lived tenant would start with a fresh state.
            // Neither the coin's state nor its draws spread the waits: at a ratio of 1 both stand still, and of
            // refused requests both are biased.
            let refused = state.with_coin(|coin| coin.refuses(ratio, || ctx.draws.draw().both()));
            (refused, ctx.draws.jitter())
        };
        // A request that the coin refuses takes no token.
        if word.is_guarded() && !state.take(self.refill_number(), !refused) {
            return self.decide_by_pool(target, jitter, ctx.counters);
        }
        row.count(refused);
        verdict(refused, word, word.reason(Outcome::Dropped), jitter)
    }

    /// The rest of a decision that the coin admits, for a thread without tokens of the guard.
    #[cold]
    #[inline(never)]
    fn decide_by_pool(&self, target: Target, jitter: u32, counters: CounterBlock<'_>) -> Verdict {
        let has_token = self.take(target, 1, counters).is_some();
        counters.add(
            target.key,
            if has_token {
                Outcome::Admitted
            } else {
                Outcome::GuardDropped
            },
            1,
        );
        let word = target.word();
        verdict(!has_token, word, word.reason(Outcome::GuardDropped), jitter)
    }

    /// The path for refusals that are only counted, and for threads without their own counters.
    #[inline(never)]
    fn decide_slowly(&self, target: Target, ctx: DecideCtx<'_, impl DrawSource>) -> Verdict {
        let word = target.word();
        if word.admits() {
            ctx.counters.add(target.key, Outcome::Admitted, 1);
            return Verdict::Admit;
        }
        let (outcome, jitter) = self.count_slowly(target, ctx);
        verdict(outcome.is_refusal(), word, word.reason(outcome), jitter)
    }

    /// Decides by the key's own coin and its guard, and counts one request. Returns the outcome, and the jitter of
    /// the wait.
    #[inline]
    fn count_slowly(
        &self,
        target: Target,
        mut ctx: DecideCtx<'_, impl DrawSource>,
    ) -> (Outcome, u32) {
        let (key, source, word) = (target.key, target.source(), target.word());
        let draw = ctx.draws.draw();
        let refused = if word.is_independent() {
            word.refuses(draw.coin())
        } else {
            ctx.counters.with_coin(source, |coin| {
                coin.refuses(word.ratio(), || ctx.draws.draw().both())
            })
        };
        let (outcome, _) = self.guard(target, refused, 1, ctx.counters);
        ctx.counters.add(key, outcome, 1);
        (outcome, draw.other())
    }

    /// Decides by the draw of a trace, or by an independent one for `None`, and counts. Returns the outcome, and
    /// the jitter of the wait.
    #[inline]
    fn count_by(
        &self,
        target: Target,
        cost: u32,
        drawn: Option<u32>,
        mut ctx: DecideCtx<'_, impl DrawSource>,
    ) -> (Outcome, u32) {
        let (draw, word, cost) = (ctx.draws.draw(), target.word(), cost.min(COST_MAX));
        let refused = word.refuses(drawn.unwrap_or(draw.coin()));
        let (outcome, _) = self.guard(target, refused, cost, ctx.counters);
        ctx.counters.add(target.key, outcome, cost);
        (outcome, draw.other())
    }

    /// Applies guard and headroom after the coin: a request that the coin refuses takes no token. The rules are
    /// the same in shadow mode, so that its counts predict the effect of enforcing. Also returns the id of the
    /// guard or headroom that a token was taken from.
    #[inline]
    fn guard(
        &self,
        target: Target,
        by_coin: bool,
        cost: u32,
        counters: CounterBlock<'_>,
    ) -> (Outcome, Option<u32>) {
        let word = target.word();
        if by_coin {
            return (Outcome::by_coin(word), None);
        }
        if !word.is_guarded() {
            return (Outcome::Admitted, None);
        }
        match self.take(target, cost, counters) {
            None => (Outcome::by_guard(word), None),
            taken => (Outcome::Admitted, taken),
        }
    }
}
