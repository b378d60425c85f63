//! The table of permissions: the reports that a certificate allows at a parent, and the parents that a child obeys.

use super::{PeerId, PeerRole};
use crate::names::{Name, Zone};
use crate::report::{Identity, Role};

/// Reason why a certificate does not allow a stream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAllowed {
    /// The two certificates belong to two fleets.
    #[error(
        "the certificates {own} and {peer} are of two trust domains: issue both from the authority of one fleet"
    )]
    TrustDomain {
        /// The identity of this process.
        own: PeerId,
        /// The identity of the other one.
        peer: PeerId,
    },
    /// The parent takes no stream of such a child.
    #[error(
        "the certificate {child} opens no stream at {parent}, which takes {}: {}",
        takes(parent),
        fix(child)
    )]
    Child {
        /// The identity of the parent.
        parent: PeerId,
        /// The identity of the child.
        child: PeerId,
    },
    /// The greeting names another process than the certificate.
    #[error(
        "the certificate {child} does not allow reports of the {} of {zone}/{service}: issue a certificate for that \
         role, zone and service, or start the process with those of its certificate",
        role.as_str()
    )]
    Greeting {
        /// The identity of the child.
        child: PeerId,
        /// The role in the greeting.
        role: Role,
        /// The zone in the greeting.
        zone: Zone,
        /// The service in the greeting.
        service: Name,
    },
    /// The child obeys no such parent.
    #[error(
        "the certificate {parent} may not direct {child}: a service takes the aggregators of its zone, an aggregator \
         takes a controller or another aggregator; correct the address of the parent, or the role and zone of its \
         certificate"
    )]
    Parent {
        /// The identity of the child.
        child: PeerId,
        /// The identity of the parent.
        parent: PeerId,
    },
}

impl NotAllowed {
    /// The value of a metric label.
    pub const LABEL: &str = "forbidden";
}

/// Checks that the child with a certificate may open a stream at a parent and report as in its
/// greeting.
///
/// # Errors
/// If it may not: nothing of its reports counts.
pub fn check_child(parent: &PeerId, child: &PeerId, greeting: &Identity) -> Result<(), NotAllowed> {
    check_trust_domain(parent, child)?;
    if !directs(parent, child) {
        return Err(NotAllowed::Child {
            parent: parent.clone(),
            child: child.clone(),
        });
    }
    let Identity {
        role,
        zone,
        service,
        ..
    } = greeting;
    let is_own = match child.role() {
        PeerRole::Controller | PeerRole::Quota => false,
        PeerRole::Aggregator { zone: own } => (*role, zone) == (Role::Aggregator, own),
        PeerRole::Service {
            zone: own,
            service: named,
        } => (*role, zone, service) == (Role::Client, own, named),
    };
    if is_own {
        return Ok(());
    }
    Err(NotAllowed::Greeting {
        child: child.clone(),
        role: *role,
        zone: zone.clone(),
        service: service.clone(),
    })
}

/// Checks that a child may report to a parent and apply its directives.
///
/// # Errors
/// If it may not: the child sends nothing.
pub fn check_parent(child: &PeerId, parent: &PeerId) -> Result<(), NotAllowed> {
    check_trust_domain(child, parent)?;
    if directs(parent, child) {
        Ok(())
    } else {
        Err(NotAllowed::Parent {
            child: child.clone(),
            parent: parent.clone(),
        })
    }
}

fn directs(parent: &PeerId, child: &PeerId) -> bool {
    match (parent.role(), child.role()) {
        // Aggregators may be chained, also over zones.
        (PeerRole::Controller | PeerRole::Aggregator { .. }, PeerRole::Aggregator { .. }) => true,
        (PeerRole::Aggregator { zone: own }, PeerRole::Service { zone, .. }) => zone == own,
        _ => false,
    }
}

fn check_trust_domain(own: &PeerId, peer: &PeerId) -> Result<(), NotAllowed> {
    if own.trust_domain() == peer.trust_domain() {
        return Ok(());
    }
    Err(NotAllowed::TrustDomain {
        own: own.clone(),
        peer: peer.clone(),
    })
}

const fn takes(parent: &PeerId) -> &'static str {
    match parent.role() {
        PeerRole::Controller => "those of aggregators",
        PeerRole::Aggregator { .. } => "those of aggregators and of services in its zone",
        PeerRole::Service { .. } | PeerRole::Quota => "none",
    }
}

const fn fix(child: &PeerId) -> &'static str {
    match child.role() {
        PeerRole::Service { .. } => "connect it to an aggregator of its zone",
        PeerRole::Controller | PeerRole::Aggregator { .. } | PeerRole::Quota => {
            "issue a certificate for the role that the process has"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::InstanceId;

    /// The certificates of the tables, in the order of their rows.
    const CERTIFICATES: [&str; 7] = [
        "controller",
        "zone/a/aggregator",
        "zone/b/aggregator",
        "zone/a/service/shop",
        "zone/b/service/shop",
        "zone/a/service/cart",
        "quota",
    ];

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Row {
        Allowed,
        Child,
        Greeting,
        Parent,
        TrustDomain,
    }
    use Row::{Allowed, Child, Greeting, Parent, TrustDomain};

    fn row(result: &Result<(), NotAllowed>) -> Row {
        match result {
            Ok(()) => Allowed,
            Err(NotAllowed::Child { .. }) => Child,
            Err(NotAllowed::Greeting { .. }) => Greeting,
            Err(NotAllowed::Parent { .. }) => Parent,
            Err(NotAllowed::TrustDomain { .. }) => TrustDomain,
        }
    }

    fn id(path: &str) -> PeerId {
        format!("spiffe://fleet/plimsoll/{path}").parse().unwrap()
    }

    fn of_another_fleet(path: &str) -> PeerId {
        format!("spiffe://other/plimsoll/{path}").parse().unwrap()
    }

    fn greeting((role, zone, service): (Role, &str, &str)) -> Identity {
        Identity {
            instance: InstanceId(1),
            name: Name::new("host:1").unwrap(),
            service: Name::new(service).unwrap(),
            zone: Zone::new(zone).unwrap(),
            role,
        }
    }

    /// The greetings of the tables, in the order of their columns. The service of an aggregator is free.
    const GREETINGS: [(Role, &str, &str); 6] = [
        (Role::Client, "a", "shop"),
        (Role::Client, "b", "shop"),
        (Role::Client, "a", "cart"),
        (Role::Client, "b", "cart"),
        (Role::Aggregator, "a", "plimsoll-aggregator"),
        (Role::Aggregator, "b", "shop"),
    ];

    /// By parent, certificate (row) and greeting (column).
    const REPORTS: [(&str, [[Row; 6]; 7]); 5] = [
        (
            "controller",
            [
                // client a/shop, b/shop, a/cart, b/cart, aggregator a, aggregator b
                [Child, Child, Child, Child, Child, Child],
                [Greeting, Greeting, Greeting, Greeting, Allowed, Greeting],
                [Greeting, Greeting, Greeting, Greeting, Greeting, Allowed],
                [Child, Child, Child, Child, Child, Child],
                [Child, Child, Child, Child, Child, Child],
                [Child, Child, Child, Child, Child, Child],
                [Child, Child, Child, Child, Child, Child],
            ],
        ),
        (
            "zone/a/aggregator",
            [
                [Child, Child, Child, Child, Child, Child],
                [Greeting, Greeting, Greeting, Greeting, Allowed, Greeting],
                [Greeting, Greeting, Greeting, Greeting, Greeting, Allowed],
                [Allowed, Greeting, Greeting, Greeting, Greeting, Greeting],
                [Child, Child, Child, Child, Child, Child],
                [Greeting, Greeting, Allowed, Greeting, Greeting, Greeting],
                [Child, Child, Child, Child, Child, Child],
            ],
        ),
        (
            "zone/b/aggregator",
            [
                [Child, Child, Child, Child, Child, Child],
                [Greeting, Greeting, Greeting, Greeting, Allowed, Greeting],
                [Greeting, Greeting, Greeting, Greeting, Greeting, Allowed],
                [Child, Child, Child, Child, Child, Child],
                [Greeting, Allowed, Greeting, Greeting, Greeting, Greeting],
                [Child, Child, Child, Child, Child, Child],
                [Child, Child, Child, Child, Child, Child],
            ],
        ),
        // No tier serves with such a certificate.
        ("zone/a/service/shop", [[Child; 6]; 7]),
        ("quota", [[Child; 6]; 7]),
    ];

    /// By the certificate of the child, the result for each certificate of the parent.
    const DIRECTIVES: [(&str, [Row; 7]); 7] = [
        // controller, aggregator a, aggregator b, service a/shop, b/shop, a/cart, quota
        (
            "controller",
            [Parent, Parent, Parent, Parent, Parent, Parent, Parent],
        ),
        (
            "zone/a/aggregator",
            [Allowed, Allowed, Allowed, Parent, Parent, Parent, Parent],
        ),
        (
            "zone/b/aggregator",
            [Allowed, Allowed, Allowed, Parent, Parent, Parent, Parent],
        ),
        (
            "zone/a/service/shop",
            [Parent, Allowed, Parent, Parent, Parent, Parent, Parent],
        ),
        (
            "zone/b/service/shop",
            [Parent, Parent, Allowed, Parent, Parent, Parent, Parent],
        ),
        (
            "zone/a/service/cart",
            [Parent, Allowed, Parent, Parent, Parent, Parent, Parent],
        ),
        (
            "quota",
            [Parent, Parent, Parent, Parent, Parent, Parent, Parent],
        ),
    ];

    #[test]
    fn certificate_reports_only_as_itself() {
        for (parent, results) in REPORTS {
            for (certificate, results) in CERTIFICATES.into_iter().zip(results) {
                for (message, expected) in GREETINGS.into_iter().zip(results) {
                    let case = format!("{certificate} greets {parent} as {message:?}");
                    let checked = check_child(&id(parent), &id(certificate), &greeting(message));
                    assert_eq!(row(&checked), expected, "{case}");
                    let foreign = of_another_fleet(certificate);
                    let checked = check_child(&id(parent), &foreign, &greeting(message));
                    assert_eq!(row(&checked), TrustDomain, "{case}");
                }
            }
        }
    }

    #[test]
    fn certificate_obeys_only_parents_of_its_role() {
        for (child, results) in DIRECTIVES {
            for (parent, expected) in CERTIFICATES.into_iter().zip(results) {
                let case = format!("{child} is directed by {parent}");
                assert_eq!(
                    row(&check_parent(&id(child), &id(parent))),
                    expected,
                    "{case}"
                );
                let checked = check_parent(&id(child), &of_another_fleet(parent));
                assert_eq!(row(&checked), TrustDomain, "{case}");
            }
        }
    }

    #[test]
    fn parent_accepts_only_obedient_children() {
        for parent in CERTIFICATES {
            for child in CERTIFICATES {
                let obeys = check_parent(&id(child), &id(parent)).is_ok();
                let may_greet =
                    |message| check_child(&id(parent), &id(child), &greeting(message)).is_ok();
                assert_eq!(
                    GREETINGS.into_iter().any(may_greet),
                    obeys,
                    "{child} at {parent}"
                );
            }
        }
    }

    #[test]
    fn errors_name_both_identities_and_the_remedy() {
        let parts = |error: Result<(), NotAllowed>, parts: [&str; 3]| {
            let error = error.unwrap_err().to_string();
            parts
                .into_iter()
                .for_each(|part| assert!(error.contains(part), "{part}: {error}"));
        };
        let (zone_a, shop) = (id("zone/a/aggregator"), id("zone/a/service/shop"));
        let [as_shop, as_zone_a] = [GREETINGS[0], GREETINGS[4]].map(greeting);
        let (own, parent) = (
            "spiffe://fleet/plimsoll/zone/a/service/shop",
            "spiffe://fleet/plimsoll/controller",
        );
        let remedy = "connect it to an aggregator of its zone";
        parts(
            check_child(&id("controller"), &shop, &as_shop),
            [own, parent, remedy],
        );
        let remedy = "issue a certificate for the role that the process has";
        parts(
            check_child(&zone_a, &id("controller"), &as_zone_a),
            [parent, "zone/a/aggregator", remedy],
        );
        let greeted = "aggregator of a/plimsoll-aggregator";
        parts(
            check_child(&zone_a, &shop, &as_zone_a),
            [own, greeted, "issue a certificate"],
        );
        parts(
            check_parent(&shop, &id("controller")),
            [own, parent, "correct the address of the parent"],
        );
        let foreign = "spiffe://other/plimsoll/controller";
        parts(
            check_parent(&shop, &of_another_fleet("controller")),
            [own, foreign, "issue both from"],
        );
    }
}
