//! The chart as helm renders it: certificates and tokens reach both tiers, and nothing is plaintext
//! unless the values request it.

use crate::chart::assert_flags_exist;
use crate::chart::release::{assert_has, assert_has_none, refused, render};

/// The chart requests its certificates from cert-manager.
pub(super) const ISSUER: &[&str] = &[
    "certManager.issuerRef.name=ca",
    "trustDomain=example.org",
    "tokens.secret=operators",
];
/// The chart uses existing Secrets.
const SECRETS: &[&str] = &[
    "controller.certificates.secret=top",
    "zones[0].certificates.secret=low",
    "tokens.secret=operators",
];
pub(super) const INSECURE: &[&str] = &["insecure=true"];
/// Both Deployments of a release `p` with a zone `eu-1a`, and the tier that each starts.
const TIERS: [(&str, &str); 2] = [
    ("p-plimsoll-controller", "controller"),
    ("p-plimsoll-eu-1a", "aggregator"),
];

#[test]
fn untrusted_chart_is_refused_with_advice() {
    let test = "untrusted_chart_is_refused_with_advice";
    let three = [
        "certManager.issuerRef.name",
        "certificates.secret of every zone",
        "insecure: true",
    ];
    for (values, wanted) in [
        (&[][..], &three[..]),
        (&["tokens.secret=operators"], &three),
        // The zone has none.
        (
            &[
                "controller.certificates.secret=top",
                "tokens.secret=operators",
            ],
            &three,
        ),
        (
            &["certManager.issuerRef.name=ca", "trustDomain=example.org"],
            &["tokens.secret", "plimsoll tokens add"],
        ),
        (
            &["certManager.issuerRef.name=ca", "tokens.secret=operators"],
            &["trustDomain"],
        ),
    ] {
        let Some(error) = refused(test, values) else {
            return;
        };
        assert_has(&error, wanted);
    }
}

#[test]
fn chart_mounts_certificates_and_tokens_as_directories() {
    let test = "chart_mounts_certificates_and_tokens_as_directories";
    for (values, secrets) in [
        (
            ISSUER,
            ["p-plimsoll-controller-tls", "p-plimsoll-eu-1a-tls"],
        ),
        (SECRETS, ["top", "low"]),
    ] {
        let Some(rendered) = render(test, values) else {
            return;
        };
        for ((name, _), secret) in TIERS.into_iter().zip(secrets) {
            let deployment = rendered.object("Deployment", name);
            let volume = |secret: &str| {
                format!("secret:\n            secretName: {secret}\n            defaultMode: 0440")
            };
            assert_has(
                deployment,
                &[
                    "- --certs=/etc/plimsoll-certs\n",
                    "- --tokens=/etc/plimsoll-tokens/tokens\n",
                    "{ name: certs, mountPath: /etc/plimsoll-certs, readOnly: true }",
                    "{ name: tokens, mountPath: /etc/plimsoll-tokens, readOnly: true }",
                    &format!("- name: certs\n          {}", volume(secret)),
                    &format!("- name: tokens\n          {}", volume("operators")),
                    "fsGroup: 65532",
                ],
            );
            assert_has_none(
                deployment,
                &[
                    "subPath:",
                    "--insecure",
                    "--admin-open-on-loopback",
                    "http://",
                ],
            );
        }
    }
}

#[test]
fn chart_addresses_use_https_unless_insecure() {
    let test = "chart_addresses_use_https_unless_insecure";
    for (values, scheme, grpc) in [
        (ISSUER, "https", "https"),
        (INSECURE, "http", "kubernetes.io/h2c"),
    ] {
        let Some(rendered) = render(test, values) else {
            return;
        };
        for (name, tier) in TIERS {
            let deployment = rendered.object("Deployment", name);
            let probe = |path| {
                format!(
                    "httpGet: {{ path: {path}, port: admin, scheme: {} }}\n",
                    scheme.to_uppercase()
                )
            };
            let scrape = format!("prometheus.io/scheme: {scheme}\n");
            assert_has(
                deployment,
                &[&probe("/healthz"), &probe("/readyz"), &scrape],
            );
            if tier == "aggregator" {
                assert_has(
                    deployment,
                    &[&format!(
                        "- --controller={scheme}://p-plimsoll-controller:7400\n"
                    )],
                );
            }
            assert_has(
                rendered.object("Service", name),
                &[&format!("appProtocol: {grpc} }}\n")],
            );
        }
        assert_has(
            &rendered.notes,
            &[&format!(
                "  eu-1a: {scheme}://p-plimsoll-eu-1a.default:7410\n"
            )],
        );
    }
}

#[test]
fn insecure_chart_has_no_certificates() {
    let insecure_anyhow = [ISSUER, INSECURE].concat();
    for values in [INSECURE, &insecure_anyhow] {
        let test = "insecure_chart_has_no_certificates";
        let Some(rendered) = render(test, values) else {
            return;
        };
        assert!(!rendered.has_kind("Certificate"));
        for (name, _) in TIERS {
            let deployment = rendered.object("Deployment", name);
            assert_has(deployment, &["- --insecure\n"]);
            assert_has_none(deployment, &["--certs", "name: certs", "https"]);
        }
        assert_has(&rendered.notes, &["WARNING: insecure is true"]);
    }
}

#[test]
fn issuer_certifies_each_process_identity() {
    let test = "issuer_certifies_each_process_identity";
    let Some(rendered) = render(test, ISSUER) else {
        return;
    };
    let paths = ["controller", "zone/eu-1a/aggregator"];
    for ((name, _), path) in TIERS.into_iter().zip(paths) {
        assert_has(
            rendered.object("Certificate", name),
            &[
                &format!("secretName: {name}-tls\n"),
                &format!("uris:\n    - spiffe://example.org/plimsoll/{path}\n"),
                &format!("    - {name}.default.svc\n    - p-plimsoll\n"),
                "usages: [digital signature, server auth, client auth]\n",
                "duration: 24h\n  renewBefore: 8h\n",
                "rotationPolicy: Always",
                "issuerRef:\n    name: ca\n    kind: Issuer\n    group: cert-manager.io",
            ],
        );
    }
    // A process with its own Secret needs none.
    let Some(rendered) = render(test, &[ISSUER, SECRETS].concat()) else {
        return;
    };
    assert!(!rendered.has_kind("Certificate"));
}

#[test]
fn unnameable_zone_needs_an_insecure_chart() {
    let test = "unnameable_zone_needs_an_insecure_chart";
    let zone = &["zones[0].name=eu:1a"][..];
    let Some(error) = refused(test, &[ISSUER, zone].concat()) else {
        return;
    };
    assert_has(&error, &["eu:1a", "letters, digits"]);
    render(test, &[INSECURE, zone].concat()).unwrap();
}

#[test]
fn rendered_flags_exist() {
    let metrics = [ISSUER, &["tokens.neededForMetrics=true"]].concat();
    let catalogue = [SECRETS, &["controller.catalogue.existingClaim=rows"]].concat();
    for values in [metrics.as_slice(), &catalogue, INSECURE] {
        let Some(rendered) = render("rendered_flags_exist", values) else {
            return;
        };
        for (name, tier) in TIERS {
            assert_flags_exist(tier, rendered.object("Deployment", name));
        }
    }
}
