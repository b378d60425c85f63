//! Several controllers on a store, as helm renders them.

use super::assert_flags_exist;
use super::release::{assert_has, assert_has_none, refused, render};
use super::trust::{INSECURE, ISSUER};

const STORE: &[&str] = &[
    "controller.replicas=2",
    "controller.store.endpoints={etcd-0.etcd:2379,etcd-1.etcd:2379}",
];
const SECRETS: &[&str] = &[
    "controller.store.tls.secret=store-tls",
    "controller.store.credentials.secret=store-user",
];
const NAME: &str = "p-plimsoll-controller";

#[test]
fn store_makes_controllers_members() {
    let values = [ISSUER, STORE, SECRETS].concat();
    let Some(rendered) = render("store_makes_controllers_members", &values) else {
        return;
    };
    let members = rendered.object("StatefulSet", NAME);
    assert_has(
        members,
        &[
            "replicas: 2\n  serviceName: p-plimsoll-controller-members\n  podManagementPolicy: Parallel\n",
            "- --store=etcds://etcd-0.etcd:2379,etcd-1.etcd:2379/plimsoll\n",
            "- --store-ca=/etc/plimsoll-store-certs/ca.crt\n",
            "- --store-cert=/etc/plimsoll-store-certs/tls.crt\n",
            "- --store-key=/etc/plimsoll-store-certs/tls.key\n",
            "name: PLIMSOLL_STORE_USER, valueFrom: { secretKeyRef: { name: store-user, key: user } }",
            "- --store-password-file=/etc/plimsoll-store-credentials/password\n",
            "- --advertise=$(POD_NAME).p-plimsoll-controller-members.default\n",
            "- name: state\n          # The audit log of this member. What a takeover needs is in the store.\n          emptyDir: {}\n",
            "preferredDuringSchedulingIgnoredDuringExecution:\n",
            "topologyKey: kubernetes.io/hostname\n",
        ],
    );
    assert_has_none(members, &["persistentVolumeClaim", "Recreate"]);
    assert!(!rendered.has_kind("PersistentVolumeClaim"));
    assert_has(
        rendered.object("Service", "p-plimsoll-controller-members"),
        &["clusterIP: None\n", "publishNotReadyAddresses: true\n"],
    );
    assert_has(
        rendered.object("PodDisruptionBudget", NAME),
        &["maxUnavailable: 1\n"],
    );
    let host = |member| format!("https://{NAME}-{member}.{NAME}-members.default:7400");
    assert_has(
        rendered.object("Deployment", "p-plimsoll-eu-1a"),
        &[&format!("- --controller={},{}\n", host(0), host(1))],
    );
    // One identity for all members, and names for curl and Prometheus.
    assert_has(
        rendered.object("Certificate", NAME),
        &[
            "- spiffe://example.org/plimsoll/controller\n",
            "- \"*.p-plimsoll-controller-members.default.svc\"\n",
        ],
    );
    let ports = "--controller https://127.0.0.1:17401,https://127.0.0.1:17402 --ca ca.crt";
    assert_has(&rendered.notes, &[ports]);
}

#[test]
fn flags_of_members_exist() {
    let trial = [INSECURE, STORE].concat();
    for values in [&[ISSUER, STORE, SECRETS].concat(), &trial] {
        let Some(rendered) = render("flags_of_members_exist", values) else {
            return;
        };
        assert_flags_exist("controller", rendered.object("StatefulSet", NAME));
    }
    let rendered = render("flags_of_members_exist", &trial).unwrap();
    let members = rendered.object("StatefulSet", NAME);
    assert_has(members, &["- --store=etcd://", "- --insecure\n"]);
    assert_has_none(
        members,
        &["--store-ca", "--store-password-file", "STORE_USER"],
    );
}

#[test]
fn members_without_a_store_are_refused() {
    let test = "members_without_a_store_are_refused";
    for (values, wanted) in [
        (
            [INSECURE, &["controller.replicas=2"]].concat(),
            "set controller.store.endpoints",
        ),
        (
            [ISSUER, STORE].concat(),
            "controller.store.tls.secret: name a Secret",
        ),
    ] {
        let Some(error) = refused(test, &values) else {
            return;
        };
        assert_has(&error, &[wanted]);
    }
}

#[test]
fn single_controller_has_no_members() {
    let Some(rendered) = render("single_controller_has_no_members", ISSUER) else {
        return;
    };
    assert_has_none(
        rendered.object("Deployment", NAME),
        &["--store", "--advertise", "POD_NAME", "affinity"],
    );
    for kind in ["StatefulSet", "PodDisruptionBudget"] {
        assert!(!rendered.has_kind(kind), "{kind}");
    }
}
