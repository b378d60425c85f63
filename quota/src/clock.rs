//! The clock of the server: reads the clocks of the machine, and keeps in a file what the next process continues from.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use plimsoll_core::quota::{ClockReading, QuotaClock, QuotaTime, SavedClock, unsure_ms};
use plimsoll_host::{atomic_file, regular_file};
use rustix::time::{ClockId, clock_gettime};
use xxhash_rust::xxh3::xxh3_64;

use crate::store::OpenError;

/// The file in the data directory, and its largest size in bytes.
const FILE: &str = "clock";
const FILE_BYTES_MAX: usize = 256;
/// The file whose age tells when a version without a clock file saved last.
const SYNCED_FILE: &str = "synced";
/// The time between two saves without a step.
const SAVE_EVERY_MS: u64 = 60_000;
/// The time between two readings of the boot time after which the wall clock in between says nothing.
const PAUSE_MS: u64 = 100;
/// The time that only the wall clock tells and that operators should hear of.
const UNSURE_MS: u64 = 3_600_000;

/// The clock of one server.
#[derive(Debug)]
pub(crate) struct Clock {
    path: PathBuf,
    boot: Option<u128>,
    clock: RwLock<QuotaClock>,
    saved: Mutex<Option<SavedClock>>,
    /// Steps of the wall clock so far.
    pub(crate) steps: AtomicU64,
    /// 1 if this process began after long that only the wall clock told.
    pub(crate) unsure: u64,
}

impl Clock {
    /// Continues the clock of a data directory, which this process has locked.
    pub(crate) fn open(data: &Path) -> Result<Self, OpenError> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
        let boot = boot.and_then(|id| u128::from_str_radix(&id.trim().replace('-', ""), 16).ok());
        let path = data.join(FILE);
        let now = read(boot);
        let saved = match regular_file::read_whole(&path, FILE_BYTES_MAX) {
            Ok(bytes) => decode(&bytes).ok_or_else(|| OpenError::Damaged {
                path: path.clone(),
                reason: "it is not as a quota server writes it; remove it to go on by the wall clock"
                    .to_owned(),
            })?,
            Err(error) if error.kind() == ErrorKind::NotFound => first(data, now),
            Err(error) => return Err(OpenError::Io { path, error }),
        };
        let unsure_ms = unsure_ms(&saved, &now);
        if unsure_ms > UNSURE_MS {
            tracing::warn!(
                hours = unsure_ms / UNSURE_MS,
                "this time passed since the last save by the wall clock of this machine, which has booted since: buckets are refilled for it"
            );
        }
        let opened = Self {
            path,
            boot,
            clock: RwLock::new(QuotaClock::resume(&saved, &now)),
            saved: Mutex::default(),
            steps: AtomicU64::new(0),
            unsure: u64::from(unsure_ms > UNSURE_MS),
        };
        opened.now();
        opened.keep().map_err(|error| OpenError::Io { path: opened.path.clone(), error })?;
        Ok(opened)
    }

    /// Returns the time, and follows the wall clock.
    pub(crate) fn now(&self) -> QuotaTime {
        let now = read(self.boot);
        let mut clock = *self.clock.read().unwrap_or_else(PoisonError::into_inner);
        if clock.step(&now).is_some() {
            let mut shared = self.clock.write().unwrap_or_else(PoisonError::into_inner);
            // Another thread may have followed this step meanwhile.
            if let Some(by_ms) = shared.step(&read(self.boot)) {
                self.steps.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(
                    by_s = by_ms / 1_000,
                    "the wall clock of this machine stepped: refills go on as before, and AT arguments follow it"
                );
            }
            clock = *shared;
        }
        clock.at(now.boottime_ms)
    }

    /// Saves what the next process continues from, if the wall clock stepped or the last save is old. Blocks.
    pub(crate) fn keep(&self) -> io::Result<()> {
        let now = self.clock.read().unwrap_or_else(PoisonError::into_inner).save(&read(self.boot));
        let mut saved = self.saved.lock().unwrap_or_else(PoisonError::into_inner);
        let is_kept = saved.is_some_and(|saved| {
            let offset = |it: &SavedClock| it.quota_ms.wrapping_sub(it.read.wall_ms);
            offset(&saved) == offset(&now) && now.quota_ms.saturating_sub(saved.quota_ms) < SAVE_EVERY_MS
        });
        if is_kept {
            return Ok(());
        }
        // Before the attempt: a disk that fails is not asked each second.
        *saved = Some(now);
        drop(saved);
        atomic_file::replace(&self.path, encode(&now).as_bytes())
    }
}

/// Returns where the time of a new directory begins, or of one that a version without this file wrote by the wall clock:
/// not before its last commit.
fn first(data: &Path, now: ClockReading) -> SavedClock {
    let synced = fs::metadata(data.join(SYNCED_FILE)).and_then(|file| file.modified());
    let synced_ms = synced.map_or(0, unix_ms);
    SavedClock { read: now, quota_ms: now.wall_ms.max(synced_ms) }
}

/// Reads the clocks. Where the process was paused in between, the wall clock is read again.
fn read(boot: Option<u128>) -> ClockReading {
    loop {
        let boottime_ms = boottime_ms();
        let wall_ms = unix_ms(SystemTime::now());
        if self::boottime_ms().saturating_sub(boottime_ms) < PAUSE_MS {
            return ClockReading { boot, boottime_ms, wall_ms };
        }
    }
}

fn boottime_ms() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec.unsigned_abs() * 1_000 + time.tv_nsec.unsigned_abs() / 1_000_000
}

fn unix_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Writes four numbers, the id of the boot as 0 if it is not known, and a sum over them.
fn encode(saved: &SavedClock) -> String {
    let SavedClock { read: ClockReading { boot, boottime_ms, wall_ms }, quota_ms } = saved;
    let text = format!("{:x} {boottime_ms} {wall_ms} {quota_ms}", boot.unwrap_or(0));
    format!("{text} {:016x}\n", xxh3_64(text.as_bytes()))
}

fn decode(bytes: &[u8]) -> Option<SavedClock> {
    let (text, sum) = std::str::from_utf8(bytes).ok()?.strip_suffix('\n')?.rsplit_once(' ')?;
    if sum != format!("{:016x}", xxh3_64(text.as_bytes())) {
        return None;
    }
    let (boot, numbers) = text.split_once(' ')?;
    let boot = Some(u128::from_str_radix(boot, 16).ok()?).filter(|boot| *boot != 0);
    let mut numbers = numbers.split(' ').map(|number| number.parse().ok());
    let (boottime_ms, wall_ms, quota_ms) = (numbers.next()??, numbers.next()??, numbers.next()??);
    Some(SavedClock { read: ClockReading { boot, boottime_ms, wall_ms }, quota_ms })
}
