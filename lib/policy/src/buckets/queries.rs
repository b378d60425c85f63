//! Extra gates of a rollout: Prometheus queries and the bounds of their answers.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use super::limits::{query_text, server_url};
use crate::spec::QuerySpec;
use crate::yaml::{Checked, Field};
use plimsoll_core::names::Name;
use plimsoll_core::rollout::Bound;

/// Maximum number of extra gates of a policy entry.
pub const QUERIES_MAX: usize = 8;

/// One extra gate: it passes while the answer to a query is within a bound.
#[derive(Clone, Debug, PartialEq)]
pub struct QueryGate {
    /// Its name, unique in its list.
    pub name: Name,
    /// The server, `http://` or `https://`.
    pub url: String,
    /// The query; not empty.
    pub query: String,
    /// The bound of the answer.
    pub bound: Bound,
}

// === impl QueryGate ===

impl QueryGate {
    pub(crate) fn list(specs: &[QuerySpec], field: &Field<'_>) -> Checked<Arc<[Self]>> {
        if specs.len() > QUERIES_MAX {
            let why =
                format_args!("{} queries, at most {QUERIES_MAX} may be", specs.len()).to_string();
            return Err(field.refuse(why, "join some of them into one query, such as `a + b`"));
        }
        let mut names = BTreeSet::new();
        let mut queries = Vec::with_capacity(specs.len());
        for (at, spec) in specs.iter().enumerate() {
            let field = field.then(&at.to_string());
            let query = Self::read(spec, &field)?;
            if !names.insert(query.name.clone()) {
                let why = format_args!("another query is called `{}`", query.name).to_string();
                return Err(field
                    .then("name")
                    .refuse(why, "give each a name of its own"));
            }
            queries.push(query);
        }
        Ok(queries.into())
    }

    fn read(spec: &QuerySpec, field: &Field<'_>) -> Checked<Self> {
        let name = Name::new(&spec.name).map_err(|error| {
            field
                .then("name")
                .refuse(error, "write 1 to 128 letters, digits and . _ : / @ -")
        })?;
        server_url(&spec.url, &field.then("url"))?;
        query_text(
            &spec.query,
            &field.then("query"),
            "write a query that yields one number",
        )?;
        let bound = match (spec.max, spec.min) {
            (Some(max), None) => Bound::AtMost(field.then("max").not_negative(max.0)?),
            (None, Some(min)) => Bound::AtLeast(field.then("min").not_negative(min.0)?),
            _ => {
                let hint =
                    "write `max` if less is better, `min` if more is; a range takes two queries";
                return Err(field.refuse("a query has exactly one bound", hint));
            }
        };
        Ok(Self {
            name,
            url: spec.url.clone(),
            query: spec.query.clone(),
            bound,
        })
    }
}

impl fmt::Display for QueryGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}, {}", self.query, self.url, self.bound)
    }
}
