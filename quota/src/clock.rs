//! The clock of the server. Reads the clocks of the machine, and keeps a file so that the next
//! process can continue.

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

const FILE: &str = "clock";
const FILE_BYTES_MAX: usize = 256;
/// File whose modification time shows the last save of a version without a clock file.
const SYNCED_FILE: &str = "synced";
/// Interval of saves without a step.
const SAVE_EVERY_MS: u64 = 60_000;
/// Maximum gap between two readings of the boot time. After a longer one the wall clock in between
/// is read again.
const PAUSE_MS: u64 = 100;
/// Time known only from the wall clock that is long enough to tell operators.
const UNSURE_MS: u64 = 3_600_000;

#[derive(Debug)]
pub(crate) struct Clock {
    path: PathBuf,
    /// Identifies this boot of the machine; `None` if it is unknown.
    boot: Option<u128>,
    clock: RwLock<QuotaClock>,
    /// State that this process saved last, or tried to; `None` before the first attempt.
    saved: Mutex<Option<SavedClock>>,
    /// Steps of the wall clock since the start.
    pub(crate) steps: AtomicU64,
    /// 1 if this process started after a long time that is known only from the wall clock.
    pub(crate) unsure: u64,
}

impl Clock {
    pub(crate) fn open(data: &Path) -> Result<Self, OpenError> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
        let boot = boot.and_then(|id| u128::from_str_radix(&id.trim().replace('-', ""), 16).ok());
        let path = data.join(FILE);
        let now = read(boot);
        let saved = match regular_file::read_whole(&path, FILE_BYTES_MAX) {
            Ok(bytes) => decode(&bytes).ok_or_else(|| OpenError::Damaged {
                path: path.clone(),
                reason:
                    "it is not as a quota server writes it; remove it to go on by the wall clock"
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
        opened.keep().map_err(OpenError::io(&opened.path))?;
        Ok(opened)
    }

    /// Returns the quota time, and follows a step of the wall clock.
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

    /// Saves the state for the next process if the wall clock stepped or the last attempt is old.
    /// Blocks.
    pub(crate) fn keep(&self) -> io::Result<()> {
        let now = self
            .clock
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .save(&read(self.boot));
        let mut saved = self.saved.lock().unwrap_or_else(PoisonError::into_inner);
        let is_kept = saved.is_some_and(|saved| {
            let offset = |it: &SavedClock| it.quota_ms.wrapping_sub(it.read.wall_ms);
            offset(&saved) == offset(&now)
                && now.quota_ms.saturating_sub(saved.quota_ms) < SAVE_EVERY_MS
        });
        if is_kept {
            return Ok(());
        }
        // Set before the attempt, so that a failing disk is not tried each second.
        *saved = Some(now);
        drop(saved);
        atomic_file::replace(&self.path, encode(&now).as_bytes())
    }
}

/// Returns the start time of a new directory, or of one from a version without this file: not
/// before its last commit by the wall clock.
fn first(data: &Path, now: ClockReading) -> SavedClock {
    let synced = fs::metadata(data.join(SYNCED_FILE)).and_then(|file| file.modified());
    let synced_ms = synced.map_or(0, unix_ms);
    SavedClock {
        read: now,
        quota_ms: now.wall_ms.max(synced_ms),
    }
}

fn read(boot: Option<u128>) -> ClockReading {
    loop {
        let boottime_ms = boottime_ms();
        let wall_ms = unix_ms(SystemTime::now());
        if self::boottime_ms().saturating_sub(boottime_ms) < PAUSE_MS {
            return ClockReading {
                boot,
                boottime_ms,
                wall_ms,
            };
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

fn encode(saved: &SavedClock) -> String {
    let SavedClock { read, quota_ms } = saved;
    let (boot, boottime_ms, wall_ms) = (read.boot.unwrap_or(0), read.boottime_ms, read.wall_ms);
    let text = format!("{boot:x} {boottime_ms} {wall_ms} {quota_ms}");
    format!("{text} {:016x}\n", xxh3_64(text.as_bytes()))
}

fn decode(bytes: &[u8]) -> Option<SavedClock> {
    let (text, sum) = std::str::from_utf8(bytes)
        .ok()?
        .strip_suffix('\n')?
        .rsplit_once(' ')?;
    if sum != format!("{:016x}", xxh3_64(text.as_bytes())) {
        return None;
    }
    let (boot, numbers) = text.split_once(' ')?;
    let boot = Some(u128::from_str_radix(boot, 16).ok()?).filter(|boot| *boot != 0);
    let mut numbers = numbers.split(' ').map(|number| number.parse().ok());
    let (boottime_ms, wall_ms, quota_ms) = (numbers.next()??, numbers.next()??, numbers.next()??);
    Some(SavedClock {
        read: ClockReading {
            boot,
            boottime_ms,
            wall_ms,
        },
        quota_ms,
    })
}
