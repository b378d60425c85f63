//! Refusals of every kind, sensible and not, and the waits that they ask for.

use std::collections::HashMap;

use http::{HeaderName, HeaderValue};
use proptest::prelude::*;

use super::*;
use crate::wait::Backoff;

const NOW_S: u64 = 1_800_000_000;

fn read(status: u16, fields: &[(&'static str, &str)]) -> Asked {
    let headers = fields.iter().map(|(name, value)| {
        let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
        (HeaderName::from_static(name), value)
    });
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(NOW_S);
    asked(
        StatusCode::from_u16(status).unwrap(),
        &headers.collect(),
        now,
    )
}

fn after(seconds: u64) -> Asked {
    Asked::Retry(Some(Duration::from_secs(seconds)))
}

#[test]
fn every_way_to_ask_is_read() {
    let ask = Asked::Retry(None);
    let none = Asked::Answered;
    for (status, fields, expected) in [
        (200, &[("retry-after", "9")][..], none),
        (404, &[("retry-after", "9")], none),
        (500, &[], none),
        (429, &[], ask),
        (502, &[], ask),
        (503, &[("retry-after", "soon")], ask),
        (503, &[("retry-after", " 7 ")], after(7)),
        (
            429,
            &[("retry-after", "Fri, 15 Jan 2027 08:00:09 GMT")],
            after(9),
        ),
        (
            429,
            &[("retry-after", "Fri, 15 Jan 2027 07:00:00 GMT")],
            after(0),
        ),
        (
            429,
            &[("retry-after", "-1"), ("ratelimit", "\"a\";r=0;t=4")],
            after(4),
        ),
        (
            429,
            &[("retry-after", "2"), ("ratelimit", "\"a\";r=0;t=4")],
            after(2),
        ),
        (
            429,
            &[("ratelimit", "\"a\";r=9;t=8, \"b\";r=0;t=3, \"c\";r=0;t=2")],
            after(3),
        ),
        (429, &[("ratelimit", "\"a\";r=9;t=8")], ask),
        (429, &[("ratelimit", "limit=1, t=8")], ask),
        (429, &[("x-ratelimit-reset", "1800000005")], after(5)),
        (
            503,
            &[("x-ratelimit-remaining", "57"), ("x-ratelimit-reset", "9")],
            ask,
        ),
        (
            429,
            &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "9")],
            after(9),
        ),
        (429, &[("x-ratelimit-reset", "1700000005")], after(0)),
        (429, &[("x-ratelimit-reset", "5")], after(5)),
        // A status of the service's own choice.
        (
            403,
            &[
                ("x-ratelimit-reason", "cluster_overload"),
                ("retry-after", "3"),
            ],
            after(3),
        ),
        (
            429,
            &[("x-ratelimit-reason", "tenant_limit"), ("retry-after", "3")],
            after(3),
        ),
        (
            429,
            &[
                ("x-ratelimit-reason", "tenant_quota_exceeded"),
                ("retry-after", "3"),
            ],
            Asked::Never,
        ),
    ] {
        assert_eq!(read(status, fields), expected, "{status} {fields:?}");
    }
}

#[test]
fn grpc_asks_by_pushback_and_details() {
    let grpc = |code: &str, fields: &[(&'static str, &str)]| {
        read(200, &[&[("grpc-status", code)], fields].concat())
    };
    for (code, fields, expected) in [
        ("0", &[("grpc-retry-pushback-ms", "9")][..], Asked::Answered),
        ("5", &[("grpc-retry-pushback-ms", "9")], Asked::Answered),
        ("14", &[], Asked::Retry(None)),
        ("14", &[("grpc-retry-pushback-ms", "2000")], after(2)),
        ("8", &[("grpc-retry-pushback-ms", "2000")], after(2)),
        ("8", &[("grpc-retry-pushback-ms", "-1")], Asked::Never),
        ("14", &[("grpc-retry-pushback-ms", "soon")], Asked::Never),
        ("8", &[], Asked::Never),
        ("8", &[("grpc-status-details-bin", "!")], Asked::Never),
        // google.rpc.Status with code 8 and a RetryInfo of 3 s.
        ("8", &[("grpc-status-details-bin", RETRY_INFO)], after(3)),
        (
            "8",
            &[
                ("grpc-status-details-bin", RETRY_INFO),
                ("grpc-retry-pushback-ms", "1000"),
            ],
            after(1),
        ),
    ] {
        assert_eq!(grpc(code, fields), expected, "{code} {fields:?}");
    }
}

const RETRY_INFO: &str = "CAgaMAoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxIECgIIAw";

/// Values that are nonsense in part, so that each parser is entered.
fn nonsense() -> impl Strategy<Value = Vec<u8>> {
    let near = prop_oneof![
        any::<i128>().prop_map(|number| number.to_string()),
        "[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2} GMT",
        "\"[a-z]{0,3}\";r=-?[0-9]{0,17};t=-?[0-9]{0,17}(, \\?1)?",
        "[A-Za-z0-9+/=]{0,90}",
        "[0-9]{1,2}",
    ];
    prop_oneof![
        near.prop_map(String::into_bytes),
        prop::collection::vec(0x20..=0xff_u8, 0..60),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]
    #[test]
    fn nonsense_costs_no_long_wait(
        status in 100_u16..1_000,
        fields in prop::collection::vec((0..7_usize, nonsense()), 0..5),
        cap_ms in 0_u64..100_000,
        retry in 0_u32..100,
        draw in 0.0..1.0,
    ) {
        const NAMES: [&str; 7] = [
            "retry-after", "ratelimit", "x-ratelimit-reset", "x-ratelimit-reason", "grpc-status",
            "grpc-retry-pushback-ms", "grpc-status-details-bin",
        ];
        let fields: HashMap<_, _> = fields.into_iter().map(|(name, value)| (NAMES[name], value)).collect();
        let headers = fields.iter().filter_map(|(name, value)| {
            Some((HeaderName::from_static(name), HeaderValue::from_bytes(value).ok()?))
        });
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(NOW_S);
        let backoff = Backoff { base: Duration::from_millis(50), cap: Duration::from_millis(cap_ms) };
        if let Asked::Retry(asked) = asked(StatusCode::from_u16(status).unwrap(), &headers.collect(), now)
            && let Some(wait) = backoff.wait(asked, retry, draw)
        {
            prop_assert!(wait <= backoff.cap, "{:?}", wait);
            prop_assert!(wait >= asked.unwrap_or_default(), "earlier than asked");
        }
    }
}
