//! Tables of the clock of a quota server: restarts, boots, and steps of the wall clock.

use super::*;

const HOUR: i64 = 3_600_000;
const DAYS: i64 = 400 * 24 * HOUR;
/// The wall clock, and a quota time that differs from it.
const WALL: u64 = 1_700_000_000_000;
const QUOTA: u64 = WALL - 5_000_000;

fn read(boot: u128, boottime_ms: u64, wall_ms: u64) -> ClockReading {
    ClockReading {
        boot: (boot > 0).then_some(boot),
        boottime_ms,
        wall_ms,
    }
}

#[test]
fn restart_continues_the_quota_time() {
    let ahead = |ms: i64| WALL.strict_add_signed(ms);
    for (case, boot, boottime, wall, passed, unsure, step) in [
        ("same moment", 1, 1_000, WALL, 0, 0, None),
        ("same boot", 1, 61_000, ahead(60_000), 60_000, 0, None),
        (
            "same boot, clocks that jitter",
            1,
            61_000,
            ahead(60_999),
            60_000,
            0,
            None,
        ),
        (
            "same boot, wall ahead",
            1,
            61_000,
            ahead(60_000 + DAYS),
            60_000,
            0,
            Some(DAYS),
        ),
        (
            "same boot, wall back",
            1,
            61_000,
            ahead(60_000 - DAYS),
            60_000,
            0,
            Some(-DAYS),
        ),
        (
            "same boot, restored earlier",
            1,
            400,
            ahead(60_000),
            0,
            0,
            Some(60_000),
        ),
        ("another boot", 2, 5, ahead(60_000), 60_000, 60_000, None),
        (
            "another boot, long after",
            2,
            5,
            ahead(DAYS),
            DAYS,
            DAYS as u64,
            None,
        ),
        (
            "another boot, wall back",
            2,
            5,
            ahead(-HOUR),
            0,
            0,
            Some(-HOUR),
        ),
        ("unknown boot", 0, 5, ahead(60_000), 60_000, 60_000, None),
    ] {
        let saved = SavedClock {
            read: read(1, 1_000, WALL),
            quota_ms: QUOTA,
        };
        let now = read(boot, boottime, wall);
        let mut clock = QuotaClock::resume(&saved, &now);
        let expected = QUOTA.strict_add_signed(passed);
        assert_eq!(clock.at(boottime).ms, expected, "{case}");
        assert_eq!(unsure_ms(&saved, &now), unsure, "{case}");
        assert_eq!(clock.step(&now), step, "{case}");
        assert_eq!(clock.step(&now), None, "{case}: once");
        assert_eq!(
            clock.at(boottime + 7).ms,
            expected + 7,
            "{case}: it goes on"
        );
        let again = QuotaClock::resume(&clock.save(&now), &now);
        assert_eq!(again.at(boottime), clock.at(boottime), "{case}: saved");
    }
    let nothing = SavedClock {
        read: read(0, 1_000, WALL),
        quota_ms: QUOTA,
    };
    let unknown = read(0, 2_000, WALL + 60_000);
    assert_eq!(
        unsure_ms(&nothing, &unknown),
        60_000,
        "two unknown boots are not the same"
    );
}

#[test]
fn wall_steps_move_the_mapping_alone() {
    let begin = read(1, 0, WALL);
    let mut clock = QuotaClock::resume(
        &SavedClock {
            read: begin,
            quota_ms: WALL,
        },
        &begin,
    );
    let mut offset = 0_i64;
    for (number, by) in [0, 999, HOUR, -HOUR, DAYS, -DAYS, -1_000, -DAYS, DAYS]
        .into_iter()
        .enumerate()
    {
        let boottime = 1_000 * (number as u64 + 1);
        offset += if by == 999 { 0 } else { by };
        let wall = (WALL + boottime).strict_add_signed(offset + if by == 999 { by } else { 0 });
        let step = clock.step(&read(1, boottime, wall));
        assert_eq!(step, (by.abs() >= 1_000).then_some(by), "step {number}");
        let time = clock.at(boottime);
        assert_eq!(time.ms, WALL + boottime, "step {number}");
        let own = (WALL + boottime).strict_add_signed(offset);
        assert_eq!(
            (time.wall_ms(), time.of_wall(own)),
            (own, time.ms),
            "step {number}"
        );
        assert_eq!(
            time.wall_of(time.of_wall(own + 60_000)),
            own + 60_000,
            "step {number}"
        );
    }
}

#[test]
fn extreme_readings_neither_wrap_nor_go_back() {
    for wall in [0, WALL, u64::MAX] {
        for quota_ms in [0, WALL, u64::MAX] {
            let saved = SavedClock {
                read: read(1, u64::MAX, wall),
                quota_ms,
            };
            for now in [
                read(1, 0, 0),
                read(2, u64::MAX, u64::MAX),
                read(1, u64::MAX, WALL),
            ] {
                let mut clock = QuotaClock::resume(&saved, &now);
                assert!(clock.at(now.boottime_ms).ms >= quota_ms);
                let _ = clock.step(&now);
                assert!(clock.at(u64::MAX).ms >= quota_ms);
                let _ = (
                    clock.at(0).of_wall(u64::MAX),
                    clock.at(u64::MAX).wall_of(0),
                    clock.save(&now),
                );
            }
        }
    }
}
