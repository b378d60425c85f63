//! Random schedules of several members on one store: real brains and the real decisions about the lead, with a model of
//! the store, of children and of operators. No sockets and no clocks: a seed gives the same run each time.
//!
//! `PLIMSOLL_SCHEDULES=100000 cargo test -p plimsoll-controller --release schedules` runs more of them, and
//! `PLIMSOLL_SEED=7` prints the trace of one, or begins with it. `PLIMSOLL_WITHOUT="lead guard"` takes a protection away,
//! to see that the invariants notice: `lead guard`, `state guard`, `reading again` or several, with commas.
//!
//! Saved kills travel as numbers, not as orders. `stale ends` shows what that costs: a deposed leader whose end of an
//! earlier kill has a higher number ends the number of a later one at children that it still reaches; these stay in shadow.

mod child;
mod faults;
mod fleet;
mod invariants;
mod leader;
mod model_store;
mod operator;
mod saves;
mod session;
mod world;

use std::env;
use std::sync::LazyLock;

use plimsoll_core::kill::Scope;
use plimsoll_core::names::Bucket;

use self::world::World;

/// Milliseconds since the start of the schedule.
type Ms = u64;

/// About 20 s in a debug build.
const SCHEDULES: u64 = 750;

/// The bucket of the policy, after the fleet.
fn scopes() -> [Scope; 2] {
    [Scope::Fleet, Scope::Bucket(Bucket::new("api").unwrap())]
}

/// Returns true if a run is to go without this protection.
fn is_without(what: &str) -> bool {
    static WITHOUT: LazyLock<Option<String>> = LazyLock::new(|| env::var("PLIMSOLL_WITHOUT").ok());
    let list = WITHOUT.as_deref().unwrap_or_default();
    list.split(',').any(|one| one == what)
}

/// A generator of random numbers: splitmix64.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn pick(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    fn percent(&mut self, share: u64) -> bool {
        self.below(100) < share
    }
}

#[test]
fn schedules_keep_what_was_saved() {
    let number = |name: &str| env::var(name).ok().and_then(|text| text.parse().ok());
    let first = number("PLIMSOLL_SEED");
    let count = number("PLIMSOLL_SCHEDULES").unwrap_or(if first.is_some() { 1 } else { SCHEDULES });
    let seeds = first.unwrap_or(0)..first.unwrap_or(0) + count;
    let mut seen = world::Seen::default();
    for seed in seeds.clone() {
        let mut world = World::new(seed);
        let run = world.run();
        seen.add(&world.seen);
        if let Err(broken) = run {
            panic!("seed {seed}: {broken}\n{}", world.trace.join("\n"));
        }
        if count == 1 {
            println!("{}", world.trace.join("\n"));
        }
    }
    println!("{count} schedules: {seen:?}");
    // A schedule in which nothing happens shows nothing.
    if count >= SCHEDULES {
        assert!(seen.takeovers > count && seen.saved > count && seen.unsaved > 0);
    }
}
