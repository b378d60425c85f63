//! The whole limit is used, and no more, with any number of names. `cargo run --release -p
//! plimsoll-simulator --example grid` runs all cells, this test some of each number of names.

#[path = "../../examples/grid/cells.rs"]
mod cells;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;

use cells::{Cell, NAMES, all};

/// Draws cells, each number of names as often as any other.
fn drawn(count: usize, seed: u64) -> Vec<Cell> {
    let mut cells = all();
    cells.shuffle(&mut SmallRng::seed_from_u64(seed));
    let mut by_names = NAMES.map(|names| cells.iter().filter(move |cell| cell.names == names));
    (0..count)
        .filter_map(|at| by_names[at % NAMES.len()].next().copied())
        .collect()
}

#[test]
fn any_number_of_names_gets_the_limit() {
    // Three of each number of names.
    let count = 3 * NAMES.len();
    let cells = drawn(count, 11);
    assert_eq!(cells.len(), count);
    let faults: Vec<String> = cells
        .iter()
        .flat_map(|cell| cell.faults(cell.run(0).unwrap()))
        .collect();
    assert!(
        faults.is_empty(),
        "{} figures are out of bounds:\n{}",
        faults.len(),
        faults.join("\n")
    );
}
