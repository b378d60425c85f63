//! Tests of bounds: exceeding one is refused by name, and an unreadable stream is closed.

use std::sync::atomic::Ordering;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

use super::{Served, array, command};
use crate::operation::{KEY_BYTES_MAX, KEYS_PER_TAKE_MAX};
use crate::resp::batch::COMMANDS_PER_BATCH_MAX;
use crate::resp::connection::OUTPUT_BYTES_MAX;
use crate::resp::input::{ARGUMENTS_MAX, COMMAND_BYTES_MAX};

#[tokio::test]
async fn long_key_is_refused_without_closing() {
    let served = Served::open();
    let long = "k".repeat(KEY_BYTES_MAX);
    for (key, expected) in [
        (long.clone(), ":5\r\n"),
        (long + "k", "-ERR the key is longer than 512 bytes\r\n"),
    ] {
        let bytes = [command(&format!("RL.GET {key} 5 60")), command("PING")].concat();
        assert_eq!(
            served.ask([bytes.as_slice()]).await,
            format!("{expected}+PONG\r\n")
        );
    }
}

#[tokio::test]
async fn take_names_a_bounded_number_of_buckets() {
    let served = Served::open();
    let take = |count: usize| {
        let buckets: String = (0..count)
            .map(|number| format!(" k{number} 5 5 60000 1 1"))
            .collect();
        format!("QUOTA.TAKE{buckets}")
    };
    let reply = served.reply(&take(KEYS_PER_TAKE_MAX)).await;
    assert!(
        reply.starts_with(&format!("*{KEYS_PER_TAKE_MAX}\r\n*4\r\n:1\r\n:4\r\n")),
        "{reply}"
    );
    let reply = served.reply(&take(KEYS_PER_TAKE_MAX + 1)).await;
    assert_eq!(reply, "-ERR a take names 64 buckets at most\r\n");
}

#[tokio::test]
async fn unparsable_stream_closes_after_earlier_replies() {
    let served = Served::open();
    let too_many = format!("*{}\r\n", ARGUMENTS_MAX + 1);
    let too_long = format!(
        "*2\r\n$4\r\nECHO\r\n${}\r\n{}\r\n",
        COMMAND_BYTES_MAX,
        "x".repeat(COMMAND_BYTES_MAX)
    );
    let nested = format!("*2\r\n$4\r\nPING\r\n{}", "*1\r\n".repeat(10_000));
    for (bytes, text) in [
        (
            "GET / HTTP/1.1\r\n\r\n",
            "a command begins with '*', got 'G'",
        ),
        ("\u{0}", "a command begins with '*', got '?'"),
        ("*x\r\n", "invalid multibulk length"),
        ("*-2\r\n", "invalid multibulk length"),
        ("*11111111111111111", "invalid multibulk length"),
        (&too_many, "a command has 512 arguments at most here"),
        (&too_long, "a command has 65536 bytes at most here"),
        (&nested, "expected '$', got '*'"),
        ("*1\r\n:1\r\n", "expected '$', got ':'"),
        ("*1\r\n$-1\r\n", "invalid bulk length"),
        ("*1\r\n$x\r\n", "invalid bulk length"),
        ("*1\r\n$4\r\nPINGxx", "invalid bulk length"),
    ] {
        let sent = [
            command("ECHO before").as_slice(),
            bytes.as_bytes(),
            &command("ECHO after"),
        ]
        .concat();
        let replies = served.ask([sent.as_slice()]).await;
        assert_eq!(
            replies,
            format!("$6\r\nbefore\r\n-ERR Protocol error: {text}\r\n")
        );
    }
}

#[tokio::test]
async fn empty_array_is_no_command() {
    let served = Served::open();
    let bytes = [b"*0\r\n*-1\r\n".as_slice(), &command("PING")].concat();
    assert_eq!(served.ask([bytes.as_slice()]).await, "+PONG\r\n");
}

#[tokio::test]
async fn foreign_bytes_stay_on_one_error_line() {
    let served = Served::open();
    let bytes = array(&[b"NO\r\nPE", b"\xff\n"]);
    let reply = served.ask([bytes.as_slice()]).await;
    assert_eq!(
        reply,
        "-ERR unknown command 'NO  PE', with args beginning with: '\u{fffd} ' \r\n"
    );
    let long = format!("N{} {}", "x".repeat(9_000), "y ".repeat(400));
    assert!(served.reply(&long).await.len() < 512);
}

#[tokio::test]
async fn long_pipeline_is_answered_whole() {
    let served = Served::open();
    let count = 2 * COMMANDS_PER_BATCH_MAX + 7;
    let bytes: Vec<u8> = (0..count)
        .flat_map(|_| command("RL.REDUCE a 1000000 60 AT 0"))
        .collect();
    let replies = served.ask([bytes.as_slice()]).await;
    let expected: String = (0..count)
        .map(|taken| format!(":{}\r\n", 1_000_000 - taken))
        .collect();
    assert_eq!(replies, expected);
}

#[tokio::test(start_paused = true)]
async fn client_ignoring_its_replies_is_closed() {
    let served = Served::open();
    let (mut client, connection) = served.connect();
    let began = Instant::now();
    let lists: Vec<u8> = (0..10_000).flat_map(|_| command("COMMAND LIST")).collect();
    client.write_all(&lists).await.unwrap();
    connection.await.unwrap();
    assert!(began.elapsed().as_secs() < 60);
    assert_eq!(served.slow(), 1);
}

#[tokio::test(start_paused = true)]
async fn unfinished_command_closes_unlike_idleness() {
    let served = Served::open();
    let (mut idle, idle_connection) = served.connect();
    let (mut client, connection) = served.connect();
    client.write_all(b"*2\r\n$4\r\nEC").await.unwrap();
    connection.await.unwrap();
    assert_eq!(served.slow(), 1);
    idle.write_all(&command("PING")).await.unwrap();
    let mut reply = [0; 7];
    idle.read_exact(&mut reply).await.unwrap();
    assert_eq!(&reply, b"+PONG\r\n");
    drop(idle);
    idle_connection.await.unwrap();
    let counters = &served.port.counters;
    assert_eq!(
        [&counters.open, &counters.connections].map(|count| count.load(Ordering::Relaxed)),
        [0, 2]
    );
}

#[tokio::test]
async fn shutdown_answers_what_was_read_and_closes() {
    let served = Served::open();
    let (mut client, connection) = served.connect();
    client
        .write_all(&command("RL.REDUCE a 3 60 AT 0"))
        .await
        .unwrap();
    let mut reply = [0; 4];
    client.read_exact(&mut reply).await.unwrap();
    assert_eq!(&reply, b":3\r\n");
    served.shutdown.cancel();
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).await.unwrap();
    connection.await.unwrap();
    assert!(rest.is_empty());
}

#[tokio::test]
async fn shutdown_ends_an_endless_sender() {
    let served = Served::open();
    let (client, connection) = served.connect();
    let (mut replies, mut commands) = tokio::io::split(client);
    let sending =
        tokio::spawn(async move { while commands.write_all(&command("PING")).await.is_ok() {} });
    let reading =
        tokio::spawn(async move { tokio::io::copy(&mut replies, &mut tokio::io::sink()).await });
    served.shutdown.cancel();
    connection.await.unwrap();
    sending.await.unwrap();
    reading.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn byte_by_byte_sender_is_closed() {
    let served = Served::open();
    let (mut client, connection) = served.connect();
    let began = Instant::now();
    client
        .write_all(b"*2\r\n$4\r\nECHO\r\n$60000\r\n")
        .await
        .unwrap();
    while client.write_all(b"x").await.is_ok() && began.elapsed().as_secs() < 600 {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
    assert!(began.elapsed().as_secs() < 60, "{:?}", began.elapsed());
    connection.await.unwrap();
    assert_eq!(served.slow(), 1);
}

#[tokio::test]
async fn greedy_clients_take_turns_with_others() {
    let served = Served::open();
    let (greedy, _connection) = served.connect();
    let (mut replies, mut commands) = tokio::io::split(greedy);
    let lists: Vec<u8> = (0..20_000).flat_map(|_| command("COMMAND LIST")).collect();
    commands.write_all(&lists).await.unwrap();
    let (mut other, _connection) = served.connect();
    other.write_all(&command("PING")).await.unwrap();
    let mut pong = [0; 7];
    other.read_exact(&mut pong).await.unwrap();
    let mut first = vec![0; 8 << 20];
    let read = replies.read(&mut first).await.unwrap();
    assert!(
        read <= 4 * OUTPUT_BYTES_MAX,
        "{read} bytes were made before another client was answered"
    );
}
