//! The controllers of a fleet in `plimsoll status --all`, and `plimsoll resign`.

use std::io::{self, Write};
use std::process::ExitCode;

use plimsoll_controller::members::{MembersStatus, RESIGN, Resigned};
use plimsoll_policy::UnixSeconds;

use crate::admin_client::AdminArgs;

pub(crate) fn resign(admin: &AdminArgs) -> anyhow::Result<ExitCode> {
    let resigned: Resigned = admin.post(RESIGN, &())?;
    admin.output.report(&resigned, |out| {
        writeln!(out, "resigned: {} stands by", resigned.address)
    })
}

/// Writes a line for each member.
pub(super) fn write(out: &mut dyn Write, status: &MembersStatus) -> io::Result<()> {
    for member in &status.members {
        let part = if member.leads { "leads" } else { "stands by" };
        let member = &member.member;
        let since = UnixSeconds::from_secs(member.since_s);
        writeln!(
            out,
            "  member {} {part}, version {}, since {since}",
            member.admin, member.version
        )?;
    }
    Ok(())
}
