//! The metrics of a member: whether it leads, and what it sees of the other members and of the store.

use plimsoll_core::stats::metrics::{Metric, maybe, one, rows};

use super::{EndpointState, MembersStatus};

/// The metrics of a member, at the leader and at standbys.
pub(crate) const METRICS: [Metric<MembersStatus>; 5] = [
    Metric::gauge(
        "plimsoll_member_leading",
        &[],
        "1 while this controller, one of several, leads; 0 while it stands by.",
        |status| one(status.leading),
    ),
    Metric::gauge(
        "plimsoll_lead_confirmed",
        &[],
        "1 while the store confirms that this controller leads; absent at a standby.",
        |status| maybe(status.confirmed),
    ),
    Metric::gauge(
        "plimsoll_members",
        &[],
        "Controllers registered in the store, as this one read it last, this one included.",
        |status| one(status.members.len()),
    ),
    Metric::gauge(
        "plimsoll_members_files_differ",
        &[],
        "Controllers whose policy files cannot be read or differ from those of the leader; absent without a leader.",
        |status| maybe(status.differing_files()),
    ),
    Metric::gauge(
        "plimsoll_store_endpoints",
        &["state"],
        "Endpoints of the store by what this controller sees: `answering`, or `failing` if one does not answer or has an alarm.",
        |status| {
            let answers = |it: &&EndpointState| it.version.is_some() && it.problems.is_empty();
            let answering = status.store.iter().filter(answers).count();
            let failing = status.store.len() - answering;
            rows([(["answering"], answering), (["failing"], failing)])
        },
    ),
];

impl MembersStatus {
    /// Returns the number of members whose files are not those of the leader; `None` without a leader that is listed.
    fn differing_files(&self) -> Option<usize> {
        let leader = self.members.iter().find(|member| member.leads)?;
        let differs = |files: &Option<String>| files.is_none() || *files != leader.member.files;
        let members = self.members.iter().map(|it| &it.member.files);
        Some(members.filter(|files| differs(files)).count())
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::stats::metrics::{families, text};

    use super::METRICS;
    use crate::members::{EndpointState, Member, MemberStatus, MembersStatus};

    fn member(name: &str, files: Option<&str>, leads: bool) -> MemberStatus {
        let member = Member {
            address: format!("https://{name}:7400"),
            admin: format!("https://{name}:7401"),
            version: "1".to_owned(),
            since_s: 0,
            files: files.map(str::to_owned),
            sought: false,
        };
        MemberStatus { member, leads }
    }

    fn endpoint(version: Option<&str>, problems: &[&str]) -> EndpointState {
        EndpointState {
            endpoint: "h:2379".to_owned(),
            version: version.map(str::to_owned),
            leads: false,
            bytes: 0,
            problems: problems.iter().map(|&problem| problem.into()).collect(),
        }
    }

    fn samples(status: &MembersStatus) -> Vec<String> {
        let page = text(&families(&METRICS, status));
        let samples = page.lines().filter(|line| !line.starts_with('#'));
        samples.map(str::to_owned).collect()
    }

    #[test]
    fn leader_and_standby_show_members_and_store() {
        let mut status = MembersStatus {
            leading: true,
            confirmed: Some(false),
            members: vec![
                member("a", Some("one"), true),
                member("b", Some("two"), false),
                member("c", None, false),
            ],
            store: vec![
                endpoint(Some("3.5"), &[]),
                endpoint(Some("3.5"), &["NOSPACE"]),
                endpoint(None, &["refused"]),
            ],
        };
        let store = [
            "plimsoll_store_endpoints{state=\"answering\"} 1",
            "plimsoll_store_endpoints{state=\"failing\"} 2",
        ];
        let leader = [
            "plimsoll_member_leading 1",
            "plimsoll_lead_confirmed 0",
            "plimsoll_members 3",
            "plimsoll_members_files_differ 2",
        ];
        assert_eq!(samples(&status), [&leader[..], &store].concat());

        status.leading = false;
        status.confirmed = None;
        status.members[0].leads = false;
        let standby = ["plimsoll_member_leading 0", "plimsoll_members 3"];
        assert_eq!(samples(&status), [&standby[..], &store].concat());
    }
}
