//! Tests of the control plane of tests: each rule through each way to decide, seeds, the virtual clock, shadow mode
//! and the kill switch.

use std::time::Duration;

use plimsoll_core::decision::{Reason, Verdict};

use super::*;
use crate::Request;

const SECOND: Duration = Duration::from_secs(1);

fn admitted(plane: &ControlPlane, bucket: &str, n: u32) -> u32 {
    let limiter = plane.limiter();
    (0..n)
        .map(|_| u32::from(limiter.check(&Request::new(bucket, "acme")).is_admit()))
        .sum()
}

fn reason(verdict: Verdict) -> Option<Reason> {
    match verdict {
        Verdict::Admit => None,
        Verdict::Refuse(refusal) => Some(refusal.reason()),
    }
}

#[test]
fn every_way_refuses_for_the_set_reason() {
    for expected in Reason::ALL {
        let plane = ControlPlane::new(7);
        plane.refuse("orders", expected).unwrap();
        let limiter = plane.limiter();
        let bucket = limiter.bucket("orders").unwrap();
        let key = bucket.key("acme");
        let verdicts = [
            limiter.check(&Request::new(&bucket, "acme")),
            limiter.check(&Request::new(&bucket, "acme").cost(3)),
            limiter.check(&key.request()),
            limiter.check(&Request::new("orders", "jo")),
            limiter.check(&Request::all(&[
                Request::new(&bucket, "acme"),
                Request::new(&bucket, "acme"),
            ])),
        ];
        assert_eq!(verdicts.map(reason), [Some(expected); 5]);
        assert_eq!(
            plane.counts("orders").unwrap(),
            Decisions {
                offered: 8,
                refused: 8,
                ..Decisions::default()
            }
        );
        assert_eq!(plane.tenant_counts("orders", "jo").unwrap().refused, 1);
        assert_eq!(admitted(&plane, "search", 5), 5, "another bucket");
        plane.admit("orders").unwrap();
        assert_eq!(admitted(&plane, "orders", 5), 5, "taken back");
    }
}

#[test]
fn equal_seeds_decide_alike_everywhere() {
    type Decide = fn(&ControlPlane) -> Verdict;
    let ways: [Decide; 3] = [
        |plane| plane.limiter().check(&Request::new("orders", "acme")),
        |plane| {
            plane.limiter().check(&Request::new(
                &plane.limiter().bucket("orders").unwrap(),
                "acme",
            ))
        },
        |plane| {
            plane
                .limiter()
                .bucket("orders")
                .unwrap()
                .key("acme")
                .check()
        },
    ];
    let run = |seed, decide: Decide| {
        let plane = ControlPlane::new(seed);
        plane.drop_share("orders", 0.3).unwrap();
        let batch = |n| {
            let plane = plane.clone();
            let decide = move || (0..n).map(|_| decide(&plane)).collect::<Vec<Verdict>>();
            std::thread::spawn(decide).join().unwrap()
        };
        [batch(300), batch(700)].concat()
    };
    let first = run(7, ways[0]);
    let refused = first.iter().filter(|verdict| !verdict.is_admit()).count();
    assert!((240..360).contains(&refused), "{refused} of 1,000 at 0.3");
    for decide in ways {
        assert_eq!(run(7, decide), first, "the waits of refusals included");
    }
    assert_ne!(run(8, ways[0]), first);
}

#[test]
fn refused_callers_wait_as_tests_set() {
    let plane = ControlPlane::new(7);
    for reason in Reason::ALL {
        plane.refuse("orders", reason).unwrap();
        for (wait, from, to) in [(0, 1, 3), (1, 1, 3), (30, 29, 60), (3_600, 120, 240)] {
            plane.retry_after("orders", SECOND * wait).unwrap();
            let Verdict::Refuse(refusal) = plane.limiter().check(&Request::new("orders", "acme"))
            else {
                panic!("admitted")
            };
            let span = SECOND * from..SECOND * to;
            assert!(
                span.contains(&refusal.retry_after()),
                "{reason:?} {wait}: {refusal:?}"
            );
            assert_eq!(refusal.reason(), reason);
        }
    }
}

#[test]
fn invalid_rule_errors_name_the_bucket() {
    let plane = ControlPlane::new(7);
    for (result, text) in [
        (
            plane.refuse("", Reason::TenantLimit),
            "bucket ``: a name must not be empty",
        ),
        (
            plane.drop_share("orders", 1.5),
            "share of bucket `orders` to refuse: from 0 to 1, not 1.5",
        ),
        (
            plane.drop_share("orders", f64::NAN),
            "share of bucket `orders` to refuse: from 0 to 1, not NaN",
        ),
        (
            plane.limit("orders", -1.0),
            "limit of bucket `orders`: a rate is a number of requests/s from 0 to 1000000000000, not -1",
        ),
    ] {
        assert_eq!(result.unwrap_err().to_string(), text);
    }
    plane.drop_share("orders", 1.0).unwrap();
    assert_eq!(admitted(&plane, "orders", 5), 0);
}
