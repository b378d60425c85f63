//! The text format of Prometheus.

use std::fmt::Write;

use super::model::{Family, Kind, Value};

/// Writes families as text; those without a series are left out.
pub(super) fn write(families: &[Family]) -> String {
    let mut text = String::new();
    for family in families.iter().filter(|family| !family.series.is_empty()) {
        // Writing to a string does not fail.
        let _ = write_family(&mut text, family);
    }
    text
}

fn write_family(text: &mut String, family: &Family) -> std::fmt::Result {
    let name = family.name;
    let kind = match family.kind {
        Kind::Gauge => "gauge",
        Kind::Counter => "counter",
        Kind::Histogram => "histogram",
    };
    text.push_str("# HELP ");
    text.push_str(name);
    text.push(' ');
    escape(text, family.help, false);
    write!(text, "\n# TYPE {name} {kind}\n")?;
    for series in &family.series {
        let mut sample = |suffix: &str, le: Option<&str>, value: f64| {
            text.push_str(name);
            text.push_str(suffix);
            let labels = family.labels_of(series).chain(le.map(|le| ("le", le)));
            let mut before = '{';
            for (label, value) in labels {
                text.push(before);
                text.push_str(label);
                text.push_str("=\"");
                escape(text, value, true);
                text.push('"');
                before = ',';
            }
            if before == ',' {
                text.push('}');
            }
            writeln!(text, " {value}")
        };
        match &series.value {
            Value::Gauge(value) => sample("", None, *value)?,
            Value::Counter(count) => sample("", None, *count as f64)?,
            Value::Histogram(durations) => {
                for (edge, count) in &durations.buckets {
                    sample("_bucket", Some(&edge.to_string()), *count as f64)?;
                }
                sample("_bucket", Some("+Inf"), durations.count as f64)?;
                sample("_sum", None, durations.sum)?;
                sample("_count", None, durations.count as f64)?;
            }
        }
    }
    Ok(())
}

/// Appends a text that ends neither its line nor its quotes.
fn escape(text: &mut String, value: &str, is_quoted: bool) {
    for c in value.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '"' if is_quoted => text.push_str("\\\""),
            _ => text.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::model::samples;

    #[test]
    fn families_are_written_as_text() {
        let expected = r##"# HELP up 1 while up.
# TYPE up gauge
up 1
# HELP seen_total Seen,\nand\\or "read".
# TYPE seen_total counter
seen_total{bucket="api"} 7
seen_total{bucket="a\"b\\c\nd",mode="shadow"} 18446744073709552000
# HELP odd Odd values.
# TYPE odd gauge
odd{of="large"} 1000000000000000000000
odd{of="small"} 0.0000000015
odd{of="infinite"} inf
# HELP took_seconds Took.
# TYPE took_seconds histogram
took_seconds_bucket{bucket="api",le="0.1"} 1
took_seconds_bucket{bucket="api",le="1"} 3
took_seconds_bucket{bucket="api",le="+Inf"} 4
took_seconds_sum{bucket="api"} 1.5
took_seconds_count{bucket="api"} 4
"##;
        assert_eq!(write(&samples(1)), expected);
    }

    #[cfg(feature = "prometheus")]
    mod like_the_crate {
        use super::*;
        use crate::metrics::model::plain;
        use crate::metrics::prometheus::encoded;
        use crate::responses::Durations;
        use proptest::prelude::*;

        #[test]
        fn text_is_that_of_the_crate() {
            assert_eq!(write(&samples(3)), encoded(samples(3)));
        }

        proptest! {
            #[test]
            fn any_values_are_written_like_the_crate_does(
                labels in prop::collection::vec(("\\PC*|[\\\\\"\n a]*", any::<f64>(), any::<u64>()), 1..4),
                edges in prop::collection::vec((any::<f64>(), any::<u64>()), 0..4),
                sum in any::<f64>(),
                count: u64,
            ) {
                let gauges = labels.iter().map(|(label, value, _)| (vec![label.clone()], *value));
                let counters = labels.iter().map(|(label, _, count)| (vec![label.clone()], *count));
                let buckets = edges.into_iter().filter(|(edge, _)| *edge != f64::INFINITY).collect();
                let durations = Durations { buckets, sum, count };
                let families = vec![
                    Family::gauge("a", "A\n\\\"a\"", &["name"], gauges),
                    Family::counter("b_total", "B", &["name"], counters),
                    Family::histogram("c_seconds", "C", &[], plain(durations)),
                ];
                prop_assert_eq!(write(&families), encoded(families));
            }
        }
    }
}
