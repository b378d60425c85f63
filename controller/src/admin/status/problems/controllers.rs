//! Problems of the controller itself: its lead, its state, its policy, other members, certificates and tokens.

use plimsoll_admin::other_controllers::OtherController;
use plimsoll_admin::security::SecurityStatus;

use super::super::{Policies, Status};
use super::{Problem, since, span};

/// A certificate with less time than this is a problem, if that is also less than this share of its life: many live for
/// a day and are renewed in time.
const EXPIRES_SOON_S: f64 = 3.0 * 86_400.0;
const EXPIRES_SOON_SHARE: f64 = 0.2;

pub(super) fn leadership(status: &Status) -> Vec<Problem> {
    let remedy = format!(
        "stop one of the two controllers, then restart the other; this one is {}",
        status.instance
    );
    let lost = status.lost_lead.as_ref().map(|other| {
        let text = format!(
            "this controller does not lead and sends no values: another one leads, {}",
            described(other)
        );
        Problem::critical("controller", text, &remedy)
    });
    let others = status.other_controllers.iter().map(|other| match other.same_epoch {
        true => {
            let text = format!("a second controller runs: {}", described(other));
            Problem::critical("controller", text, &remedy)
        }
        false => {
            let text = format!(
                "an epoch is claimed without effect, {}: it follows no directive until the epoch is above that",
                described(other)
            );
            let remedy = "if it must follow now, restart it without its directive cache";
            Problem::warning(&other.through, text, remedy)
        }
    });
    lost.into_iter().chain(others).collect()
}

fn described(other: &OtherController) -> String {
    let instance = other.instance.as_deref().unwrap_or("unknown");
    format!(
        "{instance} at epoch {}, as {} reports",
        other.epoch, other.through
    )
}

pub(super) fn state(status: &Status) -> Vec<Problem> {
    let lost = status.state_lost.as_ref().map(|reason| {
        let remedy = "compare `plimsoll rollout status` with what should be enforced, then run `plimsoll acknowledge-loss`";
        Problem::critical("state", format!("state lost: {reason}"), remedy)
    });
    let unsaved = status.state_unsaved.as_ref().map(|reason| {
        let text = format!(
            "state not saved: {reason}; epoch, kills and stages would be lost with a restart"
        );
        let remedy = "make room on its disk, or let it write there; with a store, bring that back";
        Problem::warning("state", text, remedy)
    });
    let audit = status.audit_failing.then(|| {
        let text =
            "the audit log cannot be written: kills work, and whatever adds refusals is refused";
        Problem::critical("audit log", text, "make room on its disk")
    });
    [lost, unsaved, audit].into_iter().flatten().collect()
}

pub(super) fn policy(policies: &Policies) -> Vec<Problem> {
    let refused = policies.refused.as_ref().map(|error| {
        // The first line has the place and the reason, and the later lines quote the file.
        let first = error.lines().next().unwrap_or_default();
        let text = format!(
            "the policy files are refused{}, and the last good policy stays in force: {first}",
            since(policies.refused_since_s)
        );
        Problem::warning(
            "policy",
            text,
            "correct the files; `plimsoll diff` shows the fault",
        )
    });
    let held = policies.held.as_ref().map(|held| {
        let hash = &held.hash;
        let why = held.reasons.first().map(|why| format!(": {why}"));
        let text = format!(
            "policy {hash} is held back{}, and the one before stays in force{}",
            since(held.since_s),
            why.unwrap_or_default()
        );
        let remedy = format!("`plimsoll diff` shows it, `plimsoll apply --ack {hash}` releases it");
        Problem::warning("policy", text, remedy)
    });
    [refused, held].into_iter().flatten().collect()
}

pub(super) fn members(status: &Status) -> Vec<Problem> {
    let Some(members) = &status.members else {
        return Vec::new();
    };
    let unconfirmed = (members.confirmed == Some(false)).then(|| {
        let text = "the store does not confirm that this controller leads: it sends values as before, and whatever may \
                    add refusals waits";
        Problem::critical("store", text, "bring a majority of the store back")
    });
    let alone = (members.members.len() < 2).then(|| {
        let text = "no other controller is registered: nothing takes over if this one is lost";
        Problem::warning("members", text, "start another one with the same --store")
    });
    let leader = members.members.iter().find(|it| it.leads);
    let differing = members.members.iter().filter_map(|it| {
        let admin = &it.member.admin;
        let text = match &it.member.files {
            None => format!("the policy files of member {admin} cannot be read"),
            files if leader.is_some_and(|leader| leader.member.files != *files) => {
                format!("the policy files of member {admin} differ from those of the leader")
            }
            Some(_) => return None,
        };
        let text = format!("{text}: after a takeover they would be held back");
        Some(Problem::warning(
            format_args!("member {admin}"),
            text,
            "deliver the same files to all members",
        ))
    });
    let endpoints = members.store.iter().filter_map(|it| {
        let endpoint = &it.endpoint;
        let text = format!("store {endpoint}: {}", it.problems.first()?);
        let remedy = "repair it while a majority of the store answers";
        Some(Problem::warning(
            format_args!("store {endpoint}"),
            text,
            remedy,
        ))
    });
    let own = unconfirmed.into_iter().chain(alone);
    own.chain(differing).chain(endpoints).collect()
}

/// Returns the problems of the certificates and tokens of a process.
pub fn security(security: &SecurityStatus) -> Vec<Problem> {
    let mut problems = Vec::new();
    if let Some(certificate) = &security.certificate {
        let (identity, left) = (&certificate.identity, certificate.expires_in_s);
        let life_s = certificate
            .not_after_s
            .saturating_sub(certificate.not_before_s) as f64;
        let renew =
            "write new files into its --certs directory, and look at what should have renewed it";
        if left <= 0.0 {
            let text = format!(
                "the certificate of {identity} expired {} ago: peers refuse it",
                span(-left)
            );
            problems.push(Problem::critical("certificate", text, renew));
        } else if left < EXPIRES_SOON_S.min(life_s * EXPIRES_SOON_SHARE) {
            let text = format!(
                "the certificate of {identity} expires in {}: its process loses its streams then",
                span(left)
            );
            problems.push(Problem::warning("certificate", text, renew));
        }
        if certificate.untrusted {
            let text = format!(
                "no authority of ca.crt signs the certificate of {identity}: peers refuse it"
            );
            let remedy = "issue one of an authority in ca.crt";
            problems.push(Problem::critical("certificate", text, remedy));
        }
        problems.extend(certificate.refused.as_ref().map(|reason| {
            let text =
                format!("the certificate files are refused, the earlier ones are in use: {reason}");
            Problem::warning("certificate", text, "write files that fit together")
        }));
    }
    let tokens = security.tokens.as_ref();
    problems.extend(tokens.and_then(|it| it.refused.as_ref()).map(|reason| {
        let text = format!("the tokens file is refused, the earlier tokens are accepted: {reason}");
        Problem::warning(
            "tokens",
            text,
            "correct the file; `plimsoll tokens` writes it",
        )
    }));
    problems
}
