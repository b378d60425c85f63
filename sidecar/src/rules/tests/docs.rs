//! The rules that the documentation shows.

use std::fs;
use std::path::Path;

use super::*;

const PAGE: &str = include_str!("../../../../docs/reference/sidecar-rules.md");
const SPEC: &str = include_str!("../spec.rs");

fn example() -> &'static str {
    let (_, from) = PAGE.split_once("```yaml\n").unwrap();
    from.split_once("```").unwrap().0
}

#[test]
fn reference_example_shows_every_field() {
    let (rules, warnings) = read(example()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(warnings, []);
    let size = RulesSize {
        domains: 2,
        descriptors: 7,
        http: 4,
        buckets: 9,
    };
    assert_eq!(rules.size(), size);
    let fields = SPEC
        .lines()
        .filter_map(|line| line.trim().strip_prefix("pub(super) ")?.split_once(": "));
    let fields = fields
        .map(|(name, _)| name)
        .filter(|name| *name != "takes_limit");
    let names: Vec<&str> = fields.chain(["entry", "header"]).collect();
    assert!(names.len() > 15, "{names:?}");
    for name in names {
        assert!(
            example().contains(&format!("{name}:")),
            "the example lacks `{name}`"
        );
        let documented = [
            format!("{name}`"),
            format!("`{{ {name}:"),
            format!("## {name}\n"),
        ];
        assert!(
            documented.iter().any(|text| PAGE.contains(text)),
            "`{name}` is not documented"
        );
    }
}

#[test]
fn reference_example_matches_as_commented() {
    let rules = rules(example());
    for (domain, descriptor, expected) in [
        ("shop", "generic_key=checkout", "checkout/default"),
        (
            "shop",
            "generic_key=checkout,account=acme",
            "checkout/acme x5",
        ),
        ("shop", "generic_key=checkout,account=probe", "unlimited"),
        ("shop", "path=/api/x", "api/default"),
        ("shop", "path=/x", "web/default"),
        (
            "shop",
            "method=shop.Orders/Create",
            "shop.Orders/Create/mobile in trial Grpc",
        ),
        ("shop", "method=shop.Orders/Delete", "none"),
        ("other", "generic_key=x", "others/default"),
    ] {
        assert_eq!(found(&rules, domain, descriptor), expected, "{descriptor}");
    }
}

#[test]
fn shipped_rules_files_are_valid() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/integrations");
    let files = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let files: Vec<_> = files
        .filter(|path| path.to_string_lossy().ends_with("rules.yaml"))
        .collect();
    assert!(!files.is_empty());
    for path in files {
        let (_, warnings) = RulesFile::new(&path)
            .read()
            .unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(warnings, []);
    }
}
