//! Figures of handmade bins, compared with results computed on paper.

use super::*;

const LIMIT: f64 = 1_000.0; // 10 in each bin

/// Creates a series of parts: a length in seconds, and the requests offered and admitted in each
/// bin.
fn series(parts: &[(f64, u32, u32)]) -> Series {
    let mut series = Series::default();
    let mut tenant = Totals::default();
    for (seconds, offered, admitted) in parts {
        let bins = (seconds / BIN_S).round() as usize;
        series
            .all
            .offered
            .extend(std::iter::repeat_n(*offered, bins));
        series
            .all
            .admitted
            .extend(std::iter::repeat_n(*admitted, bins));
        tenant
            .offered
            .extend(std::iter::repeat_n(offered * 10, bins / TENANT_BINS));
        tenant
            .admitted
            .extend(std::iter::repeat_n(admitted * 10, bins / TENANT_BINS));
    }
    series.all.would = vec![0; series.all.offered.len()];
    tenant.would = vec![0; tenant.offered.len()];
    series.tenants.push(tenant);
    series
}

fn view(from: f64, to: f64) -> View {
    View {
        window_s: (from, to),
        limit: Some(LIMIT),
        v: false,
        last_change_s: None,
    }
}

fn figures(parts: &[(f64, u32, u32)], view: &View) -> Figures {
    Figures::of(&series(parts), view)
}

fn check(figure: Option<f64>, expected: f64) {
    let figure = figure.expect("there is a figure");
    assert!(
        (figure - expected).abs() < 1e-9,
        "{figure} instead of {expected}"
    );
}

#[test]
fn steady_run_at_the_limit_errs_nowhere() {
    let figures = figures(&[(100.0, 20, 10)], &view(10.0, 100.0));
    assert_eq!(
        (figures.offered_rps.round(), figures.admitted_rps.round()),
        (2_000.0, 1_000.0)
    );
    check(figures.long_run_error, 0.0);
    check(figures.worst_1s, 1.0);
    check(figures.p99_1s, 1.0);
    check(figures.worst_10s, 1.0);
    check(figures.error_60s, 0.0);
    check(figures.goodput_lost, 0.0);
    check(figures.requests.drop_ratio(), 0.5);
    check(figures.mean_ratio, 1.0);
    check(figures.conformance_burst_s, 0.0);
    assert_eq!(figures.settle_s, None, "nothing changed by a script");
    check(figures.tenants[0].requests.drop_ratio(), 0.5);
    assert_eq!(figures.tenants[0].admitted_rps.round(), 1_000.0);
}

#[test]
fn windows_slide_by_bins_within_the_span() {
    // Half a second at three times the limit: a second that contains it has 2.0, and the worst 10 s have 1.1.
    let burst = [(30.0, 40, 10), (0.5, 40, 30), (30.0, 40, 10)];
    let whole = figures(&burst, &view(0.0, 60.5));
    check(whole.worst_1s, 2.0);
    check(whole.worst_10s, 1.1);
    check(whole.p99_10s, 1.1);
    check(whole.conformance_burst_s, 1.0);
    // 149 of 5,951 windows of a second overlap the burst; 51 of them contain it, and 60 are above the
    // percentile.
    check(whole.p99_1s, 2.0 - 2.0 * 0.05);
    // The burst before the span does not count, nor does a span shorter than the window.
    check(figures(&burst, &view(30.5, 60.5)).worst_1s, 1.0);
    assert_eq!(figures(&burst, &view(0.0, 0.9)).worst_1s, None);
    check(figures(&burst, &view(0.0, 1.0)).worst_1s, 1.0);
    assert_eq!(figures(&burst, &view(0.0, 59.9)).error_60s, None);
}

#[test]
fn worst_minute_keeps_its_sign() {
    let figures = figures(
        &[(60.0, 40, 9), (60.0, 40, 10), (6.0, 40, 15)],
        &view(0.0, 126.0),
    );
    check(figures.error_60s, -0.1);
}

#[test]
fn long_run_error_needs_overload_around_bins() {
    // 20 s at half the limit, 40 s at twice, 20 s at half. The mean of 10 s exceeds the limit if more than a
    // third of them are in the overload.
    let parts = [(20.0, 5, 5), (40.0, 20, 11), (20.0, 5, 5)];
    let error = figures(&parts, &view(0.0, 80.0)).long_run_error;
    // Before: from 23.33 s (bin 2333) on; after: up to 56.66 s. Only bins at 11 are among them.
    check(error, 0.1);
    let none = [(20.0, 5, 5), (60.0, 9, 9)];
    assert_eq!(figures(&none, &view(0.0, 80.0)).long_run_error, None);
    // An offered load equal to the limit is no overload.
    assert_eq!(
        figures(&[(40.0, 10, 9)], &view(0.0, 40.0)).long_run_error,
        None
    );
    // A square load, half of the time at four times the limit, is overloaded throughout.
    let square: Vec<(f64, u32, u32)> = (0..40).flat_map(|_| [(0.5, 40, 19), (0.5, 0, 0)]).collect();
    check(figures(&square, &view(0.0, 30.0)).long_run_error, -0.05);
}

#[test]
fn overload_windows_end_with_the_run() {
    // At 12 s of a 12.5 s run, the window ahead has only half a second.
    let parts = [(2.5, 30, 8), (10.0, 30, 12)];
    check(figures(&parts, &view(12.0, 12.5)).long_run_error, 0.2);
}

#[test]
fn goodput_is_lost_below_the_possible() {
    // 10 s under the limit with nothing lost, then 10 s over it with a fifth lost.
    let figures = figures(&[(10.0, 5, 5), (10.0, 20, 8)], &view(0.0, 20.0));
    let windows_low = 901.0;
    let windows_high = 901.0;
    // Mixed windows with j bins of the second kind: offered 500 + 15 j, admitted 500 + 3 j.
    let (mut lost, mut due) = (
        windows_high * 200.0,
        windows_low * 500.0 + windows_high * 1_000.0,
    );
    for j in 1..100 {
        let could = f64::from(500 + 15 * j).min(1_000.0);
        due += could;
        lost += (could - f64::from(500 + 3 * j)).max(0.0);
    }
    check(figures.goodput_lost, lost / due);
    // Admitting too much later does not make up for too little before.
    let swing = self::figures(&[(5.0, 20, 5), (5.0, 20, 15)], &view(0.0, 10.0));
    assert!(swing.goodput_lost.unwrap() > 0.2);
    check(swing.mean_ratio, 1.0);
}

#[test]
fn settling_starts_three_seconds_within_the_band() {
    let change = |parts: &[(f64, u32, u32)], at| {
        figures(
            parts,
            &View {
                last_change_s: Some(at),
                ..view(0.0, 1.0)
            },
        )
        .settle_s
    };
    // Immediately: the trailing mean needs half a second to cover only the new load, 5 % of 10
    // against 40 is 0.4 off.
    let parts = [(20.0, 8, 8), (2.0, 100, 40), (20.0, 100, 10)];
    // The trailing 0.5 s with j bins at 40 admits 10 + 0.6 j per bin on average: within 5 % up to j = 0.8, so
    // none.
    check(change(&parts, 20.0), 2.5);
    check(change(&[(40.0, 8, 8)], 20.0), 0.0);
    // A relapse within 3 s restarts the settling time.
    let relapse = [
        (20.0, 8, 8),
        (1.0, 100, 40),
        (2.0, 100, 10),
        (0.1, 100, 40),
        (20.0, 100, 10),
    ];
    check(change(&relapse, 20.0), 3.6);
    assert_eq!(
        change(&[(20.0, 8, 8), (20.0, 100, 20)], 20.0),
        Some(f64::INFINITY)
    );
    assert_eq!(
        change(&[(22.0, 8, 8)], 20.0),
        None,
        "the run is too short to tell"
    );
    // Below the limit all of the offered load must pass.
    check(
        change(&[(20.0, 100, 10), (1.0, 8, 4), (20.0, 8, 8)], 20.0),
        1.0 + 0.45,
    );
}

#[test]
fn conformance_burst_is_the_worst_interval() {
    // +5 s * 10, back by 1 s * 10, +3 s * 10: the best interval spans all three.
    let parts = [
        (5.0, 40, 20),
        (1.0, 40, 0),
        (3.0, 40, 20),
        (10.0, 40, 0),
        (1.0, 40, 20),
    ];
    check(figures(&parts, &view(0.0, 20.0)).conformance_burst_s, 7.0);
}

#[test]
fn enforced_view_counts_would_drops_as_dropped() {
    let mut shadow = series(&[(20.0, 20, 20)]);
    shadow.all.would = vec![9; shadow.all.offered.len()];
    shadow.tenants[0].would = vec![90; shadow.tenants[0].offered.len()];
    let passed = Figures::of(&shadow, &view(0.0, 20.0));
    check(passed.worst_1s, 2.0);
    check(passed.requests.drop_ratio(), 0.45);
    check(passed.tenants[0].requests.drop_ratio(), 0.45);
    let would = Figures::of(
        &shadow,
        &View {
            v: true,
            ..view(0.0, 20.0)
        },
    );
    check(would.worst_1s, 1.1);
    check(would.requests.drop_ratio(), 0.45);
    check(would.long_run_error, 0.1);
    assert_eq!(would.tenants[0].admitted_rps.round(), 1_100.0);
}

#[test]
fn limit_ratios_need_a_limit() {
    let unlimited = Figures::of(
        &series(&[(20.0, 20, 20)]),
        &View {
            limit: None,
            ..view(0.0, 20.0)
        },
    );
    assert_eq!(
        (
            unlimited.worst_1s,
            unlimited.mean_ratio,
            unlimited.goodput_lost
        ),
        (None, None, None)
    );
    check(unlimited.requests.drop_ratio(), 0.0);
    let denied = Figures::of(
        &series(&[(20.0, 20, 0)]),
        &View {
            limit: Some(0.0),
            ..view(0.0, 20.0)
        },
    );
    assert_eq!(denied.worst_1s, None);
    check(denied.requests.drop_ratio(), 1.0);
    let idle = Figures::of(&series(&[(20.0, 0, 0)]), &view(0.0, 20.0));
    assert_eq!(
        (idle.requests.drop_ratio(), idle.goodput_lost),
        (None, None)
    );
}
