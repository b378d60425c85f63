//! The quota server of the chart, as helm renders it: one pod with a volume that outlives it,
//! certificates and tokens.

use super::assert_flags_exist;
use super::release::{self, Rendered, assert_has, refused};

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

/// Renders the quota server and the notes of a release. `None` means that helm is not installed, and
/// that `test` is recorded as skipped.
fn render(test: &str, values: &[&str]) -> Option<(String, String)> {
    let Rendered { objects, notes } = release::render(test, values)?;
    let own = objects.into_values();
    let own: Vec<String> = own
        .filter(|text| text.contains("templates/quota.yaml"))
        .collect();
    Some((own.join("\n---\n"), notes))
}

#[test]
fn release_omits_the_quota_server_by_default() {
    let values = &ISSUER[2..];
    let Some((server, notes)) = render("release_omits_the_quota_server_by_default", values) else {
        return;
    };
    assert_eq!(server, "");
    assert!(!notes.contains("PLIMSOLL_QUOTA"), "{notes}");
}

#[test]
fn quota_volume_outlives_its_only_pod() {
    let test = "quota_volume_outlives_its_only_pod";
    let Some((server, notes)) = render(test, ISSUER) else {
        return;
    };
    assert_has(
        &server,
        &[
            "kind: StatefulSet\n",
            "replicas: 1\n",
            "- --data=/var/lib/plimsoll-quota/data\n",
            "- { name: data, mountPath: /var/lib/plimsoll-quota }\n",
            "volumeClaimTemplates:\n    - metadata:\n        name: data\n",
            "storage: \"8Gi\"",
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
    let (server, _) = render(test, &claim).unwrap();
    assert_has(
        &server,
        &["- name: data\n          persistentVolumeClaim:\n            claimName: balances\n"],
    );
    assert!(!server.contains("volumeClaimTemplates"), "{server}");
}

#[test]
fn plaintext_quota_trial_still_needs_tokens() {
    let test = "plaintext_quota_trial_still_needs_tokens";
    let Some((server, notes)) = render(test, TRIAL) else {
        return;
    };
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
    let error = refused(test, &["quota.enabled=true", "insecure=true"]).unwrap();
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
        let Some(error) = refused(test, values) else {
            return;
        };
        assert_has(&error, &[wanted]);
    }
}

#[test]
fn flags_of_the_quota_server_exist() {
    let metrics = [ISSUER, &["tokens.neededForMetrics=true"]].concat();
    for values in [&metrics[..], TRIAL] {
        let Some((server, _)) = render("flags_of_the_quota_server_exist", values) else {
            return;
        };
        assert_flags_exist("quota", &server);
    }
}
