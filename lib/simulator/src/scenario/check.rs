//! Validates the YAML schema into a [`Scenario`]; every fault has its place in the file.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::names::{Bucket, Name, Planned, Tenant, check_plan};
use plimsoll_policy::{Document, Field, ONE_CLASS_TENANTS, Policy, Source};

use super::bounds::{
    CLIENTS_MAX, Checked, DURATION_MAX_S, TRAFFIC_MAX, ZONES_MAX, all_within, entries, whole,
    within,
};
use super::expect::{self, Expectation};
use super::faults::{self, FaultKind};
use super::spec::{ExpectSpec, FaultSpec, OneOrMany, ScenarioSpec, TrafficSpec};
use super::{
    Join, Network, Pace, Scenario, Start, TargetBucket, Traffic, bytes_of, changes, inline, loads,
};
use crate::error::ScenarioError;
use crate::traffic::Names;

const GROUP_MAX: u32 = 10_000;
const COST_MAX: u32 = 10_000;

/// Validates a scenario; with `variant`, the variant at that index.
pub(crate) fn scenario(
    mut spec: ScenarioSpec,
    variant: Option<usize>,
    source: Source<'_>,
    document: &Document<'_>,
    folder: &Path,
) -> Result<Scenario, ScenarioError> {
    let root = document.root();
    let overriding = variant.map(|index| root.then("variants").then(&index.to_string()));
    // Place of a key that a variant may replace.
    let at = |name: &str| match &overriding {
        Some(variant) if variant.entry(name).is_some() => variant.then(name),
        _ => root.then(name),
    };
    if let Some(variant) = variant.map(|index| spec.variants.swap_remove(index)) {
        spec.name = format!("{}/{}", spec.name, variant.name);
        spec.zones = variant.zones.unwrap_or(spec.zones);
        spec.clients = variant.clients.unwrap_or(spec.clients);
        spec.traffic = variant.traffic.unwrap_or(spec.traffic);
        spec.expect = variant.expect.unwrap_or(spec.expect);
    }
    let policy = policy(&spec, source, document, folder)?;
    let field = root.then("name");
    if spec.name.trim().is_empty() || spec.name.len() > 128 {
        return Err(field
            .refuse(
                "a name has 1 to 128 bytes",
                "name it after the behaviour it shows",
            )
            .into());
    }
    let duration_s = within(
        spec.duration_s,
        &root.then("duration_s"),
        0.1,
        DURATION_MAX_S,
    )?;
    let warmup_s = within(spec.warmup_s, &root.then("warmup_s"), 0.0, duration_s - 0.1)?;
    let zones = whole(spec.zones, &at("zones"), 1, ZONES_MAX)?;
    let upper = whole(spec.upper, &root.then("upper"), 0, zones)?;
    let clients = whole(spec.clients, &at("clients"), 1, CLIENTS_MAX)?;
    let millis = |written: Option<u32>, name: &str, default: u32| -> Checked<Duration> {
        let millis = whole(written.unwrap_or(default), &root.then(name), 10, 60_000)?;
        Ok(Duration::from_millis(millis.into()))
    };
    check_joins(&spec.joins, &root.then("joins"), clients, duration_s)?;
    let (mut buckets, mut traffic) = (Vec::new(), Vec::new());
    let all = clients + spec.joins.iter().map(|join| join.clients).sum::<u32>();
    let field = at("traffic");
    if spec.traffic.is_empty() || spec.traffic.len() > TRAFFIC_MAX {
        let why = format!(
            "{} entries of traffic: there are 1 to {TRAFFIC_MAX}",
            spec.traffic.len()
        );
        return Err(field
            .refuse(why, "write the offered load of each bucket")
            .into());
    }
    for (field, entry) in entries(&field, spec.traffic) {
        let (bucket, tenant) = place(&policy, &entry, &field, &mut buckets)?;
        let TrafficSpec {
            names,
            cost,
            zones: of_zones,
            callers,
            mut load,
            clients,
            groups,
            retry,
            ..
        } = entry;
        loads::check_load(&mut load, &field.then("load"), folder, &entry.bucket)?;
        let shares = clients.map(|clients| clients.share).unwrap_or_default();
        loads::check_shares(&shares, &field.then("clients").then("share"), all)?;
        if let Some(groups) = groups {
            whole(groups.of, &field.then("groups").then("of"), 1, GROUP_MAX)?;
        }
        if let Some(retry) = retry {
            loads::check_retry(retry, &field.then("retry"))?;
        }
        if let Some(callers) = callers {
            loads::check_callers(callers, &field.then("callers"))?;
        }
        let names = names
            .map(|names| loads::names(names, &field.then("names")))
            .transpose()?;
        // 0 without names, and with too many to count each.
        let counted = names.and_then(Names::counted).unwrap_or_default() as usize;
        let of_tenant: &mut usize = &mut buckets[bucket].names[tenant];
        *of_tenant = counted.max(*of_tenant);
        let cost = whole(cost.unwrap_or(1), &field.then("cost"), 1, COST_MAX)?;
        let of = field.then("zones");
        for (field, zone) in entries(&of, &of_zones) {
            whole(*zone, &field, 0, zones - 1)?;
        }
        if !of_zones.is_empty() && !shares.is_empty() {
            return Err(of
                .refuse("not with `clients`", "write one entry for each zone")
                .into());
        }
        traffic.push(Traffic {
            bucket,
            tenant,
            names,
            cost,
            zones: of_zones,
            callers,
            load,
            shares,
            groups,
            retry,
        });
    }
    let field = root.then("faults");
    let faults = entries(&field, &spec.faults)
        .map(|(field, fault)| one_fault(fault, &field, zones + upper, all, duration_s));
    let faults = faults.collect::<Checked<_>>()?;
    check_network(&spec.network, &root.then("network"))?;
    check_pace(&spec.pace, &root.then("pace"), zones + upper, all)?;
    let changes = changes::read(
        spec.changes,
        &root.then("changes"),
        &policy,
        &buckets,
        duration_s,
    )?;
    let report = millis(spec.report_ms, "report_ms", 100)?;
    let tick = millis(spec.tick_ms, "tick_ms", 500)?;
    if let Some(start) = spec.start {
        check_start(start, &root.then("start"), duration_s)?;
    }
    Ok(Scenario {
        report,
        tick,
        expectations: expectations(
            &spec.expect,
            &at("expect"),
            &spec.expect_at_tick,
            &root,
            &buckets,
            duration_s,
        )?,
        service: Name::new("simulated").map_err(|e| root.refuse(e, ""))?,
        name: spec.name,
        duration_s,
        warmup_s,
        zones,
        upper,
        clients,
        network: spec.network,
        policy,
        buckets,
        traffic,
        joins: spec.joins,
        start: spec.start,
        faults,
        changes,
        pace: spec.pace,
        align_rollups: spec.align_rollups,
    })
}

fn policy(
    spec: &ScenarioSpec,
    source: Source<'_>,
    document: &Document<'_>,
    folder: &Path,
) -> Result<Arc<Policy>, ScenarioError> {
    let root = document.root();
    let text = |inline: bool, file: Option<&String>, name: &str| {
        let Some(file) = file else {
            let text = inline
                .then(|| inline::only(source.text, document, name))
                .flatten();
            return Ok(text.map(|text| (source.name.to_owned(), text.into_bytes())));
        };
        if inline {
            let other = format!("{name}_file");
            let hint = format!("keep one of `{name}` and `{other}`");
            return Err(ScenarioError::from(
                root.then(&other).refuse_name("written twice", &hint),
            ));
        }
        let path = folder.join(file);
        Ok(Some((
            path.to_string_lossy().into_owned(),
            bytes_of(&path)?,
        )))
    };
    let Some((name, bytes)) = text(spec.policy.is_some(), spec.policy_file.as_ref(), "policy")?
    else {
        let hint = "write the buckets and their limits here, or name a `policy_file`";
        return Err(root
            .then("policy")
            .refuse_name("`policy` is missing", hint)
            .into());
    };
    let one_class = || ("tenants".to_owned(), ONE_CLASS_TENANTS.as_bytes().to_vec());
    let tenants = text(
        spec.tenants.is_some(),
        spec.tenants_file.as_ref(),
        "tenants",
    )?;
    let (tenants_name, tenants_bytes) = tenants.unwrap_or_else(one_class);
    let policy = Source::from_bytes(&name, &bytes)?;
    let tenants = Source::from_bytes(&tenants_name, &tenants_bytes)?;
    Ok(Arc::new(Policy::read(policy, tenants)?.0))
}

/// Returns the indexes of a bucket and a tenant, and adds them if they are new.
fn place(
    policy: &Policy,
    entry: &TrafficSpec,
    field: &Field<'_>,
    buckets: &mut Vec<TargetBucket>,
) -> Checked<(usize, usize)> {
    let bucket = &entry.bucket;
    let hint = "1 to 128 letters, digits and . _ : / @ -";
    let name = Bucket::new(bucket).map_err(|e| field.then("bucket").refuse(e, hint))?;
    let tenant = match &entry.plan {
        None => Tenant::new(&entry.tenant),
        Some(plan) => {
            check_plan(plan).map_err(|e| field.then("plan").refuse(e, hint))?;
            let planned = Planned::of(&entry.tenant, plan);
            Tenant::new(planned.as_deref().unwrap_or_default())
        }
    };
    let tenant = tenant.map_err(|e| field.then("tenant").refuse(e, hint))?;
    let Some(protected) = policy.bucket(&name) else {
        let known: Vec<&str> = policy
            .exact_buckets()
            .map(|(name, _)| name.as_str())
            .collect();
        let hint = format!("the policy has: {}", known.join(", "));
        return Err(field.then("bucket").refuse(
            format_args!("the policy has no entry for bucket `{bucket}`"),
            &hint,
        ));
    };
    let at = buckets
        .iter()
        .position(|known| known.name == name)
        .unwrap_or_else(|| {
            let limit = protected.limit().per_second().map(|rate| rate.per_second());
            buckets.push(TargetBucket {
                name,
                limit,
                tenants: Vec::new(),
                names: Vec::new(),
            });
            buckets.len() - 1
        });
    let TargetBucket { tenants, names, .. } = &mut buckets[at];
    let tenant_at = tenants
        .iter()
        .position(|known| *known == tenant)
        .unwrap_or_else(|| {
            tenants.push(tenant);
            names.push(0);
            tenants.len() - 1
        });
    Ok((at, tenant_at))
}

fn check_network(network: &Network, field: &Field<'_>) -> Checked<()> {
    let Network {
        client_delay_ms,
        uplink_delay_ms,
        jitter_ms,
        report_loss,
        directive_loss,
    } = *network;
    let delays = [
        ("client_delay_ms", client_delay_ms),
        ("uplink_delay_ms", uplink_delay_ms),
        ("jitter_ms", jitter_ms),
    ];
    all_within(delays, field, 0.0, 10_000.0)?;
    let losses = [
        ("report_loss", report_loss),
        ("directive_loss", directive_loss),
    ];
    all_within(losses, field, 0.0, 0.95)
}

fn check_pace(pace: &Pace, field: &Field<'_>, aggregators: u32, clients: u32) -> Checked<()> {
    for (name, paces, count) in [
        ("zones", &pace.zones, aggregators),
        ("clients", &pace.clients, clients),
    ] {
        let field = field.then(name);
        whole(paces.len() as u32, &field, 0, count)?;
        for (field, pace) in entries(&field, paces) {
            within(*pace, &field, 0.5, 2.0)?;
        }
    }
    if let Some(pace) = pace.controller {
        within(pace, &field.then("controller"), 0.5, 2.0)?;
    }
    Ok(())
}

fn check_joins(joins: &[Join], field: &Field<'_>, clients: u32, duration_s: f64) -> Checked<()> {
    let (mut room, mut before_s) = (CLIENTS_MAX - clients, 0.0);
    for (field, join) in entries(field, joins) {
        if room == 0 {
            let why = format_args!("all {CLIENTS_MAX} clients are there");
            return Err(field.refuse(why, "let fewer clients start or join before"));
        }
        room -= whole(join.clients, &field.then("clients"), 1, room)?;
        let field = field.then("at_s");
        let at_s = within(join.at_s, &field, 0.0, duration_s)?;
        if at_s < before_s {
            return Err(field.refuse("earlier than the one before", "write joins in time order"));
        }
        before_s = at_s;
    }
    Ok(())
}

fn check_start(start: Start, field: &Field<'_>, duration_s: f64) -> Checked<()> {
    let Start {
        controller_s,
        zones_s,
        clients_s,
    } = start;
    let starts = [
        ("controller_s", controller_s),
        ("zones_s", zones_s),
        ("clients_s", clients_s),
    ];
    all_within(starts, field, 0.0, duration_s)
}

fn one_fault(
    spec: &FaultSpec,
    field: &Field<'_>,
    zones: u32,
    clients: u32,
    duration_s: f64,
) -> Checked<faults::Fault> {
    let index = |written: Option<u32>, name: &str, count: u32| -> Checked<u32> {
        let field = field.then(name);
        let Some(index) = written else {
            return Err(field.refuse_name(
                format_args!("`{name}` is missing"),
                "write its number, counted from 0",
            ));
        };
        whole(index, &field, 0, count - 1)
    };
    let kind = spec.kind;
    let of_controller = matches!(kind, FaultKind::ControllerDown | FaultKind::ControllerPause);
    let of_client = matches!(
        kind,
        FaultKind::ClientCrash
            | FaultKind::ClientPartition
            | FaultKind::ClientStall
            | FaultKind::ClientPause
    );
    let target = match (of_controller, of_client) {
        (true, _) => 0,
        (_, true) => index(spec.client, "client", clients)?,
        _ => index(spec.zone, "zone", zones)?,
    };
    let not_for = |written: bool, name: &str, kinds: &str| {
        let hint = format!("it applies to {kinds}: remove it");
        if written {
            Err(field.then(name).refuse_name("has no effect here", &hint))
        } else {
            Ok(())
        }
    };
    not_for(
        spec.zone.is_some() && (of_controller || of_client),
        "zone",
        "faults of a zone",
    )?;
    not_for(
        spec.client.is_some() && !of_client,
        "client",
        "faults of a client",
    )?;
    not_for(
        spec.keep_state.is_some() && kind != FaultKind::ControllerDown,
        "keep_state",
        "`controller_down`",
    )?;
    let at_s = within(spec.at_s, &field.then("at_s"), 0.0, duration_s)?;
    let for_good = kind == FaultKind::ZoneDead;
    not_for(
        spec.until_s.is_some() && for_good,
        "until_s",
        "faults that end",
    )?;
    let until_s = match spec.until_s {
        Some(until) => Some(within(until, &field.then("until_s"), at_s, DURATION_MAX_S)?),
        None if for_good => None,
        None => {
            let hint = "write when the fault ends; a time after the run's end is fine";
            return Err(field
                .then("until_s")
                .refuse_name("`until_s` is missing", hint));
        }
    };
    let reconnects = matches!(
        kind,
        FaultKind::ControllerDown
            | FaultKind::ZoneCrash
            | FaultKind::ZonePartition
            | FaultKind::ClientPartition
    );
    not_for(
        spec.reconnect_s.is_some() && !reconnects,
        "reconnect_s",
        "`controller_down`, `zone_crash` and partitions",
    )?;
    let reconnect_s = match spec.reconnect_s.as_deref() {
        None => (0.0, 1.0),
        Some([from, to]) if 0.0 <= from.0 && from.0 <= to.0 && to.0 <= 3_600.0 => (from.0, to.0),
        Some(_) => {
            let why = "not a span of seconds";
            return Err(field
                .then("reconnect_s")
                .refuse(why, "write [0.5, 30]: from, to, up to an hour"));
        }
    };
    let keep_state = spec.keep_state.unwrap_or_default();
    Ok(faults::Fault {
        kind,
        keep_state,
        target,
        at_s,
        until_s,
        reconnect_s,
    })
}

fn expectations(
    of_all: &BTreeMap<String, OneOrMany<ExpectSpec>>,
    field: &Field<'_>,
    of_ticks: &BTreeMap<String, BTreeMap<String, OneOrMany<ExpectSpec>>>,
    root: &Field<'_>,
    buckets: &[TargetBucket],
    duration_s: f64,
) -> Checked<Vec<Expectation>> {
    let mut all = Vec::new();
    expect::read(of_all, field, buckets, duration_s, None, &mut all)?;
    for (tick, of_tick) in of_ticks {
        let field = root.then("expect_at_tick").then(tick);
        let Ok(millis) = tick.parse::<u32>() else {
            return Err(
                field.refuse_name(format_args!("`{tick}` is not a tick in ms"), "such as 250")
            );
        };
        expect::read(of_tick, &field, buckets, duration_s, Some(millis), &mut all)?;
    }
    Ok(all)
}
