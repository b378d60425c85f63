//! Random steps of one key: no token is used that was not debited, and what is debited is used, held or lost by name.

use std::cell::Cell;
use std::rc::Rc;

use plimsoll_core::quantity::MonoTime;
use plimsoll_core::quota::{Balance, lease};
use proptest::prelude::*;

use super::*;
use crate::limiter::quota::book::holding::Holding;
use crate::limiter::quota::book::{Demand, Joined, LeasedTokens, Reply, Waiter};

const PATIENCE: Duration = Duration::from_millis(20);

#[derive(Clone, Debug)]
struct Caller(Rc<Cell<bool>>);

impl Waiter for Caller {
    fn is_gone(&self) -> bool {
        self.0.get()
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Request(u64),
    Land,
    /// The oldest call reaches the store, and no request waits anymore when it is answered.
    Late,
    Fail,
    Leave,
    Other(u64),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (1_u64..8).prop_map(Step::Request),
        6 => Just(Step::Land),
        1 => Just(Step::Late),
        1 => Just(Step::Fail),
        1 => Just(Step::Leave),
        1 => (1_u64..10).prop_map(Step::Other),
        2 => (0_u64..1_500).prop_map(Step::Wait),
    ]
}

struct World {
    quota: Arc<Quota>,
    holding: Holding<Caller>,
    balance: Balance,
    millis: u64,
    calls: Vec<(Demand, MonoTime)>,
    waiting: Vec<(Caller, LeasedTokens)>,
    used: u64,
    debited: u64,
}

impl World {
    fn new(quota: Arc<Quota>) -> Self {
        let balance = Balance::full(quota.rate, 0);
        let holding = Holding::new(PATIENCE);
        Self {
            quota,
            holding,
            balance,
            millis: 0,
            calls: Vec::new(),
            waiting: Vec::new(),
            used: 0,
            debited: 0,
        }
    }

    fn now(&self) -> MonoTime {
        MonoTime::from_micros(self.millis * 1_000)
    }

    fn debit(&mut self, demand: Demand) -> Reply {
        self.balance = self.balance.refilled(self.quota.rate, self.millis);
        let granted = lease(self.balance.tokens, demand.least, demand.wanted);
        self.balance.tokens -= granted;
        self.debited += granted;
        let refill_in = self.balance.next_refill_ms(self.quota.rate) - self.millis;
        Reply {
            granted,
            remaining: self.balance.tokens,
            refill_in: Duration::from_millis(refill_in),
        }
    }

    fn give(&mut self, tokens: LeasedTokens) {
        if tokens.returnable(self.now()) {
            self.balance.give_back(self.quota.rate, tokens.count);
            self.debited -= tokens.count;
        }
    }

    fn bank(&mut self, tokens: LeasedTokens) {
        let beyond = self.holding.bank(&self.quota, tokens, self.now());
        self.give(beyond);
    }

    fn fail(&mut self) {
        for gone in self.holding.fail() {
            let at = self
                .waiting
                .iter()
                .position(|(caller, _)| Rc::ptr_eq(&caller.0, &gone.0))
                .unwrap();
            let (_, held) = self.waiting.remove(at);
            self.bank(held);
        }
        // A request that has left may have been forgotten before.
        assert!(!self.calls.is_empty() || self.waiting.iter().all(|(caller, _)| caller.is_gone()));
    }

    fn leave(&mut self, at: usize) {
        let (caller, held) = &mut self.waiting[at];
        caller.0.set(true);
        let tokens = *held;
        held.count = 0;
        self.bank(tokens);
    }

    fn step(&mut self, step: Step) {
        let (now, quota) = (self.now(), Arc::clone(&self.quota));
        match step {
            Step::Wait(millis) => self.millis += millis,
            Step::Other(tokens) => {
                self.used += self
                    .debit(Demand {
                        least: tokens,
                        wanted: tokens,
                    })
                    .granted;
            }
            Step::Request(cost) => {
                let covered = self.holding.lease.cover(cost, now);
                if covered.count == cost {
                    self.used += cost;
                    let ahead = self.holding.ahead(&quota, now);
                    self.calls.extend(ahead.map(|demand| (demand, now)));
                    return;
                }
                let caller = Caller(Rc::default());
                match self
                    .holding
                    .join(&quota, (cost - covered.count, cost), caller.clone(), now)
                {
                    Joined::Call(demand) => {
                        assert!(demand.least >= 1 && demand.wanted >= demand.least);
                        self.calls.push((demand, now));
                    }
                    Joined::Waits => assert!(!self.calls.is_empty(), "a call is under way"),
                    Joined::Full => unreachable!("few requests"),
                }
                self.waiting.push((caller, covered));
            }
            Step::Leave => {
                if let Some(at) = self
                    .waiting
                    .iter()
                    .position(|(caller, _)| !caller.is_gone())
                {
                    self.leave(at);
                }
            }
            Step::Fail if !self.calls.is_empty() => {
                self.calls.remove(0);
                self.fail();
            }
            Step::Late if !self.calls.is_empty() => {
                (0..self.waiting.len()).for_each(|at| self.leave(at));
                return self.step(Step::Land);
            }
            Step::Land if !self.calls.is_empty() => {
                let (demand, sent) = self.calls.remove(0);
                let reply = self.debit(demand);
                let landed = self.holding.land(&quota, reply, sent, now);
                for (caller, outcome) in landed.settled {
                    let at = self
                        .waiting
                        .iter()
                        .position(|(known, _)| Rc::ptr_eq(&known.0, &caller.0))
                        .unwrap();
                    let (_, held) = self.waiting.remove(at);
                    match outcome {
                        Ok(tokens) => self.used += held.count + tokens.count,
                        Err(_) => self.bank(held),
                    }
                }
                self.give(landed.surplus);
                if let Some(again) = landed.again {
                    self.calls.push((again, now));
                }
            }
            Step::Fail | Step::Late | Step::Land => {}
        }
        self.check();
    }

    fn check(&self) {
        let reserved: u64 = self.waiting.iter().map(|(_, held)| held.count).sum();
        let held = self.holding.lease.tokens + reserved;
        assert!(
            self.used + held <= self.debited,
            "{} used, {held} held of {}",
            self.used,
            self.debited
        );
        assert!(
            self.holding.lease.tokens <= self.quota.lease(),
            "at most one lease is lost in a crash"
        );
        assert!(self.calls.len() <= 10, "requests of a key share calls");
        let refills = self.millis / self.quota.rate.every_ms();
        let most = self.quota.rate.max() + refills * self.quota.rate.refill();
        assert!(self.used <= most, "{} used of {most}", self.used);
    }
}

proptest! {
    #[test]
    fn tokens_are_debited_before_they_are_used(
        (max, refill) in (1_u64..60, 1_u64..60),
        every in prop_oneof![Just(300_u64), Just(2_000), Just(10_000)],
        lease in 1_u64..30,
        steps in proptest::collection::vec(step(), 1..200),
    ) {
        let of = quota("calls", (max, refill, every), lease.min(max), OnStoreError::AllowBounded);
        let mut world = World::new(of);
        for step in steps {
            world.step(step);
        }
    }

    #[test]
    fn allowance_is_never_exceeded_in_an_interval(
        lease in 1_u64..30,
        steps in proptest::collection::vec((1_u64..5, 0_u64..700, any::<bool>()), 1..100),
    ) {
        let of = quota("calls", (1_000, 10, 2_000), lease, OnStoreError::AllowBounded);
        let mut holding = Holding::<Caller>::new(PATIENCE);
        let (mut millis, mut admitted) = (0, Vec::new());
        for (need, wait, is_taken_back) in steps {
            millis += wait;
            let now = MonoTime::from_micros(millis * 1_000);
            match holding.allowance.take(&of, need, now) {
                Ok(ends) if is_taken_back => holding.allowance.take_back(need, ends),
                Ok(_) => admitted.push((millis, need)),
                Err(wait) => prop_assert!(wait > Duration::ZERO && wait <= Duration::from_secs(2)),
            }
        }
        for (from, _) in &admitted {
            let within = admitted.iter().filter(|(at, _)| (*from..from + 2_000).contains(at));
            let sum: u64 = within.map(|(_, need)| need).sum();
            prop_assert!(sum <= 2 * of.bounded(), "{sum} of {}", of.bounded());
        }
    }
}

#[test]
fn late_takeback_leaves_the_next_allowance_unchanged() {
    let of = quota("calls", (1_000, 10, 2_000), 10, OnStoreError::AllowBounded);
    let mut holding = Holding::<Caller>::new(PATIENCE);
    let at = |millis: u64| MonoTime::from_micros(millis * 1_000);
    let ends = holding.allowance.take(&of, 10, at(0)).unwrap();
    assert!(holding.allowance.take(&of, 10, at(2_000)).is_ok());
    holding.allowance.take_back(10, ends);
    assert!(holding.allowance.take(&of, 1, at(2_000)).is_err());
}
