//! The answer of a Prometheus server as one number: a limit in requests/s, or a value that a query gate
//! compares. Pure.

use plimsoll_core::quantity::Rate;
use serde::Deserialize;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AnswerError {
    /// The body is not the JSON of a Prometheus server.
    #[error("not an answer of a Prometheus server: {0}")]
    Malformed(String),
    #[error("the server refused the query: {0}")]
    Refused(String),
    #[error("the query yields no series; check that the metric exists and is scraped")]
    Empty,
    #[error("the query yields {0} series, and it takes one number; wrap it in sum() or max()")]
    Several(usize),
    #[error(
        "the query yields a {0}, not a number; a range needs a function such as rate() or max_over_time()"
    )]
    Kind(String),
    /// The number cannot be a limit.
    #[error("the query yields {0}, and a limit is a finite number of requests/s, zero or more")]
    Limit(String),
    #[error("the query yields {0}, which is no number")]
    Number(String),
}

#[derive(Deserialize)]
#[serde(tag = "status", rename_all = "lowercase")]
enum Answer {
    Success { data: Data },
    Error { error: String },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Data {
    result_type: String,
    result: serde_json::Value,
}

#[derive(Deserialize)]
struct Series {
    value: Point,
}

/// The time in seconds since 1970, and the value as text.
type Point = (f64, String);

/// Returns the one number in the answer to an instant query, as it is written there: it need not be finite.
///
/// # Errors
/// When the answer holds no number, or several.
pub(crate) fn single(body: &[u8]) -> Result<String, AnswerError> {
    let malformed = |error: serde_json::Error| AnswerError::Malformed(error.to_string());
    let data = match serde_json::from_slice(body).map_err(malformed)? {
        Answer::Success { data } => data,
        Answer::Error { error } => return Err(AnswerError::Refused(error)),
    };
    let (_, text) = match data.result_type.as_str() {
        "vector" => {
            let mut series: Vec<Series> = serde_json::from_value(data.result).map_err(malformed)?;
            match (series.pop(), series.len()) {
                (Some(one), 0) => one.value,
                (None, _) => return Err(AnswerError::Empty),
                (Some(_), others) => return Err(AnswerError::Several(others + 1)),
            }
        }
        "scalar" => serde_json::from_value::<Point>(data.result).map_err(malformed)?,
        _ => return Err(AnswerError::Kind(data.result_type)),
    };
    Ok(text)
}

/// Reads a number as a limit in requests/s.
///
/// # Errors
/// When it is not a finite number, or less than zero.
pub(crate) fn rate(text: &str) -> Result<Rate, AnswerError> {
    let number: Option<f64> = text.parse().ok();
    number
        .and_then(|number| Rate::new(number).ok())
        .ok_or_else(|| AnswerError::Limit(text.to_owned()))
}

/// Reads a number for a gate. Infinities and NaN are read, so that the gate can name what it refuses.
///
/// # Errors
/// When the text is no number.
pub(crate) fn number(text: &str) -> Result<f64, AnswerError> {
    text.parse()
        .map_err(|_| AnswerError::Number(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(values: &[&str]) -> String {
        let series: Vec<String> = values
            .iter()
            .map(|value| format!(r#"{{"metric":{{}},"value":[1.5,"{value}"]}}"#))
            .collect();
        format!(
            r#"{{"status":"success","data":{{"resultType":"vector","result":[{}]}},"warnings":[]}}"#,
            series.join(",")
        )
    }

    #[test]
    fn only_single_series_and_scalars_are_limits() {
        let scalar =
            r#"{"status":"success","data":{"resultType":"scalar","result":[1716,"12.5"]}}"#;
        for (body, expected) in [
            (vector(&["700"]), 700.0),
            (vector(&["0"]), 0.0),
            (scalar.to_owned(), 12.5),
        ] {
            let text = single(body.as_bytes()).unwrap();
            assert_eq!(
                (rate(&text).unwrap().per_second(), number(&text)),
                (expected, Ok(expected))
            );
        }
    }

    #[test]
    fn gate_accepts_any_number() {
        let of = |text: &str| number(&single(vector(&[text]).as_bytes()).unwrap());
        assert_eq!(
            (of("-1.5e-3"), of("+Inf"), of("-Inf")),
            (Ok(-0.0015), Ok(f64::INFINITY), Ok(f64::NEG_INFINITY))
        );
        assert!(of("NaN").unwrap().is_nan());
        assert_eq!(of("many"), Err(AnswerError::Number("many".to_owned())));
    }

    #[test]
    fn other_query_answers_are_errors() {
        let success = |data: &str| format!(r#"{{"status":"success","data":{data}}}"#);
        for (body, why) in [
            (String::new(), "not an answer"),
            ("<html>".to_owned(), "not an answer"),
            ("{}".to_owned(), "not an answer"),
            (r#"{"status":"success"}"#.to_owned(), "not an answer"),
            (
                success(r#"{"resultType":"vector","result":{}}"#),
                "not an answer",
            ),
            (
                success(r#"{"resultType":"vector","result":[{"metric":{},"value":[1,5]}]}"#),
                "not an answer",
            ),
            (
                r#"{"status":"error","errorType":"bad_data","error":"parse error"}"#.to_owned(),
                "parse error",
            ),
            (vector(&[]), "no series"),
            (vector(&["1", "2", "3"]), "3 series"),
            (
                success(r#"{"resultType":"matrix","result":[]}"#),
                "a matrix",
            ),
            (
                success(r#"{"resultType":"string","result":[1,"many"]}"#),
                "a string",
            ),
            (vector(&["NaN"]), "NaN"),
            (vector(&["+Inf"]), "+Inf"),
            (vector(&["-Inf"]), "-Inf"),
            (vector(&["-1"]), "-1"),
            (vector(&["many"]), "many"),
        ] {
            let error = single(body.as_bytes())
                .and_then(|text| rate(&text))
                .unwrap_err()
                .to_string();
            assert!(error.contains(why), "{body}: {error}");
        }
    }
}
