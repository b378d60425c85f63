//! The answers of the kill switch as text for operators.

use std::io::{self, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plimsoll_admin::kill_api::{
    Claimed, DrillLatency, DrillReport, KillEnded, KillOrder, KillState, KillStatus, Tier,
};
use plimsoll_core::names::Bucket;

use crate::admin_client::Answer;

/// The most claims that are named.
const CLAIMS_NAMED_MAX: usize = 8;
/// The aggregators that are named of those that are not connected.
const AWAY_NAMED_MAX: usize = 10;

/// Writes the state after `kill on`.
pub(super) fn write_on(
    out: &mut dyn Write,
    answer: &Answer<KillStatus>,
    bucket: Option<&Bucket>,
) -> io::Result<()> {
    let switches = &answer.body;
    let switch = &switch_of(switches, bucket);
    let (scope, generation) = (scope(bucket), switch.generation.0);
    match switches.tier {
        Tier::Controller => {
            writeln!(out, "killed: {scope}, generation {generation}; clients refuse none of its requests")?;
            write_not_reached(out, switches)?;
        }
        Tier::Aggregator => {
            writeln!(out, "killed: {scope}, generation {generation}, for the clients below {}", answer.from)?;
            writeln!(out, "the controller and the other zones learn of it when a controller is back")?;
        }
    }
    if let Some(order) = switch.command.as_ref().filter(|order| order.until_s.is_some()) {
        write_order(out, order)?;
        writeln!(out)?;
    }
    write_not_saved(out, switches)
}

/// Returns true if nothing in the scope of `kill off` is killed, neither by its own switch nor by another.
pub(super) fn has_ended(status: &KillStatus, bucket: Option<&Bucket>) -> bool {
    let by_another = match bucket {
        Some(_) => status.fleet.killed,
        None => status.buckets.values().any(|switch| switch.killed),
    };
    !switch_of(status, bucket).killed && !by_another
}

/// Writes the state after `kill off`.
pub(super) fn write_off(
    out: &mut dyn Write,
    answer: &Answer<KillEnded>,
    bucket: Option<&Bucket>,
) -> io::Result<()> {
    let KillEnded { ended, passed, status: switches } = &answer.body;
    let switch = &switch_of(switches, bucket);
    let (scope, generation) = (scope(bucket), switch.generation.0);
    match (switch.killed, switches.tier) {
        (true, _) => {
            write!(out, "still killed: {scope}, generation {generation}, because ")?;
            write_causes(out, switch)?;
            writeln!(out)?;
            if switch.by_file {
                writeln!(out, "to end it, set kill_switch: false in the policy file and save")?;
            }
        }
        (false, _) if !ended && *passed => writeln!(
            out,
            "not killed: {scope}; generation {generation} is past what processes claimed, so they follow the controller again"
        )?,
        (false, _) if !ended => writeln!(out, "nothing to end: {scope} is not killed")?,
        (false, Tier::Controller) => {
            writeln!(out, "no longer killed: {scope}, generation {generation}; it stays in shadow")?;
            let (each, name) = bucket.map_or(("for each bucket, ", "BUCKET"), |bucket| ("", bucket.as_str()));
            writeln!(
                out,
                "to enforce again: {each}`plimsoll rollout promote {name} --to enforce --force --reason TEXT`"
            )?;
        }
        (false, Tier::Aggregator) => {
            writeln!(
                out,
                "no longer killed: {scope}, generation {generation}, for the clients below {}; it stays in shadow",
                answer.from
            )?;
            writeln!(
                out,
                "a kill that the controller or an aggregator above holds stays in force: end it there; to enforce again, \
                 promote at the controller"
            )?;
        }
    }
    write_not_saved(out, switches)?;
    for (other, switch) in other_kills(switches, bucket) {
        write!(out, "still killed: {}, generation {}", self::scope(other), switch.generation.0)?;
        if switches.tier == Tier::Controller {
            write!(out, ", ")?;
            write_causes(out, switch)?;
        }
        let flag = other.map_or(String::new(), |bucket| format!(" --bucket {bucket}"));
        writeln!(out, "; end it with `plimsoll kill off{flag}`")?;
    }
    write_away(out, switches)
}

/// Writes the aggregators that the controller is not connected to after `kill off`.
fn write_away(out: &mut dyn Write, switches: &KillStatus) -> io::Result<()> {
    let Some(away) = away(switches) else { return Ok(()) };
    writeln!(
        out,
        "not connected: {away}; a kill that was ordered there before does not come back with it, though its buckets \
         are in shadow then; a later one does"
    )
}

/// Writes the aggregators that a kill has not reached, because the controller is not connected to them.
fn write_not_reached(out: &mut dyn Write, switches: &KillStatus) -> io::Result<()> {
    let Some(away) = away(switches) else { return Ok(()) };
    writeln!(
        out,
        "not reached: {away}, not connected; clients there may go on refusing: kill them at that aggregator, or each \
         service by its kill file"
    )
}

/// Returns the names of aggregators that the controller is not connected to; `None` if there are none.
fn away(switches: &KillStatus) -> Option<String> {
    let named = switches.away.get(..AWAY_NAMED_MAX).unwrap_or(&switches.away);
    let more = switches.away.len() - named.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!named.is_empty()).then(|| format!("{}{more}", named.join(", ")))
}

/// Writes what is killed.
pub(super) fn write_status(out: &mut dyn Write, switches: &KillStatus) -> io::Result<()> {
    let width = switches.buckets.keys().map(|bucket| bucket.as_str().len()).max().unwrap_or(0).max(5);
    let buckets = switches.buckets.iter().map(|(bucket, switch)| (bucket.as_str(), switch));
    for (name, switch) in [("fleet", &switches.fleet)].into_iter().chain(buckets) {
        let state = match (switch.killed, switch.held_in_shadow) {
            (true, _) => "killed",
            (false, true) => "shadow",
            (false, false) => "off",
        };
        write!(out, "{name:width$}  {state:6}  generation {}", switch.generation.0)?;
        if switch.killed && switches.tier == Tier::Controller {
            write!(out, "  ")?;
            write_causes(out, switch)?;
        }
        writeln!(out)?;
    }
    let is_killed = switches.fleet.killed || switches.buckets.values().any(|switch| switch.killed);
    if is_killed {
        write_not_reached(out, switches)?;
    } else if let Some(away) = away(switches) {
        writeln!(out, "not connected: {away}; kills that were ordered there are not known here")?;
    }
    if !switches.in_shadow.is_empty() {
        writeln!(
            out,
            "in shadow since a kill: {}; to enforce again: `plimsoll rollout promote NAME --to enforce --force --reason TEXT`",
            switches.in_shadow.join(", ")
        )?;
    }
    if switches.killed_locally > 0 {
        writeln!(
            out,
            "killed locally: {} clients, by a kill file; `/status` of an aggregator lists them",
            switches.killed_locally
        )?;
    }
    write_claims(out, &switches.claims)?;
    if switches.tier == Tier::Aggregator {
        writeln!(out, "aggregators hold no reasons; the controller does")?;
    }
    Ok(())
}

/// Writes the kill generations that no order explains.
pub(crate) fn write_claims(out: &mut dyn Write, claims: &[Claimed]) -> io::Result<()> {
    for Claimed { bucket, generation, zone, service, name } in claims.iter().take(CLAIMS_NAMED_MAX) {
        let (scope, flag) =
            (scope(bucket.as_ref()), bucket.as_ref().map(|bucket| format!(" --bucket {bucket}")));
        writeln!(
            out,
            "kill generation {} of {scope}, without an order: ignored; held by {service} {zone}/{name}, which stays in \
             shadow until `plimsoll kill off{}`",
            generation.0,
            flag.unwrap_or_default()
        )?;
    }
    match claims.len().saturating_sub(CLAIMS_NAMED_MAX) {
        0 => Ok(()),
        more => writeln!(out, "and {more} more kill generations without an order"),
    }
}

/// Writes how fast a drill reached the clients.
pub(super) fn write_drill(out: &mut dyn Write, drilled: &DrillReport) -> io::Result<()> {
    let width = drilled.zones.keys().map(|zone| zone.as_str().len()).max().unwrap_or(0).max(4);
    writeln!(
        out,
        "{:width$}  {:>8}  {:>8}  {:>8}  {:>8}  {:>8}",
        "zone", "clients", "missing", "p50", "p99", "last"
    )?;
    let zones = drilled.zones.iter().map(|(zone, reached)| (zone.as_str(), reached));
    for (name, reached) in zones.chain([("all", &drilled.all)]) {
        let DrillLatency { clients, missing, p50_ms, p99_ms, last_ms } = reached;
        write!(out, "{name:width$}  {clients:>8}  {missing:>8}")?;
        for ms in [p50_ms, p99_ms, last_ms] {
            let ms = ms.map_or("-".to_owned(), |ms| format!("{ms:.0} ms"));
            write!(out, "  {ms:>8}")?;
        }
        writeln!(out)?;
    }
    writeln!(
        out,
        "from the command to the acknowledgement of a client; a kill takes at most as long to reach it"
    )?;
    if !drilled.complete {
        writeln!(
            out,
            "incomplete: {} clients are missing, and {} aggregators did not answer",
            drilled.all.missing, drilled.silent_aggregators
        )?;
    }
    Ok(())
}

fn switch_of(switches: &KillStatus, bucket: Option<&Bucket>) -> KillState {
    let switch = bucket.map_or(Some(&switches.fleet), |bucket| switches.buckets.get(bucket));
    switch.cloned().unwrap_or_default()
}

fn scope(bucket: Option<&Bucket>) -> String {
    bucket.map_or("the whole fleet".to_owned(), |bucket| format!("bucket {bucket}"))
}

fn write_not_saved(out: &mut dyn Write, switches: &KillStatus) -> io::Result<()> {
    if switches.saved {
        return Ok(());
    }
    writeln!(
        out,
        "warning: the controller could not save this to its disk, and sends it to the clients all the same; see its log"
    )
}

/// The other scopes that are killed; `None` is the fleet.
fn other_kills<'a>(
    switches: &'a KillStatus,
    except: Option<&Bucket>,
) -> Vec<(Option<&'a Bucket>, &'a KillState)> {
    let buckets = switches.buckets.iter().map(|(bucket, switch)| (Some(bucket), switch));
    let all = [(None, &switches.fleet)].into_iter().chain(buckets);
    all.filter(|(scope, switch)| switch.killed && *scope != except).collect()
}

/// Writes why a switch is on: the policy file, a command, or both.
fn write_causes(out: &mut dyn Write, switch: &KillState) -> io::Result<()> {
    match (switch.by_file, &switch.command) {
        (true, None) => write!(out, "kill_switch is on in the policy file"),
        (true, Some(order)) => {
            write!(out, "kill_switch is on in the policy file, and ")?;
            write_order(out, order)
        }
        (false, Some(order)) => write_order(out, order),
        (false, None) if switch.ordered_below => {
            write!(out, "an aggregator below orders it: end it there, or at the controller once that is back")
        }
        (false, None) => write!(out, "another tier holds a kill"),
    }
}

fn write_order(out: &mut dyn Write, order: &KillOrder) -> io::Result<()> {
    match &order.reason {
        Some(reason) => write!(out, "\"{reason}\"")?,
        None => write!(out, "learned from an aggregator")?,
    }
    let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs());
    let now = now.unwrap_or(i64::MAX);
    let span = |seconds: i64| humantime::format_duration(Duration::from_secs(seconds.max(0).unsigned_abs()));
    if let Some(by) = &order.by {
        write!(out, " by {by}")?;
    }
    if let Some(since) = order.since_s {
        write!(out, ", {} ago", span(now.saturating_sub(since)))?;
    }
    if let Some(until) = order.until_s {
        write!(out, ", ends in {}", span(until.saturating_sub(now)))?;
    }
    Ok(())
}
