//! Where a status is read from: the state machine, and what the processes around it know. `/status` and the console
//! judge the same fleet.

use axum::http::Method;
use axum::{Extension, Json};
use plimsoll_admin::access::{AdminCaller, Routes};
use plimsoll_admin::kill_api::KillStatus;
use plimsoll_admin::rejected_streams::RejectedStreams;
use plimsoll_admin::security::Opened;
use plimsoll_core::quantity::MonoTime;

use super::{Policies, Status};
use crate::admin::{Commands, kill_routes};
use crate::brain::Brain;
use crate::members::Membership;

/// The parts of a controller that a status is read from.
#[derive(Clone, Debug)]
pub(crate) struct StatusSource {
    pub(crate) commands: Commands,
    pub(crate) rejected: RejectedStreams,
    pub(crate) security: Opened,
    pub(crate) membership: Option<Membership>,
}

impl StatusSource {
    pub(crate) fn routes(self) -> Routes {
        let status = move |Extension(caller): Extension<AdminCaller>| async move {
            let ((status, policies, kills), ()) = self.collect(Status::of, |_| ());
            let role = Some(caller.role);
            Json(self.judged(Status { role, ..status }, &policies, &kills))
        };
        Routes::new().viewer(Method::GET, "/status", status)
    }

    /// Reads the status by `collect`, and what else `read` returns, at one moment.
    pub(crate) fn collect<T>(
        &self,
        collect: impl FnOnce(&Brain, MonoTime) -> Status,
        read: impl FnOnce(&Brain) -> T,
    ) -> ((Status, Policies, KillStatus), T) {
        self.commands.brain.with(|brain, now| {
            let kills = kill_routes::kill_status(brain, now);
            let status = collect(brain, now);
            ((status, Policies::of(brain), kills), read(brain))
        })
    }

    /// Adds what the state machine does not know, and judges. Needs no lock.
    pub(crate) fn judged(&self, status: Status, policies: &Policies, kills: &KillStatus) -> Status {
        let status = Status {
            refused_children: self.rejected.refused(),
            security: self.security.status(),
            members: self.membership.as_ref().map(Membership::status),
            audit_failing: self.commands.audit.is_failing(),
            ..status
        };
        status.judged(policies, kills)
    }
}
