//! Catalogues by example: rows, faults with their lines, and changes that are held back.

use plimsoll_core::directive::LimitOwner;
use plimsoll_core::names::Bucket;
use proptest::collection::btree_map;
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::changes::tests::reasons;
use crate::tests::rows;
use crate::{CATALOGUE_CHANGED_MAX, PolicyError, Source, differences};

const BUCKETS: &str =
    r#"buckets: { checkout: { limit: 100, tenant_limit: 20 }, "api/*": { limit: 50 } }"#;
const TENANTS: &str = r#"
plans: { free: { weight: 0.25, floor_rps: 1, limits: { checkout: 10 } }, pro: { weight: 4 } }
tenants: { default: {}, listed: {} }
"#;

fn read(name: &str, text: &str) -> Result<Policy, PolicyError> {
    let policy = Source {
        name: "policy.yaml",
        text: BUCKETS,
    };
    let tenants = Source {
        name: "tenants.yaml",
        text: TENANTS,
    };
    let bytes = text.as_bytes();
    let read = Policy::read_with(policy, tenants, CatalogueSource { name, bytes });
    read.map(|(policy, warnings)| {
        let warnings: Vec<String> = warnings.iter().map(ToString::to_string).collect();
        let expected = if text == CSV {
            &["rows.csv:5:1: tenant: tenants.yaml lists `listed` and 0 other tenants of this file, too: its entries count, and not these rows"][..]
        } else {
            &[]
        };
        assert_eq!(warnings, expected);
        policy
    })
}

fn csv(text: &str) -> Policy {
    read("rows.csv", text).unwrap()
}

const CSV: &str = "\
tenant,plan,weight,floor_rps,limits
jo,free,,,
al,free,2,7.5,
acme,pro,,,checkout=5000;api/*=30
listed,pro,9,,
auth0|1a,,3,,
\"x, y\",default,,,
";

#[test]
fn rows_are_tenants_of_their_plan() {
    let policy = csv(CSV);
    let row = |name: &str| policy.row(name).map(|row| (row.is_own, row.line));
    for (name, expected) in [
        ("jo", Some((false, 2))),
        ("jo%~pro", Some((false, 2))),
        ("al", Some((true, 3))),
        ("acme", Some((true, 4))),
        ("listed", None),
        ("auth0%7C1a", Some((true, 6))),
        ("x%2C%20y", Some((false, 7))),
        ("nobody", None),
        ("%~free", None),
        ("default", None),
    ] {
        assert_eq!(row(name), expected, "{name}");
    }
    let active = ["jo", "al", "acme", "listed", "nobody"];
    let active = active.map(|name| Tenant::new(name).unwrap());
    let listing = policy.listing(active.clone());
    assert_eq!(listing.hash(), policy.hash());
    assert_eq!(listing.listing([]), policy);
    for (name, weight, floor, limit) in [
        ("jo", 0.25, 1.0, Some((10.0, LimitOwner::Plan))),
        ("al", 2.0, 7.5, Some((10.0, LimitOwner::Plan))),
        ("acme", 4.0, 0.0, Some((5_000.0, LimitOwner::Tenant))),
        ("listed", 1.0, 0.0, Some((20.0, LimitOwner::Bucket))),
        ("nobody", 1.0, 0.0, Some((20.0, LimitOwner::Bucket))),
    ] {
        let tenant = Tenant::new(name).unwrap();
        let of_checkout = listing.tenant_limit(&tenant, &Bucket::new("checkout").unwrap());
        let got = (
            listing.tenant(&tenant).weight.get(),
            listing.floor(&tenant).per_second(),
            of_checkout.map(|(rate, owner)| (rate.per_second(), owner)),
        );
        assert_eq!(got, (weight, floor, limit), "{name}");
        let is_listed = active.contains(&tenant) && name != "nobody";
        assert_eq!(listing.is_listed(&tenant), is_listed, "{name}");
    }
}

#[test]
fn faults_name_the_line_and_the_remedy() {
    for [name, text, expected] in rows(
        r#"
        a.csv | | a.csv:1:1: there is no column `tenant` (the first line names the columns
        a.csv | tenant,plam\n | a.csv:1:1: unknown column `plam` (did you mean `plan`? the first
        a.csv | tenant,tenant\n | a.csv:1:1: two columns `tenant`
        a.csv | plan\nfree\n | a.csv:1:1: there is no column `tenant`
        a.csv | tenant,plan\njo\n | a.csv:2:1: 1 cells, and 2 columns (write a comma
        a.csv | tenant,plan\njo,fre\n | a.csv:2:1: plan: there is no plan `fre` (did you mean `free`? define
        a.csv | tenant\njo\nal\njo\n | a.csv:4:1: tenant: tenant `jo` has a row in line 2 already (keep
        a.csv | tenant,weight\njo,x1\n | a.csv:2:1: weight: `x1` is no number (a number is
        a.csv | tenant,weight\njo,0\n | a.csv:2:1: weight:
        a.csv | tenant,floor_rps\njo,-1\n | a.csv:2:1: floor_rps:
        a.csv | tenant,limits\njo,checkout\n | a.csv:2:1: limits: `checkout` is no limit (write BUCKET=RATE
        a.csv | tenant,limits\njo,a b=1\n | a.csv:2:1: limits: `a b`:
        a.csv | tenant,limits\njo,api/*=1\nal,checkout=5;checkout=6\n | a.csv:3:1: limits: two limits of `checkout` (keep
        a.csv | tenant,plan\n,free\n | a.csv:2:1: tenant: `` is no tenant (write the text
        a.csv | tenant\ndefault\n | a.csv:2:1: tenant: `default` is no tenant
        a.csv | tenant\njo\nal | a.csv:3:1: the file ends within a row: the last line has no line break (write a file beside
        a.ndjson | {"tenant":"jo"}\n\n{"tenant":1}\n | a.ndjson:3:1: invalid type: integer `1`, expected a string (write an object
        a.ndjson | {"tenant":"jo","plam":"free"}\n | a.ndjson:1:1: unknown field `plam`
        a.ndjson | {"tenant":"jo"\n | a.ndjson:1:1: EOF while parsing
        a.txt | tenant\n | a.txt:1:1: the name of the file does not say its format (name it `.csv`
        "#,
    ) {
        let error = read(&name, &text).expect_err(&text);
        let summary = error.faults()[0].summary();
        assert!(summary.starts_with(&expected), "{summary}\n{expected}");
    }
    let error = Policy::read_with(
        Source {
            name: "",
            text: BUCKETS,
        },
        Source {
            name: "",
            text: TENANTS,
        },
        CatalogueSource {
            name: "a.csv",
            bytes: b"tenant\njo\n\xFF\n",
        },
    );
    let summary = error.unwrap_err().faults()[0].summary();
    assert!(
        summary.starts_with("a.csv:3:1: a byte here is not UTF-8"),
        "{summary}"
    );
}

#[test]
fn large_changes_are_held_back() {
    let rows = |count: usize, plan: &str| {
        let row = |number| format!("t{number:04},{plan}\n");
        "tenant,plan\n".to_owned() + &(0..count).map(row).collect::<String>()
    };
    let full = csv(&rows(1_000, "free"));
    assert!((CATALOGUE_CHANGED_MAX - 0.1).abs() < 1e-9);
    for (text, is_held, shown) in [
        (rows(1_000, "free"), false, None),
        (rows(2_000, "free"), false, Some("2000 rows, 1000 added")),
        (rows(900, "free"), false, Some("900 rows, 100 removed")),
        (rows(899, "free"), true, Some("899 rows, 101 removed")),
        (rows(1_000, "pro"), true, Some("1000 rows, 1000 changed")),
    ] {
        let after = csv(&text).compared_to(&full);
        let reasons = reasons(&full, &after, &[]);
        assert_eq!(!reasons.is_empty(), is_held, "{shown:?}: {reasons:?}");
        let of_catalogue = differences(&full, &after).into_iter().next();
        assert_eq!(of_catalogue.and_then(|one| one.to).as_deref(), shown);
        assert_eq!(differences(&full, &csv(&text)), differences(&full, &after));
    }
    assert_eq!(
        reasons(&full, &csv(&rows(1_000, "pro")), &[]),
        [
            "0 of 1000 rows of the catalogue are removed and 1000 changed, more than 10 %, such as t0000, t0001, t0002"
        ]
    );
    let first = csv(CSV).with_catalogue(None);
    assert_eq!(reasons(&first, &full, &[]), [""; 0], "the first catalogue");
    let few = csv(&rows(20, "free"));
    assert_eq!(reasons(&few, &csv(&rows(0, "")), &[]), [""; 0], "20 rows");
}

#[test]
fn saved_texts_have_the_hash_of_the_catalogue() {
    let policy = csv(CSV);
    let plain = policy.clone().with_catalogue(None);
    let other = csv("tenant\njo\n");
    let hashes = [&policy, &plain, &other].map(Policy::hash);
    assert!(hashes[0] != hashes[1] && hashes[0] != hashes[2] && hashes[1] != hashes[2]);
    let saved = serde_json::to_string(&**policy.texts()).unwrap();
    let saved: crate::PolicyTexts = serde_json::from_str(&saved).unwrap();
    let restored = saved.read().unwrap();
    assert_eq!(restored.hash(), policy.hash());
    assert!(restored.catalogue().is_none());
    let again = restored.with_catalogue(policy.shared_catalogue().cloned());
    assert_eq!(again, policy);
}

/// A number that both formats read exactly.
fn number() -> impl Strategy<Value = Option<f64>> {
    option::of((1..4_000_u32).prop_map(|quarters| f64::from(quarters) / 4.0))
}

proptest! {
    #[test]
    fn formats_say_the_same(
        rows in btree_map(
            "[a-z|, ]{1,8}",
            (option::of("free|pro"), number(), number(), number()),
            1..20,
        ),
    ) {
        let cell = |number: Option<f64>| number.map_or(String::new(), |it| it.to_string());
        let mut comma = ::csv::Writer::from_writer(Vec::new());
        comma.write_record(["limits", "tenant", "plan", "floor_rps", "weight"]).unwrap();
        let mut lines = String::new();
        for (name, (plan, weight, floor, limit)) in &rows {
            let limits = limit.map_or(String::new(), |limit| format!("checkout={limit}"));
            let plan_cell = plan.clone().unwrap_or_default();
            comma.write_record([&limits, name, &plan_cell, &cell(*floor), &cell(*weight)]).unwrap();
            let limits = limit.map(|limit| serde_json::json!({ "checkout": limit }));
            let line = serde_json::json!({
                "tenant": name, "plan": plan, "weight": weight, "floor_rps": floor,
                "limits": limits.unwrap_or_else(|| serde_json::json!({})),
            });
            lines += &format!("{line}\n");
        }
        let comma = String::from_utf8(comma.into_inner().unwrap()).unwrap();
        let (one, other) = (csv(&comma), read("rows.ndjson", &lines).unwrap());
        for name in rows.keys() {
            let name = plimsoll_core::names::Encoded::of(name).unwrap();
            let policy = |policy: &Policy| policy.row(&name).map(|row| row.policy);
            prop_assert_eq!(policy(&one), policy(&other));
            prop_assert!(policy(&one).is_some());
        }
    }
}
