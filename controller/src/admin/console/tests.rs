//! The stream of the console: what a viewer of a large fleet is sent, and viewers that are slow, many or gone.

use std::fmt::Write;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use axum::body::BodyDataStream;
use axum::extract::State;
use axum::http::StatusCode;
use futures_util::StreamExt;
use plimsoll_admin::access::Role;
use plimsoll_admin::body::Parameters;
use plimsoll_core::names::Bucket;
use serde_json::Value;
use tempfile::TempDir;

use super::snapshot::Snapshot;
use super::stream::{VIEWERS_MAX, stream};
use super::view::{ROWS_MAX, View};
use super::*;
use crate::Controller;

fn controller(buckets: usize) -> (TempDir, Controller) {
    let directory = tempfile::tempdir().unwrap();
    let args = crate::tasks::tests::args(directory.path());
    let mut policy = "buckets:\n".to_owned();
    for bucket in 0..buckets {
        writeln!(policy, "  b{bucket}: {{ limit: 100 }}").unwrap();
    }
    fs::write(&args.policy, policy).unwrap();
    let controller = Controller::open(&args).unwrap();
    (directory, controller)
}

async fn open(console: &Console) -> Result<BodyDataStream, StatusCode> {
    let caller = plimsoll_admin::access::AdminCaller {
        name: "eve".into(),
        role: Role::Viewer,
        from: IpAddr::V4(Ipv4Addr::LOCALHOST),
    };
    let answer = stream(
        State(console.clone()),
        axum::Extension(caller),
        Parameters(View::default()),
    );
    let answer = answer.await.map_err(|(status, _)| status)?;
    Ok(answer.into_body().into_data_stream())
}

async fn read(stream: &mut BodyDataStream) -> Option<String> {
    let bytes = stream.next().await?.unwrap();
    Some(String::from_utf8(bytes.to_vec()).unwrap())
}

#[test]
fn large_fleet_is_searched_and_cut() {
    let (_directory, controller) = controller(10_000);
    let snapshot = Snapshot::take(&controller.source(), 7);
    let view = |page, bucket: Option<&str>| View {
        search: "b99".to_owned(),
        page,
        bucket: bucket.map(|name| Bucket::new(name).unwrap()),
        ..View::default()
    };
    let shown = |view: &View| -> Value {
        let frame = snapshot.frame(view, true);
        let text = str::from_utf8(&frame.bytes).unwrap();
        assert!(text.len() < 64 << 10, "{} bytes", text.len());
        serde_json::from_str(text.strip_prefix("data: ").unwrap()).unwrap()
    };
    let first = shown(&view(0, Some("b7")));
    let page = &first["view"]["buckets"];
    // b99, b990 to b999, and b9900 to b9999.
    assert_eq!(
        (&page["total"], &page["matching"]),
        (&10_000.into(), &111.into())
    );
    assert_eq!(
        (&page["pages"], page["rows"].as_array().unwrap().len()),
        (&3.into(), ROWS_MAX)
    );
    assert_eq!(page["rows"][0]["name"], "b99");
    assert_eq!(first["fleet"]["at_s"], 7);
    assert_eq!(first["view"]["bucket"]["row"]["name"], "b7");
    assert_eq!(first["view"]["bucket"]["rollout"]["stage"], "shadow");
    let last = shown(&view(9, Some("gone")));
    assert_eq!(
        (&last["view"]["buckets"]["page"], &last["view"]["bucket"]),
        (&2.into(), &Value::Null)
    );
    assert_eq!(
        last["view"]["buckets"]["rows"].as_array().unwrap().len(),
        11
    );

    let same = [(); 2].map(|()| snapshot.frame(&view(0, None), false));
    assert!(Arc::ptr_eq(&same[0], &same[1]), "made once for all viewers");
    assert!(view(0, None).check().is_ok());
    let long = View {
        search: "b".repeat(129),
        ..View::default()
    };
    assert!(long.check().is_err());
}

#[tokio::test(start_paused = true)]
async fn slow_viewer_gets_the_newest() {
    let (_directory, controller) = controller(1);
    let (console, refresh) = Console::new(controller.source());
    let refresh = tokio::spawn(refresh);
    let (mut slow, mut quick) = (open(&console).await.unwrap(), open(&console).await.unwrap());
    let hello = read(&mut slow).await.unwrap();
    assert_eq!(
        hello,
        "event: hello\ndata: {\"name\":\"eve\",\"role\":\"viewer\"}\n\n"
    );
    read(&mut quick).await.unwrap();
    for _ in 0..5 {
        assert!(!read(&mut quick).await.unwrap().contains("newest"));
    }
    let refused = Some("newest".to_owned());
    controller
        .brain()
        .with(|brain, _| brain.policies.refused = refused);
    assert!(read(&mut quick).await.unwrap().contains("newest"));
    assert!(read(&mut slow).await.unwrap().contains("newest"));

    // A stream ends with its time, and all of them with the controller.
    let mut frames = 0;
    while read(&mut quick).await.is_some() {
        frames += 1;
    }
    assert!((50..=60).contains(&frames), "{frames}");
    let mut last = open(&console).await.unwrap();
    read(&mut last).await.unwrap();
    refresh.abort();
    while read(&mut last).await.is_some() {}
}

#[tokio::test(start_paused = true)]
async fn viewers_are_bounded() {
    let (_directory, controller) = controller(1);
    let (console, refresh) = Console::new(controller.source());
    tokio::spawn(refresh);
    let mut streams = Vec::new();
    for _ in 0..VIEWERS_MAX {
        streams.push(open(&console).await.unwrap());
    }
    assert_eq!(
        open(&console).await.err(),
        Some(StatusCode::SERVICE_UNAVAILABLE)
    );
    streams.pop();
    assert!(open(&console).await.is_ok());
}
