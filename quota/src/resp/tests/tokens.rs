//! Tests of authentication: without a token only authentication is accepted, and secrets are never
//! repeated.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::sleep;

use super::{Served, command, token};
use crate::resp::input::{ANONYMOUS_ARGUMENTS_MAX, ANONYMOUS_BYTES_MAX};

const NO_AUTH: &str = "-NOAUTH Authentication required.\r\n";
const WRONG: &str = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";

async fn replies(served: &Served, commands: &[String]) -> String {
    let bytes: Vec<u8> = commands.iter().flat_map(|text| command(text)).collect();
    served.ask([bytes.as_slice()]).await
}

#[tokio::test]
async fn every_command_needs_a_token_first() {
    let served = Served::with(&[1]);
    for entry in &crate::resp::commands::ENTRIES {
        let reply = served.reply(entry.name).await;
        match entry.name {
            "hello" => assert!(reply.starts_with("-NOAUTH HELLO must be called"), "{reply}"),
            "auth" => assert!(
                reply.starts_with("-ERR Wrong number of arguments"),
                "{reply}"
            ),
            "reset" => assert_eq!(reply, "+RESET\r\n"),
            "quit" => assert_eq!(reply, ""),
            name => assert_eq!(reply, NO_AUTH, "{name}"),
        }
    }
    assert_eq!(
        served.reply("NOPE secret").await,
        NO_AUTH,
        "an unknown command learns nothing either"
    );
}

#[tokio::test]
async fn token_is_accepted_with_any_user() {
    let served = Served::with(&[1, 2]);
    for auth in [
        format!("AUTH {}", token(1)),
        format!("AUTH name2 {}", token(2)),
        format!("auth default {}", token(2)),
    ] {
        assert_eq!(
            replies(&served, &[auth, "PING".into()]).await,
            "+OK\r\n+PONG\r\n"
        );
    }
    let greeting = replies(
        &served,
        &[format!("HELLO 3 AUTH default {}", token(1)), "PING".into()],
    )
    .await;
    assert!(
        greeting.starts_with("%7\r\n") && greeting.ends_with("+PONG\r\n"),
        "{greeting}"
    );
    let reset = replies(
        &served,
        &[format!("AUTH {}", token(1)), "RESET".into(), "PING".into()],
    )
    .await;
    assert_eq!(
        reset,
        format!("+OK\r\n+RESET\r\n{NO_AUTH}"),
        "a reset forgets the token"
    );
}

#[tokio::test]
async fn wrong_token_opens_nothing() {
    let served = Served::with(&[1]);
    for auth in [
        format!("AUTH {}", token(2)),
        format!("AUTH other {}", token(1)),
        "AUTH hunter2".to_owned(),
        "HELLO 3 AUTH default hunter2".to_owned(),
    ] {
        let expected = format!("{WRONG}{NO_AUTH}");
        assert_eq!(
            replies(&served, &[auth.clone(), "PING".into()]).await,
            expected,
            "{auth}"
        );
    }
    let refused = served.port.access.refused();
    assert!(refused.contains(&("unknown_token", 4)), "{refused:?}");
}

#[tokio::test]
async fn closed_guesser_does_not_block_the_token() {
    let served = Served::with(&[1]);
    let attempts: Vec<String> = (0..100).map(|_| format!("AUTH {}", token(7))).collect();
    let text = replies(&served, &attempts).await;
    assert_eq!(text.matches(WRONG).count(), 10);
    assert!(
        text.contains("-ERR too many requests without a valid token") && !text.contains(&token(7)),
        "{text}"
    );
    assert_eq!(
        text.matches("too many").count(),
        1,
        "the connection is closed"
    );
    assert_eq!(
        replies(&served, &[format!("AUTH {}", token(1))]).await,
        "+OK\r\n"
    );
}

#[tokio::test]
async fn commands_before_authentication_are_small() {
    let served = Served::with(&[1]);
    let long = format!("ECHO {}", "x".repeat(ANONYMOUS_BYTES_MAX));
    let many = format!("ECHO {}", "x ".repeat(ANONYMOUS_ARGUMENTS_MAX));
    assert_eq!(
        served.reply(&long).await,
        "-ERR Protocol error: a command has 1024 bytes at most here\r\n"
    );
    assert_eq!(
        served.reply(&many).await,
        "-ERR Protocol error: a command has 16 arguments at most here\r\n"
    );
    let auth = replies(&served, &[format!("AUTH {}", token(1)), long]).await;
    assert!(auth.starts_with("+OK\r\n$1024\r\nxxx"), "{auth}");
}

#[tokio::test(start_paused = true)]
async fn unauthenticated_sender_is_closed() {
    let served = Served::with(&[1]);
    let (mut client, connection) = served.connect();
    while client.write_all(&command("PING")).await.is_ok() {
        sleep(Duration::from_secs(1)).await;
    }
    connection.await.unwrap();
    assert_eq!(served.slow(), 1);
}

#[tokio::test(start_paused = true)]
async fn removed_token_ends_its_connection() {
    let served = Served::with(&[1, 2]);
    let (mut client, connection) = served.connect();
    client
        .write_all(&command(&format!("AUTH {}", token(1))))
        .await
        .unwrap();
    let mut reply = [0; 5];
    client.read_exact(&mut reply).await.unwrap();
    assert_eq!(&reply, b"+OK\r\n");
    let file = served.port.access.tokens().unwrap();
    let hash = plimsoll_admin::access::TokenHash::of(&token(2));
    std::fs::write(
        served._directory.path().join("tokens"),
        format!("name2 viewer {hash}\n"),
    )
    .unwrap();
    file.reload();
    connection.await.unwrap();
}
