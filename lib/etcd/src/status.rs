//! The state of each member of the store, for operators.

use bytes::Bytes;
use futures_util::future::join_all;

use crate::calls::Client;
use crate::connection::Member;
use crate::error::{Error, bounded};
use crate::kv::unsigned;
use crate::rpc::{Call, decode};
use crate::wire;

/// Maximum number of problems that a member tells.
const PROBLEMS_MAX: usize = 16;

/// An endpoint of the store, and what its member says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointStatus {
    /// The endpoint as `HOST:PORT`.
    pub endpoint: String,
    /// State of the member, or why it did not tell.
    pub member: Result<MemberStatus, Error>,
}

/// State of a member of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// Version of etcd.
    pub version: String,
    /// Whether it is the leader.
    pub is_leader: bool,
    /// Size of the database file, in bytes.
    pub database_bytes: u64,
    /// Alarms and errors, such as `NOSPACE`.
    pub problems: Vec<String>,
}

impl Client {
    /// Asks every endpoint at the same time for the state of its member.
    pub async fn status(&self) -> Vec<EndpointStatus> {
        let members = self.members().iter();
        join_all(members.map(|member| self.status_of(member))).await
    }

    async fn status_of(&self, member: &Member) -> EndpointStatus {
        // A member answers without a leader as well.
        let call = Call::of(&wire::StatusRequest {});
        let deadline = self.deadline();
        let answer = self.attempt(member, &call, call.request(), deadline).await;
        let status = answer.map_err(|failure| failure.settled());
        EndpointStatus {
            endpoint: member.name(),
            member: status.and_then(MemberStatus::new),
        }
    }
}

impl MemberStatus {
    fn new(answer: Bytes) -> Result<Self, Error> {
        let answer = decode::<wire::StatusRequest>(answer)?;
        let own = answer.header.as_ref().map_or(0, |header| header.member_id);
        let problems = answer.errors.iter().take(PROBLEMS_MAX);
        Ok(Self {
            version: bounded(&answer.version),
            is_leader: answer.leader != 0 && answer.leader == own,
            database_bytes: unsigned(answer.database_bytes)?,
            problems: problems.map(|problem| bounded(problem.trim())).collect(),
        })
    }
}
