//! Plots of a run over time: the offered and admitted rates with the limit, and the refused share.

use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

use super::series::{BIN_S, Run, Series, TENANT_BINS};
use crate::error::PlotError;
use crate::scenario::Scenario;

/// Size of one bucket's panel with its legend, in pixels.
const PANEL: (u32, u32) = (1_120, 360);
/// Width of the legend next to the data.
const LEGEND: u32 = 160;
const LINE: i32 = 20;
/// Maximum length of a tenant's name in the legend, in characters.
const LABEL_CHARS: usize = 18;
const PANELS_MAX: usize = 16;
const POINTS: usize = 600;
const OFFERED: RGBColor = RGBColor(150, 150, 150);
const LIMIT: RGBColor = RGBColor(200, 30, 30);
const RATIO: RGBColor = RGBColor(230, 140, 20);
/// Colours of tenants from the bottom of the stack up, reused in turn.
const TENANTS: [RGBColor; 8] = [
    RGBColor(31, 119, 180),
    RGBColor(44, 160, 44),
    RGBColor(148, 103, 189),
    RGBColor(140, 86, 75),
    RGBColor(227, 119, 194),
    RGBColor(23, 190, 207),
    RGBColor(188, 189, 34),
    RGBColor(90, 110, 130),
];

/// Draws a run as SVG: one panel for each of the first 16 buckets, its tenants stacked.
///
/// # Errors
/// If the drawing fails or the file cannot be written.
pub fn svg(scenario: &Scenario, run: &Run, path: &Path) -> Result<(), PlotError> {
    let mut text = String::new();
    let panels = run.buckets.len().min(PANELS_MAX);
    draw(scenario, run, panels, &mut text)?;
    // The file is kept under version control, where it should end in one newline.
    std::fs::write(path, text.trim_end().to_owned() + "\n").map_err(|source| PlotError::Io {
        path: path.to_owned(),
        source,
    })
}

fn draw(scenario: &Scenario, run: &Run, panels: usize, text: &mut String) -> Result<(), PlotError> {
    let size = (PANEL.0, PANEL.1 * panels as u32);
    let root = SVGBackend::with_string(text, size).into_drawing_area();
    root.fill(&WHITE)?;
    for (index, area) in root.split_evenly((panels, 1)).iter().enumerate() {
        panel(scenario, index, &run.buckets[index], area)?;
    }
    Ok(root.present()?)
}

/// Returns the mean rate of each group of `group` bins, in requests/s, at the middle of the group.
fn rates(bins: &[u32], group: usize, bin_s: f64) -> Vec<(f64, f64)> {
    let span = group as f64 * bin_s;
    bins.chunks(group)
        .enumerate()
        .map(|(index, chunk)| {
            let count: u64 = chunk.iter().map(|count| u64::from(*count)).sum();
            (
                (index as f64 + 0.5) * span,
                count as f64 / (chunk.len() as f64 * bin_s),
            )
        })
        .collect()
}

/// Returns the time axis of a bucket: the length of one second of the run on it, and its unit.
/// Traffic from a file uses the time of that file.
fn time_axis(scenario: &Scenario, bucket: usize) -> (f64, &'static str) {
    let own = scenario
        .traffic
        .iter()
        .filter(|traffic| traffic.bucket == bucket);
    let speed = own
        .filter_map(|traffic| traffic.load.trace_speed())
        .fold(1.0, f64::max);
    match scenario.duration_s * speed {
        7_200.0.. => (speed / 3_600.0, "time, hours"),
        600.0.. => (speed / 60.0, "time, minutes"),
        _ => (speed, "time, seconds"),
    }
}

fn panel(
    scenario: &Scenario,
    index: usize,
    series: &Series,
    area: &DrawingArea<SVGBackend<'_>, Shift>,
) -> Result<(), PlotError> {
    let (area, beside) = area.split_horizontally(PANEL.0 - LEGEND);
    let (scale, time) = time_axis(scenario, index);
    let end = scenario.duration_s * scale;
    let mut legend: Vec<(String, RGBColor)> = Vec::new();
    let bucket = &scenario.buckets[index];
    // At least a tenth of a second, since shorter groups show mostly Poisson noise.
    let group = (series.all.offered.len().div_ceil(POINTS)).div_ceil(TENANT_BINS) * TENANT_BINS;
    let offered = rates(&series.all.offered, group, BIN_S);
    let admitted = rates(&series.all.admitted, group, BIN_S);
    let would = rates(&series.all.would, group, BIN_S);
    let top = offered
        .iter()
        .chain(&admitted)
        .map(|(_, rate)| *rate)
        .fold(bucket.limit.unwrap_or(1.0), f64::max);
    // The axis ends at four times the limit, so that the admitted rate remains visible.
    let top = bucket
        .limit
        .filter(|limit| *limit > 0.0)
        .map_or(top, |limit| top.min(limit * 4.0))
        * 1.05;
    let title = format!("{}: {}", scenario.name, bucket.name);
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 18))
        .margin(10)
        .x_label_area_size(34)
        .y_label_area_size(70)
        .right_y_label_area_size(50)
        .build_cartesian_2d(0.0..end, 0.0..top)?
        .set_secondary_coord(0.0..end, 0.0..105.0);
    let whole = |number: &f64| format!("{}", (number * 1e3).round() / 1e3);
    chart
        .configure_mesh()
        .x_desc(time)
        .y_desc("requests/s")
        .x_label_formatter(&whole)
        .y_label_formatter(&whole)
        .light_line_style(WHITE)
        .draw()?;
    chart
        .configure_secondary_axes()
        .y_desc("refused, %")
        .y_label_formatter(&whole)
        .draw()?;
    let mut layers = layers(series, group / TENANT_BINS);
    let names: Vec<String> = bucket.tenants.iter().map(ToString::to_string).collect();
    while let Some(layer) = layers.pop() {
        let colour = TENANTS[layers.len() % TENANTS.len()];
        let points = layer
            .into_iter()
            .map(|(t, rate)| (t * scale, rate.min(top)));
        chart.draw_series(AreaSeries::new(points, 0.0, pale(colour)).border_style(colour))?;
        let name = names[layers.len()].chars().take(LABEL_CHARS).collect();
        let label = if names.len() == 1 {
            "admitted".to_owned()
        } else {
            name
        };
        if names.len() <= TENANTS.len() {
            legend.push((label, colour));
        }
    }
    let ratio: Vec<(f64, f64)> = offered
        .iter()
        .zip(admitted.iter().zip(&would))
        .filter(|((_, offered), _)| *offered > 0.0)
        .map(|((t, offered), (admitted, would))| {
            (
                *t * scale,
                100.0 * (offered - admitted.1 + would.1) / offered,
            )
        })
        .collect();
    let clipped = offered
        .into_iter()
        .map(|(t, rate)| (t * scale, rate.min(top)));
    let limit = bucket
        .limit
        .map(|limit| (vec![(0.0, limit), (end, limit)], LIMIT, "limit"));
    for (points, colour, label) in [(clipped.collect(), OFFERED, "offered")]
        .into_iter()
        .chain(limit)
    {
        chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
        legend.push((label.to_owned(), colour));
    }
    chart.draw_secondary_series(LineSeries::new(ratio, RATIO))?;
    legend.push(("refused, %".to_owned(), RATIO));
    draw_legend(&legend, &beside)
}

/// Returns a pale colour that hides the areas below it, so that the stacked areas keep the colours
/// of the legend.
fn pale(RGBColor(red, green, blue): RGBColor) -> RGBColor {
    let towards_white = |part: u8| (u16::from(part) + 2 * 255).div_ceil(3) as u8;
    RGBColor(
        towards_white(red),
        towards_white(green),
        towards_white(blue),
    )
}

fn draw_legend(
    legend: &[(String, RGBColor)],
    area: &DrawingArea<SVGBackend<'_>, Shift>,
) -> Result<(), PlotError> {
    for ((label, colour), line) in legend.iter().zip(0..) {
        let y = 45 + LINE * line;
        area.draw(&Rectangle::new([(5, y), (19, y + 8)], colour.filled()))?;
        area.draw(&Text::new(label.as_str(), (25, y - 3), ("sans-serif", 15)))?;
    }
    Ok(())
}

/// Returns the admitted rate of each tenant, stacked on the tenants before it.
fn layers(series: &Series, group: usize) -> Vec<Vec<(f64, f64)>> {
    let mut layers: Vec<Vec<(f64, f64)>> = Vec::new();
    for tenant in &series.tenants {
        let mut layer = rates(&tenant.admitted, group, BIN_S * TENANT_BINS as f64);
        if let Some(below) = layers.last() {
            layer
                .iter_mut()
                .zip(below)
                .for_each(|((_, rate), (_, below))| *rate += below);
        }
        layers.push(layer);
    }
    layers
}
