//! The call of one key that its requests share.

use std::sync::Arc;

use super::Shared;
use crate::limiter::quota::book::holding::Holding;
use crate::limiter::quota::book::{Demand, Key};
use crate::limiter::quota::held::Held;
use crate::limiter::quota::store::Ask;

/// The call of one key, for all requests that wait for it. Dropped before its end, it drops them, which ends their wait.
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
                let held = |tokens| Held::new(Arc::clone(&self.shared), self.key.clone(), tokens);
                // A request that has just left drops its tokens, which return.
                let _ = waits.0.send(outcome.map(held));
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
}

impl Drop for Flight {
    fn drop(&mut self) {
        if !self.is_landed {
            drop(self.shared.known(&self.key, Holding::fail));
        }
    }
}
