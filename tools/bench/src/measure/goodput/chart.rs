//! The chart of goodput for the README. It has its own background, so that it is readable on dark pages too.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{CAPACITY, Curves, LIMIT, ORDINARY, ORDINARY_RPS, Point};
use crate::measure::root;

const SIZE: (u32, u32) = (860, 470);
const PAPER: RGBColor = RGBColor(255, 255, 255);
const INK: RGBColor = RGBColor(36, 41, 47);
const FAINT: RGBColor = RGBColor(225, 228, 232);
const GREY: RGBColor = RGBColor(110, 119, 129);
const WITH: [RGBColor; 2] = [RGBColor(9, 105, 218), RGBColor(84, 174, 255)];
const WITHOUT: [RGBColor; 2] = [RGBColor(207, 34, 46), RGBColor(255, 129, 130)];

pub(crate) fn draw(curves: &Curves) {
    let path = root().join("docs/goodput.svg");
    let area = SVGBackend::new(&path, SIZE).into_drawing_area();
    area.fill(&PAPER).unwrap();
    let text = |size: u32| ("sans-serif", size).into_font().color(&INK);
    let offered_max = curves
        .with
        .iter()
        .map(|point| point.offered)
        .fold(CAPACITY, f64::max)
        * 1.03;
    let mut chart = ChartBuilder::on(&area)
        .margin(16)
        .x_label_area_size(46)
        .y_label_area_size(58)
        .caption(
            "Useful answers while one tenant sends more and more requests",
            text(19),
        )
        .build_cartesian_2d(0.0..offered_max, 0.0..CAPACITY * 1.5)
        .unwrap();
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(PAPER)
        .bold_line_style(FAINT)
        .axis_style(GREY)
        .label_style(text(13))
        .axis_desc_style(text(14))
        .x_desc("offered by all tenants, requests/s")
        .y_desc("useful answers/s")
        .x_label_formatter(&|rate| format!("{rate:.0}"))
        .y_label_formatter(&|rate| format!("{rate:.0}"))
        .draw()
        .unwrap();

    let level = |rate: f64| [(0.0, rate), (offered_max, rate)];
    chart
        .draw_series(DashedLineSeries::new(
            level(CAPACITY),
            3,
            4,
            GREY.stroke_width(1),
        ))
        .unwrap();
    let even = ORDINARY_RPS * ORDINARY as f64;
    chart
        .draw_series(DashedLineSeries::new(
            level(even),
            3,
            4,
            GREY.stroke_width(1),
        ))
        .unwrap();
    let notes = [
        (
            CAPACITY,
            format!("capacity {CAPACITY:.0}/s; limit {LIMIT}/s"),
        ),
        (even, format!("offered by the {ORDINARY} ordinary tenants")),
    ];
    for (rate, note) in notes {
        let place = (offered_max * 0.995, rate + 6.0);
        let style = ("sans-serif", 12).into_font().color(&GREY);
        let style = style.pos(Pos::new(HPos::Right, VPos::Bottom));
        chart.draw_series([Text::new(note, place, style)]).unwrap();
    }

    let all: fn(&Point) -> (f64, f64) = |point| (point.offered, point.useful);
    let ordinary: fn(&Point) -> (f64, f64) = |point| (point.offered, point.ordinary_useful);
    for (label, points, read, colour, width) in [
        ("with Plimsoll: all tenants", &curves.with, all, WITH[0], 3),
        (
            "with Plimsoll: ordinary tenants",
            &curves.with,
            ordinary,
            WITH[1],
            2,
        ),
        ("without: all tenants", &curves.without, all, WITHOUT[0], 3),
        (
            "without: ordinary tenants",
            &curves.without,
            ordinary,
            WITHOUT[1],
            2,
        ),
    ] {
        let style = colour.stroke_width(width);
        let dots = points
            .iter()
            .map(|point| Circle::new(read(point), width + 1, colour.filled()));
        chart.draw_series(dots).unwrap();
        chart
            .draw_series(LineSeries::new(points.iter().map(read), style))
            .unwrap()
            .label(label)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 28, y)], style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .legend_area_size(38)
        .label_font(text(13))
        .background_style(PAPER)
        .border_style(FAINT)
        .draw()
        .unwrap();
    area.present().unwrap();
    println!("chart written to {}", path.display());
}
