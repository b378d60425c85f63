//! The quota server of the chart, as helm renders it: one pod with a volume that outlives it,
//! certificates and tokens.

use crate::chart::{chart, flags, helm, help, parts};

/// Values of a release with a quota server and certificates of cert-manager.
const ISSUER: &[&str] = &[
    "quota.enabled=true",
    "quota.tokens.secret=callers",
    "certManager.issuerRef.name=ca",
    "trustDomain=example.org",
    "tokens.secret=operators",
];
const TRIAL: &[&str] = &[
    "quota.enabled=true",
    "quota.tokens.secret=callers",
    "insecure=true",
];

/// Renders the quota server and the notes of a release `p`. `Err` is helm's error, and `None` means
/// that helm is not installed, and that `test` is recorded as skipped.
fn render(test: &str, values: &[&str]) -> Option<Result<(String, String), String>> {
    let chart = chart();
    let mut args = vec!["install", "p", chart.to_str().unwrap(), "--dry-run=client"];
    args.extend(values.iter().flat_map(|value| ["--set", value]));
    let (code, out, err) = parts(helm(&format!("chart_quota::{test}"), &args)?);
    if code != Some(0) {
        return Some(Err(err));
    }
    let (manifest, notes) = out.split_once("\nNOTES:\n").unwrap();
    let documents = manifest.split("\n---\n");
    let own: Vec<&str> = documents
        .filter(|text| text.contains("templates/quota.yaml"))
        .collect();
    Some(Ok((own.join("\n---\n"), notes.to_owned())))
}

fn assert_has(text: &str, wanted: &[&str]) {
    wanted
        .iter()
        .for_each(|wanted| assert!(text.contains(wanted), "{wanted:?} is missing:\n{text}"));
}

#[test]
fn release_omits_the_quota_server_by_default() {
    let values = &ISSUER[2..];
    let Some(rendered) = render("release_omits_the_quota_server_by_default", values) else {
        return;
    };
    let (server, notes) = rendered.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(server, "");
    assert!(!notes.contains("PLIMSOLL_QUOTA"), "{notes}");
}

#[test]
fn quota_volume_outlives_its_only_pod() {
    let test = "quota_volume_outlives_its_only_pod";
    let Some(rendered) = render(test, ISSUER) else {
        return;
    };
    let (server, notes) = rendered.unwrap_or_else(|error| panic!("{error}"));
    assert_has(
        &server,
        &[
            "kind: StatefulSet\n",
            "replicas: 1\n",
            "- --data=/var/lib/plimsoll-quota/data\n",
            "- { name: data, mountPath: /var/lib/plimsoll-quota }\n",
            "volumeClaimTemplates:\n    - metadata:\n        name: data\n",
            "storage: \"8Gi\"\n",
            "- --certs=/etc/plimsoll-certs\n",
            "secretName: p-plimsoll-quota-tls\n",
            "- --tokens=/etc/plimsoll-tokens/tokens\n",
            "secretName: callers\n            defaultMode: 0440\n",
            "fsGroup: 65532\n",
            "readOnlyRootFilesystem: true\n",
            "httpGet: { path: /healthz, port: admin, scheme: HTTPS }\n",
            "httpGet: { path: /readyz, port: admin, scheme: HTTPS }\n",
            "prometheus.io/port: \"7432\"\n",
            "{ name: resp, port: 9049, targetPort: resp, appProtocol: redis }\n",
            "- spiffe://example.org/plimsoll/quota\n",
            "- p-plimsoll-quota.default\n",
        ],
    );
    for unwanted in ["PodDisruptionBudget", "subPath:", "--insecure", "http://"] {
        let is_comment = |line: &str| line.trim_start().starts_with('#');
        let line = server
            .lines()
            .find(|line| line.contains(unwanted) && !is_comment(line));
        assert_eq!(line, None, "{unwanted}:\n{server}");
    }
    assert_has(
        &notes,
        &[
            "PLIMSOLL_QUOTA_STORE=plimsolls://p-plimsoll-quota.default:9049\n",
            "PLIMSOLL_QUOTA_CA=CA-FILE\n",
        ],
    );

    let claim = [ISSUER, &["quota.data.existingClaim=balances"]].concat();
    let (server, _) = render(test, &claim)
        .unwrap()
        .unwrap_or_else(|error| panic!("{error}"));
    assert_has(
        &server,
        &["- name: data\n          persistentVolumeClaim:\n            claimName: balances\n"],
    );
    assert!(!server.contains("volumeClaimTemplates"), "{server}");
}

#[test]
fn plaintext_quota_trial_still_needs_tokens() {
    let test = "plaintext_quota_trial_still_needs_tokens";
    let Some(rendered) = render(test, TRIAL) else {
        return;
    };
    let (server, notes) = rendered.unwrap_or_else(|error| panic!("{error}"));
    assert_has(
        &server,
        &[
            "- --insecure\n",
            "- --tokens=/etc/plimsoll-tokens/tokens\n",
            "scheme: HTTP }\n",
        ],
    );
    assert!(
        !server.contains("certs") && !server.contains("kind: Certificate"),
        "{server}"
    );
    assert_has(
        &notes,
        &["PLIMSOLL_QUOTA_STORE=plimsoll://p-plimsoll-quota.default:9049\n"],
    );
    let error = render(test, &["quota.enabled=true", "insecure=true"])
        .unwrap()
        .unwrap_err();
    assert_has(&error, &["quota.tokens.secret: name a Secret"]);
}

#[test]
fn missing_or_taken_quota_names_are_refused() {
    let test = "missing_or_taken_quota_names_are_refused";
    for (values, wanted) in [
        (
            &[TRIAL, &["zones[0].name=quota"]].concat()[..],
            "rename the zone",
        ),
        (
            &[
                "quota.enabled=true",
                "quota.tokens.secret=callers",
                "tokens.secret=operators",
                "controller.certificates.secret=top",
                "zones[0].certificates.secret=low",
            ],
            "quota.certificates.secret with quota.enabled",
        ),
    ] {
        let Some(rendered) = render(test, values) else {
            return;
        };
        assert_has(&rendered.unwrap_err(), &[wanted]);
    }
}

#[test]
fn flags_of_the_quota_server_exist() {
    let metrics = [ISSUER, &["tokens.neededForMetrics=true"]].concat();
    for values in [&metrics[..], TRIAL] {
        let Some(rendered) = render("flags_of_the_quota_server_exist", values) else {
            return;
        };
        let (server, _) = rendered.unwrap_or_else(|error| panic!("{error}"));
        let help = help(&["quota".to_owned()]);
        let known: Vec<&str> = flags(&help).into_iter().map(|flag| flag.name).collect();
        let given = server
            .lines()
            .filter_map(|line| line.trim().strip_prefix("- ")?.split('=').next());
        let given: Vec<&str> = given.filter(|flag| flag.starts_with("--")).collect();
        assert!(given.len() > 6, "{given:?}");
        let unknown: Vec<&&str> = given.iter().filter(|flag| !known.contains(flag)).collect();
        assert!(unknown.is_empty(), "plimsoll quota has no {unknown:?}");
    }
}
