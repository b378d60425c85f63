//! The time of a quota server: its own axis that no step of the wall clock moves, so that a wrong
//! clock neither stops refills nor grants tokens twice.

/// Difference from the expected wall clock that counts as a step, in milliseconds. Readings of two clocks jitter.
const STEP_MS: u64 = 1_000;

/// The readings of the clocks of a machine at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockReading {
    /// The id of the boot; `None` if the system does not say it.
    pub boot: Option<u128>,
    /// Milliseconds since the boot, which go on while the machine sleeps.
    pub boottime_ms: u64,
    /// The wall clock in milliseconds since 1970.
    pub wall_ms: u64,
}

/// The clock of a server as saved for the next start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SavedClock {
    /// The readings at that moment, but the wall clock as the server mapped it: a step that it had not followed yet is
    /// found by the next process.
    pub read: ClockReading,
    /// The quota time at that moment.
    pub quota_ms: u64,
}

/// The clock of a quota server: quota time advances only with the boot time, and `AT` arguments are
/// mapped to it from the wall clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaClock {
    /// The quota time and the boot time at the start.
    start_ms: u64,
    boottime_ms: u64,
    /// The quota time less the wall clock. It stays the same between steps, so that differences of `AT` are exact.
    offset_ms: i64,
}

/// A moment by a [`QuotaClock`], with what maps wall times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaTime {
    /// The quota time in milliseconds.
    pub ms: u64,
    offset_ms: i64,
}

impl QuotaClock {
    /// Continues the time of an earlier process: in the same boot by the boot time, otherwise by the wall clock.
    /// [`Self::step`] is due next.
    pub fn resume(saved: &SavedClock, now: &ClockReading) -> Self {
        let start_ms = saved.quota_ms.saturating_add(passed_ms(saved, now));
        let offset_ms = saved
            .quota_ms
            .wrapping_sub(saved.read.wall_ms)
            .cast_signed();
        Self {
            start_ms,
            boottime_ms: now.boottime_ms,
            offset_ms,
        }
    }

    /// Returns the time at a boot time.
    pub const fn at(&self, boottime_ms: u64) -> QuotaTime {
        let ms = self
            .start_ms
            .saturating_add(boottime_ms.saturating_sub(self.boottime_ms));
        QuotaTime {
            ms,
            offset_ms: self.offset_ms,
        }
    }

    /// Follows the wall clock. Returns its step in milliseconds, if it stepped.
    pub fn step(&mut self, now: &ClockReading) -> Option<i64> {
        let time = self.at(now.boottime_ms);
        let by_ms = now.wall_ms.wrapping_sub(time.wall_ms()).cast_signed();
        if by_ms.unsigned_abs() < STEP_MS {
            return None;
        }
        self.offset_ms = time.ms.wrapping_sub(now.wall_ms).cast_signed();
        Some(by_ms)
    }

    /// Returns what the next process continues from.
    pub fn save(&self, now: &ClockReading) -> SavedClock {
        let time = self.at(now.boottime_ms);
        let read = ClockReading {
            wall_ms: time.wall_ms(),
            ..*now
        };
        SavedClock {
            read,
            quota_ms: time.ms,
        }
    }
}

impl QuotaTime {
    /// Returns the wall clock of this moment.
    pub const fn wall_ms(self) -> u64 {
        self.wall_of(self.ms)
    }

    /// Maps a wall time to quota time.
    pub const fn of_wall(self, wall_ms: u64) -> u64 {
        wall_ms.saturating_add_signed(self.offset_ms)
    }

    /// Maps a quota time to the wall clock.
    pub const fn wall_of(self, quota_ms: u64) -> u64 {
        quota_ms.saturating_sub_signed(self.offset_ms)
    }
}

/// Returns the time between a save and a start that only the wall clock shows, because the machine
/// booted in between.
pub fn unsure_ms(saved: &SavedClock, now: &ClockReading) -> u64 {
    if is_same_boot(saved, now) {
        0
    } else {
        passed_ms(saved, now)
    }
}

fn is_same_boot(saved: &SavedClock, now: &ClockReading) -> bool {
    now.boot.is_some() && saved.read.boot == now.boot
}

fn passed_ms(saved: &SavedClock, now: &ClockReading) -> u64 {
    match is_same_boot(saved, now) {
        true => now.boottime_ms.saturating_sub(saved.read.boottime_ms),
        false => now.wall_ms.saturating_sub(saved.read.wall_ms),
    }
}
