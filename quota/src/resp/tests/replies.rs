//! Tests of replies: values, errors, their order in a pipeline, and both versions of the protocol.

use super::{Served, command};

#[tokio::test]
async fn each_command_has_its_reply() {
    let served = Served::open();
    for (text, expected) in [
        ("PING", "+PONG\r\n"),
        ("ping hello", "$5\r\nhello\r\n"),
        ("ECHO x", "$1\r\nx\r\n"),
        ("SELECT 0", "+OK\r\n"),
        ("SELECT 1", "-ERR DB index is out of range\r\n"),
        ("CLIENT GETNAME", "$-1\r\n"),
        ("CLIENT SETNAME worker-1", "+OK\r\n"),
        ("CLIENT SETINFO lib-name any", "+OK\r\n"),
        ("CLIENT NO-EVICT on", "+OK\r\n"),
        ("RESET", "+RESET\r\n"),
        ("COMMAND COUNT", ":19\r\n"),
        ("COMMAND DOCS nothing", "*0\r\n"),
        ("RL.REDUCE a 2 60 AT 0", ":2\r\n"),
        ("rl.reduce a 2 60 at 0", ":1\r\n"),
        ("RL.PREDUCE a 2 60000 AT 0", ":0\r\n"),
        ("RL.GET a 2 60 AT 60", ":2\r\n"),
        ("RL.SESSIONIZE s 2 60 AT 7", "*2\r\n:2\r\n:7000\r\n"),
        (
            "CL.THROTTLE t 15 30 60",
            "*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:2\r\n",
        ),
        (
            "QUOTA.TAKE q 5 5 60000 6 6",
            "*1\r\n*4\r\n:0\r\n:5\r\n:60000\r\n:-1\r\n",
        ),
        ("QUOTA.GIVE q 5 5 60000 1", ":5\r\n"),
    ] {
        assert_eq!(served.reply(text).await, expected, "{text}");
    }
}

#[tokio::test]
async fn each_fault_has_its_text() {
    let served = Served::open();
    const FAULTS: &str = "
        RL.REDUCE a                            | ERR Wrong number of arguments for 'rl.reduce' command
        rl.pget a 1                            | ERR Wrong number of arguments for 'rl.pget' command
        ECHO                                   | ERR Wrong number of arguments for 'echo' command
        PING a b                               | ERR Wrong number of arguments for 'ping' command
        CL.THROTTLE a 1 1 1 1 1                | ERR Wrong number of arguments for 'cl.throttle' command
        QUOTA.TAKE a 1 1 1 1 1 b               | ERR Wrong number of arguments for 'quota.take' command
        RL.REDUCE a 0 1                        | ERR Value is not an integer or out of range
        RL.REDUCE a 1 0                        | ERR Value is not an integer or out of range
        RL.REDUCE a -1 1                       | ERR Value is not an integer or out of range
        RL.REDUCE a +1 1                       | ERR Value is not an integer or out of range
        RL.REDUCE a 1.5 1                      | ERR Value is not an integer or out of range
        RL.REDUCE a NaN 1                      | ERR Value is not an integer or out of range
        RL.REDUCE a 9223372036854775808 1      | ERR Value is not an integer or out of range
        RL.REDUCE a 99999999999999999999 1     | ERR Value is not an integer or out of range
        RL.REDUCE a 1 9223372036854775807      | ERR Value is not an integer or out of range
        RL.REDUCE a 1 1 AT 9223372036854775807 | ERR Value is not an integer or out of range
        RL.REDUCE a 1 1 AT -1                  | ERR Value is not an integer or out of range
        RL.REDUCE a 1 1 TAKE -1                | ERR Value is not an integer or out of range
        RL.REDUCE a 1 1 REFILL 0               | ERR Value is not an integer or out of range
        RL.REDUCE a 1 1 REFILL                 | ERR Syntax error
        RL.REDUCE a 1 1 NEVER                  | ERR Syntax error
        RL.REDUCE a 1 1 STRICT STRICT          | ERR Syntax error
        RL.REDUCE a 1 1 TAKE 1 TAKE 1          | ERR Syntax error
        RL.GET a 1 1 TAKE 1                    | ERR Syntax error
        RL.GET a 1 1 STRICT                    | ERR Syntax error
        CL.THROTTLE a 1 0 1                    | ERR Value is not an integer or out of range
        CL.THROTTLE a 1 1 0                    | ERR Value is not an integer or out of range
        CL.THROTTLE a x 1 1                    | ERR Value is not an integer or out of range
        QUOTA.GIVE a 1 1 0 1                   | ERR Value is not an integer or out of range
        QUOTA.TAKE a 1 1 1 1 1 a 1 1 1 1 1     | ERR a take names the same bucket twice; add up its tokens
        HELLO 4                                | NOPROTO unsupported protocol version
        HELLO 3 SETNAME                        | ERR Syntax error
        AUTH secret                            | ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?
    ";
    for row in FAULTS.trim().lines() {
        let (text, expected) = row.split_once(" | ").unwrap();
        let reply = served.reply(text.trim()).await;
        assert_eq!(reply, format!("-{expected}\r\n"), "{text}");
    }
    assert_eq!(
        served.reply("GET a b").await,
        "-ERR unknown command 'GET', with args beginning with: 'a' 'b' \r\n"
    );
    assert_eq!(
        served.reply("RL.GET a 1 1").await,
        ":1\r\n",
        "a fault takes nothing"
    );
}

#[tokio::test]
async fn numbers_at_range_ends_are_accepted() {
    let served = Served::open();
    for (text, expected) in [
        (
            "RL.PREDUCE a 9223372036854775807 9223372036854775807",
            ":9223372036854775807\r\n",
        ),
        ("RL.REDUCE a 1 9223372036854775", ":1\r\n"),
        ("RL.REDUCE b 5 1 TAKE 9223372036854775807 AT 0", ":5\r\n"),
        ("RL.REDUCE b 5 1 TAKE 0 AT 0", ":0\r\n"),
    ] {
        assert_eq!(served.reply(text).await, expected, "{text}");
    }
}

#[tokio::test]
async fn pipeline_replies_keep_order_around_faults() {
    let served = Served::open();
    let commands = [
        "RL.REDUCE a 3 60 AT 0",
        "PING",
        "RL.REDUCE a x 60",
        "NOPE",
        "RL.REDUCE a 3 60 AT 0 TAKE 2",
        "ECHO x",
    ];
    let bytes: Vec<u8> = commands.iter().flat_map(|text| command(text)).collect();
    let expected = ":3\r\n+PONG\r\n-ERR Value is not an integer or out of range\r\n\
                    -ERR unknown command 'NOPE', with args beginning with: \r\n:2\r\n$1\r\nx\r\n";
    assert_eq!(served.ask([bytes.as_slice()]).await, expected);
}

#[tokio::test]
async fn split_command_is_answered_as_one() {
    let served = Served::open();
    let pipeline = |key: usize| -> Vec<u8> {
        let texts = [
            format!("RL.REDUCE k{key} 9 60 AT 0"),
            "PING".into(),
            format!("RL.GET k{key} 9 60 AT 0"),
        ];
        texts.iter().flat_map(|text| command(text)).collect()
    };
    for at in 0..pipeline(100).len() {
        let pipeline = pipeline(100 + at);
        let (first, second) = pipeline.split_at(at);
        assert_eq!(
            served.ask([first, second]).await,
            ":9\r\n+PONG\r\n:8\r\n",
            "divided at byte {at}"
        );
    }
    assert_eq!(
        served.ask(pipeline(1).chunks(1)).await,
        ":9\r\n+PONG\r\n:8\r\n",
        "byte by byte"
    );
}

#[tokio::test]
async fn connection_speaks_resp3_after_hello() {
    let served = Served::open();
    let greeting = "%7\r\n$6\r\nserver\r\n$8\r\nplimsoll\r\n$7\r\nversion\r\n$5\r\n7.0.0\r\n$5\r\nproto\r\n:3\r\n$2\r\nid\r\n:1\r\n\
                    $4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n";
    let text = |commands: &[&str]| {
        commands
            .iter()
            .flat_map(|text| command(text))
            .collect::<Vec<u8>>()
    };
    let bytes = text(&[
        "HELLO 3 SETNAME w",
        "CLIENT GETNAME",
        "RESET",
        "CLIENT GETNAME",
        "HELLO 3",
        "CLIENT GETNAME",
    ]);
    let replies = served.ask([bytes.as_slice()]).await;
    let expected = format!("{greeting}$1\r\nw\r\n+RESET\r\n$-1\r\n{greeting}_\r\n");
    assert_eq!(replies, expected);
    let replies = served.reply("HELLO 2").await;
    assert!(
        replies.starts_with("*14\r\n$6\r\nserver\r\n"),
        "a map is an array in RESP2: {replies}"
    );
}

#[tokio::test]
async fn info_counts_what_was_answered_before() {
    let served = Served::open();
    let pipeline = ["RL.REDUCE a 1 60 AT 0", "NOPE", "INFO stats"];
    let bytes: Vec<u8> = pipeline.iter().flat_map(|text| command(text)).collect();
    let reply = served.ask([bytes.as_slice()]).await;
    for line in [
        "redis_version:",
        "loading:0\r\n",
        "total_commands_processed:3\r\n",
        "connected_clients:1\r\n",
        "db0:keys=1,",
    ] {
        assert!(reply.contains(line), "{line} {reply}");
    }
}
