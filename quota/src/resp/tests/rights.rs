//! Tests of rights: a token takes, reads and gives back what its line in the tokens file allows, and no more.

use std::time::{SystemTime, UNIX_EPOCH};

use super::{Served, command, token};

const OK: &str = "+OK\r\n";

impl Served {
    async fn ask_as(&self, number: u32, text: &str) -> String {
        let auth = command(&format!("AUTH {}", token(number)));
        let replies = self.ask([auth.as_slice(), &command(text)]).await;
        replies
            .strip_prefix(OK)
            .unwrap_or_else(|| panic!("{replies}"))
            .to_owned()
    }

    fn denied(&self) -> u64 {
        self.port
            .access
            .refused()
            .iter()
            .filter(|(reason, _)| *reason == "right")
            .map(|(_, count)| *count)
            .sum()
    }
}

#[tokio::test]
async fn viewer_gives_back_what_it_took_alone() {
    let served = Served::with_lines(&[(1, "viewer", ""), (2, "viewer", ""), (3, "operator", "")]);
    let give = |tokens: u32| format!("QUOTA.GIVE {{acme}}:calls 1000 1000 3600000 {tokens}");
    assert_eq!(
        served
            .ask_as(1, "RL.PREDUCE {acme}:calls 1000 3600000 TAKE 900")
            .await,
        ":1000\r\n"
    );
    assert!(
        served
            .ask_as(1, &give(1))
            .await
            .starts_with("-NOPERM quota.give needs the right give")
    );
    let taken = served
        .ask_as(1, "QUOTA.TAKE {acme}:calls 1000 1000 3600000 10 50")
        .await;
    assert!(
        taken.starts_with("*1\r\n*4\r\n:32\r\n:68\r\n"),
        "a lease of 10 and a quarter of the rest: {taken}"
    );
    assert!(
        served.ask_as(2, &give(1)).await.starts_with("-NOPERM"),
        "another token took them"
    );
    assert!(served.ask_as(1, &give(33)).await.starts_with("-NOPERM"));
    assert_eq!(served.ask_as(1, &give(30)).await, ":98\r\n");
    assert!(served.ask_as(1, &give(3)).await.starts_with("-NOPERM"));
    assert_eq!(served.ask_as(1, &give(2)).await, ":100\r\n");
    assert_eq!(served.denied(), 4);
    assert_eq!(
        served.ask_as(3, &give(9_000)).await,
        ":1000\r\n",
        "operators reset"
    );
}

#[tokio::test]
async fn rights_of_a_line_replace_role_rights() {
    let served = Served::with_lines(&[
        (1, "viewer", "quota:take,read:{acme}:"),
        (2, "admin", "quota:read"),
        (3, "viewer", "quota:reset:{acme}:"),
    ]);
    let denied = "-NOPERM";
    for (number, text, expected) in [
        (1, "RL.REDUCE {acme}:a 5 60", ":5"),
        (1, "RL.GET {acme}:a 5 60", ":4"),
        (1, "CL.THROTTLE {acme}:a 5 1 60", "*5"),
        (1, "RL.REDUCE {acme}a 5 60", denied),
        (1, "RL.GET {other}:a 5 60", denied),
        (1, "CL.THROTTLE x 5 1 60", denied),
        (
            1,
            "QUOTA.TAKE {acme}:a 5 5 9 1 1 {other}:a 5 5 9 1 1",
            denied,
        ),
        (1, "QUOTA.TAKE {acme}:a 5 5 9 1 1 {acme}:b 5 5 9 1 1", "*2"),
        (1, "QUOTA.GIVE {acme}:b 5 5 9 1", denied),
        (1, "QUOTA.TAKE {default}:plimsoll-start 1 1 1000 0 0", "*1"),
        (1, "PING", "+PONG"),
        (2, "RL.GET {acme}:a 5 60", ":4"),
        (2, "RL.SESSIONIZE {acme}:a 5 60", denied),
        (2, "QUOTA.GIVE {acme}:a 5 5 60000 1", denied),
        (3, "RL.GET {acme}:a 5 60", denied),
        (3, "QUOTA.GIVE {acme}:a 5 5 60000 9", ":5"),
        (3, "QUOTA.GIVE {other}:a 5 5 60000 9", denied),
    ] {
        let reply = served.ask_as(number, text).await;
        assert!(reply.starts_with(expected), "{number} {text}: {reply}");
        assert!(!reply.contains(&token(number)), "{reply}");
    }
}

#[tokio::test]
async fn time_far_ahead_is_refused() {
    let served = Served::open();
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let at = |ahead: u64| format!("RL.REDUCE k 1 1 AT {}", now + ahead);
    assert_eq!(served.reply(&at(3_500)).await, ":1\r\n");
    let refused = served.reply(&at(86_400)).await;
    assert!(
        refused.starts_with("-ERR AT is ") && refused.contains("may be 3600 s"),
        "{refused}"
    );
    let milliseconds = served.reply(&at(now * 1_000)).await;
    assert!(
        milliseconds.contains("milliseconds for RL.P commands"),
        "{milliseconds}"
    );
    assert_eq!(
        served.reply(&at(3_502)).await,
        ":1\r\n",
        "the bucket goes on"
    );
}
