//! Finds every change of the kill switch, from any source: for the events, and for the audit log if no operator ordered it
//! at this controller.

use plimsoll_core::kill::Scope;
use plimsoll_policy::UnixSeconds;

use crate::audit::{Actor, Entry};
use crate::state::{Cause, Change, Command, DurableState, End};
use crate::tasks::events::{Event, EventKind};

#[derive(Debug)]
pub(crate) struct KillLog {
    last: DurableState,
}

impl KillLog {
    /// Logs the kills of the state that an earlier process saved. Later changes are those since.
    pub(crate) fn new(saved: DurableState) -> Self {
        for scope in scopes(&saved) {
            if saved.generation(&scope).is_killed() {
                tracing::warn!("{}", killed(&saved, &scope, None));
            }
        }
        Self { last: saved }
    }

    /// Returns the changes since the last call that no command at this controller made, and the events of all changes but
    /// the ends by command. `named` returns the name of an aggregator by its process id.
    pub(crate) fn on(
        &mut self,
        durable: &DurableState,
        named: impl Fn(&str) -> Option<String>,
    ) -> (Vec<(Actor, Entry)>, Vec<Event>) {
        let (mut changes, mut events) = (Vec::new(), Vec::new());
        let before = &self.last;
        for scope in scopes(durable) {
            let is = durable.generation(&scope);
            let was = before.generation(&scope);
            let change = change(before, durable, &scope, &named);
            let actor = change.as_ref().map(|(actor, _)| actor);
            match (was.is_killed(), is.is_killed()) {
                (true, true)
                    if actor.is_none() && order(before, &scope) == order(durable, &scope) => {}
                (_, true) => events.push(killed(durable, &scope, actor)),
                // A command that ends a kill adds its event itself, with its caller.
                (true, false) => events.extend(actor.map(|actor| ended(&scope, Some(actor)))),
                (false, false) if was == is => {}
                (false, false) => match put_in_shadow(before, durable, &scope) {
                    Some(entries) => {
                        let (change, event) = late(before, durable, &scope, &entries);
                        changes.push(change);
                        events.push(event);
                    }
                    None => tracing::warn!(
                        %scope, generation = is.0,
                        "kill generation moved past a claim, or past a kill that had ended"
                    ),
                },
            }
            changes.extend(change);
        }
        self.last = durable.clone();
        (changes, events)
    }
}

fn scopes(durable: &DurableState) -> impl Iterator<Item = Scope> {
    let buckets = durable.bucket_kills.keys().cloned().map(Scope::Bucket);
    [Scope::Fleet].into_iter().chain(buckets)
}

/// What a command says, without the rest of its time, which a save counts down.
fn order<'a>(durable: &'a DurableState, scope: &Scope) -> impl PartialEq + use<'a> {
    let command = durable.command(scope);
    command.map(|it| (&it.reason, &it.by, it.since_s, it.until_s))
}

/// The event of a kill. `actor` is what ordered it, if no operator did.
fn killed(durable: &DurableState, scope: &Scope, actor: Option<&Actor>) -> Event {
    let command = durable.command(scope);
    let until = command.and_then(|command| command.until_s);
    let until = until.map(|until_s| format!(" until {}", UnixSeconds::from_secs(until_s)));
    let text = format!(
        "kill switch on for {}{}{}: nothing of it is refused",
        whole(scope),
        until.unwrap_or_default(),
        origin(actor)
    );
    let event = Event::new(EventKind::KillOn, scope, text);
    match command.map(|command| (&command.by, &command.reason)) {
        Some((Some(by), Some(reason))) => event.by(by).why(reason),
        Some((None, Some(reason))) => event.why(reason),
        _ => event,
    }
}

/// The event of a kill that ended. `actor` is what ended it, if no operator did.
pub(crate) fn ended(scope: &Scope, actor: Option<&Actor>) -> Event {
    let text = format!(
        "kill switch off for {}{}: it stays in shadow until it is resumed or promoted",
        whole(scope),
        origin(actor)
    );
    Event::new(EventKind::KillOff, scope, text)
}

/// Returns the entries of a scope that kills have put in shadow between two states; `None` without any.
fn put_in_shadow(before: &DurableState, now: &DurableState, scope: &Scope) -> Option<String> {
    let is_new = |change: &&Change| change.number > before.changes && change.cause == Cause::Kill;
    let changes = now.history.iter().filter(is_new);
    let entries = changes.map(|change| change.entry.as_str());
    let entries: Vec<&str> = match scope {
        Scope::Fleet => entries.collect(),
        Scope::Bucket(bucket) => entries.filter(|entry| *entry == bucket.as_str()).collect(),
    };
    (!entries.is_empty()).then(|| entries.join(", "))
}

/// Returns the change and the event of a kill that this controller learned of after its end: an aggregator had it while it
/// was not connected.
fn late(
    before: &DurableState,
    now: &DurableState,
    scope: &Scope,
    entries: &str,
) -> ((Actor, Entry), Event) {
    let why = "ordered at an aggregator that was not connected, and ended here before it was known";
    let entry = Entry {
        what: format!("kill off {scope}"),
        before: describe(before, scope),
        after: describe(now, scope),
        why: why.to_owned(),
    };
    let text = format!(
        "kill of {} has ended, which was {why}: in shadow until it is resumed or promoted: {entries}",
        whole(scope)
    );
    let event = Event::new(EventKind::KillOff, scope, text);
    ((Actor::controller("aggregator", ""), entry), event)
}

fn whole(scope: &Scope) -> String {
    match scope {
        Scope::Fleet => "the whole fleet".to_owned(),
        Scope::Bucket(bucket) => bucket.to_string(),
    }
}

fn origin(actor: Option<&Actor>) -> String {
    match actor.map(|actor| (actor.who.as_str(), actor.from.as_str())) {
        None => String::new(),
        Some(("time", _)) => ", because its time is over".to_owned(),
        Some(("file", _)) => ", by the policy file".to_owned(),
        Some((who, from)) => format!(", by {who} {from}").trim_end().to_owned(),
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
    use std::sync::Arc;
    use std::time::Duration;

    use plimsoll_core::decision::Mode;
    use plimsoll_core::kill::{KillGeneration, KillNews, KillOrder, OrderId};
    use plimsoll_core::names::{Bucket, Text};
    use plimsoll_core::quantity::MonoTime;
    use plimsoll_core::report::InstanceId;
    use plimsoll_policy::Policy;

    use super::*;
    use crate::brain::tests;
    use crate::state::Now;

    fn policy(kill_switch: bool) -> Arc<Policy> {
        tests::policy(&format!(
            "kill_switch: {kill_switch}\nbuckets: {{ b: {{ limit: 1 }} }}\n"
        ))
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
        let reported = |state: &mut DurableState, generation, now_ms, age_ms| {
            let id = OrderId {
                scope: scope.clone(),
                given_at: InstanceId(0x1a),
            };
            let generation = KillGeneration(generation);
            let age = Duration::from_millis(age_ms);
            let order = KillOrder {
                generation,
                age,
                ends_held: false,
            };
            let news = KillNews {
                orders: [(id, order)].into(),
                buckets: [(Bucket::new("b").unwrap(), generation)].into(),
                ..KillNews::default()
            };
            state.on_report(&news, false, at(now_ms), &plain)
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
        let steps: [Step<'_>; 10] = [
            (&|state| order(state, ordered(None)), &[]),
            (&|state| end(state, 1), &[]),
            (&|state| order(state, ordered(Some(0))), &[]),
            (
                &|state| state.on_time(60, &plain),
                &[("time", "kill off b")],
            ),
            (&|state| load(state, &killing), &[("file", "kill on fleet")]),
            (&|state| load(state, &plain), &[("file", "kill off fleet")]),
            (
                &|state| reported(state, 1, 1, 0),
                &[("aggregator", "kill on b")],
            ),
            (&|state| order(state, ordered(None)), &[]),
            (&|state| end(state, 2), &[]),
            (
                &|state| {
                    state.stages.get_mut("b").unwrap().stage = Mode::Enforce;
                    reported(state, 99, 3, 2)
                },
                &[("aggregator", "kill off b")],
            ),
        ];
        let mut state = DurableState::first_start();
        state.on_policy(&plain);
        let mut log = KillLog::new(state.clone());
        let mut all = Vec::new();
        let named = |instance: &str| instance.ends_with("01a").then(|| "zone-a/one".to_owned());
        for (at, (step, expected)) in steps.into_iter().enumerate() {
            assert!(step(&mut state), "step {at}");
            let (changes, events) = log.on(&state, named);
            all.extend(events.into_iter().map(|event| event.to_string()));
            let found: Vec<_> = changes
                .iter()
                .map(|(actor, change)| (actor.who.as_str(), change.what.as_str()))
                .collect();
            assert_eq!(found, expected, "step {at}: {changes:?}");
            // The state keeps no name of the aggregator whose kill had ended before it was known.
            let from = |change: &Entry| match change.what.starts_with("kill on") {
                true => "zone-a/one",
                false => "",
            };
            let mut of_aggregator = changes
                .iter()
                .filter(|(actor, _)| actor.who == "aggregator");
            assert!(
                of_aggregator.all(|(actor, change)| actor.from == from(change)),
                "{changes:?}"
            );
        }
        let said = [
            "kill switch on for b: nothing of it is refused (a test)",
            "kill switch on for b until 1970-01-01T00:01:00Z: nothing of it is refused (a test)",
            "kill switch off for b, because its time is over: it stays in shadow until it is resumed or promoted",
            "kill switch on for the whole fleet, by the policy file: nothing of it is refused",
            "kill switch off for the whole fleet, by the policy file: it stays in shadow until it is resumed or promoted",
            "kill switch on for b, by aggregator zone-a/one: nothing of it is refused",
            "kill switch on for b: nothing of it is refused (a test)",
            "kill of b has ended, which was ordered at an aggregator that was not connected, and ended here before it was known: in shadow until it is resumed or promoted: b",
        ];
        // A command that ends a kill adds its own event.
        assert_eq!(all, said);
    }
}
