//! Logs every change of the kill switch, from any source, and returns the changes that no operator
//! ordered at this controller, for the audit log.

use plimsoll_core::kill::{KillGeneration, Scope};

use crate::audit::{Actor, Entry};
use crate::state::{Command, DurableState, End};

#[derive(Debug, Default)]
pub(crate) struct KillLog {
    last: Option<DurableState>,
}

impl KillLog {
    /// Logs the changes since the last call; at the first call, the current kills. Returns the
    /// changes that no command at this controller made. `named` returns the name of an aggregator
    /// by its id.
    pub(crate) fn on(
        &mut self,
        durable: &DurableState,
        named: impl Fn(&str) -> Option<String>,
    ) -> Vec<(Actor, Entry)> {
        let mut changes = Vec::new();
        let buckets = durable.bucket_kills.keys().cloned().map(Scope::Bucket);
        for scope in [Scope::Fleet].into_iter().chain(buckets) {
            let before = self.last.as_ref();
            let was = before.map_or(KillGeneration(0), |before| before.generation(&scope));
            let is = durable.generation(&scope);
            let command = durable.command(&scope);
            let same_cause = before.is_some_and(|before| before.command(&scope) == command);
            changes.extend(before.and_then(|before| change(before, durable, &scope, &named)));
            match (was.is_killed(), is.is_killed()) {
                (_, true) if was == is && same_cause => {}
                (_, true) => {
                    let reason = command.map(Command::why);
                    let by = command
                        .and_then(|command| command.by.as_ref())
                        .map(ToString::to_string);
                    let until_s = command.and_then(|command| command.until_s);
                    let by_file = scope == Scope::Fleet && durable.killed_by_file;
                    tracing::warn!(
                        %scope, generation = is.0, by_file, reason, by, until_s,
                        "kill switch on: its buckets are in shadow"
                    );
                }
                (_, false) if was == is => {}
                // At the start, kills that have ended are not logged.
                (_, false) if before.is_none() => {}
                (true, false) => tracing::warn!(
                    %scope, generation = is.0, "kill switch off: its buckets stay in shadow until they are promoted"
                ),
                (false, false) => tracing::warn!(
                    %scope, generation = is.0,
                    "kill generation moved: past a claim, or past a kill that began and ended at an aggregator"
                ),
            }
        }
        self.last = Some(durable.clone());
        changes
    }
}

pub(crate) fn describe(durable: &DurableState, scope: &Scope) -> String {
    let generation = durable.generation(scope);
    let state = if generation.is_killed() { "on" } else { "off" };
    format!("{state}, generation {}", generation.0)
}

/// Returns the change of a kill switch for the audit log; `None` if there is none, or if it arrived
/// by a command at this controller, which records it.
fn change(
    before: &DurableState,
    now: &DurableState,
    scope: &Scope,
    named: &impl Fn(&str) -> Option<String>,
) -> Option<(Actor, Entry)> {
    let (was, is) = (
        before.generation(scope).is_killed(),
        now.generation(scope).is_killed(),
    );
    let (earlier, command) = (before.command(scope), now.command(scope));
    let is_fleet = matches!(scope, Scope::Fleet);
    let by_file = is_fleet && before.killed_by_file != now.killed_by_file;
    let learned = |command: &Command| command.reason.is_none();
    let actor = if by_file {
        Actor::controller("file", "kill_switch of the policy file")
    } else if is
        && command.is_some_and(learned)
        && (!was || earlier.is_some_and(|earlier| !learned(earlier)))
    {
        let ordered_by = command
            .into_iter()
            .flat_map(|command| command.ordered_by.keys());
        let ordered_by =
            ordered_by.map(|instance| named(instance).unwrap_or_else(|| instance.clone()));
        Actor::controller("aggregator", ordered_by.collect::<Vec<_>>().join(" "))
    } else if was && !is && end(before, scope) == end(now, scope) {
        let is_learned = earlier.is_some_and(learned);
        Actor::controller(if is_learned { "aggregator" } else { "time" }, "")
    } else {
        return None;
    };
    let what = format!("kill {} {scope}", if is { "on" } else { "off" });
    let why = command
        .filter(|_| !by_file)
        .map(Command::why)
        .unwrap_or_default();
    Some((
        actor,
        Entry {
            what,
            before: describe(before, scope),
            after: describe(now, scope),
            why,
        },
    ))
}

fn end<'a>(durable: &'a DurableState, scope: &Scope) -> Option<&'a End> {
    match scope {
        Scope::Fleet => durable.fleet_kill_ended.as_ref(),
        Scope::Bucket(bucket) => durable.bucket_kills.get(bucket)?.ended.as_ref(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use plimsoll_core::kill::{KillOrder, OrderId};
    use plimsoll_core::names::{Bucket, Text};
    use plimsoll_core::quantity::MonoTime;
    use plimsoll_core::report::{InstanceId, Report};
    use plimsoll_policy::{ONE_CLASS_TENANTS, Policy, Source};

    use super::*;
    use crate::state::Now;

    fn policy(kill_switch: bool) -> Policy {
        let text = format!("kill_switch: {kill_switch}\nbuckets: {{ b: {{ limit: 1 }} }}\n");
        let policy = Source {
            name: "policy.yaml",
            text: &text,
        };
        Policy::read(
            policy,
            Source {
                name: "tenants.yaml",
                text: ONE_CLASS_TENANTS,
            },
        )
        .unwrap()
        .0
    }

    fn ordered(ttl_s: Option<u64>) -> Command {
        let reason = Some(Text::new("a test").unwrap());
        Command {
            reason,
            until_s: ttl_s.map(|_| 60),
            left_s: ttl_s,
            ..Command::default()
        }
    }

    #[test]
    fn changes_elsewhere_are_returned_with_origin() {
        let scope = Scope::Bucket(Bucket::new("b").unwrap());
        let at = |ms| Now {
            at: MonoTime::from_elapsed(Duration::from_millis(ms)),
            unix_s: Some(60),
        };
        let (plain, killing) = (policy(false), policy(true));
        let report = |state: &mut DurableState| {
            let id = OrderId {
                scope: scope.clone(),
                given_at: InstanceId(0x1a),
            };
            let (generation, age) = (KillGeneration(1), Duration::ZERO);
            let order = KillOrder {
                generation,
                age,
                ends_held: false,
            };
            let report = Report {
                orders: [(id, order)].into(),
                ..Report::default()
            };
            state.on_report(&report, false, at(1), &plain)
        };
        type Step<'a> = (
            &'a dyn Fn(&mut DurableState) -> bool,
            &'a [(&'a str, &'a str)],
        );
        let order =
            |state: &mut DurableState, command| state.on_command(&scope, command, &plain).unwrap();
        let end = |state: &mut DurableState, ms| state.on_command_ends(&scope, at(ms), &plain);
        let load = |state: &mut DurableState, policy| {
            state.on_policy(policy);
            true
        };
        let steps: [Step<'_>; 9] = [
            (&|state| order(state, ordered(None)), &[]),
            (&|state| end(state, 1), &[]),
            (&|state| order(state, ordered(Some(0))), &[]),
            (
                &|state| state.on_time(60, &plain),
                &[("time", "kill off b")],
            ),
            (&|state| load(state, &killing), &[("file", "kill on fleet")]),
            (&|state| load(state, &plain), &[("file", "kill off fleet")]),
            (&report, &[("aggregator", "kill on b")]),
            (&|state| order(state, ordered(None)), &[]),
            (&|state| end(state, 2), &[]),
        ];
        let mut state = DurableState::first_start();
        state.on_policy(&plain);
        let mut log = KillLog::default();
        let named = |instance: &str| instance.ends_with("01a").then(|| "zone-a/one".to_owned());
        assert_eq!(log.on(&state, named), []);
        for (at, (step, expected)) in steps.into_iter().enumerate() {
            assert!(step(&mut state), "step {at}");
            let changes = log.on(&state, named);
            let found: Vec<_> = changes
                .iter()
                .map(|(actor, change)| (actor.who.as_str(), change.what.as_str()))
                .collect();
            assert_eq!(found, expected, "step {at}: {changes:?}");
            let of_aggregator = changes
                .iter()
                .filter(|(actor, _)| actor.who == "aggregator");
            assert!(
                of_aggregator
                    .clone()
                    .all(|(actor, _)| actor.from == "zone-a/one"),
                "{changes:?}"
            );
        }
    }
}
