//! A key's directive as the request path reads it: in one atomic word with the key's id, so that a reader
//! never sees a torn directive, and needs no second memory access to find the directive of an id.

#[cfg(doc)]
use plimsoll_core::decision::coin;
use plimsoll_core::decision::{Reason, Refusal, WaitClass};
use plimsoll_core::quantity::DropRatio;

use crate::hot::sync::{AtomicU64, Ordering};
use crate::hot::thread_counters::Outcome;

pub(crate) const IDS_MAX: usize = 1 << ID_BITS;
/// The low bits of a word, which hold the id. The flags follow, the class of waits, and the ratio in the upper half.
const ID_BITS: u32 = 20;
const ID: u64 = (1 << ID_BITS) - 1;

/// A directive: drop ratio, class of waits and flags, packed so that a reader sees all of them of one directive.
/// The word 0 means that the key has no directive.
///
/// A word without the flag `HELD` is a mark: the key follows its class, that of its plan or its bucket's `default`. In
/// a mark, `GUARDED` means an established name, `COHERENT` an own ratio with an own `AT_TENANT_LIMIT`, and `COLD` an own
/// side of the canary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DirectiveWord(u64);

impl DirectiveWord {
    /// No directive: the key then follows its class, and a class without directive admits.
    pub(crate) const NOTHING: Self = Self(0);
    const ENFORCED: u64 = 1 << ID_BITS;
    const HELD: u64 = 1 << (ID_BITS + 1);
    const GUARDED: u64 = 1 << (ID_BITS + 2);
    const INDEPENDENT: u64 = 1 << (ID_BITS + 3);
    const COHERENT: u64 = 1 << (ID_BITS + 4);
    const AT_TENANT_LIMIT: u64 = 1 << (ID_BITS + 5);
    const COLD: u64 = 1 << (ID_BITS + 6);
    const WAIT_AT: u32 = ID_BITS + 7;
    const WAIT: u64 = (WaitClass::LONGEST.bits() as u64) << Self::WAIT_AT;
    const RATIO_AT: u32 = Self::WAIT_AT + WaitClass::BITS;

    /// Makes the directive of a ratio with a dithered coin, in shadow mode.
    pub(crate) fn new(ratio: DropRatio) -> Self {
        Self(u64::from(ratio.units()) << Self::RATIO_AT | Self::HELD)
    }

    /// Makes the mark of a key that has no own directive and follows its class.
    pub(crate) const fn following() -> Self {
        Self(Self::INDEPENDENT)
    }

    /// Makes the mark of an established name, which follows its class's word for these.
    pub(crate) const fn established() -> Self {
        Self::following().with(Self::GUARDED, true)
    }

    #[inline]
    pub(crate) const fn is_established(self) -> bool {
        self.is_guarded() && !self.is_held()
    }

    /// Makes the mark of a name that has its own ratio, with an independent draw: in one dithered
    /// coin with names of smaller ratios it would be admitted too often. `at_tenant_limit` is true if its tenant limit
    /// sets that ratio. Everything else follows its class, or the established names of that.
    pub(crate) fn cut(ratio: DropRatio, is_established: bool, at_tenant_limit: bool) -> Self {
        let mark = Self(Self::following().0 | u64::from(ratio.units()) << Self::RATIO_AT);
        mark.with(Self::GUARDED, is_established)
            .with(Self::COHERENT, true)
            .at_tenant_limit(at_tenant_limit)
    }

    /// Sets enforcement of a marked key, independently of its class: in a canary that is
    /// divided by key.
    pub(crate) const fn on_side(self, is_enforced: bool) -> Self {
        self.with(Self::COLD, true).enforced(is_enforced)
    }

    /// Returns the directive of a key with this mark. `class` is that of its class, and `established` that of the
    /// established names of the class.
    #[inline]
    pub(crate) const fn resolve(self, class: Self, established: Self) -> Self {
        if !class.is_held() {
            return class;
        }
        let mut word = if self.is_established() {
            established
        } else {
            class
        };
        if self.0 & Self::COHERENT != 0 {
            let own = self.0 >> Self::RATIO_AT << Self::RATIO_AT;
            word = Self(word.rest() | own);
            word = word
                .with(Self::INDEPENDENT, true)
                .at_tenant_limit(self.is_at_tenant_limit());
        }
        if self.is_cold() {
            word.enforced(self.is_enforced())
        } else {
            word
        }
    }

    pub(crate) fn with_ratio(self, ratio: DropRatio) -> Self {
        Self(self.rest() | u64::from(ratio.units()) << Self::RATIO_AT)
    }

    /// True for a directive, and false for [`NOTHING`](Self::NOTHING) and for the mark of a
    /// [following](Self::following) key.
    #[inline]
    pub(crate) const fn is_held(self) -> bool {
        self.0 & Self::HELD != 0
    }

    pub(crate) const fn enforced(self, yes: bool) -> Self {
        self.with(Self::ENFORCED, yes)
    }

    /// Marks a key that refuses for a reason of the exact quotas, which no directive has, for tests of a service. The
    /// mark is a pair of flags that no directive sets: a key is at its tenant limit or cold.
    #[cfg(feature = "testing")]
    pub(crate) const fn at_quota(self, is_degraded: bool) -> Self {
        self.at_tenant_limit(true).cold(true).guarded(is_degraded)
    }

    /// Adds or removes a guard. Each request that the coin admits takes a token of it.
    pub(crate) const fn guarded(self, yes: bool) -> Self {
        self.with(Self::GUARDED, yes)
    }

    /// Draws for each request, as a coherent coin does for requests without a trace, or dithers.
    pub(crate) const fn independent(self, yes: bool) -> Self {
        self.with(Self::INDEPENDENT, yes)
    }

    /// Decides requests with a trace by the trace's draw, or not. A draw key must be stored first.
    pub(crate) const fn coherent(self, yes: bool) -> Self {
        self.with(Self::COHERENT, yes)
    }

    /// Marks a key that its tenant limit stops: it takes no tokens of its bucket's headroom, and all its
    /// refusals are for that limit.
    pub(crate) const fn at_tenant_limit(self, yes: bool) -> Self {
        self.with(Self::AT_TENANT_LIMIT, yes)
    }

    /// Marks what the service itself has set for the time before the first directive: a guard, or a refusal of all.
    pub(crate) const fn cold(self, yes: bool) -> Self {
        self.with(Self::COLD, yes)
    }

    pub(crate) const fn wait(self, class: WaitClass) -> Self {
        Self(self.0 & !Self::WAIT | (class.bits() as u64) << Self::WAIT_AT)
    }

    #[inline]
    const fn rest(self) -> u64 {
        self.0 << (u64::BITS - Self::RATIO_AT) >> (u64::BITS - Self::RATIO_AT)
    }

    const fn with(self, flag: u64, yes: bool) -> Self {
        if yes {
            Self(self.0 | flag)
        } else {
            Self(self.0 & !flag)
        }
    }

    #[inline]
    pub(crate) fn ratio(self) -> DropRatio {
        DropRatio::saturating((self.0 >> Self::RATIO_AT) as u32)
    }

    /// True if an independent draw refuses the request: [`coin::refuses`] by the [ratio](Self::ratio), without
    /// the bound that a ratio has, since words are made of ratios only.
    #[inline]
    pub(crate) const fn refuses(self, draw: u32) -> bool {
        draw >> 1 < (self.0 >> Self::RATIO_AT) as u32
    }

    #[inline]
    pub(crate) const fn admits(self) -> bool {
        self.0 >> Self::RATIO_AT == 0 && !self.is_guarded()
    }

    /// True if only an independent coin decides, and its refusals are enforced, for
    /// [`Reason::ClusterOverload`].
    #[inline]
    pub(crate) const fn is_plain(self) -> bool {
        const FLAGS: u64 = DirectiveWord::ENFORCED
            | DirectiveWord::INDEPENDENT
            | DirectiveWord::GUARDED
            | DirectiveWord::AT_TENANT_LIMIT;
        self.0 & FLAGS == DirectiveWord::ENFORCED | DirectiveWord::INDEPENDENT
    }

    #[inline]
    pub(crate) const fn is_enforced(self) -> bool {
        self.0 & Self::ENFORCED != 0
    }

    #[inline]
    pub(crate) const fn is_guarded(self) -> bool {
        self.0 & Self::GUARDED != 0
    }

    #[inline]
    pub(crate) const fn is_at_tenant_limit(self) -> bool {
        self.0 & Self::AT_TENANT_LIMIT != 0
    }

    #[inline]
    pub(crate) const fn is_cold(self) -> bool {
        self.0 & Self::COLD != 0
    }

    #[inline]
    pub(crate) const fn reason(self, outcome: Outcome) -> Reason {
        match outcome {
            #[cfg(feature = "testing")]
            _ if self.is_at_tenant_limit() && self.is_cold() => match self.is_guarded() {
                true => Reason::QuotaDegraded,
                false => Reason::TenantQuotaExceeded,
            },
            _ if self.is_at_tenant_limit() => Reason::TenantLimit,
            _ if self.is_cold() => Reason::ColdStart,
            Outcome::GuardDropped | Outcome::WouldGuardDropped => Reason::BurstGuard,
            Outcome::Dropped | Outcome::WouldDropped | Outcome::Admitted => Reason::ClusterOverload,
        }
    }

    #[inline]
    pub(crate) const fn class(self) -> WaitClass {
        WaitClass::from_bits((self.0 >> Self::WAIT_AT) as u32)
    }

    #[inline]
    pub(crate) const fn refusal(self, reason: Reason, jitter: u32) -> Refusal {
        Refusal::new(reason, self.class(), jitter)
    }

    /// True if a trace's draw decides, which a ratio of zero does not need.
    #[inline]
    pub(crate) const fn uses_trace(self) -> bool {
        self.0 & Self::COHERENT != 0 && self.0 >> Self::RATIO_AT != 0
    }

    #[inline]
    pub(crate) const fn is_independent(self) -> bool {
        self.0 & Self::INDEPENDENT != 0
    }
}

/// The id of a key, and the key's own directive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyWord(u64);

impl KeyWord {
    /// Makes the word of an id below [`IDS_MAX`].
    #[inline]
    pub(crate) fn new(id: u32, directive: DirectiveWord) -> Self {
        debug_assert!((id as usize) < IDS_MAX, "id {id} does not fit a word");
        Self(directive.0 | (u64::from(id) & ID))
    }

    #[inline]
    pub(crate) const fn id(self) -> u32 {
        (self.0 & ID) as u32
    }

    #[inline]
    pub(crate) const fn directive(self) -> DirectiveWord {
        DirectiveWord(self.0 & !ID)
    }

    /// Loads a word that threads share. A reader of a guard also sees the guard's tokens; a reader
    /// of a coherent coin, a draw key.
    #[inline]
    pub(crate) fn load(shared: &AtomicU64) -> Self {
        Self(shared.load(Ordering::Acquire))
    }

    pub(crate) fn store(self, shared: &AtomicU64) {
        shared.store(self.0, Ordering::Release);
    }
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests {
    use super::*;
    use plimsoll_core::decision::coin;

    #[test]
    fn word_holds_its_parts_apart() {
        let none = DirectiveWord::new(DropRatio::NONE);
        let all = none
            .enforced(true)
            .guarded(true)
            .independent(true)
            .coherent(true);
        let all = all
            .at_tenant_limit(true)
            .cold(true)
            .wait(WaitClass::LONGEST);
        for directive in [
            DirectiveWord::NOTHING,
            none,
            all,
            DirectiveWord::new(DropRatio::ALL),
        ] {
            for id in [0, 1, IDS_MAX as u32 - 1] {
                let word = KeyWord::new(id, directive);
                assert_eq!((word.id(), word.directive()), (id, directive));
            }
        }
    }

    #[test]
    fn class_mark_resolves_to_its_word() {
        let ratio = |units| DropRatio::new(units).unwrap();
        let class = DirectiveWord::new(ratio(8))
            .enforced(true)
            .guarded(true)
            .wait(WaitClass::LONGEST);
        let established = class.with_ratio(ratio(4));
        let cut = class.with_ratio(ratio(6)).independent(true);
        for (mark, due) in [
            (DirectiveWord::following(), class),
            (DirectiveWord::established(), established),
            (DirectiveWord::cut(ratio(6), false, false), cut),
            (
                DirectiveWord::cut(ratio(6), true, true),
                cut.at_tenant_limit(true),
            ),
        ] {
            assert!(!mark.is_held() && mark != DirectiveWord::NOTHING);
            assert_eq!(mark.resolve(class, established), due);
            assert_eq!(
                mark.on_side(false).resolve(class, established),
                due.enforced(false)
            );
            assert_eq!(
                mark.resolve(DirectiveWord::NOTHING, established),
                DirectiveWord::NOTHING
            );
        }
        assert!(DirectiveWord::new(DropRatio::NONE).is_held() && !DirectiveWord::NOTHING.is_held());
    }

    #[test]
    fn class_of_waits_changes_nothing_else() {
        for word in [
            DirectiveWord::new(DropRatio::NONE),
            DirectiveWord::new(DropRatio::ALL).cold(true),
        ] {
            for class in WaitClass::all() {
                let waiting = word.enforced(true).wait(WaitClass::LONGEST).wait(class);
                assert_eq!((waiting.class(), waiting.ratio()), (class, word.ratio()));
                assert_eq!(waiting.wait(WaitClass::SHORTEST), word.enforced(true));
                let refusal = waiting.refusal(Reason::TenantLimit, 0);
                assert_eq!(
                    (refusal.reason(), refusal.retry_after()),
                    (Reason::TenantLimit, class.base())
                );
            }
        }
    }

    #[test]
    fn refusals_at_a_tenant_limit_name_it() {
        let word = DirectiveWord::new(DropRatio::ALL)
            .enforced(true)
            .independent(true);
        let reasons = |word: DirectiveWord| {
            [Outcome::Dropped, Outcome::GuardDropped].map(|by| word.reason(by))
        };
        assert_eq!(reasons(word), [Reason::ClusterOverload, Reason::BurstGuard]);
        assert_eq!(reasons(word.cold(true)), [Reason::ColdStart; 2]);
        assert_eq!(
            reasons(word.at_tenant_limit(true)),
            [Reason::TenantLimit; 2]
        );
        assert!(
            word.is_plain() && !word.at_tenant_limit(true).is_plain(),
            "plain words have one reason"
        );
    }

    #[test]
    fn word_refuses_like_its_ratio() {
        let draws = [0, 1, 2, 1 << 30, (1 << 30) + 2, u32::MAX - 1, u32::MAX];
        for units in [
            0,
            1,
            2,
            1 << 29,
            (1 << 29) + 1,
            DropRatio::ONE - 1,
            DropRatio::ONE,
        ] {
            let ratio = DropRatio::new(units).unwrap();
            let word = DirectiveWord::new(ratio).enforced(true).independent(true);
            assert_eq!(word.ratio(), ratio);
            for draw in draws {
                assert_eq!(
                    word.refuses(draw),
                    coin::refuses(ratio, draw),
                    "{draw} of {units}"
                );
            }
        }
    }
}
