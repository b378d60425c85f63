//! The brain against scripted aggregators: what it must get right, and the textbook mistakes it must not make.

use std::sync::Arc;
use std::time::Duration;

use super::*;
use plimsoll_core::bucket::{KeyId, Name, Zone};
use plimsoll_core::kill::KillGeneration;
use plimsoll_core::policy::{ONE_CLASS_TENANTS, Source};
use plimsoll_core::rate::Limit;
use plimsoll_core::ratio::DropRatio;
use plimsoll_core::report::{Counts, Identity, InstanceId, Outbox};
use plimsoll_core::rollout::Mode;

const LIMIT: f64 = 1000.0;

fn policy(text: &str) -> Arc<Policy> {
    let policy = Source { name: "policy.yaml", text };
    Arc::new(Policy::read(policy, Source { name: "tenants.yaml", text: ONE_CLASS_TENANTS }).unwrap().0)
}

fn enforced() -> Arc<Policy> {
    policy("buckets: { api: { limit: 1000, mode: enforce } }\nrollout: { require_gates: false }\n")
}

fn bucket() -> Bucket {
    Bucket::new("api").unwrap()
}

fn key() -> Key {
    Key { bucket: bucket(), tenant: Tenant::new("acme").unwrap() }
}

/// An aggregator that offers requests at a steady rate.
struct Scripted {
    stream: StreamId,
    identity: Identity,
    outbox: Outbox,
    counts: Counts,
    late: Counts,
    /// Its clock runs ahead of the controller's by this much.
    clock: Duration,
    greeted: bool,
    epoch: Option<Epoch>,
    board: Board,
    kill: KillGeneration,
    echo: Echo,
}

impl Scripted {
    fn new(zone: &str, stream: u64, instance: u128) -> Self {
        let mut outbox = Outbox::default();
        outbox.open();
        Self {
            stream: StreamId(stream),
            identity: Identity {
                instance: InstanceId(instance),
                name: Name::new(&format!("{zone}-aggregator")).unwrap(),
                service: Name::new("aggregator").unwrap(),
                zone: Zone::new(zone).unwrap(),
                role: Role::Aggregator,
            },
            outbox,
            counts: Counts::ZERO,
            late: Counts::ZERO,
            clock: Duration::from_secs(1_000),
            greeted: false,
            epoch: None,
            board: Board::default(),
            kill: KillGeneration::default(),
            echo: Echo::default(),
        }
    }

    fn offer(&mut self, requests: u64) {
        self.counts.offered += requests;
    }

    fn report(&mut self, now: MonoTime) -> Report {
        let mut report = Report {
            identity: (!self.greeted).then(|| self.identity.clone()),
            time: Some(now + self.clock),
            epoch: self.epoch,
            kill: self.kill,
            ..Report::default()
        };
        self.greeted = true;
        let tally = Tally { counts: self.counts, late: self.late };
        self.outbox.fill(&mut report, &[key()], |_: KeyId| tally);
        report
    }

    fn exchange(&mut self, brain: &mut Brain, now: MonoTime) {
        let report = self.report(now);
        brain.on_report(now, self.stream, report).unwrap();
        self.hear(brain, now);
    }

    fn hear(&mut self, brain: &mut Brain, now: MonoTime) {
        if let Some(directives) = brain.directives(now, self.stream) {
            self.epoch = self.epoch.max(directives.epoch);
            self.kill.merge(directives.kill);
            self.outbox.on_echo(directives.echo);
            directives.parent.into_iter().for_each(|parent| self.outbox.on_answer(parent));
            self.echo = directives.echo;
            for bucket in &directives.buckets {
                self.board.apply(bucket);
            }
        }
    }

    fn ratio(&self) -> Option<DropRatio> {
        self.board.get(&bucket())?.ratio(&key().tenant)
    }

    fn mode(&self) -> Mode {
        self.board.get(&bucket()).unwrap().mode()
    }
}

fn at(ms: u64) -> MonoTime {
    MonoTime::from_elapsed(Duration::from_millis(ms))
}

fn saved(durable: Durable, policy: Arc<Policy>, now: MonoTime) -> Brain {
    let mut brain = Brain::new(now, InstanceId(99), durable, policy);
    save(&mut brain);
    brain
}

fn save(brain: &mut Brain) {
    if let Some((number, _)) = brain.unsaved() {
        brain.on_saved(number);
    }
}

/// Lets zones offer `rps` each for a while, in half-second steps from `from` on; returns the end.
fn run(brain: &mut Brain, zones: &mut [Scripted], rps: u64, from: u64, steps: u64) -> u64 {
    for step in 0..steps {
        let now = at(from + step * 500);
        for zone in zones.iter_mut() {
            zone.offer(rps / 2);
            zone.exchange(brain, now);
            save(brain);
        }
        brain.on_tick(now);
        save(brain);
        for zone in zones.iter_mut() {
            zone.hear(brain, now);
        }
    }
    from + steps * 500
}

/// What two zones with 2,000 requests/s each admit in all at these ratios, as a multiple of the limit.
fn admitted(ratios: [f64; 2]) -> f64 {
    ratios.iter().map(|ratio| 2000.0 * (1.0 - ratio)).sum::<f64>() / LIMIT
}

fn check_limit_is_kept(ratios: [f64; 2]) -> Result<(), f64> {
    let admitted = admitted(ratios);
    if (admitted - 1.0).abs() < 0.03 { Ok(()) } else { Err(admitted) }
}

#[test]
fn a_limit_is_per_second_and_for_all_zones_together() {
    let mut brain = saved(Durable::first_start(), enforced(), at(0));
    let mut zones = [Scripted::new("a", 1, 1), Scripted::new("b", 2, 2)];
    run(&mut brain, &mut zones, 2000, 0, 6);
    check_limit_is_kept(zones.each_ref().map(|zone| zone.ratio().unwrap().as_f64())).unwrap();

    // The same check finds the textbook mistakes. In half a second each zone counts 1,000 requests.
    let excess = |offered: f64| (offered - LIMIT) / offered;
    let count_of_half_a_second = excess(1000.0 + 1000.0);
    assert_eq!(check_limit_is_kept([count_of_half_a_second; 2]), Err(2.0));
    let rate_of_one_zone = excess(2000.0);
    assert_eq!(check_limit_is_kept([rate_of_one_zone; 2]), Err(2.0));
}

#[test]
fn nothing_is_said_of_what_was_not_seen() {
    let mut brain = saved(Durable::first_start(), enforced(), at(0));
    let mut zone = Scripted::new("a", 1, 1);
    zone.offer(5_000);
    zone.exchange(&mut brain, at(0));
    save(&mut brain);
    zone.hear(&mut brain, at(0));
    let posted = zone.board.get(&bucket()).unwrap();
    assert_eq!(posted.limit(), Limit::PerSecond(plimsoll_core::rate::Rate::new(LIMIT).unwrap()));
    assert_eq!(zone.ratio(), None, "policy is told at once, a ratio is not made up");
    brain.on_tick(at(100));
    zone.hear(&mut brain, at(100));
    assert_eq!(zone.ratio(), None);
}

#[test]
fn a_name_without_policy_is_unknown_and_not_limited_to_zero() {
    let mut brain = saved(Durable::first_start(), policy("buckets: {}\n"), at(0));
    let mut zones = [Scripted::new("a", 1, 1)];
    run(&mut brain, &mut zones, 2000, 0, 6);
    let posted = zones[0].board.get(&bucket()).unwrap();
    assert_eq!((posted.limit(), zones[0].ratio()), (Limit::Unknown, None));
}

#[test]
fn a_limit_of_zero_denies() {
    let zero = policy("buckets: { api: { limit: 0, mode: enforce } }\n");
    let mut brain = saved(Durable::first_start(), zero, at(0));
    let mut zones = [Scripted::new("a", 1, 1)];
    run(&mut brain, &mut zones, 2, 0, 6);
    assert_eq!(zones[0].ratio(), Some(DropRatio::ALL));
}

#[test]
fn a_restarted_controller_waits_for_whom_it_knew_and_then_leads_on() {
    let mut brain = saved(Durable::first_start(), enforced(), at(0));
    let mut zones = [Scripted::new("a", 1, 1), Scripted::new("b", 2, 2)];
    run(&mut brain, &mut zones, 2000, 0, 6);
    let held = zones[0].ratio();
    let epoch = zones[0].epoch.unwrap();

    let mut brain = saved(brain.durable().clone(), enforced(), at(0));
    for (stream, zone) in (11..).zip(&mut zones) {
        zone.outbox.open();
        zone.greeted = false;
        zone.stream = StreamId(stream);
    }
    // Only zone a is back: from its traffic alone the ratio would be 0.5, and from none of it 0.
    let [a, b] = &mut zones;
    let now = run(&mut brain, std::slice::from_mut(a), 2000, 0, 20);
    assert_eq!((a.ratio(), a.epoch), (held, Some(Epoch(epoch.0 + 1))));
    assert!(!brain.sources().is_leading());

    b.offer(2000 * now / 1000);
    // Zone b is back, but has shown nothing yet: zone a alone must not lead either.
    let now = run(&mut brain, &mut zones, 4000, now, 2);
    assert_eq!((zones[0].ratio(), brain.sources().is_leading()), (held, false));
    run(&mut brain, &mut zones, 4000, now, 6);
    assert!((zones[0].ratio().unwrap().as_f64() - 0.875).abs() < 1e-3, "{:?}", zones[0].ratio());
}

#[test]
fn a_zone_that_never_comes_back_is_waited_for_no_longer_than_it_may_take() {
    let mut known = Durable::first_start();
    known.children.insert((Zone::new("gone").unwrap(), Name::new("gone-aggregator").unwrap()));
    let mut brain = saved(known, enforced(), at(0));
    let mut zones = [Scripted::new("a", 1, 1)];
    let now = run(&mut brain, &mut zones, 2000, 0, 59);
    assert_eq!(zones[0].ratio(), None);
    run(&mut brain, &mut zones, 2000, now, 4);
    assert_eq!(zones[0].ratio().unwrap().as_f64(), 0.5);
    assert_eq!(brain.durable().children.len(), 1, "and then forgotten");
}

#[test]
fn a_silent_zone_is_held_and_then_released() {
    let mut brain = saved(Durable::first_start(), enforced(), at(0));
    let mut zones = [Scripted::new("a", 1, 1), Scripted::new("b", 2, 2)];
    let now = run(&mut brain, &mut zones, 2000, 0, 6);
    let [a, _b] = &mut zones;
    let a = std::slice::from_mut(a);
    let now = run(&mut brain, a, 2000, now, 58);
    assert!((a[0].ratio().unwrap().as_f64() - 0.75).abs() < 0.01, "held for 30 s: {:?}", a[0].ratio());
    let now = run(&mut brain, a, 2000, now, 30);
    assert!((0.6..0.72).contains(&a[0].ratio().unwrap().as_f64()), "being released: {:?}", a[0].ratio());
    run(&mut brain, a, 2000, now, 40);
    assert!((a[0].ratio().unwrap().as_f64() - 0.5).abs() < 0.01, "gone after 60 s: {:?}", a[0].ratio());
}

#[test]
fn a_controller_that_hears_nobody_releases_nobody() {
    let mut brain = saved(Durable::first_start(), enforced(), at(0));
    let mut zones = [Scripted::new("a", 1, 1), Scripted::new("b", 2, 2)];
    let now = run(&mut brain, &mut zones, 2000, 0, 6);
    (0..600).for_each(|tick| brain.on_tick(at(now + tick * 500)));
    assert_eq!(brain.sources().iter().map(|(_, source)| source.presence()).sum::<f64>(), 2.0);
}

#[test]
fn a_zone_that_takes_its_leave_is_released_at_once() {
    let mut brain = saved(Durable::first_start(), enforced(), at(0));
    let mut zones = [Scripted::new("a", 1, 1), Scripted::new("b", 2, 2)];
    let now = run(&mut brain, &mut zones, 2000, 0, 6);
    let [a, b] = &mut zones;
    let farewell = Report { leaving: true, ..b.report(at(now)) };
    brain.on_report(at(now), b.stream, farewell).unwrap();
    assert!(brain.is_superseded(b.stream));
    run(&mut brain, std::slice::from_mut(a), 2000, now, 2);
    assert!((a.ratio().unwrap().as_f64() - 0.5).abs() < 0.01);
}

#[test]
fn a_new_process_of_an_aggregator_inherits_the_old_ones_traffic() {
    let mut brain = saved(Durable::first_start(), enforced(), at(0));
    let mut zones = [Scripted::new("a", 1, 1), Scripted::new("b", 2, 2)];
    let now = run(&mut brain, &mut zones, 2000, 0, 6);
    let mut born_again = Scripted::new("b", 3, 3);
    born_again.exchange(&mut brain, at(now));
    assert!(brain.is_superseded(StreamId(2)), "the old process is replaced");
    run(&mut brain, std::slice::from_mut(&mut zones[0]), 2000, now, 1);
    assert!((zones[0].ratio().unwrap().as_f64() - 0.75).abs() < 0.01);
}

#[test]
fn counts_that_come_late_enter_the_books_and_not_the_rate() {
    let mut brain = saved(Durable::first_start(), enforced(), at(0));
    let mut zones = [Scripted::new("a", 1, 1), Scripted::new("b", 2, 2)];
    let now = run(&mut brain, &mut zones, 2000, 0, 6);
    // A client of zone a is back after a minute and brings 120,000 requests at once.
    zones[0].offer(120_000);
    zones[0].late.offered += 120_000;
    run(&mut brain, &mut zones, 2000, now, 1);
    assert!((zones[0].ratio().unwrap().as_f64() - 0.75).abs() < 0.01, "{:?}", zones[0].ratio());
    let counted: u64 = brain.totals().map(|(_, tally)| tally.counts.offered).sum();
    assert_eq!(counted, zones.iter().map(|zone| zone.counts.offered).sum::<u64>());
}

#[test]
fn an_epoch_from_elsewhere_is_exceeded_and_written_down_before_anything_is_sent() {
    let mut brain = saved(Durable::first_start(), enforced(), at(0));
    let mut zone = Scripted::new("a", 1, 1);
    zone.epoch = Some(Epoch(41));
    let report = zone.report(at(0));
    brain.on_report(at(0), zone.stream, report).unwrap();
    assert_eq!(brain.directives(at(0), zone.stream), None, "not before it is saved");
    save(&mut brain);
    assert_eq!(brain.directives(at(0), zone.stream).unwrap().epoch, Some(Epoch(42)));

    let mut liar = Scripted::new("b", 2, 2);
    liar.epoch = Some(Epoch(u64::MAX - 1));
    let report = liar.report(at(0));
    assert!(matches!(brain.on_report(at(0), liar.stream, report), Err(Refused::EpochJump { .. })));
    assert_eq!(brain.durable().epoch, Epoch(42));
}

#[test]
fn a_disk_that_fails_does_not_keep_a_kill_from_the_fleet() {
    let mut brain = saved(Durable::first_start(), enforced(), at(0));
    let mut zone = Scripted::new("a", 1, 1);
    zone.exchange(&mut brain, at(0));
    save(&mut brain);
    let kill = "kill_switch: true\nbuckets: { api: { limit: 1000, mode: enforce } }\n";
    brain.on_policy(policy(kill));
    zone.hear(&mut brain, at(10));
    assert!(!zone.kill.is_killed());
    brain.on_save_failed();
    zone.hear(&mut brain, at(20));
    assert!(zone.kill.is_killed());
    assert_eq!(zone.mode(), Mode::Shadow);
    assert!(brain.unsaved().is_some(), "it is tried again");
}

#[test]
fn a_client_is_told_where_it_should_have_gone() {
    let mut brain = saved(Durable::first_start(), enforced(), at(0));
    let mut client = Scripted::new("a", 1, 1);
    client.identity.role = Role::Client;
    let report = client.report(at(0));
    let refused = brain.on_report(at(0), client.stream, report).unwrap_err();
    assert!(refused.to_string().contains("aggregator of its zone"), "{refused}");
}

#[test]
fn invented_names_find_a_bound_and_fold_into_the_default_class() {
    let mut brain = saved(Durable::first_start(), enforced(), at(0));
    brain.keys = KeyTable::new(3);
    brain.keys.intern(&Key { bucket: bucket(), tenant: Tenant::default_class() });
    let mut zone = Scripted::new("a", 1, 1);
    let names: Vec<Key> =
        (0..10).map(|n| Key { bucket: bucket(), tenant: Tenant::new(&format!("t{n}")).unwrap() }).collect();
    let mut report = Report { identity: Some(zone.identity.clone()), time: Some(at(0)), ..Report::default() };
    let counts = Counts { offered: 7, ..Counts::ZERO };
    zone.outbox.on_answer(InstanceId(99));
    zone.outbox.fill(&mut report, &names, |_| Tally { counts, late: Counts::ZERO });
    brain.on_report(at(0), zone.stream, report).unwrap();
    assert_eq!(brain.totals().count(), 3);
    assert_eq!(brain.totals().map(|(_, tally)| tally.counts.offered).sum::<u64>(), 70, "nothing is lost");
}
