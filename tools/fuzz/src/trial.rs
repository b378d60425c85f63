//! The test of a target: runs its corpus, and then changed copies of it for some time.

use std::collections::HashSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use allocation_counter::measure;
use fastrand::Rng;

use crate::mutation::mutate;
use crate::script::Script;
use crate::targets::target;

/// Maximum time of one input in an optimized build.
const INPUT_MAX: Duration = Duration::from_secs(1);
/// Maximum memory of one input in bytes, with the state machines that a target builds for it.
const BYTES_MAX: u64 = 64 << 20;
/// Maximum number of inputs of a corpus with those that were found.
const CORPUS_MAX: usize = 4_096;
/// Maximum length of a found input.
const LENGTH_MAX: usize = 4_096;
/// Maximum number of random bytes that say how an input is made.
const SCRIPT_MAX: usize = 1_024;

/// Tests the target of this name for FUZZ_SECONDS, and prints figures, which `./measure fuzz` reads.
///
/// # Panics
/// If there is no such target, or an input fails.
pub fn check(name: &str) {
    let target = target(name);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut corpus = (target.generated)();
    let files = fs::read_dir(folder.join("corpus").join(name));
    for file in files.into_iter().flatten() {
        corpus.push(fs::read(file.unwrap().path()).unwrap());
    }
    assert!(!corpus.is_empty(), "no corpus");
    // A seed stands for the same inputs everywhere.
    corpus.sort();

    let artifacts = folder.join("artifacts");
    fs::create_dir_all(&artifacts).unwrap();
    // Remains if the input fails, ends the process or never ends.
    let artifact = artifacts.join(format!("{name}.input"));
    let current = File::create(&artifact).unwrap();
    let (mut inputs, mut slowest, mut kib) = (0, Duration::ZERO, 0);
    let mut run = |input: &[u8]| {
        // Kept open: the file system writes a truncated file to the disk when it is closed.
        current.write_all_at(input, 0).unwrap();
        current.set_len(input.len() as u64).unwrap();
        let began = Instant::now();
        let memory = measure(|| (target.run)(input));
        let (took, bytes) = (began.elapsed(), memory.bytes_max);
        assert!(bytes <= BYTES_MAX, "held {bytes} bytes");
        assert!(cfg!(debug_assertions) || took <= INPUT_MAX, "took {took:?}");
        inputs += 1;
        slowest = slowest.max(took);
        kib = kib.max(bytes.div_ceil(1 << 10));
        memory.count_total
    };
    let mut allocations: HashSet<u64> = corpus.iter().map(|input| run(input)).collect();
    let mut rng = Rng::with_seed(variable("FUZZ_SEED"));
    let time = Duration::from_secs(variable("FUZZ_SECONDS"));
    let began = Instant::now();
    while began.elapsed() < time {
        let mut script = vec![0; rng.usize(..SCRIPT_MAX)];
        rng.fill(&mut script);
        let input = mutate(&corpus, target.format, &mut Script(&script));
        // Another number of allocations is most likely another path through the code. Changes of
        // short inputs are faster.
        let is_new = allocations.insert(run(&input));
        if is_new && input.len() <= LENGTH_MAX && corpus.len() < CORPUS_MAX {
            corpus.push(input);
        }
    }
    fs::remove_file(artifact).unwrap();
    let slowest_ms = slowest.as_secs_f64() * 1e3;
    println!("\n{name} {inputs} {slowest_ms:.1} {kib}");
}

/// Returns the number in a variable of the environment, by default 1.
fn variable(name: &str) -> u64 {
    std::env::var(name).map_or(1, |value| value.parse().unwrap())
}
