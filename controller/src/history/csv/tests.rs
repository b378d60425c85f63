//! Files as they are exported, as other tools write them, and wrong ones.

use super::*;
use crate::brain::tests::policy;

fn parse(text: &str) -> Result<Import, CsvError> {
    let policy = policy("buckets: { api: { limit: 1 }, \"shop/*\": { limit: 1 } }");
    Import::parse(text, &policy, Day(20_000))
}

fn written(minute: &MinuteSamples, buckets: &[Bucket]) -> String {
    let mut text = format!("{HEADER}\n");
    append(&mut text, minute, buckets);
    text
}

#[test]
fn exported_rows_are_imported_again() {
    let bucket = |name: &str| Bucket::new(name).unwrap();
    let sample = |rps, clean| Sample {
        offered: Rate::new(rps).unwrap(),
        clean,
    };
    let minute = Minute(1_000_000);
    let samples: BTreeMap<Bucket, Sample> = [
        (bucket("api"), sample(12.5, true)),
        (bucket("shop/a"), sample(1e6, false)),
    ]
    .into();
    let minutes = MinuteSamples {
        minute,
        samples: samples.clone(),
    };
    let text = written(&minutes, &[]);
    assert_eq!(
        text,
        "time_utc,bucket,offered_rps,clean\n1971-11-26T10:40:00Z,api,12.500,true\n\
         1971-11-26T10:40:00Z,shop/a,1000000.000,false\n"
    );
    assert_eq!(
        read_written(text.as_bytes()),
        (vec![minutes.clone()], Vec::new())
    );
    assert_eq!(parse(&text).unwrap().minutes, [(minute, samples)].into());
    assert_eq!(
        written(&minutes, &[bucket("api")]).lines().count(),
        2,
        "the columns and one row"
    );
}

#[test]
fn odd_csv_rows_are_counted() {
    let text = "\u{feff}time_utc, bucket, offered_rps\r\n\r\n2024-10-03T10:00:30Z, api, 5\r\n\
                2024-10-03T10:01:00Z,api,0\r\n2024-10-04T10:00:00Z,api,7\r\n";
    let import = parse(text).unwrap();
    assert_eq!(
        (
            import.minutes.len(),
            import.rows_of_today,
            import.rows_of_nothing
        ),
        (1, 1, 1)
    );
    let days = import.days();
    let ((bucket, day), samples) = days.first_key_value().unwrap();
    assert_eq!(
        (bucket.as_str(), *day, samples.clean()),
        ("api", Day(19_999), 1)
    );
}

#[test]
fn error_names_its_line() {
    let row = |row: &str| format!("{HEADER}\n2024-10-01T10:00:00Z,api,1,true\n{row}\n");
    for (text, line, reason) in [
        (String::new(), 1, "the first line is not"),
        ("t_s,rps\n0,1\n".to_owned(), 1, "the first line is not"),
        (row("2024-10-01T10:01:00Z,api,1"), 3, "3 values, not 4"),
        (
            row("\n \r\n2024-10-01T10:01:00Z,api,1"),
            5,
            "3 values, not 4",
        ),
        (row("yesterday,api,1,true"), 3, "not a point in time"),
        (row("2024-10-01T10:01:00Z,a b,1,true"), 3, "name"),
        (
            row("2024-10-01T10:01:00Z,other,1,true"),
            3,
            "no entry for bucket other",
        ),
        (row("2024-10-01T10:01:00Z,api,NaN,true"), 3, "offered_rps"),
        (row("2024-10-01T10:01:00Z,api,inf,true"), 3, "offered_rps"),
        (row("2024-10-01T10:01:00Z,api,-1,true"), 3, "offered_rps"),
        (row("2024-10-01T10:01:00Z,api,x,true"), 3, "offered_rps"),
        (row("2024-10-01T10:01:00Z,api,1,yes"), 3, "clean"),
        (row("2024-10-05T10:01:00Z,api,1,true"), 3, "future"),
        (row("2024-10-01T10:00:59Z,api,1,true"), 3, "given before"),
        (
            row("2024-10-01T10:00:59Z,api,1,true").replace('\n', "\r\n"),
            3,
            "given before",
        ),
    ] {
        let error = parse(&text).unwrap_err();
        assert_eq!(error.line, line, "{text}");
        assert!(error.reason.contains(reason), "{error}");
    }
}
