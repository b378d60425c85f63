//! The curves of goodput as a picture for the README. The background is part of it, so that it reads on dark pages too.

use plotters::element::DashedPathElement;
use plotters::prelude::*;

use crate::goodput::{CAPACITY, Curves, LIMIT, ORDINARY, ORDINARY_RPS, Point};
use crate::root;

const SIZE: (u32, u32) = (860, 470);
const PAPER: RGBColor = RGBColor(255, 255, 255);
const INK: RGBColor = RGBColor(36, 41, 47);
const FAINT: RGBColor = RGBColor(225, 228, 232);
const GREY: RGBColor = RGBColor(110, 119, 129);
const WITH: RGBColor = RGBColor(9, 105, 218);
const WITHOUT: RGBColor = RGBColor(207, 34, 46);

/// Draws docs/goodput.svg.
pub(crate) fn draw(curves: &Curves) {
    let path = root().join("docs/goodput.svg");
    let area = SVGBackend::new(&path, SIZE).into_drawing_area();
    area.fill(&PAPER).unwrap();
    let text = |size: u32| ("sans-serif", size).into_font().color(&INK);
    let offered_max = curves.with.iter().map(|point| point.offered).fold(CAPACITY, f64::max) * 1.03;
    let mut chart = ChartBuilder::on(&area)
        .margin(16)
        .x_label_area_size(46)
        .y_label_area_size(58)
        .caption("Useful answers while one tenant asks for more and more", text(19))
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
    chart.draw_series(DashedLineSeries::new(level(CAPACITY), 3, 4, GREY.stroke_width(1))).unwrap();
    let even = ORDINARY_RPS * ORDINARY as f64;
    chart.draw_series(DashedLineSeries::new(level(even), 3, 4, GREY.stroke_width(1))).unwrap();
    let notes = [
        (CAPACITY, format!("capacity {CAPACITY:.0}/s")),
        (even, format!("asked for by the {ORDINARY} ordinary tenants")),
    ];
    for (rate, note) in notes {
        let place = (offered_max * 0.995, rate + 6.0);
        let style = ("sans-serif", 12).into_font().color(&GREY);
        let style = style.pos(plotters::style::text_anchor::Pos::new(
            plotters::style::text_anchor::HPos::Right,
            plotters::style::text_anchor::VPos::Bottom,
        ));
        chart.draw_series([Text::new(note, place, style)]).unwrap();
    }

    let all = |point: &Point| (point.offered, point.useful);
    let ordinary = |point: &Point| (point.offered, point.ordinary_useful);
    for (points, colour, who) in [
        (&curves.with, WITH, format!("with Plimsoll, limit {LIMIT}/s")),
        (&curves.without, WITHOUT, "without".to_owned()),
    ] {
        let line: Vec<(f64, f64)> = points.iter().map(all).collect();
        let thick = colour.stroke_width(3);
        let dots = line.iter().map(|place| Circle::new(*place, 4, colour.filled()));
        chart.draw_series(dots).unwrap();
        chart
            .draw_series(LineSeries::new(line.iter().copied(), thick))
            .unwrap()
            .label(format!("{who}: all tenants"))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 28, y)], thick));

        let line: Vec<(f64, f64)> = points.iter().map(ordinary).collect();
        let thin = colour.stroke_width(2);
        let dots = line.iter().map(|place| Circle::new(*place, 3, colour.filled()));
        chart.draw_series(dots).unwrap();
        chart
            .draw_series(DashedLineSeries::new(line.iter().copied(), 8, 5, thin))
            .unwrap()
            .label(format!("{who}: ordinary tenants"))
            .legend(move |(x, y)| DashedPathElement::new([(x, y), (x + 28, y)], 8, 5, thin));
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
    println!("drawn in {}", path.display());
}
