//! `plimsoll why`: since when and for which reasons a tenant is refused, beside whom, and what would help.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;
use plimsoll_controller::admin::status::Refusals;
use plimsoll_controller::admin::status::why::{Remedy, Why};
use plimsoll_core::names::{Bucket, Tenant};
use plimsoll_policy::UnixSeconds;

use super::in_query;
use crate::admin_client::AdminArgs;
use crate::cmd::unix_ms;
use crate::output::percent;

const DAY_S: i64 = 86_400;

/// Show why a tenant is refused, and what would help
///
/// From counts of the last 24 hours, in parts of 10 s; after a start or a takeover it says since when it can answer. The
/// remedies are computed by the law from the traffic of now; nothing is changed. Exit code 0: answered; 1: nothing is
/// recorded of it, or no controller answers; 2: invalid arguments.
#[derive(Debug, Args)]
pub(crate) struct WhyArgs {
    /// Tenant; `default` for all that the policy does not list, `%~NAME` for those of a plan
    #[arg(env = "PLIMSOLL_WHY_TENANT")]
    tenant: Tenant,
    /// Bucket; the one where the tenant is refused most by default
    #[arg(env = "PLIMSOLL_WHY_BUCKET")]
    bucket: Option<Bucket>,
    /// Moment instead of now: 12:03 or 12:03:10 (UTC), 2026-11-27T12:03:10Z, or 15m for 15 minutes ago
    #[arg(long, env = "PLIMSOLL_WHY_AT", value_name = "TIME", value_parser = parse_at)]
    at: Option<i64>,
    #[command(flatten)]
    admin: AdminArgs,
}

pub(crate) fn run(args: &WhyArgs) -> anyhow::Result<ExitCode> {
    let WhyArgs {
        tenant,
        bucket,
        at,
        admin,
    } = args;
    let mut path = format!("/why?tenant={}", in_query(tenant.as_str()));
    if let Some(bucket) = bucket {
        path += &format!("&bucket={}", in_query(bucket.as_str()));
    }
    if let Some(at) = at {
        path += &format!("&at={at}");
    }
    let why: Why = admin.get(&path)?;
    admin.output.report(&why, |out| write(out, &why))
}

pub(super) fn write(out: &mut dyn Write, why: &Why) -> io::Result<()> {
    writeln!(out, "{}", why.summary)?;
    // Of another policy than the requests.
    let now = why.policy_since_s.map_or("", |_| "now ");
    if let Some(requests) = &why.requests {
        let terms = terms(why, now);
        writeln!(out, "  {}: {}{terms}", why.counted_as, shown(requests))?;
    }
    for other in &why.others {
        writeln!(
            out,
            "  {}: {}, {now}weight {}",
            other.tenant,
            shown(&other.requests),
            other.weight
        )?;
    }
    if why.limit_rps.is_some() && why.of_bucket.asked > 0 {
        writeln!(out, "  all: {}", shown(&why.of_bucket))?;
    }
    if !why.callers.is_empty() {
        let callers = why.callers.iter();
        let callers = callers.map(|caller| format!("{} {:.0}/s", caller.tenant, caller.rps));
        let callers = callers.collect::<Vec<_>>().join(", ");
        writeln!(out, "busiest unlisted tenants: {callers}")?;
    }
    if let Some(level) = why.level_rps {
        writeln!(
            out,
            "  each may pass {level:.1}/s in a zone; what asks for less is not refused"
        )?;
    }
    for (number, remedy) in why.remedies.iter().enumerate() {
        let lead = if number == 0 {
            "what would help:"
        } else {
            "or:"
        };
        writeln!(out, "{lead} {}", effect(remedy))?;
    }
    if !why.remedies.is_empty() {
        writeln!(
            out,
            "  set it in the file of the policy or of the tenants, a higher limit only if the service can carry it; `plimsoll diff \
             --dry-run FILE` shows the effect first, and whether it would wait for `plimsoll apply --ack`"
        )?;
    }
    if why.policy_held {
        writeln!(
            out,
            "a saved policy is held back, and not part of this: `plimsoll diff` shows it"
        )?;
    }
    Ok(())
}

fn terms(why: &Why, now: &str) -> String {
    let grants = &why.grants;
    let limit = grants.limit_rps.zip(grants.limit_of.as_ref());
    let parts = [
        Some(format!("{now}weight {}", grants.weight)),
        why.boost.map(|factor| format!("boosted {factor} times")),
        (grants.floor_rps > 0.0).then(|| format!("floor {}/s", grants.floor_rps)),
        limit.map(|(limit, of)| format!("limit {limit}/s of the {of}")),
    ];
    let parts = parts.into_iter().flatten();
    parts.map(|part| format!(", {part}")).collect()
}

fn shown(requests: &Refusals) -> String {
    let asked = requests.per_second(requests.asked);
    let reasons: Vec<String> = requests
        .reasons()
        .into_iter()
        .map(|(reason, share)| format!("{reason} {}", percent(share)))
        .collect();
    match reasons.is_empty() {
        true => format!("{asked:.0}/s, nothing refused"),
        false => format!(
            "{asked:.0}/s, refused {} ({})",
            percent(requests.ratio()),
            reasons.join(", ")
        ),
    }
}

fn effect(remedy: &Remedy) -> String {
    let percent =
        |before: f64, after: f64| format!("{:.0} % -> {:.0} %", before * 100.0, after * 100.0);
    let own = percent(remedy.refused_before, remedy.refused_after);
    let others = remedy.others.iter().map(|moved| {
        let moves = percent(moved.refused_before, moved.refused_after);
        format!("; {} {moves}", moved.tenant)
    });
    format!("{}: {own}{}", remedy.change, others.collect::<String>())
}

/// Returns seconds since 1970. A time of day is the last one that has been.
fn parse_at(text: &str) -> Result<i64, String> {
    moment(text, unix_ms() / 1_000).ok_or_else(|| {
        "give a time of day in UTC as 12:03, a time as 2026-11-27T12:03:10Z, or the time since then as 15m".to_owned()
    })
}

fn moment(text: &str, now_s: i64) -> Option<i64> {
    if let Ok(ago) = humantime::parse_duration(text) {
        return now_s.checked_sub(i64::try_from(ago.as_secs()).ok()?);
    }
    if let Ok(at) = UnixSeconds::parse(text) {
        return Some(at.as_secs());
    }
    let mut parts = text.split(':').map(|part| {
        let is_number = part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| part.parse::<i64>().ok()).flatten()
    });
    let (hours, minutes) = (parts.next()??, parts.next()??);
    let seconds = match parts.next() {
        None => 0,
        Some(seconds) => seconds?,
    };
    if parts.next().is_some() || hours > 23 || minutes > 59 || seconds > 59 {
        return None;
    }
    let of_day = hours * 3_600 + minutes * 60 + seconds;
    let today = now_s - now_s.rem_euclid(DAY_S) + of_day;
    Some(if today > now_s { today - DAY_S } else { today })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_in_three_spellings() {
        // 12:00:00 of a day.
        let now_s = 20_000 * DAY_S + 12 * 3_600;
        for (text, expected) in [
            ("11:59", Some(now_s - 60)),
            ("12:00:00", Some(now_s)),
            ("12:00:01", Some(now_s + 1 - DAY_S)),
            ("15m", Some(now_s - 900)),
            ("1970-01-01T00:00:05Z", Some(5)),
            ("24:00", None),
            ("1:2", None),
            ("12:03:10:1", None),
            ("noon", None),
        ] {
            assert_eq!(moment(text, now_s), expected, "{text}");
        }
    }
}
