//! The loop of a target: mutates inputs for some time, and measures the time and memory of each.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Seek as _, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use allocation_counter::measure;
use fastrand::Rng;

use crate::mutator::mutate;
use crate::{Target, corpus};

const POOL_MAX: usize = 4_096;
/// Maximum time of one input.
pub const INPUT_MAX: Duration = Duration::from_secs(1);
/// Maximum memory of one input in bytes, with the state machines that a target builds for it.
pub const BYTES_MAX: u64 = 64 << 20;
/// Time until an input counts as endless.
const HANG: Duration = Duration::from_secs(30);

/// Figures of a run.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Number of inputs.
    pub runs: u64,
    /// Maximum time of one input.
    pub slowest: Duration,
    /// Maximum memory of one input, in bytes.
    pub bytes: u64,
    /// Files of inputs that panicked, took too long or held too much memory, with the reason.
    pub failures: Vec<(PathBuf, String)>,
}

/// Cost of one input.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Elapsed time.
    pub took: Duration,
    /// Maximum memory that it held, in bytes.
    pub bytes: u64,
    allocations: u64,
    panicked: bool,
}

/// Runs the corpus and then mutations of it, until the time is over or one input fails. Up to
/// `keep` inputs that take another path are added to the corpus.
///
/// # Errors
/// A file cannot be read or written.
pub fn run(target: &Target, time: Duration, seed: u64, keep: usize) -> io::Result<Figures> {
    let mut rng = Rng::with_seed(seed);
    let mut pool = corpus::of(target)?;
    let mut seen = HashSet::new();
    let mut figures = Figures::default();
    let mut kept = 0;
    let mut current = Current::create(target)?;
    let began = Instant::now();
    let mut seeds = pool.clone().into_iter();
    while began.elapsed() < time && figures.failures.is_empty() {
        let input = seeds.next().unwrap_or_else(|| {
            let at = |rng: &mut Rng| {
                pool.get(rng.usize(..pool.len().max(1)))
                    .map_or(&[][..], Vec::as_slice)
            };
            let (input, other) = (at(&mut rng), at(&mut rng));
            mutate(input, other, target.dictionary, &mut rng)
        });
        current.write(&input)?;
        let cost = try_input(target, &input);
        figures.runs += 1;
        figures.slowest = figures.slowest.max(cost.took);
        figures.bytes = figures.bytes.max(cost.bytes);
        if let Some(fault) = cost.fault().or(cost.delay()) {
            figures.failures.push((save(target, &input)?, fault));
        } else if seen.insert(cost.allocations) && pool.len() < POOL_MAX {
            // Another number of allocations is most likely another path through the code.
            if kept < keep && seeds.len() == 0 {
                corpus::add(target, &input)?;
                kept += 1;
            }
            pool.push(input);
        }
    }
    current.remove()?;
    Ok(figures)
}

/// Runs one input and measures it.
#[must_use]
pub fn try_input(target: &Target, input: &[u8]) -> Cost {
    let mut result = Ok(());
    let began = Instant::now();
    let memory = measure(|| result = catch_unwind(AssertUnwindSafe(|| (target.run)(input))));
    let (took, bytes) = (began.elapsed(), memory.bytes_max);
    Cost {
        took,
        bytes,
        allocations: memory.count_total,
        panicked: result.is_err(),
    }
}

impl Cost {
    /// Returns the reason why the input failed, independent of the machine's speed.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        if self.panicked {
            Some("panicked".to_owned())
        } else if self.bytes > BYTES_MAX {
            Some(format!(
                "held {} bytes, more than {}",
                self.bytes, BYTES_MAX
            ))
        } else {
            None
        }
    }

    /// Returns the reason why the input was too slow on this machine.
    #[must_use]
    pub fn delay(&self) -> Option<String> {
        (self.took > INPUT_MAX).then(|| format!("took {:?}, more than {INPUT_MAX:?}", self.took))
    }
}

fn folder(target: &Target) -> io::Result<PathBuf> {
    let folder = corpus::folder().join("artifacts").join(target.name);
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

fn save(target: &Target, input: &[u8]) -> io::Result<PathBuf> {
    let path = folder(target)?.join(format!("crash-{}", corpus::name(input)));
    fs::write(&path, input)?;
    Ok(path)
}

/// File of the current input, which stays if the input ends the process.
struct Current {
    path: PathBuf,
    file: File,
}

impl Current {
    fn create(target: &Target) -> io::Result<Self> {
        let path = folder(target)?.join(format!("current-{}", std::process::id()));
        let file = File::create(&path)?;
        watch(path.clone());
        Ok(Self { path, file })
    }

    fn write(&mut self, input: &[u8]) -> io::Result<()> {
        INPUTS.fetch_add(1, Ordering::Relaxed);
        self.file.rewind()?;
        self.file.write_all(input)?;
        self.file.set_len(input.len() as u64)
    }

    fn remove(self) -> io::Result<()> {
        fs::remove_file(self.path)
    }
}

static INPUTS: AtomicU64 = AtomicU64::new(0);

fn watch(path: PathBuf) {
    std::thread::spawn(move || {
        let mut before = INPUTS.load(Ordering::Relaxed);
        loop {
            std::thread::sleep(HANG);
            let now = INPUTS.load(Ordering::Relaxed);
            if now == before && path.exists() {
                eprintln!("no end after {HANG:?}: {}", path.display());
                std::process::abort();
            }
            before = now;
        }
    });
}
