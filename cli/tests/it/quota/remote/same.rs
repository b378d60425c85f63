//! One table of takes and gives, answered alike by a quota server, by the scripts on Redis, and by
//! the integer bucket.

use plimsoll_core::quota::{Balance, QuotaRate, lease};
use plimsoll_testing::turns::{IDLE, turn};
use redis::{Connection, Script};

use super::super::server::Server;
use super::Redis;

const TAKE: &str = include_str!("../../../../../client/src/limiter/quota/store/take.lua");
const GIVE: &str = include_str!("../../../../../client/src/limiter/quota/store/give.lua");
/// No refill happens in the test.
const EVERY_MS: u64 = 86_400_000;
const SIZES: [u64; 2] = [10, 1_000];

/// A step on the buckets, by their places.
enum Step {
    /// Takes at least and at most so many of each of these buckets, or nothing.
    Take(&'static [(usize, u64, u64)]),
    Give(usize, u64),
}

use Step::{Give, Take};

const STEPS: [Step; 26] = [
    Take(&[(0, 0, 0)]),
    Take(&[(0, 1, 1)]),
    Take(&[(0, 2, 8)]),
    Give(0, 1),
    Take(&[(1, 1, 1_000)]),
    Take(&[(1, 1, 1_000)]),
    Take(&[(0, 1, 1), (1, 600, 600)]),
    Take(&[(0, 1, 1), (1, 500, 500)]),
    Give(1, 100),
    Take(&[(0, 10, 10)]),
    Take(&[(0, 11, 11)]),
    Give(0, 3),
    Take(&[(0, 5, 100)]),
    Take(&[(0, 3, 1)]),
    Take(&[(0, 9, 9)]),
    Give(0, 100),
    Take(&[(0, 10, 10)]),
    Take(&[(0, 0, 0)]),
    Take(&[(0, 1, 1), (1, 1, 1)]),
    Take(&[(1, 0, 50)]),
    Give(1, 0),
    Give(0, 7),
    Take(&[(1, 1, 1), (0, 7, 9)]),
    Give(1, 5_000),
    Take(&[(1, 1_000, 1_000)]),
    Take(&[(0, 1, 4), (1, 0, 4)]),
];

/// Answer of a store without times: tokens granted, tokens left, and whether, and if ever, the
/// bucket holds `least`.
type Row = (i64, i64, i64);

/// Removes the times, which must fit a bucket used within the hour.
fn row(numbers: &[i64]) -> Row {
    let &[granted, remaining, refill_in, holds_in] = numbers else {
        panic!("{numbers:?}")
    };
    assert!((1..=EVERY_MS as i64).contains(&refill_in), "{numbers:?}");
    assert!(holds_in <= 0 || holds_in == refill_in, "{numbers:?}");
    (granted, remaining, holds_in.signum())
}

fn numbers(place: usize) -> [u64; 3] {
    [SIZES[place], SIZES[place], EVERY_MS]
}

fn by_core(balances: &mut [Balance], step: &Step) -> Vec<Row> {
    let rate = |place: usize| QuotaRate::new(SIZES[place], SIZES[place], EVERY_MS).unwrap();
    match *step {
        Take(asked) => {
            let is_enough = asked
                .iter()
                .all(|&(place, least, _)| balances[place].tokens >= least);
            let rows = asked.iter().map(|&(place, least, wanted)| {
                let balance = &mut balances[place];
                let granted = if is_enough {
                    lease(balance.tokens, least, wanted)
                } else {
                    0
                };
                balance.tokens -= granted;
                let holds_in = match balance.holds_at_ms(rate(place), least) {
                    None => -1,
                    Some(at) => i64::from(at > 0),
                };
                (granted as i64, balance.tokens as i64, holds_in)
            });
            rows.collect()
        }
        Give(place, tokens) => {
            balances[place].give_back(rate(place), tokens);
            vec![(0, balances[place].tokens as i64, 0)]
        }
    }
}

fn by_server(connection: &mut Connection, step: &Step) -> Vec<Row> {
    let key = |place: usize| format!("{{acme}}:of-{place}");
    match *step {
        Take(asked) => {
            let mut take = redis::cmd("QUOTA.TAKE");
            for &(place, least, wanted) in asked {
                take.arg(key(place))
                    .arg(&numbers(place))
                    .arg(least)
                    .arg(wanted);
            }
            let rows: Vec<Vec<i64>> = take.query(connection).unwrap();
            rows.iter().map(|numbers| row(numbers)).collect()
        }
        Give(place, tokens) => {
            let mut give = redis::cmd("QUOTA.GIVE");
            give.arg(key(place)).arg(&numbers(place)).arg(tokens);
            vec![(0, give.query(connection).unwrap(), 0)]
        }
    }
}

fn by_script(connection: &mut Connection, number: usize, step: &Step) -> Vec<Row> {
    let key = |place: usize| format!("plimsoll:{{acme}}:of-{place}");
    match *step {
        Take(asked) => {
            let script = Script::new(TAKE);
            let mut take = script.prepare_invoke();
            for &(place, ..) in asked {
                take.key(key(place));
            }
            for &(place, least, wanted) in asked {
                let [max, refill, every] = numbers(place);
                take.arg(max).arg(refill).arg(every).arg(least).arg(wanted);
            }
            let rows: Vec<Vec<i64>> = take.invoke(connection).unwrap();
            rows.iter().map(|numbers| row(numbers)).collect()
        }
        Give(place, tokens) => {
            let script = Script::new(GIVE);
            let mut give = script.prepare_invoke();
            give.key(key(place))
                .key(format!("plimsoll:{{acme}}:give:{number}"))
                .arg(SIZES[place])
                .arg(tokens);
            vec![(0, give.invoke(connection).unwrap(), 0)]
        }
    }
}

#[test]
fn all_quota_engines_answer_alike() {
    let _turn = turn(IDLE);
    let server = Server::start();
    let test = "all_quota_engines_answer_alike";
    let redis = Redis::start(test, &[]);
    let mut balances: Vec<Balance> = SIZES
        .iter()
        .map(|max| Balance::full(QuotaRate::new(*max, *max, EVERY_MS).unwrap(), 0))
        .collect();
    let mut ours = server.connect("");
    let mut theirs = redis.as_ref().map(|redis| redis.connect(""));
    for (number, step) in STEPS.iter().enumerate() {
        let expected = by_core(&mut balances, step);
        assert_eq!(
            by_server(&mut ours, step),
            expected,
            "the server at step {number}"
        );
        if let Some(theirs) = &mut theirs {
            assert_eq!(
                by_script(theirs, number, step),
                expected,
                "the script at step {number}"
            );
        }
    }
}
