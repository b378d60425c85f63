//! Decisions that also say what was withheld, and decisions that count nothing.

use plimsoll_core::decision::Verdict;
use plimsoll_core::decision::trace::TraceId;

use super::{DecideCtx, Decided};
use crate::hot::directive_word::DirectiveWord;
use crate::hot::rng::DrawSource;
use crate::hot::table::{Table, Target};
use crate::hot::thread_counters::Outcome;

impl Outcome {
    #[inline]
    pub(super) const fn by_coin(word: DirectiveWord) -> Self {
        if word.is_enforced() {
            Self::Dropped
        } else {
            Self::WouldDropped
        }
    }

    #[inline]
    pub(super) const fn by_guard(word: DirectiveWord) -> Self {
        if word.is_enforced() {
            Self::GuardDropped
        } else {
            Self::WouldGuardDropped
        }
    }

    #[inline]
    pub(super) fn decided(self, word: DirectiveWord, jitter: u32) -> Decided {
        match self {
            Self::Admitted => Decided::ADMITTED,
            Self::Dropped | Self::GuardDropped => {
                Decided::of(Verdict::Refuse(word.refusal(word.reason(self), jitter)))
            }
            Self::WouldDropped | Self::WouldGuardDropped => Decided {
                withheld: Some(word.reason(self)),
                ..Decided::ADMITTED
            },
        }
    }
}

impl Table {
    /// Decides for a request that counts as `cost` requests and may belong to a trace, and names
    /// the refusal that was not carried out. Only a key without enforcement has one. A cost of 0 is a preview.
    #[inline]
    pub(crate) fn decide_in_full(
        &self,
        target: Target,
        cost: u32,
        trace: Option<TraceId>,
        ctx: DecideCtx<'_, impl DrawSource>,
    ) -> Decided {
        let word = target.word();
        // No refusal can be withheld then.
        let is_carried_out = word.is_enforced() || word.admits();
        match (cost, is_carried_out, trace.filter(|_| word.uses_trace())) {
            (0, ..) => self.preview(target, trace, ctx),
            (1, true, None) => Decided::of(self.decide(target, ctx)),
            (1, true, trace) => Decided::of(self.decide_traced(target, || trace, ctx)),
            (1, false, None) => {
                let (outcome, jitter) = self.count_slowly(target, ctx);
                outcome.decided(word, jitter)
            }
            (_, _, trace) => {
                let drawn = trace.map(|trace| self.draw_key.load().draw(trace));
                let (outcome, jitter) = self.count_by(target, cost, drawn, ctx);
                outcome.decided(word, jitter)
            }
        }
    }

    /// Decides as for one request, by a draw and the tokens that are left. Counts nothing and takes no token.
    #[cold]
    pub(crate) fn preview(
        &self,
        target: Target,
        trace: Option<TraceId>,
        mut ctx: DecideCtx<'_, impl DrawSource>,
    ) -> Decided {
        let (draw, word) = (ctx.draws.draw(), target.word());
        let trace = trace.filter(|_| word.uses_trace());
        let drawn = trace.map_or(draw.coin(), |trace| self.draw_key.load().draw(trace));
        self.guard_without_taking(target, word.refuses(drawn))
            .decided(word, draw.other())
    }

    /// Applies guard and headroom after the coin as they are for one request, and takes no token.
    pub(super) fn guard_without_taking(&self, target: Target, by_coin: bool) -> Outcome {
        let word = target.word();
        match by_coin {
            true => Outcome::by_coin(word),
            false if !self.has_tokens(target, 1) => Outcome::by_guard(word),
            false => Outcome::Admitted,
        }
    }
}
