//! Answers that no server of etcd gives on demand: refusals of every kind, and answers that break the
//! protocol.

use tonic::{Code, Status};

use crate::error::Failure;
use crate::{Client, Error, Options, wire};

fn client() -> Client {
    let address = "etcd://127.0.0.1:1/p".parse().unwrap();
    Client::connect(&address, Options::default()).unwrap()
}

fn entry(key: &'static str, created: i64, modified: i64) -> wire::KeyValue {
    wire::KeyValue {
        key: key.into(),
        create_revision: created,
        mod_revision: modified,
        version: 1,
        ..Default::default()
    }
}

#[test]
fn statuses_say_what_was_applied() {
    let refused = Failure::Final;
    let other = |code: Code, message: &str| {
        let (code, message) = (code.into(), message.to_owned());
        refused(Error::Other { code, message })
    };
    let unknown = |text: &str| Failure::Unknown(text.to_owned());
    let no_lease = "etcdserver: requested lease not found";
    let stopped = "etcdserver: server stopped";
    let canceled = "etcdserver: request canceled";
    let late = "etcdserver: context deadline exceeded";
    let large = "etcdserver: request is too large";
    let wrong = "etcdserver: authentication failed, invalid user ID or password";
    let old = "etcdserver: revision of auth store is old";
    let passed_on = "rpc error: code = Unauthenticated desc = etcdserver: invalid auth token";
    let denied = |text: &str| Failure::Token(Error::denied(text));
    let full = "etcdserver: mvcc: database space exceeded";
    let long = "Error, decoded message length too large";
    let many = "etcdserver: too many requests";
    let exhausted = Code::ResourceExhausted;
    for (code, message, expected) in [
        (Code::NotFound, no_lease, refused(Error::LeaseNotFound)),
        (
            Code::Unavailable,
            "etcdserver: no leader",
            Failure::NoLeader,
        ),
        (Code::Unavailable, stopped, unknown(stopped)),
        // The change may be applied after the member has given up on it.
        (Code::Cancelled, canceled, unknown(canceled)),
        (Code::DeadlineExceeded, late, unknown(late)),
        (
            Code::Unavailable,
            "connection reset",
            unknown("connection reset"),
        ),
        (
            Code::Unknown,
            "h2 protocol error",
            unknown("h2 protocol error"),
        ),
        (Code::InvalidArgument, old, denied(old)),
        (Code::Unknown, passed_on, denied(passed_on)),
        (Code::InvalidArgument, wrong, refused(Error::denied(wrong))),
        (exhausted, full, refused(Error::NoSpace)),
        (Code::OutOfRange, long, Failure::Oversized(long.to_owned())),
        (exhausted, many, other(exhausted, many)),
        // From a proxy, or from an HTTP/2 connection that is told to calm down.
        (exhausted, "calm down", unknown("calm down")),
    ] {
        assert_eq!(
            Failure::of(&Status::new(code, message)),
            expected,
            "{message}"
        );
    }
    let refused = Failure::of(&Status::invalid_argument(large));
    assert!(
        matches!(refused, Failure::Final(Error::TooLarge { .. })),
        "{refused:?}"
    );
    let long = format!("etcdserver: {}\n", "x".repeat(1_000));
    let Failure::Final(Error::Other { message, .. }) =
        Failure::of(&Status::invalid_argument(&long))
    else {
        panic!("another failure");
    };
    assert_eq!(message.chars().count(), 300);
}

#[tokio::test]
async fn ranges_begin_with_the_prefix() {
    let client = client();
    let keys = client.beginning(b"");
    assert_eq!((&*keys.first, &*keys.end), (&b"p/"[..], &b"p0"[..]));
    let keys = client.beginning(&[b'a', 0xff, 0xff]);
    assert_eq!(
        (&*keys.first, &*keys.end),
        (&b"p/a\xff\xff"[..], &b"p/b"[..])
    );
    assert_eq!(client.single(b"a").first, "p/a");
}

#[tokio::test]
async fn entries_are_checked() {
    let client = client();
    let keys = client.single(b"a");
    let only = |entries: Vec<wire::KeyValue>| {
        let answer = wire::RangeResponse {
            entries,
            ..Default::default()
        };
        keys.only(answer, &client)
    };
    assert_eq!(only(vec![]), Ok(None));
    assert_eq!(only(vec![entry("p/a", 1, 2)]).unwrap().unwrap().key, "a");
    for entries in [
        vec![entry("p/b", 1, 1)],
        vec![entry("", 1, 1)],
        vec![entry("p/a", 0, 1)],
        vec![entry("p/a", 2, 1)],
        vec![entry("p/a", -1, 1)],
        vec![entry("p/a", 1, 1), entry("p/a", 1, 1)],
    ] {
        let error = only(entries.clone()).unwrap_err();
        assert!(
            matches!(error, Error::Invalid { .. }),
            "{entries:?}: {error}"
        );
    }
}
