//! The call of one key that its requests share.

use std::sync::Arc;

use super::Shared;
use crate::limiter::quota::book::{Demand, Key, Outcome};
use crate::limiter::quota::held::{Held, Settled};
use crate::limiter::quota::store::Ask;

/// The call of one key, for all requests that wait for it. Dropped before its end, it ends their wait.
pub(super) struct Flight {
    pub(super) shared: Arc<Shared>,
    pub(super) key: Key,
    pub(super) is_landed: bool,
}

impl Flight {
    pub(super) async fn run(mut self, mut demand: Demand) {
        loop {
            let ask = Ask {
                key: self.key.clone(),
                demand,
            };
            let sent = self.shared.now();
            let result = self.shared.call(Arc::from([ask])).await;
            let Ok((replies, _place)) = result else {
                return;
            };
            let Some(reply) = replies.first().copied() else {
                return;
            };
            let now = self.shared.now();
            let landed = self.shared.known(&self.key, |holding| {
                let mut landed = holding.land(&self.key.quota, reply, sent, now);
                if self.shared.is_closed() {
                    landed.surplus = landed.surplus.and(holding.lease.drain());
                }
                landed
            });
            let Some(landed) = landed else { return };
            self.shared.figures.lost(&self.key.quota, landed.ended);
            for (waits, outcome) in landed.settled {
                // A request that has just left drops its tokens, which return.
                let _ = waits.0.send(self.settled(outcome));
            }
            self.shared.give(self.key.clone(), landed.surplus);
            match landed.again {
                Some(again) => demand = again,
                None => {
                    self.is_landed = true;
                    return;
                }
            }
        }
    }

    fn settled(&self, outcome: Outcome) -> Settled {
        match outcome {
            Outcome::Took(tokens) => Settled::Took(Held::new(
                Arc::clone(&self.shared),
                self.key.clone(),
                tokens,
            )),
            Outcome::Refused(wait) => Settled::Refused(wait),
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if !self.is_landed {
            for waits in self
                .shared
                .known(&self.key, |holding| holding.fail())
                .into_iter()
                .flatten()
            {
                let _ = waits.0.send(Settled::Failed);
            }
        }
    }
}
