//! The commands of stores: the commands of the quota server, and an equivalent script for Redis.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::{Cmd, Script, Value, cmd, from_redis_value};

use super::{Ask, Key, Reply, millis};

const TAKE: &str = include_str!("take.lua");
const GIVE: &str = include_str!("give.lua");

pub(crate) enum Dialect {
    Server,
    Redis {
        /// The script of takes. Its hash names it.
        take: Script,
        give: Script,
        /// A number of this process, which makes marks of gives unique.
        process: u64,
        gives: AtomicU64,
    },
}

impl Dialect {
    pub(super) fn redis(process: u64) -> Self {
        let gives = AtomicU64::new(0);
        Self::Redis {
            take: Script::new(TAKE),
            give: Script::new(GIVE),
            process,
            gives,
        }
    }

    pub(super) fn next_mark(&self) -> u64 {
        match self {
            Self::Server => 0,
            Self::Redis { gives, .. } => gives.fetch_add(1, Ordering::Relaxed),
        }
    }
}

/// Makes a take. `with_script` sends a script itself instead of its hash.
pub(super) fn take_command(dialect: &Dialect, asks: &[Ask], with_script: bool) -> Cmd {
    match dialect {
        Dialect::Server => {
            let mut command = cmd("QUOTA.TAKE");
            for ask in asks {
                command.arg(server_key(&ask.key));
                add_rate_and_demand(&mut command, ask);
            }
            command
        }
        Dialect::Redis { take, .. } => {
            let mut command = script(take, TAKE, with_script);
            command.arg(asks.len());
            for ask in asks {
                command.arg(redis_key(&ask.key));
            }
            for ask in asks {
                add_rate_and_demand(&mut command, ask);
            }
            command
        }
    }
}

pub(super) fn give_command(
    dialect: &Dialect,
    key: &Key,
    tokens: u64,
    mark: u64,
    with_script: bool,
) -> Cmd {
    match dialect {
        Dialect::Server => {
            let mut command = cmd("QUOTA.GIVE");
            command.arg(server_key(key));
            add_rate(&mut command, key);
            command.arg(tokens);
            command
        }
        Dialect::Redis { give, process, .. } => {
            let mut command = script(give, GIVE, with_script);
            command.arg(2).arg(redis_key(key));
            command.arg(format!(
                "plimsoll:{{{}}}:give:{process:016x}:{mark}",
                key.stored_tenant()
            ));
            command.arg(key.quota.rate.max()).arg(tokens);
            command
        }
    }
}

/// Reads the reply to a take; `None` if it is none.
pub(super) fn parse(value: Value, asks: &[Ask]) -> Option<Vec<Reply>> {
    let rows: Vec<Vec<i64>> = from_redis_value(value).ok()?;
    if rows.len() != asks.len() {
        return None;
    }
    let replies = rows.iter().zip(asks).map(|(row, ask)| {
        // The last number, the time until a bucket has the least, follows from the others.
        let &[granted, remaining, refill_in, _] = row.as_slice() else {
            return None;
        };
        let (granted, remaining) = (u64::try_from(granted).ok()?, u64::try_from(remaining).ok()?);
        let demand = ask.demand;
        let is_granted = granted >= demand.least && granted <= demand.wanted.max(demand.least);
        // A refill is never further than one interval, even if a store says so: leases and waits
        // follow it.
        let refill_in = millis(refill_in).min(Duration::from_millis(ask.key.quota.rate.every_ms()));
        (granted == 0 || is_granted).then_some(Reply {
            granted,
            remaining,
            refill_in,
        })
    });
    let replies = replies.collect::<Option<Vec<_>>>()?;
    let granted = replies.iter().filter(|reply| reply.granted > 0).count();
    (granted == 0 || granted == replies.len()).then_some(replies)
}

fn script(script: &Script, text: &str, with_script: bool) -> Cmd {
    let mut command = cmd(if with_script { "EVAL" } else { "EVALSHA" });
    command.arg(if with_script { text } else { script.get_hash() });
    command
}

fn add_rate_and_demand(command: &mut Cmd, Ask { key, demand }: &Ask) {
    add_rate(command, key);
    command.arg(demand.least).arg(demand.wanted);
}

fn add_rate(command: &mut Cmd, key: &Key) {
    let rate = key.quota.rate;
    command
        .arg(rate.max())
        .arg(rate.refill())
        .arg(rate.every_ms());
}

/// Returns the key at a quota server. The rate is not in it, because the command has it.
fn server_key(key: &Key) -> String {
    format!("{{{}}}:{}", key.stored_tenant(), key.quota.name)
}

/// Returns the key at Redis, with the rate. The tenant in braces is what Redis Cluster finds the slot by.
fn redis_key(key: &Key) -> String {
    let (name, rate) = (&key.quota.name, key.quota.rate);
    format!(
        "plimsoll:{{{}}}:{name}:{}:{}:{}",
        key.stored_tenant(),
        rate.max(),
        rate.refill(),
        rate.every_ms()
    )
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests {
    use std::sync::Arc;

    use plimsoll_core::quota::{OnStoreError, Quota, QuotaKey, QuotaRate};

    use super::super::Demand;
    use super::*;

    fn asks(count: usize) -> Vec<Ask> {
        let rate = QuotaRate::new(100, 100, 60_000).unwrap();
        let name = "calls".parse().unwrap();
        let quota =
            Quota::new(name, rate, QuotaKey::Tenant, OnStoreError::AllowBounded, 10).unwrap();
        let demand = Demand {
            least: 2,
            wanted: 10,
        };
        let key = Key {
            quota: Arc::new(quota),
            tenant: "acme".into(),
        };
        let ask = Ask { key, demand };
        vec![ask; count]
    }

    fn rows(rows: &[&[i64]]) -> Value {
        let row = |row: &&[i64]| Value::Array(row.iter().copied().map(Value::Int).collect());
        Value::Array(rows.iter().map(row).collect())
    }

    #[test]
    fn hostile_store_reply_is_no_answer() {
        let good: &[i64] = &[2, 5, 100, 0];
        for (reply, count) in [
            (Value::Nil, 1),
            (Value::Okay, 1),
            (Value::Int(5), 1),
            (Value::BulkString(vec![0xff; 99]), 1),
            (Value::Array(vec![Value::Nil]), 1),
            (
                Value::Array(vec![Value::Array(vec![
                    Value::BulkString(b"x".to_vec());
                    4
                ])]),
                1,
            ),
            (rows(&[]), 1),
            (rows(&[good, good]), 1),
            (rows(&[good]), 2),
            (rows(&[&[2, 5, 100]]), 1),
            (rows(&[&[2, 5, 100, 0, 0]]), 1),
            (rows(&[&[1, 5, 100, 0]]), 1),
            (rows(&[&[11, 5, 100, 0]]), 1),
            (rows(&[&[i64::MAX, 5, 100, 0]]), 1),
            (rows(&[&[-1, 5, 100, 0]]), 1),
            (rows(&[&[2, -5, 100, 0]]), 1),
            (rows(&[good, &[0, 5, 100, 0]]), 2),
        ] {
            let text = format!("{reply:?}");
            assert_eq!(parse(reply, &asks(count)), None, "{text}");
        }
    }

    #[test]
    fn hostile_store_refills_within_one_interval() {
        for (said, kept) in [
            (100, 100),
            (60_000, 60_000),
            (60_001, 60_000),
            (i64::MAX, 60_000),
            (-1, 0),
        ] {
            let replies = parse(rows(&[&[2, i64::MAX, said, -1]]), &asks(1)).unwrap();
            assert_eq!(replies[0].refill_in, Duration::from_millis(kept), "{said}");
        }
    }
}
