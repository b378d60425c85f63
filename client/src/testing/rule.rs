//! The rule of one bucket in a test, and the directive word that carries it out.

use plimsoll_core::decision::token_bucket::TokenCount;
use plimsoll_core::decision::{Reason, WaitClass};
use plimsoll_core::quantity::{DropRatio, Rate};

use crate::hot::directive_word::DirectiveWord;
use crate::hot::table::Table;

/// The depth of a limit: the requests of this many seconds.
const DEPTH_S: f64 = 1.0;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Rule {
    #[default]
    Admit,
    Refuse(Reason),
    Drop(DropRatio),
    /// Admits this many requests/s of the virtual clock.
    Limit(Rate),
}

impl Rule {
    pub(super) fn word(self, is_enforced: bool, wait: WaitClass) -> DirectiveWord {
        let [none, all] = [DropRatio::NONE, DropRatio::ALL].map(DirectiveWord::new);
        let word = match self {
            // The absence of a directive admits, in any mode.
            Self::Admit => return DirectiveWord::NOTHING,
            // A guard without tokens refuses everything.
            Self::Refuse(Reason::BurstGuard) | Self::Limit(_) => none.guarded(true),
            Self::Refuse(Reason::ColdStart) => none.guarded(true).cold(true),
            Self::Refuse(Reason::ClusterOverload) => all,
            Self::Refuse(Reason::TenantLimit) => all.at_tenant_limit(true),
            Self::Refuse(Reason::TenantQuotaExceeded) => all.at_quota(false),
            Self::Refuse(Reason::QuotaDegraded) => all.at_quota(true),
            Self::Drop(ratio) => DirectiveWord::new(ratio),
        };
        word.independent(true).enforced(is_enforced).wait(wait)
    }
}

#[derive(Debug)]
pub(super) struct VirtualLimit {
    key: u32,
    rate: Rate,
    tokens: TokenCount,
    /// Tokens used up to the last refill, modulo 2^32.
    used: u32,
    debt: u64,
}

impl VirtualLimit {
    pub(super) fn new(table: &Table, key: u32, rate: Rate) -> Self {
        let limit = Self {
            key,
            rate,
            tokens: depth(rate),
            used: table.counters.used(key),
            debt: 0,
        };
        table.fill(key, limit.tokens, depth(rate));
        limit
    }

    /// Adds the tokens of a span of virtual time. The caller starts the refill.
    pub(super) fn advance(&mut self, table: &Table, span: std::time::Duration) {
        let used = table.counters.used(self.key);
        self.debt += u64::from(used.wrapping_sub(self.used));
        self.used = used;
        let depth = depth(self.rate);
        self.tokens = self
            .tokens
            .pay(&mut self.debt)
            .refilled(self.rate, span, depth)
            .pay(&mut self.debt);
        table.fill(self.key, self.tokens, depth);
    }
}

/// Returns the depth of a limit: at least one request, unless the limit is 0.
fn depth(rate: Rate) -> TokenCount {
    if rate == Rate::ZERO {
        TokenCount::NONE
    } else {
        TokenCount::new((rate.per_second() * DEPTH_S).max(1.0))
    }
}
