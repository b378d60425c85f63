//! Refusals that are kept and used again: they always name the right bucket, limit and time.

use super::*;
use crate::rls::refusal::REFUSALS_KEPT_MAX;

fn field(sidecar: &Sidecar, key: &str, name: &str) -> String {
    let response = sidecar.ask_one(&[(key, "x")]);
    assert_eq!(response.overall_code(), Code::OverLimit);
    headers(&response)[name].to_owned()
}

#[test]
fn kept_refusal_names_its_bucket() {
    let sidecar = Sidecar::new();
    sidecar.plane.limit("checkout", 0.0).unwrap();
    sidecar.plane.limit("search", 0.0).unwrap();
    for _ in 0..3 {
        assert!(field(&sidecar, "account", "ratelimit-policy").starts_with("\"checkout\";q=0"));
        assert!(field(&sidecar, "path", "ratelimit-policy").starts_with("\"search\";q=0"));
        assert!(field(&sidecar, "bare", "ratelimit-policy").starts_with("\"search\";q=0"));
    }
    // Waits of one bucket differ, and each reset follows its own wait.
    for at_s in [1_000_000, 1_000_000, 1_000_001, 2_000_000] {
        sidecar.at_s.set(at_s);
        for _ in 0..50 {
            let response = sidecar.ask_one(&[("account", "x")]);
            let fields = headers(&response);
            let [reset, wait] = ["x-ratelimit-reset", "retry-after"]
                .map(|name| fields[name].parse::<u64>().unwrap());
            assert_eq!(reset, at_s + wait);
            let until_reset = response.statuses[0].duration_until_reset.unwrap();
            assert_eq!(
                wait,
                until_reset.seconds as u64 + u64::from(until_reset.nanos > 0)
            );
        }
    }
}

#[test]
fn refusals_beyond_those_kept_are_whole() {
    let sidecar = Sidecar::new();
    sidecar.plane.refuse_all(Reason::ClusterOverload);
    let limits = Limits::new(sidecar.plane.limiter(), Rules::built_in()).unwrap();
    let service = Service::new(limits, CancellationToken::new());
    let sidecar = Sidecar { service, ..sidecar };
    for number in (0..2 * REFUSALS_KEPT_MAX).chain(0..3) {
        let bucket = format!("bucket-{number}");
        let response = sidecar.ask_one(&[("bucket", &bucket)]);
        assert_eq!(metadata(&response)["bucket"], bucket);
        assert!(
            String::from_utf8(response.raw_body.clone())
                .unwrap()
                .contains(&bucket)
        );
    }
}
