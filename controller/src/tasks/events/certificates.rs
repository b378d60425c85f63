//! Follows the certificates and tokens of the controller: an event says when they are in danger, and when they are in
//! order again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plimsoll_admin::security::Opened;
use plimsoll_policy::UnixSeconds;
use tokio::time::interval;

use super::{Event, EventKind, EventLog};

const LOOK_EVERY: Duration = Duration::from_secs(10);
/// A certificate is near its end with less than a fifth of its life left, as in the alerts.
const LAST_PART: u32 = 5;

/// Looks at them every [`LOOK_EVERY`], forever.
pub(crate) async fn follow(security: Opened, events: EventLog) {
    let mut looks = interval(LOOK_EVERY);
    let mut before = BTreeMap::new();
    loop {
        looks.tick().await;
        let faults = faults(&security, SystemTime::now());
        changed(&before, &faults).for_each(|event| events.add(event));
        before = faults;
    }
}

type Faults = BTreeMap<EventKind, String>;

fn faults(security: &Opened, now: SystemTime) -> Faults {
    let mut faults = Faults::new();
    if let Some(certificates) = security.certificates() {
        let health = certificates.health();
        let life = health.not_after.duration_since(health.not_before);
        let left = health.not_after.duration_since(now).unwrap_or_default();
        let end = health.not_after.duration_since(UNIX_EPOCH);
        let end_s = i64::try_from(end.unwrap_or_default().as_secs()).unwrap_or(i64::MAX);
        let end = UnixSeconds::from_secs(end_s);
        if left < life.unwrap_or_default() / LAST_PART {
            let text =
                format!("the certificate of the controller ends at {end}: renew it in --certs");
            faults.insert(EventKind::CertificateExpiring, text);
        }
        if let Some(why) = health.refused {
            let text = format!(
                "new certificate files of the controller refused, and those before are used until {end}: {why}"
            );
            faults.insert(EventKind::CertificateRefused, text);
        }
        if health.is_untrusted {
            let text = "no authority in ca.crt signs the certificate of the controller: aggregators refuse it";
            faults.insert(EventKind::CertificateUntrusted, text.to_owned());
        }
    }
    if let Some(why) = security.access().tokens().and_then(|file| file.refused()) {
        let text = format!("new tokens file refused, and the tokens before are accepted: {why}");
        faults.insert(EventKind::TokensRefused, text);
    }
    faults
}

/// The files with faults.
fn faulty(faults: &Faults) -> BTreeSet<&'static str> {
    let of = |kind: &EventKind| match kind {
        EventKind::TokensRefused => "tokens file",
        _ => "certificate",
    };
    faults.keys().map(of).collect()
}

/// Returns an event of each new fault, and of each file whose last fault has ended.
fn changed<'a>(before: &'a Faults, now: &'a Faults) -> impl Iterator<Item = Event> {
    let added = now.iter().filter(|(kind, _)| !before.contains_key(kind));
    let added = added.map(|(kind, text)| Event::new(*kind, "controller", text));
    let ended = &faulty(before) - &faulty(now);
    added.chain(ended.into_iter().map(|of| {
        let text = format!("the {of} of the controller is in order again");
        Event::new(EventKind::TrustRestored, "controller", text)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_is_told_once_and_its_end() {
        let none = Faults::new();
        let mut one = Faults::new();
        one.insert(EventKind::CertificateExpiring, "it ends".to_owned());
        let kinds = |before, now| {
            changed(before, now)
                .map(|event| event.kind)
                .collect::<Vec<_>>()
        };
        assert_eq!(kinds(&none, &one), [EventKind::CertificateExpiring]);
        assert_eq!(kinds(&one, &one), []);
        assert_eq!(kinds(&one, &none), [EventKind::TrustRestored]);
        let mut two = one.clone();
        two.insert(EventKind::CertificateRefused, "it is damaged".to_owned());
        assert_eq!(kinds(&two, &one), []);
        assert_eq!(kinds(&two, &none), [EventKind::TrustRestored]);
    }
}
