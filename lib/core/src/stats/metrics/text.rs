//! The text format of Prometheus.

use std::fmt::Write;

use super::{Family, Value};

/// Returns families as text; those without a series are left out.
pub fn text(families: &[Family]) -> String {
    let mut text = String::new();
    for family in families.iter().filter(|family| !family.series.is_empty()) {
        // Writing to a string does not fail.
        let _ = write_family(&mut text, family);
    }
    text
}

fn write_family(text: &mut String, family: &Family) -> std::fmt::Result {
    let (name, kind) = (family.about.name, family.about.kind.as_str());
    text.push_str("# HELP ");
    text.push_str(name);
    text.push(' ');
    escape(text, family.about.help, false);
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
            Value::Number(value) => sample("", None, *value)?,
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
    use super::super::{Durations, Metric, families, one, rows};
    use super::*;

    #[test]
    fn families_are_written_as_text() {
        let table: [Metric<()>; 5] = [
            Metric::gauge("up", &[], "1 while up.", |()| one(true)),
            Metric::counter(
                "seen_total",
                &["bucket", "mode"],
                "Seen,\nand\\or \"read\".",
                |()| rows([(["api", ""], 7_u64), (["a\"b\\c\nd", "shadow"], u64::MAX)]),
            ),
            Metric::counter("none_total", &[], "Without series.", |()| Vec::new()),
            Metric::gauge("odd", &["of"], "Odd values.", |()| {
                rows([
                    (["large"], 1e21),
                    (["small"], 1.5e-9),
                    (["infinite"], f64::INFINITY),
                ])
            }),
            Metric::histogram("took_seconds", &["bucket"], "Took.", |()| {
                rows([(
                    ["api"],
                    Durations {
                        buckets: vec![(0.1, 1), (1.0, 3)],
                        sum: 1.5,
                        count: 4,
                    },
                )])
            }),
        ];
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
        assert_eq!(text(&families(&table, &())), expected);
    }
}
