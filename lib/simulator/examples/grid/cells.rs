//! Cells of the grid: any number of names at any load. The example runs all of them, a test some.

use std::fmt::Write as _;
use std::path::Path;

use plimsoll_policy::Source;
use plimsoll_simulator::{Scenario, ScenarioError, judged, run};

/// Numbers of names; `None` for names that are never used twice.
pub(crate) const NAMES: [Option<u32>; 9] = [
    Some(1),
    Some(10),
    Some(100),
    Some(500),
    Some(1_000),
    Some(3_000),
    Some(10_000),
    Some(100_000),
    None,
];
/// Loads of the names, as multiples of the limit.
pub(crate) const OFFERED: [f64; 4] = [1.05, 1.65, 3.0, 10.0];
/// Limits in requests/s.
pub(crate) const LIMITS: [u32; 4] = [20, 100, 1_000, 10_000];
const CLIENTS: [u32; 2] = [1, 20];
const TICKS_MS: [u32; 2] = [500, 250];
/// Seconds without traffic at the start.
const QUIET_S: u32 = 10;
/// Highest load that runs for the whole time, in requests/s.
const LONG_RPS: f64 = 30_000.0;
const LONG_S: u32 = 40;
const SHORT_S: u32 = 30;

/// Traffic next to the names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beside {
    Nothing,
    /// A listed tenant of 0.2 L.
    Listed,
    /// An unlisted tenant of 1 L.
    Heavy,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    pub(crate) names: Option<u32>,
    pub(crate) offered: f64,
    pub(crate) limit: u32,
    clients: u32,
    zones: u32,
    beside: Beside,
    tick_ms: u32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    /// Admitted / min(limit, offered) from 3 s after the traffic's start on, and from 10 s on.
    pub(crate) ratio_3s: f64,
    pub(crate) ratio_10s: f64,
    /// Maximum number of requests admitted in a second, from 3 s on, as a multiple of the limit.
    pub(crate) worst_1s: f64,
}

pub(crate) fn all() -> Vec<Cell> {
    let mut cells = Vec::new();
    for names in NAMES {
        for offered in OFFERED {
            for limit in LIMITS {
                for beside in [Beside::Nothing, Beside::Listed, Beside::Heavy] {
                    for (clients, tick_ms) in CLIENTS
                        .into_iter()
                        .flat_map(|n| TICKS_MS.map(|tick| (n, tick)))
                    {
                        // Zones, clients and ticks alternate.
                        let zones = if (cells.len() + cells.len() / 4) % 2 == 0 {
                            1
                        } else {
                            3
                        };
                        cells.push(Cell {
                            names,
                            offered,
                            limit,
                            clients,
                            zones,
                            beside,
                            tick_ms,
                        });
                    }
                }
            }
        }
    }
    cells
}

impl Cell {
    /// Has no commas.
    pub(crate) fn name(&self) -> String {
        let Self {
            offered,
            limit,
            clients,
            zones,
            beside,
            tick_ms,
            ..
        } = self;
        let names = self
            .names
            .map_or("once".to_owned(), |names| names.to_string());
        format!(
            "{names} names; {offered} L; L {limit}; {clients} clients; {zones} zones; {beside:?}; {tick_ms} ms"
        )
    }

    fn scenario(&self) -> Result<Scenario, ScenarioError> {
        let Self {
            limit,
            clients,
            zones,
            tick_ms,
            ..
        } = self;
        let rps = self.offered * f64::from(*limit);
        let end = QUIET_S + if rps > LONG_RPS { SHORT_S } else { LONG_S };
        let names = self
            .names
            .map_or("once: true".to_owned(), |names| format!("count: {names}"));
        let mut text = format!(
            "name: cell\nduration_s: {end}\nzones: {zones}\nclients: {clients}\ntick_ms: {tick_ms}\n\
             policy: {{ buckets: {{ api: {{ limit: {limit}, mode: enforce }} }} }}\n\
             tenants: {{ tenants: {{ default: {{ weight: 1.0 }}, listed: {{ weight: 1.0 }} }} }}\ntraffic:\n"
        );
        let mut traffic = |tenant: &str, rps: f64| {
            // Writing to a string never fails.
            let _ = writeln!(
                text,
                "  - {{ bucket: api, {tenant}, load: {{ steps: [ {{ at_s: {QUIET_S}, rps: {rps} }} ] }} }}"
            );
        };
        traffic(&format!("tenant: user, names: {{ {names} }}"), rps);
        match self.beside {
            Beside::Nothing => {}
            Beside::Listed => traffic("tenant: listed", 0.2 * f64::from(*limit)),
            Beside::Heavy => traffic("tenant: heavy", f64::from(*limit)),
        }
        text.push_str("expect:\n  api:\n");
        for from in [3, 10] {
            let from = QUIET_S + from;
            let _ = writeln!(text, "    - window_s: [{from}, {end}]");
            for figure in ["offered_rps", "admitted_rps", "worst_1s"] {
                let _ = writeln!(text, "      {figure}: [0, 1e9]");
            }
        }
        Ok(Scenario::parse(
            Source {
                name: "cell.yaml",
                text: &text,
            },
            Path::new("."),
        )?
        .swap_remove(0))
    }

    /// Runs the cell.
    ///
    /// # Errors
    /// If its scenario is not valid.
    pub(crate) fn run(&self, seed: u64) -> Result<Figures, ScenarioError> {
        let scenario = self.scenario()?;
        let judged = judged(&scenario, &[run(&scenario, seed)]);
        let figure = |from: u32, name: &str| {
            let of = |from: u32| f64::from(QUIET_S + from);
            let found = judged
                .iter()
                .find(|one| one.figure == name && one.window_s.0 == of(from));
            found.and_then(|one| one.value).unwrap_or(f64::NAN)
        };
        let ratio = |from| {
            figure(from, "admitted_rps") / figure(from, "offered_rps").min(f64::from(self.limit))
        };
        Ok(Figures {
            ratio_3s: ratio(3),
            ratio_10s: ratio(10),
            worst_1s: figure(3, "worst_1s"),
        })
    }

    pub(crate) fn faults(&self, figures: Figures) -> Vec<String> {
        let Figures {
            ratio_3s,
            ratio_10s,
            worst_1s,
        } = figures;
        let small = self.limit <= 20;
        let (least, most) = if small { (0.90, 1.05) } else { (0.97, 1.03) };
        let worst = match self.limit {
            10_000.. => 1.15,
            1_000.. => 1.25,
            100.. => 1.6,
            _ => 2.7,
        };
        let checks = [
            (
                (least..=most).contains(&ratio_10s),
                "admitted from 10 s on",
                ratio_10s,
            ),
            (small || ratio_3s >= 0.96, "admitted from 3 s on", ratio_3s),
            (worst_1s <= worst, "worst second", worst_1s),
        ];
        let broken = checks.into_iter().filter(|(holds, ..)| !holds);
        broken
            .map(|(_, what, value)| format!("{}: {what} {value:.3}", self.name()))
            .collect()
    }
}
