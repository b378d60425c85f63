//! A store in this process, for tests: exact, and able to fail, to be silent and to answer late.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use plimsoll_core::quota::{Balance, lease};
use tokio::time::Instant;

use crate::limiter::quota::book::{Key, Reply};
use crate::limiter::quota::store::{Ask, Failure};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Behaviour {
    #[default]
    Answers,
    /// It takes and answers after this time.
    AnswersAfter(Duration),
    /// It takes, and its answer is lost.
    TakesInSilence,
    Silent,
    Fails,
    Stalls {
        every: Duration,
        lasts: Duration,
    },
}

/// Buckets in memory on the clock of tokio. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Memory(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    origin: Instant,
    balances: HashMap<String, Balance>,
    behaviour: Behaviour,
    calls: u64,
    debited: u64,
    given: u64,
}

impl Memory {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(State {
            origin: Instant::now(),
            balances: HashMap::new(),
            behaviour: Behaviour::Answers,
            calls: 0,
            debited: 0,
            given: 0,
        })))
    }

    pub(crate) fn behave(&self, behaviour: Behaviour) {
        self.with(|state| state.behaviour = behaviour);
    }

    pub(crate) fn reset(&self) {
        self.with(|state| state.balances.clear());
    }

    pub(crate) fn calls(&self) -> u64 {
        self.with(|state| state.calls)
    }

    pub(crate) fn debited_and_given(&self) -> (u64, u64) {
        self.with(|state| (state.debited, state.given))
    }

    pub(in crate::limiter::quota) async fn take(
        &self,
        asks: &[Ask],
    ) -> Result<Vec<Reply>, Failure> {
        let behaviour = self.with(|state| {
            state.calls += 1;
            state.behaviour
        });
        match behaviour {
            Behaviour::Fails => return Err(Failure::Connection),
            Behaviour::Silent => std::future::pending().await,
            Behaviour::Answers | Behaviour::AnswersAfter(_) | Behaviour::TakesInSilence => {}
            Behaviour::Stalls { .. } => {
                tokio::time::sleep(self.with(|state| state.stalls_for())).await
            }
        }
        let replies = self.with(|state| state.take(asks));
        match behaviour {
            Behaviour::AnswersAfter(time) => tokio::time::sleep(time).await,
            Behaviour::TakesInSilence => std::future::pending().await,
            _ => tokio::task::yield_now().await,
        }
        Ok(replies)
    }

    pub(in crate::limiter::quota) async fn give(
        &self,
        key: &Key,
        tokens: u64,
    ) -> Result<(), Failure> {
        self.probe().await?;
        self.with(|state| {
            state.given += tokens;
            if let Some(balance) = state.balances.get_mut(&name(key)) {
                balance.give_back(key.quota.rate, tokens);
            }
        });
        Ok(())
    }

    pub(in crate::limiter::quota) async fn probe(&self) -> Result<(), Failure> {
        match self.with(|state| state.behaviour) {
            Behaviour::Fails => Err(Failure::Connection),
            Behaviour::Silent | Behaviour::TakesInSilence => std::future::pending().await,
            Behaviour::AnswersAfter(time) => {
                tokio::time::sleep(time).await;
                Ok(())
            }
            Behaviour::Stalls { .. } => {
                tokio::time::sleep(self.with(|state| state.stalls_for())).await;
                Ok(())
            }
            Behaviour::Answers => Ok(()),
        }
    }

    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl State {
    fn stalls_for(&self) -> Duration {
        let Behaviour::Stalls { every, lasts } = self.behaviour else {
            return Duration::ZERO;
        };
        let into = self.origin.elapsed().as_micros() % every.as_micros();
        lasts.saturating_sub(Duration::from_micros(
            u64::try_from(into).unwrap_or_default(),
        ))
    }

    fn take(&mut self, asks: &[Ask]) -> Vec<Reply> {
        let at = u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX);
        let balances: Vec<Balance> = asks
            .iter()
            .map(|ask| {
                let rate = ask.key.quota.rate;
                let known = self.balances.get(&name(&ask.key)).copied();
                known
                    .unwrap_or_else(|| Balance::full(rate, at))
                    .refilled(rate, at)
            })
            .collect();
        let is_enough = balances
            .iter()
            .zip(asks)
            .all(|(balance, ask)| balance.tokens >= ask.demand.least);
        let replies = balances.into_iter().zip(asks).map(|(mut balance, ask)| {
            let (rate, demand) = (ask.key.quota.rate, ask.demand);
            let granted = if is_enough {
                lease(balance.tokens, demand.least, demand.wanted)
            } else {
                0
            };
            balance.tokens -= granted;
            self.debited += granted;
            self.balances.insert(name(&ask.key), balance);
            let refill_in = Duration::from_millis(balance.next_refill_ms(rate) - at);
            Reply {
                granted,
                remaining: balance.tokens,
                refill_in,
            }
        });
        replies.collect()
    }
}

fn name(key: &Key) -> String {
    let (tenant, quota) = (key.stored_tenant(), &key.quota);
    format!("{tenant}:{}:{:?}", quota.name, quota.rate)
}
