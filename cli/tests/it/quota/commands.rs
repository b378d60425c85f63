//! The semantics of the commands as one table, which a client library and `redis-cli` drive against
//! a real server.

use std::net::SocketAddr;
use std::process::Command;

use plimsoll_testing::is_installed;
use plimsoll_testing::turns::{IDLE, turn};
use redis::{Connection, ErrorKind, ServerErrorKind, Value};

use super::server::Server;

#[derive(Clone, Debug, PartialEq)]
enum Reply {
    Number(i64),
    Numbers(Vec<i64>),
    Error(String),
}

trait Driver {
    fn send(&mut self, words: &[&str]) -> Reply;
}

struct RedisCli(SocketAddr);

const NUMBER: &str = "!ERR Value is not an integer or out of range";
const SYNTAX: &str = "!ERR Syntax error";

/// Commands in order, each with its reply: numbers, or an error after `!`.
#[rustfmt::skip]
const TABLE: &[(&str, &[(&str, &str)])] = &[
    ("bucket begins full and says what it had before each take", &[
        ("RL.REDUCE x 2 60 AT 0", "2"),
        ("RL.REDUCE x 2 60 AT 1", "1"),
        ("RL.REDUCE x 2 60 AT 2", "0"),
        ("RL.REDUCE x 2 60 AT 59", "0"),
        ("RL.REDUCE x 2 60 AT 60", "2"),
    ]),
    ("take of more than there is drains the bucket", &[
        ("RL.REDUCE drain 5 60 TAKE 3 AT 0", "5"),
        ("RL.REDUCE drain 5 60 TAKE 3 AT 0", "2"),
        ("RL.REDUCE drain 5 60 TAKE 1 AT 0", "0"),
    ]),
    ("get and a take of nothing change nothing, not even the phase of a new bucket", &[
        ("RL.GET look 5 10 AT 1000", "5"),
        ("RL.REDUCE look 5 10 TAKE 0 AT 1000", "5"),
        ("RL.REDUCE look 5 10 TAKE 5 AT 5", "5"),
        ("RL.GET look 5 10 AT 14", "0"),
        ("RL.GET look 5 10 AT 15", "5"),
        ("RL.GET look 5 10 AT 14", "0"),
    ]),
    ("refills come on the phase of the first take, also while the bucket is full", &[
        ("RL.REDUCE phase 5 10 AT 3", "5"),
        ("RL.REDUCE phase 5 10 TAKE 5 AT 28", "5"),
        ("RL.GET phase 5 10 AT 32", "0"),
        ("RL.GET phase 5 10 AT 33", "5"),
    ]),
    ("refill adds so many tokens up to the size", &[
        ("RL.REDUCE part 10 5 REFILL 3 TAKE 10 AT 0", "10"),
        ("RL.GET part 10 5 REFILL 3 AT 4", "0"),
        ("RL.GET part 10 5 REFILL 3 AT 5", "3"),
        ("RL.GET part 10 5 REFILL 3 AT 19", "9"),
        ("RL.GET part 10 5 REFILL 3 AT 20", "10"),
        ("RL.REDUCE part 10 5 REFILL 3 TAKE 10 AT 1000000", "10"),
    ]),
    ("refill may be more than the size", &[
        ("RL.REDUCE over 2 5 REFILL 9 TAKE 2 AT 0", "2"),
        ("RL.GET over 2 5 REFILL 9 AT 5", "2"),
    ]),
    ("time before the last refill adds nothing and takes nothing back", &[
        ("RL.REDUCE back 5 10 TAKE 4 AT 100", "5"),
        ("RL.REDUCE back 5 10 TAKE 1 AT 10", "1"),
        ("RL.GET back 5 10 AT 109", "0"),
        ("RL.GET back 5 10 AT 110", "5"),
    ]),
    ("strict take that empties the bucket begins a new phase", &[
        ("RL.REDUCE strict 2 10 AT 0 STRICT", "2"),
        ("RL.REDUCE strict 2 10 AT 5 STRICT", "1"),
        ("RL.GET strict 2 10 AT 10", "0"),
        ("RL.GET strict 2 10 AT 14", "0"),
        ("RL.GET strict 2 10 AT 15", "2"),
    ]),
    ("strict take from an empty bucket puts its refill off", &[
        ("RL.REDUCE off 1 10 AT 0 STRICT", "1"),
        ("RL.REDUCE off 1 10 AT 9 STRICT", "0"),
        ("RL.REDUCE off 1 10 AT 18 STRICT", "0"),
        ("RL.GET off 1 10 AT 27", "0"),
        ("RL.GET off 1 10 AT 28", "1"),
    ]),
    ("options come in any order and case", &[
        ("rl.reduce any 9 60 at 0 take 2 refill 9", "9"),
        ("Rl.Reduce any 9 60 STRICT Take 2 At 0", "7"),
        ("RL.REDUCE any 9 60 REFILL 9 AT 0", "5"),
    ]),
    ("times in milliseconds name the same bucket as times in seconds", &[
        ("RL.REDUCE unit 10 5 AT 0", "10"),
        ("RL.PREDUCE unit 10 5000 AT 4999", "9"),
        ("RL.PGET unit 10 5000 AT 4999", "8"),
        ("RL.GET unit 10 5 AT 5", "10"),
    ]),
    ("parameters are a part of the key, and STRICT, TAKE and AT are not", &[
        ("RL.REDUCE own 10 5 TAKE 4 AT 0", "10"),
        ("RL.REDUCE own 11 5 AT 0", "11"),
        ("RL.REDUCE own 10 6 AT 0", "10"),
        ("RL.REDUCE own 10 5 REFILL 9 AT 0", "10"),
        ("RL.REDUCE own 10 5 REFILL 10 AT 0", "6"),
        ("RL.REDUCE own 10 5 TAKE 2 STRICT AT 1", "5"),
        ("RL.GET own 10 5 AT 1", "3"),
    ]),
    ("session begins with the last take for which there were tokens", &[
        ("RL.SESSIONIZE session 1 10 AT 5", "1 5000"),
        ("RL.SESSIONIZE session 1 10 AT 9", "0 5000"),
        ("RL.SESSIONIZE session 1 10 AT 18", "0 5000"),
        ("RL.SESSIONIZE session 1 10 AT 28", "1 28000"),
        ("RL.PSESSIONIZE session 1 10000 AT 28001", "0 28000"),
        ("RL.PSESSIONIZE session 1 10000 TAKE 0 AT 90000", "1 28000"),
        ("RL.SESSIONIZE several 5 10 TAKE 3 AT 1", "5 1000"),
        ("RL.SESSIONIZE several 5 10 TAKE 3 AT 2", "2 1000"),
    ]),
    ("sessions and takes share a bucket", &[
        ("RL.REDUCE mixed 3 10 AT 0", "3"),
        ("RL.SESSIONIZE mixed 3 10 AT 1", "2 1000"),
        ("RL.GET mixed 3 10 AT 1", "1"),
    ]),
    ("throttle of a new key has its whole burst", &[
        ("CL.THROTTLE throttle 15 30 60", "0 16 15 -1 2"),
        ("CL.THROTTLE ask 15 30 60 0", "0 16 16 -1 0"),
        ("CL.THROTTLE never 3 30 60 5", "1 4 4 -1 0"),
    ]),
    ("faults have their texts", &[
        ("RL.REDUCE", "!ERR Wrong number of arguments for 'rl.reduce' command"),
        ("RL.PSESSIONIZE k 1", "!ERR Wrong number of arguments for 'rl.psessionize' command"),
        ("CL.THROTTLE k 1 1", "!ERR Wrong number of arguments for 'cl.throttle' command"),
        ("RL.REDUCE k 0 60", NUMBER),
        ("RL.REDUCE k 5 0", NUMBER),
        ("RL.REDUCE k five 60", NUMBER),
        ("RL.REDUCE k 5 60 REFILL 0", NUMBER),
        ("RL.REDUCE k 5 60 TAKE -1", NUMBER),
        ("RL.REDUCE k 5 60 AT nan", NUMBER),
        ("RL.REDUCE k 9223372036854775808 60", NUMBER),
        ("RL.REDUCE k 5 9223372036854775807", NUMBER),
        ("RL.REDUCE k 5 60 SOON", SYNTAX),
        ("RL.REDUCE k 5 60 TAKE", SYNTAX),
        ("RL.GET k 5 60 TAKE 1", SYNTAX),
        ("RL.GET k 5 60 AT 0", "5"),
    ]),
    ("take from several buckets is all or none", &[
        ("QUOTA.GIVE give 10 10 3600000 5", "10"),
        ("RL.PREDUCE give 10 3600000 TAKE 8", "10"),
        ("QUOTA.GIVE give 10 10 3600000 3", "5"),
        ("QUOTA.GIVE give 10 10 3600000 9000", "10"),
    ]),
];

fn check(driver: &mut impl Driver) {
    for (rule, steps) in TABLE {
        for (number, (command, expected)) in steps.iter().enumerate() {
            let words: Vec<&str> = command.split(' ').collect();
            assert_eq!(
                driver.send(&words),
                Reply::of(expected),
                "{rule}: step {number}: {command}"
            );
        }
    }
}

#[test]
fn client_library_sees_the_documented_commands() {
    let _turn = turn(IDLE);
    let server = Server::start();
    check(&mut server.connect(""));
}

#[test]
fn client_library_sees_the_commands_in_resp3() {
    let _turn = turn(IDLE);
    let server = Server::start();
    check(&mut server.connect("?protocol=resp3"));
}

#[test]
fn commands_have_their_semantics_by_redis_cli() {
    let _turn = turn(IDLE);
    if !is_installed("redis-cli", "commands_have_their_semantics_by_redis_cli") {
        return;
    }
    let server = Server::start();
    check(&mut RedisCli(server.address()));
}

#[test]
fn throttle_rounds_its_return_time_up() {
    let _turn = turn(IDLE);
    let server = Server::start();
    let mut driver = server.connect("");
    let mut throttle = |quantity| driver.send(&["CL.THROTTLE", "k", "1", "1", "1000", quantity]);
    assert_eq!(throttle("2"), Reply::Numbers(vec![0, 2, 0, -1, 2_000]));
    let Reply::Numbers(refused) = throttle("1") else {
        panic!("an error")
    };
    assert_eq!(refused[..3], [1, 2, 0]);
    // The clock of the server has advanced.
    assert!(
        (1..=1_000).contains(&refused[3]) && refused[4] == refused[3] + 1_000,
        "{refused:?}"
    );
}

#[test]
fn joint_take_debits_all_buckets_or_none() {
    let _turn = turn(IDLE);
    let server = Server::start();
    let mut driver = server.connect("");
    let take = |driver: &mut Connection, least: u64| -> Vec<Vec<i64>> {
        let take = |command: &mut redis::Cmd, key: &str, max: u64| {
            command
                .arg(key)
                .arg(max)
                .arg(max)
                .arg(3_600_000)
                .arg(least)
                .arg(least);
        };
        let mut command = redis::cmd("QUOTA.TAKE");
        take(&mut command, "{t}:a", 10);
        take(&mut command, "{t}:b", 5);
        command.query(driver).unwrap()
    };
    let granted = |taken: &[Vec<i64>]| {
        taken
            .iter()
            .map(|taken| taken[..2].to_vec())
            .collect::<Vec<_>>()
    };
    assert_eq!(granted(&take(&mut driver, 3)), [[3, 7], [3, 2]]);
    assert_eq!(
        granted(&take(&mut driver, 3)),
        [[0, 7], [0, 2]],
        "the second has too few"
    );
    assert_eq!(granted(&take(&mut driver, 2)), [[2, 5], [2, 0]]);
    let none = take(&mut driver, 6);
    assert_eq!(none[1][3], -1, "a bucket of 5 never holds 6: {none:?}");
    assert!(
        none.iter().all(|taken| (1..=3_600_000).contains(&taken[2])),
        "{none:?}"
    );
}

impl Reply {
    fn of(expected: &str) -> Self {
        if let Some(error) = expected.strip_prefix('!') {
            return Self::Error(error.to_owned());
        }
        let numbers: Vec<i64> = expected
            .split(' ')
            .map(|number| number.parse().unwrap())
            .collect();
        if let [number] = numbers[..] {
            Self::Number(number)
        } else {
            Self::Numbers(numbers)
        }
    }
}

impl Driver for Connection {
    fn send(&mut self, words: &[&str]) -> Reply {
        let (name, arguments) = words.split_first().unwrap();
        match redis::cmd(name).arg(arguments).query(self) {
            Ok(Value::Int(number)) => Reply::Number(number),
            Ok(Value::Array(values)) => {
                let number = |value: &Value| match value {
                    Value::Int(number) => *number,
                    other => panic!("{words:?}: {other:?}"),
                };
                Reply::Numbers(values.iter().map(number).collect())
            }
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::ResponseError) => {
                Reply::Error(format!("ERR {}", error.detail().unwrap_or_default()))
            }
            other => panic!("{words:?}: {other:?}"),
        }
    }
}

impl Driver for RedisCli {
    fn send(&mut self, words: &[&str]) -> Reply {
        let (host, port) = (self.0.ip().to_string(), self.0.port().to_string());
        let mut command = Command::new("redis-cli");
        command
            .args(["-h", &host, "-p", &port, "--no-raw"])
            .args(words);
        let output = String::from_utf8(command.output().unwrap().stdout).unwrap();
        let number = |line: &str| {
            let (_, number) = line.split_once("(integer) ")?;
            number.parse::<i64>().ok()
        };
        let lines: Vec<&str> = output.lines().collect();
        if let Some(error) = output.strip_prefix("(error) ") {
            return Reply::Error(error.trim_end().to_owned());
        }
        let numbers: Option<Vec<i64>> = lines.iter().map(|line| number(line)).collect();
        match numbers {
            Some(numbers) if lines[0].starts_with("1) ") => Reply::Numbers(numbers),
            Some(numbers) if numbers.len() == 1 => Reply::Number(numbers[0]),
            _ => panic!("{words:?}: {output}"),
        }
    }
}
