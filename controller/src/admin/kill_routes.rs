//! The kill switch at the admin port of a controller.

use axum::extract::State;
use axum::http::Method;
use axum::response::Response;
use axum::{Extension, Json};
use plimsoll_admin::access::{AdminCaller, Routes};
use plimsoll_admin::body::JsonBody;
use plimsoll_admin::drill;
use plimsoll_admin::kill_api::{
    Claimed, DRILL, DrillOrder, KillEnded, KillOff, KillOn, KillOrder, KillState, KillStatus, OFF,
    ON, STATUS, TTL_MAX_S, Tier, unknown_bucket,
};
use plimsoll_core::kill::{KilledBucketsFull, Scope};
use plimsoll_core::names::{Bucket, Text};
use plimsoll_core::quantity::MonoTime;
use plimsoll_host::Shared;
use plimsoll_policy::UnixSeconds;

use crate::admin::{Answer, BrainState, Commands, conflict, in_effect, invalid, to_the_end};
use crate::audit::{Actor, Entry};
use crate::brain::{Brain, display};
use crate::state::Command;
use crate::tasks::kill_log::{self, describe};
use crate::tasks::unix_s;

pub(crate) fn routes() -> Routes<Commands> {
    Routes::new()
        .viewer(Method::GET, STATUS, async |State(brain): BrainState| {
            Json(brain.with(kill_status))
        })
        .operator(Method::POST, ON, kill)
        .operator(Method::POST, OFF, end_kill)
        .operator(Method::POST, DRILL, run_drill)
}

async fn kill(
    State(commands): State<Commands>,
    Extension(caller): Extension<AdminCaller>,
    JsonBody(order): JsonBody<KillOn>,
) -> Answer<Json<KillStatus>> {
    with_valid_ttl(&order)?;
    let brain = &commands.brain;
    check_known(brain, order.bucket.as_ref())?;
    let by = caller.by(order.by.clone());
    let by = by.or_else(|| Text::new(&caller.name).ok());
    let command = Command::ordered(&order, by, unix_s());
    let until_s = command.until_s;
    let scope = Scope::from(order.bucket);
    let why = order.reason.to_string();
    let killed = brain.with(|brain, _| {
        let before = describe(brain.durable(), &scope);
        brain.on_kill(&scope, command)?;
        Ok::<_, KilledBucketsFull>((before, describe(brain.durable(), &scope)))
    });
    let (before, mut after) = killed.map_err(conflict)?;
    if let Some(until_s) = until_s {
        after = format!("{after}, until {}", UnixSeconds::from_secs(until_s));
    }
    let change = Entry {
        what: format!("kill on {scope}"),
        before,
        after,
        why,
    };
    commands.note(&caller, change).await;
    Ok(Json(brain.with(kill_status)))
}

async fn end_kill(
    State(commands): State<Commands>,
    Extension(caller): Extension<AdminCaller>,
    JsonBody(order): JsonBody<KillOff>,
) -> Answer<Json<KillEnded>> {
    check_known(&commands.brain, order.bucket.as_ref())?;
    to_the_end(async move {
        let brain = &commands.brain;
        let scope = Scope::from(order.bucket);
        let reason = order.reason.map(|text| text.to_string());
        let reason = reason.unwrap_or_default();
        let change = Entry {
            what: format!("kill off {scope}"),
            before: brain.with(|brain, _| describe(brain.durable(), &scope)),
            after: "off".to_owned(),
            why: reason.clone(),
        };
        // The kill ends once that is recorded.
        let _recorded = commands.record(&caller, change).await?;
        let (ended, passed) = brain.with(|brain, now| brain.on_kill_ends(now, &scope));
        if ended || passed {
            let by = caller.by(order.by);
            let by = by.map_or_else(|| caller.name.to_string(), |by| by.to_string());
            let event = kill_log::ended(&scope, None).by(by);
            commands.events.add(event.why(reason));
        }
        in_effect(brain).await;
        Ok(Json(KillEnded {
            ended,
            passed,
            status: brain.with(kill_status),
        }))
    })
    .await
}

async fn run_drill(
    State(Commands { brain, audit, .. }): State<Commands>,
    Extension(caller): Extension<AdminCaller>,
    JsonBody(order): JsonBody<DrillOrder>,
) -> Response {
    let change = Entry {
        what: "kill drill".to_owned(),
        after: format!("within {} ms", order.timeout_ms),
        ..Entry::default()
    };
    audit.note(Actor::from(&caller), change);
    let away = |brain: &Brain| brain.aggregators_away().count();
    drill::run(&brain, order, Brain::begin_drill, Brain::drill_timing, away).await
}

/// Refuses a kill that would last for no time, or for too long.
pub(crate) fn with_valid_ttl(order: &KillOn) -> Answer<()> {
    if order.ttl_s.is_some_and(|ttl| ttl == 0 || ttl > TTL_MAX_S) {
        return Err(invalid(format_args!(
            "ttl_s: must be from 1 to {TTL_MAX_S} seconds"
        )));
    }
    Ok(())
}

/// Refuses a bucket that no policy, traffic or kill has named: most likely a typing error.
fn check_known(brain: &Shared<Brain>, bucket: Option<&Bucket>) -> Answer<()> {
    let Some(bucket) = bucket else { return Ok(()) };
    brain.with(|brain, _| {
        let scope = Scope::Bucket(bucket.clone());
        let claimed = brain.kill_claims().highest(&scope);
        let had_kill = brain.kills().bucket(bucket).max(claimed).0 > 0;
        if brain.knows(bucket) || had_kill {
            return Ok(());
        }
        let known = brain.known_buckets().map(Bucket::as_str);
        Err(invalid(unknown_bucket(bucket, known)))
    })
}

/// The state of the kill switch of the fleet, and of each bucket with a kill of its own that is not forgotten yet.
pub(super) fn kill_status(brain: &mut Brain, _now: MonoTime) -> KillStatus {
    let durable = brain.durable();
    let killed = durable.bucket_kills.iter().filter(|(_, switch)| {
        switch.generation > durable.forgotten || switch.command.is_some() || switch.held.is_some()
    });
    let buckets = killed.map(|(bucket, _)| {
        let state = kill_state(brain, &Scope::Bucket(bucket.clone()));
        (bucket.clone(), state)
    });
    KillStatus {
        tier: Tier::Controller,
        fleet: kill_state(brain, &Scope::Fleet),
        buckets: buckets.collect(),
        in_shadow: durable.in_shadow_since_kill().map(str::to_owned).collect(),
        away: brain
            .aggregators_away()
            .map(|place| display(&place))
            .collect(),
        killed_locally: brain.clients().killed_locally,
        claims: Claimed::list(brain.kill_claims()),
        saved: brain.is_saved(),
    }
}

pub(super) fn kill_state(brain: &Brain, scope: &Scope) -> KillState {
    let durable = brain.durable();
    let generation = durable.generation(scope);
    let of_bucket = scope
        .bucket()
        .and_then(|bucket| durable.bucket_kills.get(bucket));
    KillState {
        generation,
        killed: generation.is_killed(),
        by_file: *scope == Scope::Fleet && durable.killed_by_file,
        command: durable.command(scope).map(KillOrder::from),
        held_in_shadow: of_bucket.is_some_and(|of| of.held.is_some()),
        ordered_below: false,
    }
}
