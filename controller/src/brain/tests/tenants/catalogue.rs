//! Tenants of a catalogue: aggregators ask for names, and rows with terms of their own are listed while they have
//! requests.

use plimsoll_policy::CatalogueSource;

use super::*;

const TENANTS: &str = r#"
plans: { free: { limits: { api: 10 } }, pro: { weight: 4 } }
tenants: { default: {} }
"#;
const ROWS: &str = "tenant,plan,weight,limits\njo,free,,\nacme,pro,,api=50\n";

fn with_catalogue(policy: &str, rows: &str) -> Arc<Policy> {
    catalogued(policy, TENANTS, rows)
}

fn catalogued(policy: &str, tenants: &str, rows: &str) -> Arc<Policy> {
    let source = |name, text| Source { name, text };
    let catalogue = CatalogueSource {
        name: "rows.csv",
        bytes: rows.as_bytes(),
    };
    let read = Policy::read_with(source("", policy), source("", tenants), catalogue);
    Arc::new(read.unwrap().0)
}

impl Fleet {
    /// Asks for names, and returns what is said of each.
    fn answers(&mut self, names: &[&str]) -> Vec<String> {
        self.zones[0].asked = names.iter().map(|name| tenant(name)).collect();
        self.zones[0].told.clear();
        self.run(1.0);
        let told = self.zones[0].told.iter();
        told.map(|(name, class)| format!("{name}: {class}"))
            .collect()
    }

    fn is_listed(&self, name: &str) -> bool {
        let posted = self.zones[0].board.get(&bucket()).unwrap();
        posted.own(name).is_some()
    }
}

#[test]
fn rows_with_own_terms_are_listed_while_they_have_requests() {
    let zone = Scripted::new("a", 1).offering("default", 300.0);
    let policy = with_catalogue(&enforced_with(""), ROWS);
    let mut fleet = Fleet::new(Arc::clone(&policy), vec![zone]);
    fleet.run(5.0);
    assert!(!fleet.is_listed("acme"), "it has no requests");
    let answers = fleet.answers(&["jo", "acme", "initech"]);
    assert_eq!(answers, ["jo: %~free", "acme: %~pro", "initech: default"]);
    assert!(fleet.is_listed("acme") && !fleet.is_listed("jo"));
    fleet.zones[0].offers("acme", 100.0);
    fleet.run(20.0);
    check_near(fleet.zones[0].ratio("acme").unwrap(), 0.5, 0.02);
    let status = fleet.status();
    let catalogue = status.catalogue.unwrap();
    assert_eq!(
        (catalogue.rows, catalogue.listed, catalogue.no_room),
        (2, 1, 0)
    );
    let grants = &status.buckets[&bucket()].grants[&tenant("acme")];
    assert_eq!((grants.plan.as_deref(), grants.weight), (Some("pro"), 4.0));
    assert_eq!(fleet.brain.policy().hash(), policy.hash());

    // An edit of the policy keeps it, and one of its row takes effect.
    fleet
        .brain
        .on_policy(with_catalogue(&enforced_with(", burst_s: 2"), ROWS));
    fleet.run(1.0);
    assert!(fleet.is_listed("acme"));
    let lower = ROWS.replace("=50", "=25");
    fleet
        .brain
        .on_policy(with_catalogue(&enforced_with(""), &lower));
    fleet.run(20.0);
    check_near(fleet.zones[0].ratio("acme").unwrap(), 0.75, 0.02);

    fleet.zones[0].offers("acme", 0.0);
    fleet.run(700.0);
    assert!(!fleet.is_listed("acme"), "it was idle");
    assert_eq!(fleet.answers(&["acme"]), ["acme: %~pro"]);
    assert!(fleet.is_listed("acme"), "it has requests again");
    fleet
        .brain
        .on_policy(with_catalogue(&enforced_with(""), "tenant\njo\n"));
    fleet.run(1.0);
    assert!(!fleet.is_listed("acme"), "it has no row");
    assert_eq!(
        fleet.answers(&["acme", "jo"]),
        ["acme: default", "jo: default"]
    );
}

#[test]
fn listed_row_has_the_quotas_of_its_plan() {
    let text = enforced_with(", quotas: [calls]") + "quotas: { calls: { max: 9, every: 1h } }\n";
    let tenants = "plans: { pro: { quotas: { calls: { max: 70 } } } }\ntenants: { default: {} }\n";
    let policy = catalogued(&text, tenants, "tenant,plan,weight\nacme,pro,2\n");
    let zone = Scripted::new("a", 1).offering("default", 300.0);
    let mut fleet = Fleet::new(policy, vec![zone]);
    fleet.run(5.0);
    fleet.answers(&["acme"]);
    let grants = fleet.bucket_status().grants.remove(&tenant("acme"));
    let grants = grants.expect("acme is listed");
    assert_eq!(
        grants
            .quotas
            .iter()
            .map(|quota| quota.max)
            .collect::<Vec<_>>(),
        [70]
    );
}

#[test]
fn rows_beyond_the_room_have_the_terms_of_their_plan() {
    let rows = (0..6_000).map(|row| format!("t{row},pro,2\n"));
    let rows = "tenant,plan,weight\n".to_owned() + &rows.collect::<String>();
    let zone = Scripted::new("a", 1).offering("default", 300.0);
    let mut fleet = Fleet::new(with_catalogue(&enforced_with(""), &rows), vec![zone]);
    fleet.run(5.0);
    let names: Vec<String> = (0..6_000).map(|row| format!("t{row}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for some in names.chunks(1_000) {
        fleet.answers(some);
    }
    let listed = plimsoll_policy::TENANTS_MAX - ["default", "%~free", "%~pro"].len();
    let catalogue = fleet.status().catalogue.unwrap();
    assert_eq!(catalogue.listed, listed);
    assert_eq!(catalogue.no_room, 6_000 - listed as u64);
}

#[test]
fn row_of_a_plan_is_refused_as_its_class() {
    let zone = Scripted::new("a", 1).offering("%~free", 2000.0);
    let mut fleet = Fleet::new(with_catalogue(&enforced_with(""), ROWS), vec![zone]);
    fleet.run(20.0);
    let counted_as = |name| {
        let why = fleet.brain.why(&tenant(name), Some(&bucket()), None);
        why.unwrap().counted_as.to_string()
    };
    for (name, expected) in [
        ("jo%~pro", "%~pro"),
        ("jo%~gone", "default"),
        ("unknown%~free", "%~free"),
        ("unknown%~gone", "default"),
        ("unknown", "default"),
        ("%~free", "%~free"),
    ] {
        assert_eq!(counted_as(name), expected, "{name}");
    }
    let why = fleet.brain.why(&tenant("jo"), None, None).unwrap();
    assert_eq!(why.counted_as.as_str(), "%~free");
    let begin = "jo has no terms of its own: it counts for plan free, which is refused";
    assert!(why.summary.starts_with(begin), "{}", why.summary);
}
