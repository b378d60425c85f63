//! The reading of a catalogue: rows of either format, checked one by one, and sorted at the end.

use std::borrow::Cow;
use std::collections::BTreeMap;

use plimsoll_core::law::Weight;
use plimsoll_core::names::{DEFAULT_TENANT, Encoded, Tenant, nearest};
use plimsoll_core::quantity::Rate;

use super::{Catalogue, OwnTerms, Row, csv, ndjson};
use crate::buckets::BucketKey;
use crate::hash::fnv;
use crate::yaml::{Checked, FAULTS_MAX, PolicyError, PolicyFault, Source, SourcePlace};

/// The rows of a catalogue.
pub const CATALOGUE_ROWS_MAX: usize = 1_000_000;
/// The limits in all rows of a catalogue.
const LIMITS_MAX: usize = 4_000_000;
/// Maximum size of its file, in bytes.
pub const CATALOGUE_BYTES_MAX: usize = 256 << 20;

/// The bytes of a catalogue.
#[derive(Clone, Copy, Debug)]
pub struct CatalogueSource<'a> {
    /// The path of the file. It ends in `.csv`, or in `.ndjson` or `.jsonl` for one JSON object a line.
    pub name: &'a str,
    /// The whole content.
    pub bytes: &'a [u8],
}

/// A row as it is written.
#[derive(Debug, Default)]
pub(super) struct RawRow<'a> {
    pub(super) tenant: Cow<'a, str>,
    pub(super) plan: Option<Cow<'a, str>>,
    pub(super) weight: Option<f64>,
    pub(super) floor_rps: Option<f64>,
    pub(super) limits: Vec<(Cow<'a, str>, f64)>,
}

/// The rows of one file so far.
pub(super) struct Rows<'a> {
    name: &'a str,
    /// The number of each plan, from 1 on.
    numbers: BTreeMap<&'a str, u8>,
    /// The number of each bucket and pattern with limits, from 0 on, and the last row with a limit of it.
    buckets: BTreeMap<BucketKey, (u32, u64)>,
    /// Number of rows with terms of their own so far, also of refused ones.
    rows_with_terms: u64,
    catalogue: Catalogue,
    faults: Vec<PolicyFault>,
}

impl<'a> CatalogueSource<'a> {
    /// Reads and checks every row. Linear in the length, and n log n in the rows.
    pub(crate) fn read(self, classes: Vec<Tenant>) -> Result<Catalogue, PolicyError> {
        let Self { name, bytes } = self;
        if bytes.len() > CATALOGUE_BYTES_MAX {
            let what = format!("the file is larger than {CATALOGUE_BYTES_MAX} bytes");
            let hint = "leave out tenants of the class `default`, and columns that are empty";
            return Err(fault(name, 1, "", &what, hint).into());
        }
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let good = bytes.get(..error.valid_up_to()).unwrap_or_default();
            let line = good.iter().filter(|byte| **byte == b'\n').count() as u64 + 1;
            fault(
                name,
                line,
                "",
                "a byte here is not UTF-8",
                "save the file as UTF-8",
            )
        })?;
        if !text.is_empty() && !text.ends_with('\n') {
            let line = text.lines().count() as u64;
            let what = "the file ends within a row: the last line has no line break";
            let hint = "write a file beside it, and rename it over this one when it is complete";
            return Err(fault(name, line, "", what, hint).into());
        }
        let plans = classes
            .iter()
            .map(|class| class.plan().unwrap_or(DEFAULT_TENANT));
        let mut rows = Rows {
            name,
            numbers: plans.zip(1..).collect(),
            buckets: BTreeMap::new(),
            rows_with_terms: 0,
            catalogue: Catalogue {
                names: String::new(),
                rows: Vec::new(),
                own: Vec::new(),
                limits: Vec::new(),
                buckets: Vec::new(),
                classes: Vec::new(),
                hash: fnv(bytes),
            },
            faults: Vec::new(),
        };
        match name.rsplit('.').next() {
            Some("csv") => csv::read(text, &mut rows)?,
            Some("ndjson" | "jsonl") => ndjson::read(text, &mut rows),
            _ => {
                let what = "the name of the file does not say its format";
                let hint = "name it `.csv`, or `.ndjson` for one JSON object a line";
                return Err(fault(name, 1, "", what, hint).into());
            }
        }
        let mut catalogue = rows.finish()?;
        catalogue.classes = classes;
        Ok(catalogue)
    }
}

impl<'a> Rows<'a> {
    /// Returns true while more rows are of use: not after many faults, and not after any in a file that is full.
    pub(super) const fn goes_on(&self) -> bool {
        let is_full = self.catalogue.rows.len() >= CATALOGUE_ROWS_MAX;
        self.faults.len() < if is_full { 1 } else { FAULTS_MAX }
    }

    /// Adds a row, or its fault.
    pub(super) fn add(&mut self, line: u64, row: Checked<RawRow<'_>>) {
        if let Err(fault) = row.and_then(|row| self.check(line, row)) {
            self.faults.push(*fault);
        }
    }

    pub(super) fn fault(&self, line: u64, path: &str, what: &str, hint: &str) -> Box<PolicyFault> {
        fault(self.name, line, path, what, hint)
    }

    fn check(&mut self, line: u64, row: RawRow<'_>) -> Checked<()> {
        if self.catalogue.rows.len() >= CATALOGUE_ROWS_MAX {
            let what = format!("more than {CATALOGUE_ROWS_MAX} rows (CATALOGUE_ROWS_MAX)");
            let hint = "leave out tenants without a plan: they are of the class `default` anyway";
            return Err(self.fault(line, "", &what, hint));
        }
        let tenant = Encoded::of(&row.tenant).filter(|name| **name != *DEFAULT_TENANT);
        let Some(tenant) = tenant else {
            let what = format!("`{}` is no tenant", row.tenant);
            let hint = "write the text that requests bring; `default` is a class: see `plans`";
            return Err(self.fault(line, "tenant", &what, hint));
        };
        let plan = match &row.plan {
            None => 0,
            Some(plan) => *self.numbers.get(plan.as_ref()).ok_or_else(|| {
                let near = nearest(plan, self.numbers.keys().copied());
                let near = near.map(|near| format!("did you mean `{near}`? "));
                let hint = format!("{}define it under `plans` first", near.unwrap_or_default());
                self.fault(line, "plan", &format!("there is no plan `{plan}`"), &hint)
            })?,
        };
        let own = self.own_terms(line, &row)?;
        let catalogue = &mut self.catalogue;
        let start = u32::try_from(catalogue.names.len());
        let (Ok(start), Ok(line), Ok(length)) =
            (start, u32::try_from(line), u8::try_from(tenant.len()))
        else {
            return Err(fault(
                self.name,
                line,
                "",
                "the file is too large",
                "shorten the names",
            ));
        };
        let own = match own {
            None => 0,
            Some(own) => {
                catalogue.own.push(own);
                catalogue.own.len() as u32
            }
        };
        catalogue.names.push_str(&tenant);
        catalogue.rows.push(Row {
            start,
            line,
            own,
            length,
            plan,
        });
        Ok(())
    }

    fn own_terms(&mut self, line: u64, row: &RawRow<'_>) -> Checked<Option<OwnTerms>> {
        if row.weight.is_none() && row.floor_rps.is_none() && row.limits.is_empty() {
            return Ok(None);
        }
        let weight = row.weight.map(|weight| {
            Weight::new(weight).map_err(|error| {
                let hint = "only the ratios of weights matter";
                self.fault(line, "weight", &error.to_string(), hint)
            })
        });
        let weight = weight.transpose()?;
        let floor = row
            .floor_rps
            .map(|floor| self.rate(line, "floor_rps", floor));
        let floor = floor.transpose()?;
        let start = self.catalogue.limits.len();
        self.rows_with_terms += 1;
        for (name, limit) in &row.limits {
            let key = BucketKey::parse(name).map_err(|error| {
                let hint = "the name of a bucket, or a pattern such as `api/*`";
                self.fault(line, "limits", &format!("`{name}`: {error}"), hint)
            })?;
            let rate = self.rate(line, "limits", *limit)?;
            let next = self.catalogue.buckets.len() as u32;
            let (bucket, last_row) = self.buckets.entry(key.clone()).or_insert((next, 0));
            if std::mem::replace(last_row, self.rows_with_terms) == self.rows_with_terms {
                let what = format!("two limits of `{name}`");
                return Err(self.fault(line, "limits", &what, "keep one of the two"));
            }
            if *bucket == next {
                self.catalogue.buckets.push(key);
            }
            self.catalogue.limits.push((*bucket, rate));
        }
        let end = self.catalogue.limits.len();
        if end > LIMITS_MAX {
            let what = format!("more than {LIMITS_MAX} limits in all rows (LIMITS_MAX)");
            let hint = "set the limits that many rows have in common in a plan";
            return Err(self.fault(line, "limits", &what, hint));
        }
        Ok(Some(OwnTerms {
            weight,
            floor,
            limits: start as u32..end as u32,
        }))
    }

    fn rate(&self, line: u64, path: &str, rate: f64) -> Checked<Rate> {
        let hint = "write requests per second, such as 100";
        Rate::new(rate).map_err(|error| self.fault(line, path, &error.to_string(), hint))
    }

    fn finish(mut self) -> Result<Catalogue, PolicyError> {
        let mut catalogue = self.catalogue;
        let mut rows = std::mem::take(&mut catalogue.rows);
        rows.sort_unstable_by(|one, other| {
            let names = catalogue.name(*one).cmp(catalogue.name(*other));
            names.then(one.line.cmp(&other.line))
        });
        let twice = rows
            .windows(2)
            .filter(|pair| catalogue.name(pair[0]) == catalogue.name(pair[1]));
        for pair in twice.take(FAULTS_MAX) {
            let what = format!(
                "tenant `{}` has a row in line {} already",
                catalogue.name(pair[1]),
                pair[0].line
            );
            let hint = "keep one of the two";
            let fault = fault(self.name, pair[1].line.into(), "tenant", &what, hint);
            self.faults.push(*fault);
        }
        if !self.faults.is_empty() {
            return Err(PolicyError::of(self.faults));
        }
        catalogue.rows = rows;
        catalogue.names.shrink_to_fit();
        Ok(catalogue)
    }
}

/// A fault of one line. It shows no snippet: the file is large.
fn fault(name: &str, line: u64, path: &str, what: &str, hint: &str) -> Box<PolicyFault> {
    let place = SourcePlace {
        line: usize::try_from(line).unwrap_or(usize::MAX),
        column: 1,
    };
    PolicyFault::new(Source { name, text: "" }, place, path, what, hint)
}
