//! The source of a limit: a number in the policy, history, or a Prometheus query.

use crate::spec::{LearnedSpec, LimitSpec, PrometheusSpec, SourceSpec};
use crate::yaml::{Checked, Field, Number};
use plimsoll_core::quantity::Rate;

const HEADROOMS: std::ops::RangeInclusive<f64> = 0.01..=100.0;

/// The source of a bucket's limit.
#[derive(Clone, Debug, PartialEq)]
pub enum LimitSource {
    /// Deliberately no limit.
    Unlimited,
    /// A number in the policy; zero denies everything.
    PerSecond(Rate),
    /// Learned from the rates offered in the past.
    Learned(Learned),
    /// The answer to a query.
    Prometheus(Prometheus),
}

/// A limit learned from history: a percentile of past rates, times some headroom, within bounds.
/// [`crate::learning`] has the formula.
#[derive(Clone, Debug, PartialEq)]
pub struct Learned {
    /// The percentile of the offered rates: above 0, at most 100. Default 95.
    pub percentile: f64,
    /// The days of history: at least 1. Default 7.
    pub days: u64,
    /// The factor on the percentile, in 0.01..=100. Default 1.2.
    pub headroom: f64,
    /// The bounds of the limit.
    pub bounds: Bounds,
    /// The limit before there is enough history; if absent, the limit is unknown until then.
    pub until_history: Option<Rate>,
}

/// A limit that is the answer to a Prometheus query, within bounds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Prometheus {
    /// The server, `http://` or `https://`.
    pub url: String,
    /// The query; not empty.
    pub query: String,
    /// The bounds of the limit.
    pub bounds: Bounds,
}

/// The bounds of a learned or queried limit: `min` is never above `max`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Bounds {
    min: Option<Rate>,
    max: Option<Rate>,
}

// === impl LimitSource ===

impl LimitSource {
    pub(crate) fn read(spec: LimitSpec, field: &Field<'_>) -> Checked<Self> {
        match spec {
            LimitSpec::Unlimited => Ok(Self::Unlimited),
            LimitSpec::PerSecond(number) => field.rate(number.0).map(Self::PerSecond),
            LimitSpec::Source(SourceSpec {
                learned: Some(spec),
                prometheus: None,
            }) => Learned::read(&spec, &field.then("learned")).map(Self::Learned),
            LimitSpec::Source(SourceSpec {
                learned: None,
                prometheus: Some(spec),
            }) => Prometheus::read(spec, &field.then("prometheus")).map(Self::Prometheus),
            LimitSpec::Source(_) => Err(field.refuse(
                "a limit has exactly one source",
                "write either `learned` or `prometheus`",
            )),
        }
    }
}

impl Default for Learned {
    fn default() -> Self {
        Self {
            percentile: 95.0,
            days: 7,
            headroom: 1.2,
            bounds: Bounds::default(),
            until_history: None,
        }
    }
}

impl Learned {
    fn read(spec: &LearnedSpec, field: &Field<'_>) -> Checked<Self> {
        let default = Self::default();
        let percentile = spec.percentile.map_or(default.percentile, |n| n.0);
        if !(percentile > 0.0 && percentile <= 100.0) {
            return Err(field.then("percentile").refuse(
                format_args!("{percentile} is not a percentile"),
                "write a number above 0, at most 100",
            ));
        }
        let days = spec
            .days
            .map_or(Ok(default.days), |n| field.then("days").whole(n.0))?;
        if days == 0 {
            return Err(field
                .then("days")
                .refuse("no history to learn from", "write 1 or more days"));
        }
        let headroom = field.then("headroom");
        let headroom_hint = "write a factor from 0.01 to 100, such as 1.2";
        let until_history = spec
            .until_history
            .map(|n| field.then("until_history").rate(n.0))
            .transpose()?;
        Ok(Self {
            percentile,
            days,
            headroom: spec.headroom.map_or(Ok(default.headroom), |n| {
                headroom.within(n.0, HEADROOMS, headroom_hint)
            })?,
            bounds: Bounds::read(spec.min, spec.max, field)?,
            until_history,
        })
    }
}

impl Prometheus {
    fn read(spec: PrometheusSpec, field: &Field<'_>) -> Checked<Self> {
        server_url(&spec.url, &field.then("url"))?;
        query_text(
            &spec.query,
            &field.then("query"),
            "write a query that yields requests/s",
        )?;
        let bounds = Bounds::read(spec.min, spec.max, field)?;
        Ok(Self {
            url: spec.url,
            query: spec.query,
            bounds,
        })
    }
}

/// Checks that a URL names a server, without credentials: URLs are logged and shown.
pub(crate) fn server_url(url: &str, field: &Field<'_>) -> Checked<()> {
    if url.contains(|c: char| c.is_control() || c.is_whitespace()) {
        return Err(field.refuse(
            "a URL has no spaces and no control characters",
            "write it on one line",
        ));
    }
    let host = url
        .strip_prefix("http://")
        .or_else(|| url.strip_prefix("https://"));
    let authority = host
        .and_then(|host| host.split(['/', '\\', '?', '#']).next())
        .unwrap_or_default();
    if authority.is_empty() {
        let hint = "write http:// or https:// and the server, such as http://prometheus:9090";
        return Err(field.refuse("not the URL of a server", hint));
    }
    if authority.contains('@') {
        let hint =
            "remove what is before the @; a proxy next to the controller can add the credentials";
        return Err(field.refuse("a URL may not contain a user or a password", hint));
    }
    Ok(())
}

pub(crate) fn query_text(query: &str, field: &Field<'_>, hint: &str) -> Checked<()> {
    if query.trim().is_empty() {
        return Err(field.refuse("the query is empty", hint));
    }
    field.printable(query)
}

impl Bounds {
    fn read(min: Option<Number>, max: Option<Number>, field: &Field<'_>) -> Checked<Self> {
        let min = min.map(|n| field.then("min").rate(n.0)).transpose()?;
        let max = max.map(|n| field.then("max").rate(n.0)).transpose()?;
        if let (Some(low), Some(high)) = (min, max)
            && low > high
        {
            let why = format_args!(
                "min {} is above max {}",
                low.per_second(),
                high.per_second()
            );
            return Err(field.then("min").refuse(why, "lower min or raise max"));
        }
        Ok(Self { min, max })
    }

    /// The lower bound, if there is one.
    pub const fn min(&self) -> Option<Rate> {
        self.min
    }

    /// The upper bound, if there is one.
    pub const fn max(&self) -> Option<Rate> {
        self.max
    }

    /// Returns the nearest rate within the bounds.
    pub fn clamp(&self, rate: Rate) -> Rate {
        let low = self.min.map_or(rate, |min| rate.max(min));
        self.max.map_or(low, |max| low.min(max))
    }
}
