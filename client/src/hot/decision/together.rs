//! The decision about a request that is subject to several keys: by one draw, which the strictest key decides.

use plimsoll_core::decision::Verdict;
use plimsoll_core::decision::trace::TraceId;

use super::{COST_MAX, DecideCtx, Decided};
use crate::hot::directive_word::DirectiveWord;
use crate::hot::rng::DrawSource;
use crate::hot::table::{Table, Target};
use crate::hot::thread_counters::{CounterBlock, Outcome};

/// One key of a request that is subject to several.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    target: Target,
    /// The number of requests that the request counts as; 0 to decide without counting.
    cost: u32,
    /// The outcome if this key were the only one.
    own: Outcome,
    /// The id of the guard or headroom that tokens were taken from.
    taken: Option<u32>,
}

impl Part {
    #[inline]
    pub(crate) fn new(target: Target, cost: u32) -> Self {
        Self {
            target,
            cost: cost.min(COST_MAX),
            own: Outcome::Admitted,
            taken: None,
        }
    }

    pub(crate) fn decided(&self, jitter: u32) -> Decided {
        self.own.decided(self.target.word(), jitter)
    }
}

impl Table {
    /// Decides for a request that is subject to several keys, by one draw. The request is counted for all keys.
    /// A refused request keeps no token. The draw is the trace's, if there is a trace and any of the coins is
    /// coherent. Also returns the jitter of the waits.
    #[inline(always)]
    pub(crate) fn decide_parts(
        &self,
        parts: &mut [Part],
        trace: Option<TraceId>,
        mut ctx: DecideCtx<'_, impl DrawSource>,
    ) -> (Verdict, u32) {
        let draw = ctx.draws.draw();
        let trace = trace.filter(|_| parts.iter().any(|part| part.target.word().uses_trace()));
        let drawn = trace.map_or(draw.coin(), |trace| self.draw_key.load().draw(trace));
        let drops =
            |part: &&Part| part.target.word().is_enforced() && part.target.word().refuses(drawn);
        let strictest = parts
            .iter()
            .filter(drops)
            .max_by_key(|part| part.target.word().ratio());
        let refused_by = match strictest.map(|part| part.target.word()) {
            Some(word) => {
                parts
                    .iter_mut()
                    .for_each(|part| part.own = of_coin(part.target, drawn));
                Some((word, Outcome::Dropped))
            }
            None => self.guard_parts(parts, drawn, ctx.counters),
        };
        for part in &*parts {
            // The other keys count a refused request as dropped, because their guards did not refuse it.
            let is_dropped = refused_by.is_some() && part.own != Outcome::GuardDropped;
            let outcome = if is_dropped {
                Outcome::Dropped
            } else {
                part.own
            };
            ctx.counters.add(part.target.key, outcome, part.cost);
        }
        let jitter = draw.other();
        let verdict = refused_by.map_or(Verdict::Admit, |(word, outcome)| {
            Verdict::Refuse(word.refusal(word.reason(outcome), jitter))
        });
        (verdict, jitter)
    }

    /// Applies the guards of all keys in order. If one of them refuses, gives back the tokens of the keys before
    /// it, and returns its word and outcome.
    fn guard_parts(
        &self,
        parts: &mut [Part],
        drawn: u32,
        counters: CounterBlock<'_>,
    ) -> Option<(DirectiveWord, Outcome)> {
        for at in 0..parts.len() {
            let Some(part) = parts.get_mut(at) else { break };
            let by_coin = part.target.word().refuses(drawn);
            (part.own, part.taken) = match part.cost {
                0 => (self.guard_without_taking(part.target, by_coin), None),
                cost => self.guard(part.target, by_coin, cost, counters),
            };
            if part.own == Outcome::GuardDropped {
                let word = part.target.word();
                for part in &*parts {
                    part.taken
                        .into_iter()
                        .for_each(|id| self.give_back(id, part.cost, counters));
                }
                let behind = parts.iter_mut().skip(at + 1);
                behind.for_each(|part| part.own = of_coin(part.target, drawn));
                return Some((word, Outcome::GuardDropped));
            }
        }
        None
    }
}

/// Returns the outcome of the coin alone.
fn of_coin(target: Target, drawn: u32) -> Outcome {
    if target.word().refuses(drawn) {
        Outcome::by_coin(target.word())
    } else {
        Outcome::Admitted
    }
}
