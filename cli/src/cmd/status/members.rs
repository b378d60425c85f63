//! The controllers of a fleet in `plimsoll status`, and `plimsoll resign`.

use std::io::{self, Write};
use std::process::ExitCode;

use plimsoll_controller::members::{MembersStatus, RESIGN, Resigned};
use plimsoll_policy::UnixSeconds;

use crate::admin_client::AdminArgs;

pub(crate) fn resign(admin: &AdminArgs) -> anyhow::Result<ExitCode> {
    let resigned: Resigned = admin.post(RESIGN, &())?;
    admin.output.print(&resigned, |out| {
        writeln!(out, "resigned: {} stands by", resigned.address)
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Writes a line for each member, and one for each problem of the store.
pub(super) fn write(out: &mut dyn Write, status: &MembersStatus, policy: &str) -> io::Result<()> {
    for member in &status.members {
        let part = match member.leads {
            true if status.confirmed == Some(false) => "leads, UNCONFIRMED by the store",
            true => "leads",
            false => "stands by",
        };
        let member = &member.member;
        let since = UnixSeconds::from_secs(member.since_s);
        write!(
            out,
            "  member {} {part}, version {}, since {since}",
            member.admin, member.version
        )?;
        match &member.files {
            Some(files) if files != policy => {
                writeln!(out, ", its files {files} differ from the policy in force")?;
            }
            Some(_) => writeln!(out)?,
            None => writeln!(out, ", its policy files cannot be read")?,
        }
    }
    if status.members.len() < 2 {
        writeln!(
            out,
            "  no other controller is registered: nothing takes over"
        )?;
    }
    for endpoint in &status.store {
        for problem in &endpoint.problems {
            writeln!(out, "  store {}: {problem}", endpoint.endpoint)?;
        }
    }
    Ok(())
}
