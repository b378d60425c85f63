//! Limits that are learned from traffic over weeks, and limits that are queried.

use super::*;
use plimsoll_core::quantity::Limit;
use plimsoll_policy::LimitSource;

const STEP: Duration = Duration::from_secs(10);
const DAY_STEPS: u64 = 8_640;

/// A fleet of one zone with a brain that ticks every 10 s, so that weeks pass in seconds.
struct Weeks {
    brain: Brain,
    zone: Scripted,
    step: u64,
    writes: bool,
}

impl Weeks {
    fn new(policy: Arc<Policy>) -> Self {
        let parameters = Parameters {
            tick: STEP,
            report_interval: STEP / 2,
            ..Parameters::default()
        };
        let mut brain = Brain::new(
            MonoTime::ZERO,
            InstanceId(9_999),
            DurableState::first_start(),
            policy,
            parameters,
        );
        save(&mut brain);
        Self {
            brain,
            zone: Scripted::new("a", 1),
            step: 0,
            writes: true,
        }
    }

    fn day(&mut self, factor: f64) -> Option<f64> {
        for _ in 0..DAY_STEPS {
            let of_day = (self.step % DAY_STEPS) as f64 / DAY_STEPS as f64;
            let shop = 600.0 - 400.0 * (of_day * std::f64::consts::TAU).cos();
            self.zone.offers("acme", shop * factor);
            self.step();
        }
        self.limit()
    }

    fn step(&mut self) {
        self.step += 1;
        let now = MonoTime::from_elapsed(STEP * self.step as u32);
        self.zone.passes(STEP);
        if !self.zone.cut {
            self.zone.exchange(&mut self.brain, now);
        }
        self.brain.on_tick(
            now,
            86_400 * 20_000 + STEP.as_secs() as i64 * self.step as i64,
        );
        save(&mut self.brain);
        if !self.zone.cut {
            self.zone.receive(&mut self.brain, now);
        }
        for minute in self.brain.take_unsaved_history().minutes {
            if self.writes {
                self.brain.on_minute_written(&minute);
            } else {
                self.brain.limits.history.on_lost();
            }
        }
    }

    fn limit(&self) -> Option<f64> {
        self.brain.buckets.states[&bucket()]
            .limit
            .per_second()
            .map(Rate::per_second)
    }

    fn limit_sent(&self) -> Option<f64> {
        self.zone
            .board
            .get(&bucket())?
            .terms()
            .limit
            .per_second()
            .map(Rate::per_second)
    }
}

fn learned(mode: &str, more: &str) -> Arc<Policy> {
    policy(&format!(
        "buckets: {{ api: {{ limit: {{ learned: {{ {more} }} }}, mode: {mode} }} }}\nrollout: {{ require_gates: false }}\n"
    ))
}

/// The limit that follows from the 95th percentile of the shop's minutes, in requests/s.
const LEARNED: f64 = 1.2 * 995.0;

#[test]
fn without_history_no_limit_is_in_force() {
    let mut weeks = Weeks::new(learned("enforce", ""));
    weeks.day(50.0);
    assert_eq!(weeks.brain.buckets.states[&bucket()].limit, Limit::Unknown);
    assert_eq!(weeks.zone.counts("acme").refused(), 0);
}

#[test]
fn unsaved_minutes_are_not_learned_from() {
    let mut weeks = Weeks::new(learned("enforce", "until_history: 3000"));
    for _ in 0..4 {
        weeks.day(1.0);
    }
    check_near(weeks.limit().unwrap(), LEARNED, 5.0);
    let before = weeks.limit();
    weeks.writes = false;
    for _ in 0..4 {
        assert_eq!(weeks.day(1.1), before);
    }
    weeks.writes = true;
    for _ in 0..4 {
        weeks.day(1.1);
    }
    check_near(weeks.limit().unwrap(), 1.1 * LEARNED, 10.0);
    assert_eq!(weeks.brain.limits.history.counters.minutes_lost, 4 * 1_440);
}

#[test]
fn late_counts_are_no_surge() {
    let mut weeks = Weeks::new(learned("shadow", "until_history: 3000"));
    weeks.zone.offers("acme", 100.0);
    let highest = |weeks: &mut Weeks, steps: u64| {
        let mut highest = 0.0_f64;
        for _ in 0..steps {
            weeks.step += 1;
            let now = MonoTime::from_elapsed(STEP * weeks.step as u32);
            weeks.zone.passes(STEP);
            if !weeks.zone.cut {
                weeks.zone.exchange(&mut weeks.brain, now);
            }
            weeks
                .brain
                .on_tick(now, STEP.as_secs() as i64 * weeks.step as i64);
            save(&mut weeks.brain);
            for minute in weeks.brain.take_unsaved_history().minutes {
                let rates = minute
                    .samples
                    .values()
                    .map(|sample| sample.offered.per_second());
                highest = rates.fold(highest, f64::max);
            }
        }
        highest
    };
    check_near(highest(&mut weeks, 60), 100.0, 1.0);
    // After half an hour without a connection, the zone reports all counts in one report.
    weeks.zone.cut = true;
    assert!(highest(&mut weeks, 180) <= 101.0);
    weeks.zone.cut = false;
    weeks.zone.reconnects();
    assert!(highest(&mut weeks, 30) <= 101.0);
    check_near(highest(&mut weeks, 30), 100.0, 1.0);
}

#[test]
fn queried_limit_is_clamped_or_unknown() {
    let text = |bounds: &str| {
        policy(&format!(
            "buckets: {{ api: {{ limit: {{ prometheus: {{ url: http://p, query: q{bounds} }} }}, mode: shadow }} }}"
        ))
    };
    let mut weeks = Weeks::new(text(", min: 200, max: 5000"));
    weeks.zone.offers("acme", 100.0);
    (0..10).for_each(|_| weeks.step());
    assert_eq!(weeks.brain.buckets.states[&bucket()].limit, Limit::Unknown);
    let source = |brain: &Brain| {
        let LimitSource::Prometheus(source) =
            brain.policy().bucket(&bucket()).unwrap().source.clone()
        else {
            panic!()
        };
        source
    };
    for (answer, limit) in [(700.0, 700.0), (9_000.0, 5_000.0), (0.0, 200.0)] {
        let answer = LimitAnswer {
            rate: Rate::new(answer).unwrap(),
            at: MonoTime::ZERO,
        };
        let asked = source(&weeks.brain);
        assert_eq!(weeks.brain.on_answer(&asked, answer).len(), 1);
        weeks.step();
        assert_eq!(
            (weeks.limit(), weeks.limit_sent()),
            (Some(limit), Some(limit))
        );
    }
    // Other bounds apply to the known answer. Another query has no answer yet.
    weeks.brain.on_policy(text(", min: 300"));
    assert_eq!(weeks.limit(), Some(300.0));
    weeks.brain.on_policy(enforced());
    assert_eq!(
        (weeks.limit(), weeks.brain.limits.answers.len()),
        (Some(LIMIT), 0)
    );
    weeks.brain.on_policy(text(""));
    assert_eq!(weeks.brain.buckets.states[&bucket()].limit, Limit::Unknown);
}
