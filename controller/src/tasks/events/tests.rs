//! The list and its bounds, its files and its document over restarts, and receivers over real HTTP.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use clap::Parser;
use plimsoll_core::names::Bucket;
use plimsoll_core::quantity::{Limit, Rate};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::list::{EVENTS_MAX, EventList};
use super::*;
use crate::brain::LimitChange;
use crate::state::store::tests::etcd::{client, elect};
use crate::tasks::counters::Counters;

const HOUR_MS: i64 = 3_600_000;
/// Some time of day.
const NOON: i64 = 1_800_000_000_000;

fn event(text: &str) -> Event {
    Event::new(EventKind::PolicyInForce, text, text)
}

fn texts(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| event.text.as_str()).collect()
}

#[test]
fn numbers_grow_over_clock_jumps() {
    let mut list = EventList::default();
    for (unix_ms, text) in [
        (NOON, "a"),
        (NOON, "b"),
        (NOON - HOUR_MS, "c"),
        (NOON + 9, "d"),
    ] {
        list.add(unix_ms, event(text));
    }
    let number = NOON as u64;
    let numbers: Vec<u64> = list.after(0).map(|event| event.number).collect();
    assert_eq!(numbers, [number, number + 1, number + 2, number + 9]);

    let page = list.page(number, i64::MIN, 2);
    assert_eq!((texts(&page.events), page.more), (vec!["b", "c"], true));
    let page = list.page(number, NOON, 2);
    assert_eq!((texts(&page.events), page.more), (vec!["b", "d"], false));
}

#[test]
fn list_is_bounded_in_number_and_age() {
    let mut list = EventList::default();
    for number in 0..EVENTS_MAX + 10 {
        list.add(NOON, event(&number.to_string()));
    }
    assert_eq!(list.after(0).count(), EVENTS_MAX);
    assert_eq!(list.after(0).next().unwrap().text, "10");
    list.add(NOON + 169 * HOUR_MS, event("next week"));
    assert_eq!(list.after(0).count(), 1);
}

#[test]
fn flapping_pushes_nothing_else_out() {
    let mut list = EventList::default();
    for _ in 0..100 {
        list.add(NOON, event("flaps"));
        list.add(NOON, event("ordered").by("ann"));
    }
    list.add(NOON + HOUR_MS, event("flaps"));
    let flaps = list.after(0).filter(|event| event.text == "flaps").count();
    assert_eq!((flaps, list.after(0).count()), (21, 121));
}

#[test]
fn small_steps_of_a_limit_add_up() {
    let mut list = EventList::default();
    let limit = |rps: f64| Limit::PerSecond(Rate::new(rps).unwrap());
    let mut moved = |old, new| {
        let bucket = Bucket::new("api").unwrap();
        let event = list.on_limit(&LimitChange { bucket, old, new }, "learned");
        event.map(|event| event.text)
    };
    assert_eq!(moved(limit(1000.0), limit(1060.0)), None);
    let text = "the limit of api moved from 1000 to 1120 requests/s, as learned";
    assert_eq!(moved(limit(1060.0), limit(1120.0)).as_deref(), Some(text));
    assert_eq!(moved(limit(1120.0), limit(1100.0)), None);
    assert!(moved(limit(1100.0), Limit::Unknown).is_some());
}

#[test]
fn hostile_texts_are_bounded_lines() {
    let event = event(&"\n\u{1b}\"".repeat(1_000)).by("x\ny").why("");
    assert!(event.text.len() <= 512 && event.subject.len() <= 512);
    assert_eq!(event.by.as_deref(), Some("x?y"));
    let json = serde_json::to_string(&event).unwrap();
    assert!(
        json.len() < 2_560 && json.contains(r#""kind":"policy_in_force""#) && !json.contains("why"),
        "{json}"
    );
    let later = json.replace("policy_in_force", "of_a_later_version");
    assert_eq!(
        serde_json::from_str::<Event>(&later).unwrap().kind,
        EventKind::Unknown
    );
}

async fn saved(place: EventPlace, add: &[&str]) -> Vec<Event> {
    let opened = tokio::task::spawn_blocking(move || EventLog::open(place)).await;
    let (log, saver) = opened.unwrap();
    add.iter().for_each(|text| log.add(event(text)));
    let stop = CancellationToken::new();
    stop.cancel();
    saver.run(stop).await;
    log.latest(EVENTS_MAX)
}

#[tokio::test]
async fn events_survive_restarts_and_torn_lines() {
    let directory = tempfile::tempdir().unwrap();
    let place = || EventPlace::directory(directory.path());
    saved(place(), &["a", "b"]).await;
    let file = directory.path().join("events.ndjson");
    let whole = fs::read(&file).unwrap();
    fs::write(&file, &whole[..whole.len() - 5]).unwrap();
    saved(place(), &["c"]).await;
    assert_eq!(texts(&saved(place(), &[]).await), ["a", "c"]);
}

#[tokio::test]
async fn files_rotate_at_their_bound() {
    let directory = tempfile::tempdir().unwrap();
    let place = || EventPlace::directory(directory.path());
    let long: Vec<String> = (0..9_000).map(|n| format!("{n:0500}")).collect();
    let long: Vec<&str> = long.iter().map(String::as_str).collect();
    saved(place(), &long).await;
    let bytes = |name: &str| fs::metadata(directory.path().join(name)).unwrap().len();
    assert!(bytes("events.ndjson") <= 4 << 20 && bytes("events.ndjson.1") <= 4 << 20);
    let read = saved(place(), &[]).await;
    assert!(read.len() > 3_000, "{}", read.len());
    assert_eq!(read.last().unwrap().text, *long.last().unwrap());
}

#[tokio::test]
async fn full_file_rotates_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let place = || EventPlace::directory(directory.path());
    let first = "x".repeat(500);
    saved(place(), &[&first]).await;
    let file = directory.path().join("events.ndjson");
    let mut full = fs::read(&file).unwrap();
    // Empty lines are no events.
    full.resize((4 << 20) - 10, b'\n');
    fs::write(&file, full).unwrap();
    saved(place(), &["a"]).await;
    assert_eq!(texts(&saved(place(), &[]).await), [first.as_str(), "a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn next_leader_goes_on_with_the_events() {
    let Some(server) = plimsoll_testing::etcd::start("next_leader_goes_on_with_the_events", &[])
    else {
        return;
    };
    let client = client(&server).await;
    let (first, _) = elect(&client).await;
    saved(EventPlace::Store(Arc::clone(&first)), &["a"]).await;
    let (second, _) = elect(&client).await;
    // The first one leads no more: what it adds is lost.
    saved(EventPlace::Store(first), &["b"]).await;
    let after = saved(EventPlace::Store(second), &["c"]).await;
    assert_eq!(texts(&after), ["a", "c"]);
}

#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    events: EventArgs,
}

fn receivers(flags: &[&str]) -> Result<Vec<Receiver>, EventArgsError> {
    let flags = Flags::parse_from([&["x"], flags].concat());
    flags.events.receivers()
}

/// The requests of a server that fails once.
#[derive(Clone, Default)]
struct Seen(
    Arc<Mutex<Vec<(String, String, Value)>>>,
    watch::Sender<usize>,
);

async fn take(
    State(Seen(seen, count)): State<Seen>,
    uri: Uri,
    headers: HeaderMap,
    body: String,
) -> StatusCode {
    let token = headers
        .get("authorization")
        .map(|it| it.to_str().unwrap().to_owned());
    let mut seen = seen.lock().unwrap();
    seen.push((
        uri.path().to_owned(),
        token.unwrap_or_default(),
        serde_json::from_str(&body).unwrap(),
    ));
    count.send_replace(seen.len());
    match seen.len() {
        1 => StatusCode::SERVICE_UNAVAILABLE,
        2 => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

#[tokio::test]
async fn receivers_get_events_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let token: PathBuf = directory.path().join("token");
    fs::write(&token, "secret\n").unwrap();
    for (flag, path) in [("webhook", "/hook"), ("grafana", "/hook/api/annotations")] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let seen = Seen::default();
        let app = Router::new().fallback(take).with_state(seen.clone());
        let serving = tokio::spawn(axum::serve(listener, app).into_future());
        let place = EventPlace::directory(&directory.path().join("none"));
        let (log, _) = EventLog::open(place);
        let token_flag = format!("--events-{flag}-token-file={}", token.display());
        let [receiver] = &receivers(&[&format!("--events-{flag}={url}"), &token_flag]).unwrap()[..]
        else {
            panic!("one receiver");
        };
        let counters = Counters::default();
        // Refused for good at the second attempt.
        log.add(event("first"));
        let sending = tokio::spawn(receiver.clone().run(log.clone(), counters.clone()));
        let requests = async |wanted| {
            let mut count = seen.1.subscribe();
            let reached = count.wait_for(|count| *count >= wanted);
            timeout(Duration::from_secs(60), reached)
                .await
                .unwrap()
                .unwrap();
        };
        requests(2).await;
        log.add(event("second").by("ann").why("it was time"));
        requests(3).await;
        log.add(event("third"));
        requests(4).await;
        sending.abort();
        serving.abort();
        assert_eq!(counters.with(|counts| counts.events_unsent), 1);
        let seen = seen.0.lock().unwrap();
        assert!(
            seen.iter()
                .all(|(at, token, _)| at == path && token == "Bearer secret"),
            "{seen:?}"
        );
        let texts: Vec<&str> = seen
            .iter()
            .map(|(.., body)| match flag {
                "webhook" => body["events"][0]["text"].as_str().unwrap(),
                _ => body["text"].as_str().unwrap(),
            })
            .collect();
        let second = if flag == "webhook" {
            "second"
        } else {
            "second (by ann: it was time)"
        };
        assert_eq!(texts, ["first", "first", second, "third"]);
        if flag == "grafana" {
            let tags = serde_json::json!(["plimsoll", "policy_in_force", "info", "third"]);
            assert_eq!(seen[3].2["tags"], tags);
            assert!(seen[3].2["time"].as_i64().unwrap() > NOON / 2);
        }
    }
}

#[test]
fn tokens_need_https_beyond_this_machine() {
    for (url, is_taken) in [
        ("http://localhost:1/x", true),
        ("https://hooks.example/x", true),
        ("http://hooks.example/x", false),
    ] {
        let flags = ["--events-webhook", url, "--events-webhook-token-file", "t"];
        assert_eq!(receivers(&flags).is_ok(), is_taken, "{url}");
        assert!(receivers(&flags[..2]).is_ok());
    }
    assert!(Flags::try_parse_from(["x", "--events-webhook", "ftp://x"]).is_err());
}
