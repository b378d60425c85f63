//! The rendered page, compared with the Prometheus text format.

use super::*;

#[test]
fn page_is_valid_prometheus_text() {
    let mut page = Page::default();
    page.gauge("plimsoll_epoch", "The epoch.", &[], plain(3.0));
    page.counter("plimsoll_x_total", "X.", &["why"], [(vec!["a\"b".to_owned()], 2.0)]);
    let counts = HistogramCounts { up_to: vec![(0.1, 2), (0.5, 3)], sum: 1.5, count: 4 };
    page.histogram("plimsoll_y_seconds", "Y.", &["bucket"], [(vec!["b".to_owned()], counts)]);
    page.histogram("plimsoll_z_seconds", "Z.", &[], []);
    let text = page.text();
    for line in [
        "# TYPE plimsoll_y_seconds histogram",
        "plimsoll_y_seconds_bucket{bucket=\"b\",le=\"0.1\"} 2",
        "plimsoll_y_seconds_bucket{bucket=\"b\",le=\"+Inf\"} 4",
        "plimsoll_y_seconds_sum{bucket=\"b\"} 1.5",
        "plimsoll_y_seconds_count{bucket=\"b\"} 4",
    ] {
        assert!(text.contains(&format!("{line}\n")), "{line}: {text}");
    }
    assert!(text.contains("# TYPE plimsoll_epoch gauge\nplimsoll_epoch 3\n"), "{text}");
    assert!(text.contains("# TYPE plimsoll_x_total counter\nplimsoll_x_total{why=\"a\\\"b\"} 2\n"), "{text}");
}
