//! Requests that are not decided: beyond a bound, or without a valid message.

use super::*;

#[test]
fn oversized_input_is_refused_with_its_place() {
    let sidecar = Sidecar::new();
    let account = || descriptor(&[("account", "acme")]);
    let long = "x".repeat(1_025);
    for (bad, reason, code, text) in [
        (
            RateLimitRequest {
                domain: String::new(),
                ..request(vec![account()])
            },
            "domain",
            GrpcCode::InvalidArgument,
            "`domain`",
        ),
        (
            request(vec![]),
            "no_descriptors",
            GrpcCode::InvalidArgument,
            "`descriptors` must not be empty",
        ),
        (
            request(vec![account(); 33]),
            "descriptors",
            GrpcCode::InvalidArgument,
            "has 33 elements, more than 32",
        ),
        (
            request(vec![account(), descriptor(&[("account", "acme"); 17])]),
            "entries",
            GrpcCode::InvalidArgument,
            "`descriptors[1].entries` has 17 elements, more than 16",
        ),
        (
            request(vec![descriptor(&[("account", "acme"), (&long, "x")])]),
            "entry_bytes",
            GrpcCode::InvalidArgument,
            "`descriptors[0].entries[1].key` has 1025 bytes",
        ),
    ] {
        let before = sidecar.count(reason);
        let error = sidecar.ask(&bad).unwrap_err();
        sidecar.service.counters.on_rejected(&error);
        assert_eq!(sidecar.count(reason), before + 1, "{error}");
        let status = Status::from(&error);
        assert_eq!(status.code(), code, "{error}");
        assert!(status.message().contains(text), "{error}");
    }
    assert_eq!(
        [sidecar.counts("checkout"), sidecar.counts("search")],
        [Decisions::default(); 2],
        "nothing is counted"
    );
}

#[test]
fn body_must_be_one_message() {
    let framed = |message: &[u8]| {
        [
            &[0],
            &u32::try_from(message.len()).unwrap().to_be_bytes()[..],
            message,
        ]
        .concat()
    };
    let message = request(vec![descriptor(&[("account", "acme")])]).encode_to_vec();
    let whole = framed(&message);
    let sidecar = Sidecar::new();
    for (body, reason) in [
        (vec![], "frame"),
        (whole[..4].to_vec(), "frame"),
        (whole[..whole.len() - 1].to_vec(), "frame"),
        ([&whole[..], &whole[..]].concat(), "frame"),
        ([&[1], &whole[1..]].concat(), "compressed"),
        (
            [&[0][..], &u32::MAX.to_be_bytes(), &message].concat(),
            "too_large",
        ),
        (framed(&[0xff; 9]), "malformed"),
        (framed(&[10, 2, 0xff]), "malformed"),
    ] {
        let error = sidecar
            .service
            .decide(&body)
            .now_or_never()
            .unwrap()
            .unwrap_err();
        assert_eq!(
            InputError::LABELS[error.index()],
            reason,
            "{body:?}: {error}"
        );
    }
    assert!(
        sidecar
            .service
            .decide(&whole)
            .now_or_never()
            .unwrap()
            .is_ok()
    );
}
