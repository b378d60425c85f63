//! `POST /v1/check` and `POST /v1/report`.

use plimsoll_client::Reason;
use serde_json::json;

use super::*;
use crate::rules::tests::rows;

#[test]
fn decision_has_the_members_that_it_needs() {
    let port = Port::new();
    port.plane.admit("search").unwrap();
    port.plane.limit("none", 0.0).unwrap();
    let check = |bucket: &str| {
        let answer = port.post(
            "/v1/check",
            &json!({ "bucket": bucket, "tenant": "acme" }).to_string(),
        );
        assert_eq!(
            (answer.status, answer.header("content-type")),
            (200, Some("application/json"))
        );
        answer.json()
    };
    assert_eq!(check("search"), json!({ "allowed": true }));
    let mut refused = check("none");
    let wait = refused["retry_after_ms"].take().as_u64().unwrap();
    assert!((1_000..=3_000).contains(&wait), "{wait}");
    let expected = json!({ "allowed": false, "reason": "burst_guard", "retry_after_ms": null, "limit_rps": 0.0 });
    assert_eq!(refused, expected);
    port.plane.shadow("none", true).unwrap();
    assert_eq!(
        check("none"),
        json!({ "allowed": true, "limit_rps": 0.0, "withheld": "burst_guard" })
    );
    let expected = [
        ("v1_check", "allowed", 1),
        ("v1_check", "refused", 1),
        ("v1_check", "withheld", 1),
    ];
    assert_eq!(port.counts(), expected);
}

#[test]
fn request_charges_its_tenant_its_cost() {
    for (body, tenant, offered) in [
        (
            json!({ "bucket": "b", "tenant": "acme", "cost": 7 }),
            "acme",
            7,
        ),
        (json!({ "bucket": "b" }), "default", 1),
        (
            json!({ "bucket": "b", "tenant": null, "cost": null, "traceparent": null }),
            "default",
            1,
        ),
        (
            json!({ "bucket": "b", "tenant": "auth0|1a", "cost": 218.0 }),
            "auth0|1a",
            218,
        ),
        (
            json!({ "bucket": "b", "cost": u32::MAX }),
            "default",
            10_000,
        ),
        (json!({ "bucket": "b", "tenant": "" }), "default", 1),
        (
            json!({ "bucket": "b", "tenant": "x".repeat(5_000) }),
            &*"x".repeat(5_000),
            1,
        ),
        (
            json!({ "bucket": "b", "tenant": "requests", "traceparent": "requests" }),
            "requests",
            1,
        ),
        (
            json!({ "bucket": "b", "tenant": "\u{61}cme\\", "traceparent": "00-0-0-0" }),
            "acme\\",
            1,
        ),
    ] {
        let port = Port::new();
        assert_eq!(
            port.post("/v1/check", &body.to_string()).status,
            200,
            "{body}"
        );
        assert_eq!(
            port.plane.tenant_counts("b", tenant).unwrap().offered,
            offered,
            "{body}"
        );
    }
    let port = Port::new();
    assert_eq!(
        port.post("/v1/check", r#"{"bucket":"\u0062","tenant":"\u0061cme"}"#)
            .status,
        200
    );
    assert_eq!(
        port.plane.tenant_counts("b", "acme").unwrap().offered,
        1,
        "escapes are read"
    );
}

#[test]
fn retries_are_counted_by_their_cost() {
    let port = Port::new();
    port.plane.limit("none", 0.0).unwrap();
    for bucket in ["b", "none"] {
        let retried = json!({ "bucket": bucket, "cost": 2, "retried": true });
        let first = json!({ "bucket": bucket, "retried": false });
        for body in [&retried, &json!({ "requests": [retried, first] })] {
            assert_eq!(port.post("/v1/check", &body.to_string()).status, 200);
        }
        let limiter = port.plane.limiter();
        let counts = limiter.bucket(bucket).unwrap().key("default").counts();
        assert_eq!((counts.offered, counts.retried), (5, 4), "{bucket}");
    }
}

#[test]
fn batch_decides_about_each_request_in_order() {
    let port = Port::new();
    port.plane.refuse("none", Reason::TenantLimit).unwrap();
    let body = json!({ "requests": [{ "bucket": "b" }, { "bucket": "none", "cost": 3 }, { "bucket": "b" }] });
    let answer = port.post("/v1/check", &body.to_string()).json();
    let allowed: Vec<_> = answer["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|result| &result["allowed"])
        .collect();
    assert_eq!(allowed, [true, false, true]);
    assert_eq!(answer["results"][1]["reason"], "tenant_limit");
    assert_eq!(answer.get("allowed"), None);
    assert_eq!(port.plane.counts("b").unwrap().admitted, 2);
    assert_eq!(port.plane.counts("none").unwrap().refused, 3);
    assert_eq!(
        port.counts(),
        [("v1_check", "allowed", 2), ("v1_check", "refused", 1)]
    );
}

#[test]
fn requests_together_are_admitted_all_or_none() {
    let port = Port::new();
    port.plane.refuse("none", Reason::TenantLimit).unwrap();
    let ask = |buckets: &[&str]| {
        let requests: Vec<_> = buckets
            .iter()
            .map(|bucket| json!({ "bucket": bucket }))
            .collect();
        port.post(
            "/v1/check",
            &json!({ "requests": requests, "together": true }).to_string(),
        )
        .json()
    };
    let answer = ask(&["b", "none"]);
    assert_eq!(answer["allowed"], false);
    assert_eq!(
        (
            &answer["results"][0]["allowed"],
            &answer["results"][1]["allowed"]
        ),
        (&true.into(), &false.into())
    );
    let counts = port.plane.counts("b").unwrap();
    assert_eq!(
        (counts.admitted, counts.refused),
        (0, 1),
        "it counts as refused for every key"
    );
    assert_eq!(ask(&["b", "c"])["allowed"], true);
    assert_eq!(port.plane.counts("b").unwrap().admitted, 1);
}

#[test]
fn invalid_check_names_its_member() {
    const LISTED: &str = "buckets: [b]\n";
    let requests =
        |count: usize| json!({ "requests": vec![json!({ "bucket": "b" }); count] }).to_string();
    let (many, most) = (requests(257), requests(256));
    let port = Port::with_rules(LISTED);
    for [body, field, detail] in rows(
        r#"
         | | EOF while parsing
        { | | EOF while parsing
        [] | | invalid type: sequence, expected an object
        ["b"] | | invalid type: sequence, expected an object
        ["b",null,null,null] | | invalid type: sequence, expected an object
        [[["b",null,null,null]],null] | | invalid type: sequence, expected an object
        {"requests":[["b",null,null,null]]} | requests[0] | invalid type: sequence, expected an object
        "b" | | invalid type: string
        {} | | missing field `bucket`
        {"bucket":"b"} x | | trailing characters at line 1 column 16
        {"bucket":"b","tenat":"a"} | tenat | unknown field `tenat`, expected one of `bucket`, `tenant`
        {"bucket":"b","bucket":"b"} | | duplicate field `bucket`
        {"bucket":null} | bucket | invalid type: null
        {"bucket":7} | bucket | invalid type: integer `7`
        {"bucket":""} | bucket | empty
        {"bucket":"two words"} | bucket | ' '
        {"bucket":"search"} | bucket | it is not among `buckets` of the sidecar's rules
        {"bucket":"b","cost":0} | cost | 0 is not a whole number from 1 to 4294967295
        {"bucket":"b","cost":4294967296} | cost | 4294967296 is not a whole number
        {"bucket":"b","cost":-1} | cost | -1 is not a whole number
        {"bucket":"b","cost":218.5} | cost | 218.5 is not a whole number
        {"bucket":"b","cost":"5"} | cost | invalid type: string "5"
        {"requests":[]} | requests | the list is empty
        MANY | requests | 257 are too many: send at most 256
        {"requests":[{"bucket":"b"},{"bucket":"b","cost":0}]} | requests[1].cost | 0 is not
        {"requests":[{"bucket":"b"},{"buckets":"b"}]} | requests[1].buckets | unknown field
        {"requests":[{"bucket":"b"},{"bucket":"c"}]} | requests[1].bucket | it is not among
        {"requests":[{"bucket":"b"}],"together":1} | together | expected a boolean
        {"requests":[{"bucket":"b"}],"bucket":"b"} | bucket | unknown field `bucket`
        {"requests":{"bucket":"b"}} | requests | expected a sequence
        "#,
    ) {
        let answer = port.post("/v1/check", &body.replace("MANY", &many));
        assert_eq!(
            (answer.status, answer.header("content-type")),
            (400, Some("application/problem+json")),
            "{body}"
        );
        let problem = answer.json();
        assert_eq!(
            (&problem["status"], problem["title"].as_str()),
            (&400.into(), Some("Bad Request"))
        );
        let found = problem.get("field").map(|field| field.as_str().unwrap());
        assert_eq!(found.unwrap_or_default(), field, "{body}: {problem}");
        assert!(
            problem["detail"].as_str().unwrap().contains(&detail),
            "{body}: {problem}"
        );
    }
    assert_eq!(port.plane.counts("b").unwrap().offered, 0);
    assert_eq!(port.counts(), [("v1_check", "invalid", 30)]);
    assert_eq!(
        port.post("/v1/check", &most).json()["results"]
            .as_array()
            .unwrap()
            .len(),
        256
    );
}

#[test]
fn invalid_utf8_is_a_problem() {
    let port = Port::new();
    let response = port
        .service
        .end(crate::http::json::Call::Check, b"{\"bucket\":\"\xff\"}")
        .now_or_never()
        .unwrap();
    assert_eq!(response.status(), 400);
}

#[test]
fn report_is_recorded_for_a_known_bucket() {
    let port = Port::new();
    port.post("/v1/check", r#"{"bucket":"b"}"#);
    for (body, result) in [
        (
            json!({ "bucket": "b", "status": 200, "latency_ms": 12.5 }),
            "recorded",
        ),
        (
            json!({ "bucket": "b", "tenant": "acme", "status": 503 }),
            "recorded",
        ),
        (
            json!({ "bucket": "b", "failed": true, "latency_ms": 0 }),
            "recorded",
        ),
        (
            json!({ "bucket": "b", "failed": false, "latency_ms": 86_400_000 }),
            "recorded",
        ),
        (
            json!({ "reports": [{ "bucket": "b", "status": 599 }] }),
            "recorded",
        ),
        (
            json!({ "bucket": "other", "status": 200 }),
            "unknown_bucket",
        ),
    ] {
        let of = |result| {
            let counts = port
                .counts()
                .into_iter()
                .filter(|count| (count.0, count.1) == ("v1_report", result));
            counts.map(|count| count.2).sum::<u64>()
        };
        let before = of(result);
        let answer = port.post("/v1/report", &body.to_string());
        assert_eq!((answer.status, answer.body.as_str()), (204, ""), "{body}");
        assert_eq!(of(result), before + 1, "{body}");
    }
    assert_eq!(
        port.plane.counts("b").unwrap().offered,
        1,
        "a report is no request"
    );
}

#[test]
fn invalid_report_names_its_member() {
    let port = Port::new();
    port.post("/v1/check", r#"{"bucket":"b"}"#);
    for [body, field, detail] in rows(
        r#"
        {"bucket":"b"} | status | give the HTTP status, or `failed` instead
        {"bucket":"b","status":200,"failed":false} | failed | either `status` or `failed`
        {"bucket":"b","status":99} | status | 99 is not from 100 to 599
        {"bucket":"b","status":600} | status | 600 is not from 100 to 599
        {"bucket":"b","status":"200"} | status | invalid type: string
        {"bucket":"b","status":200,"latency_ms":-1} | latency_ms | -1 is not from 0 to 86400000
        {"bucket":"b","status":200,"latency_ms":86400000.1} | latency_ms | is not from 0
        {"bucket":"b","status":200,"latency_ms":1e400} | latency_ms | number out of range
        {"bucket":"b","status":200,"latency_ms":"12"} | latency_ms | invalid type: string
        {"bucket":"b","status":200,"latency":12} | latency | unknown field
        {"bucket":"a b","status":200} | bucket | ' '
        {"reports":[]} | reports | the list is empty
        {"reports":[["b",null,200,null,null]]} | reports[0] | invalid type: sequence
        {"reports":[{"bucket":"b","status":200},{"bucket":"b"}]} | reports[1].status | give the HTTP status
        "#,
    ) {
        let answer = port.post("/v1/report", &body);
        let problem = answer.json();
        assert_eq!(
            (answer.status, problem["field"].as_str()),
            (400, Some(field.as_str())),
            "{body}: {problem}"
        );
        assert!(
            problem["detail"].as_str().unwrap().contains(&detail),
            "{body}: {problem}"
        );
    }
    assert_eq!(
        port.counts(),
        [("v1_check", "allowed", 1), ("v1_report", "invalid", 14)]
    );
}

#[test]
fn method_path_and_content_type_are_checked() {
    let port = Port::new();
    for path in ["/v1/check", "/v1/report"] {
        for content_types in [
            &[][..],
            &["text/plain"],
            &["application/jsonx"],
            &["application/json", "text/plain"],
        ] {
            let request = Request::post(path);
            let request = content_types
                .iter()
                .fold(request, |request, of| request.header("content-type", *of));
            assert_eq!(
                port.ask(request.body("{}").unwrap()).status,
                415,
                "{content_types:?}"
            );
        }
        for content_type in [
            "application/json; charset=utf-8",
            "Application/JSON ;x",
            "application/json",
        ] {
            let request = Request::post(path).header("content-type", content_type);
            assert_eq!(
                port.ask(request.body("{}").unwrap()).status,
                400,
                "{content_type}"
            );
        }
        for method in ["GET", "PUT", "DELETE", "OPTIONS"] {
            let request = Request::builder()
                .method(method)
                .uri(path)
                .header("content-type", "application/json");
            let answer = port.ask(request.body("{}").unwrap());
            assert_eq!(
                (answer.status, answer.header("allow")),
                (405, Some("POST")),
                "{method}"
            );
        }
    }
    for path in [
        "/",
        "/check/",
        "/v1",
        "/v1/check/",
        "/nginx2",
        "/metrics",
        "*",
    ] {
        let answer = port.get(path, &[]);
        assert_eq!(
            (answer.status, answer.json()["status"].as_u64()),
            (404, Some(404)),
            "{path}"
        );
    }
}
