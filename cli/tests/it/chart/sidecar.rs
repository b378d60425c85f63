//! The library chart of a sidecar, as another chart includes it: exactly the chart of
//! docs/guides/deployment.md.

use std::fs;
use std::path::Path;

use plimsoll_testing::process::run;
use tempfile::TempDir;

use super::release::{assert_has, assert_has_none};
use crate::chart::{assert_flags_exist, helm, parts};
use crate::house::root;

/// Has a whole chart of a service, in fences that begin with the name of their file.
const GUIDE: &str = "docs/guides/deployment.md";
const TRIAL: &[&str] = &[
    "plimsoll-sidecar.insecure=true",
    "plimsoll-sidecar.aggregators={http://a:7410,http://b:7410}",
];

/// Values of a sidecar that enforces quotas.
const QUOTAS: &[&str] = &[
    "plimsoll-sidecar.quotaStore.url=plimsolls://plimsoll-quota.plimsoll:9049",
    "plimsoll-sidecar.quotaStore.secret=shop-quota",
];

/// Makes the chart of the guide with its dependency, in a new directory.
fn chart_of_the_guide(test: &str) -> Option<TempDir> {
    let directory = TempDir::new().unwrap();
    let guide = fs::read_to_string(root().join(GUIDE)).unwrap();
    for file in ["Chart.yaml", "values.yaml", "templates/shop.yaml"] {
        let fence = guide
            .split_once(&format!("# shop/{file}\n"))
            .unwrap_or_else(|| panic!("{GUIDE} has no {file}"));
        let (text, _) = fence.1.split_once("```").unwrap();
        let library = format!(
            "file://{}",
            root().join("charts/plimsoll-sidecar").display()
        );
        let path = directory.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(
            path,
            text.replace("file://../charts/plimsoll-sidecar", &library),
        )
        .unwrap();
    }
    let (code, out, err) = parts(helm(
        test,
        &["dependency", "update", directory.path().to_str().unwrap()],
    )?);
    assert_eq!(code, Some(0), "{out}{err}");
    Some(directory)
}

/// Renders the chart with these values. `Err` is helm's error.
fn render(test: &str, chart: &Path, values: &[&str]) -> Option<Result<String, String>> {
    let mut args = vec!["template", "p", chart.to_str().unwrap()];
    args.extend(values.iter().flat_map(|value| ["--set", value]));
    let (code, out, err) = parts(helm(test, &args)?);
    Some(if code == Some(0) { Ok(out) } else { Err(err) })
}

/// Returns a rendered file in a ConfigMap, without its indentation.
fn file_in(rendered: &str, name: &str) -> String {
    let (_, rest) = rendered.split_once(&format!("  {name}: |\n")).unwrap();
    let lines = rest.lines().map_while(|line| line.strip_prefix("    "));
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn chart_sidecar_has_certificates_rules_and_probes() {
    let test = "chart_sidecar::chart_sidecar_has_certificates_rules_and_probes";
    let Some(chart) = chart_of_the_guide(test) else {
        return;
    };
    let Some(rendered) = render(test, chart.path(), &[]) else {
        return;
    };
    let rendered = rendered.unwrap_or_else(|error| panic!("{error}"));
    let wanted = [
        "- --aggregator=https://plimsoll-eu-1a.plimsoll:7410\n",
        "- --zone=eu-1a\n",
        "- --service=shop\n",
        "- --name=$(POD_NAME)\n",
        "- --certs=/etc/plimsoll-certs\n",
        "- --rules=/etc/plimsoll/rules.yaml\n",
        "- --sockets=/run/plimsoll\n",
        "secretName: shop-plimsoll\n",
        "httpGet: { path: /healthz, port: plimsoll-admin, scheme: HTTPS }\n",
        "httpGet: { path: /readyz, port: plimsoll-admin, scheme: HTTPS }\n",
        "readOnlyRootFilesystem: true\n",
        "fsGroup: ",
    ];
    assert_has(&rendered, &wanted);
    assert_has_none(
        &rendered,
        &["subPath:", "--insecure", "http://", "restartPolicy:"],
    );
    // The proxy and the sidecar share the directory of the sockets.
    let mount = "- { name: plimsoll-sockets, mountPath: /run/plimsoll }\n";
    assert_eq!(rendered.matches(mount).count(), 2, "{rendered}");

    let rules = chart.path().join("rules.yaml");
    fs::write(&rules, file_in(&rendered, "rules.yaml")).unwrap();
    let (code, out, err) = parts(run(&[
        "check".as_ref(),
        "--sidecar-rules".as_ref(),
        rules.as_os_str(),
    ]));
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
}

#[test]
fn flags_of_the_sidecar_in_charts_exist() {
    let test = "chart_sidecar::flags_of_the_sidecar_in_charts_exist";
    let Some(chart) = chart_of_the_guide(test) else {
        return;
    };
    let tokens = ["plimsoll-sidecar.tokens.secret=operators"];
    for values in [&tokens[..], QUOTAS, TRIAL] {
        let Some(rendered) = render(test, chart.path(), values) else {
            return;
        };
        let rendered = rendered.unwrap_or_else(|error| panic!("{error}"));
        assert_flags_exist("sidecar", &rendered);
    }
}

#[test]
fn incomplete_chart_sidecar_is_refused_with_advice() {
    let test = "chart_sidecar::incomplete_chart_sidecar_is_refused_with_advice";
    let Some(chart) = chart_of_the_guide(test) else {
        return;
    };
    for (value, wanted) in [
        (
            "plimsoll-sidecar.aggregators=null",
            "plimsoll-sidecar.aggregators: list",
        ),
        (
            "plimsoll-sidecar.certificates.secret=",
            "plimsoll-sidecar.certificates.secret: name a Secret",
        ),
    ] {
        let Some(rendered) = render(test, chart.path(), &[value]) else {
            return;
        };
        let error = rendered.unwrap_err();
        assert!(error.contains(wanted), "{value}: {error}");
    }
}

#[test]
fn trial_sidecar_is_plaintext_and_always_restarts() {
    let test = "chart_sidecar::trial_sidecar_is_plaintext_and_always_restarts";
    let Some(chart) = chart_of_the_guide(test) else {
        return;
    };
    let values = [
        TRIAL,
        &[
            "plimsoll-sidecar.native=true",
            "plimsoll-sidecar.rules=null",
        ],
    ]
    .concat();
    let Some(rendered) = render(test, chart.path(), &values) else {
        return;
    };
    let rendered = rendered.unwrap_or_else(|error| panic!("{error}"));
    let wanted = [
        "- --aggregator=http://a:7410,http://b:7410\n",
        "- --insecure\n",
        "scheme: HTTP }\n",
        "restartPolicy: Always\n",
    ];
    assert_has(&rendered, &wanted);
    assert_has_none(
        &rendered,
        &["--certs", "plimsoll-certs", "--rules", "ConfigMap"],
    );
}

#[test]
fn chart_sidecar_with_quotas_knows_its_store() {
    let test = "chart_sidecar::chart_sidecar_with_quotas_knows_its_store";
    let Some(chart) = chart_of_the_guide(test) else {
        return;
    };
    let rendered = |values: &[&str]| {
        let rendered = render(test, chart.path(), values)?;
        Some(rendered.unwrap_or_else(|error| panic!("{error}")))
    };
    let Some(with_quotas) = rendered(QUOTAS) else {
        return;
    };
    let password = "- --quota-password-file=/etc/plimsoll-quota/password\n";
    let authority = "- --quota-ca=/etc/plimsoll-quota/ca.crt\n";
    let wanted = [
        "- --quota-store=plimsolls://plimsoll-quota.plimsoll:9049\n",
        password,
        authority,
        "- { name: plimsoll-quota, mountPath: /etc/plimsoll-quota, readOnly: true }\n",
        "secretName: shop-quota\n",
    ];
    assert_has(&with_quotas, &wanted);
    // The address, whether the store has a password, and whether it uses TLS.
    for (url, has_password, is_tls) in [
        ("rediss+cluster://a:1", true, true),
        ("redis://a:1", true, false),
        ("plimsoll://a:1", false, false),
    ] {
        let url = format!("plimsoll-sidecar.quotaStore.url={url}");
        let values = [url.as_str(), QUOTAS[1]];
        let text = rendered(&values[..if has_password { 2 } else { 1 }]).unwrap();
        assert_eq!(text.contains(password), has_password, "{url}:\n{text}");
        assert_eq!(text.contains(authority), is_tls, "{url}:\n{text}");
    }
    assert!(
        !rendered(&[]).unwrap().contains("quota"),
        "quotas need a store"
    );
}
