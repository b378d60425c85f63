//! Exact quotas: their definitions, and the lists of quotas that buckets attach.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::spec::QuotaSpec;
use crate::warning::Warning;
use crate::yaml::{Checked, Field, Number, PolicyFault, check_entries};
use plimsoll_core::names::{Name, nearest};
use plimsoll_core::quota::{
    BucketQuotas, InvalidBucketQuotas, LEASE_MAX, QUOTAS_PER_BUCKET_MAX, Quota, QuotaRate,
};

/// The entries of `quotas` in a policy.
pub const QUOTAS_MAX: usize = 1_024;
/// The longest `every` of a quota: ten years.
const EVERY_MAX: Duration = Duration::from_secs(3_650 * 86_400);

pub(crate) struct Definitions<'a> {
    field: Field<'a>,
    /// By name; `None` for one with a fault, which is reported once and not at each bucket.
    quotas: BTreeMap<String, Option<Arc<Quota>>>,
    used: BTreeSet<String>,
}

impl<'a> Definitions<'a> {
    /// Reads the mapping `quotas`. Adds the fault of each entry that is not valid.
    pub(crate) fn read(
        specs: BTreeMap<String, QuotaSpec>,
        field: Field<'a>,
        faults: &mut Vec<PolicyFault>,
    ) -> Checked<Self> {
        check_entries(
            &field,
            QUOTAS_MAX,
            "QUOTAS_MAX",
            "a quota counts for each tenant by itself",
        )?;
        let mut quotas = BTreeMap::new();
        for (name, spec) in specs {
            let quota = read_quota(&name, &spec, &field.then(&name));
            let quota = quota
                .map_err(|fault| faults.push(*fault))
                .ok()
                .map(Arc::new);
            quotas.insert(name, quota);
        }
        Ok(Self {
            field,
            quotas,
            used: BTreeSet::new(),
        })
    }

    pub(crate) fn attach(&mut self, names: &[String], field: &Field<'_>) -> Checked<BucketQuotas> {
        if names.len() > QUOTAS_PER_BUCKET_MAX {
            let why = format_args!(
                "{} quotas, at most {QUOTAS_PER_BUCKET_MAX} fit",
                names.len()
            )
            .to_string();
            return Err(field.refuse(why, "every request asks for all of them: attach fewer"));
        }
        let mut attached: Vec<Arc<Quota>> = Vec::with_capacity(names.len());
        for (at, name) in names.iter().enumerate() {
            let item = field.then(&at.to_string());
            let Some(quota) = self.quotas.get(name) else {
                return Err(unknown(name, self.quotas.keys().map(String::as_str), &item));
            };
            self.used.insert(name.clone());
            let Some(quota) = quota else { continue };
            let mut together = attached.clone();
            together.push(Arc::clone(quota));
            BucketQuotas::new(together).map_err(|error| refused(&error, name, &item))?;
            attached.push(Arc::clone(quota));
        }
        BucketQuotas::new(attached).map_err(|error| field.refuse(error, "attach fewer quotas"))
    }

    /// The valid quotas, in the order of names, and a warning for each that no bucket attaches.
    pub(crate) fn finish(self) -> (BTreeMap<Name, Arc<Quota>>, Vec<Warning>) {
        let unused = self.quotas.keys().filter(|name| !self.used.contains(*name));
        let warning = |name: &String| {
            let message = "no bucket attaches this quota: it counts and refuses nothing".to_owned();
            Warning::of_name(&self.field.then(name), message)
        };
        let warnings = unused.map(warning).collect();
        let quotas = self
            .quotas
            .into_values()
            .flatten()
            .map(|quota| (quota.name.clone(), quota));
        (quotas.collect(), warnings)
    }
}

/// Returns the error of quotas that have no definition, with the nearest name.
pub(crate) fn unknown<'a>(
    name: &str,
    defined: impl Iterator<Item = &'a str>,
    field: &Field<'_>,
) -> Box<PolicyFault> {
    let hint = match nearest(name, defined) {
        Some(near) => format!("did you mean `{near}`? Define each quota under `quotas`"),
        None => "define it under `quotas`".to_owned(),
    };
    field.refuse_name(format_args!("there is no quota `{name}`"), &hint)
}

fn refused(error: &InvalidBucketQuotas, name: &str, item: &Field<'_>) -> Box<PolicyFault> {
    match error {
        InvalidBucketQuotas::Repeated => item.refuse(
            format_args!("`{name}` is attached twice"),
            "keep one of the two",
        ),
        InvalidBucketQuotas::MixedKeys => item.refuse(
            error,
            "attach quotas with `key: tenant` or quotas with `key: global`",
        ),
        InvalidBucketQuotas::TooMany(_) | InvalidBucketQuotas::Overrides(_) => {
            item.refuse(error, "attach fewer quotas")
        }
    }
}

fn read_quota(name: &str, spec: &QuotaSpec, field: &Field<'_>) -> Checked<Quota> {
    let name = Name::new(name)
        .map_err(|error| field.refuse_name(error, "1 to 128 letters, digits and . _ : / @ -"))?;
    let max = tokens(spec.max, &field.then("max"))?;
    let refill = spec
        .refill
        .map_or(Ok(max), |refill| tokens(refill, &field.then("refill")))?;
    let every_ms = every(&spec.every, &field.then("every"))?;
    let rate = QuotaRate::new(max, refill, every_ms)
        .map_err(|error| field.refuse(error, "write smaller numbers"))?;
    let lease = spec
        .lease
        .map_or(Ok(1), |lease| tokens(lease, &field.then("lease")))?;
    Quota::new(name, rate, spec.key, spec.on_store_error, lease).map_err(|error| {
        let hint = format!(
            "an instance takes so many tokens at once: 1 to {}",
            LEASE_MAX.min(max)
        );
        field
            .then("lease")
            .refuse(format_args!("{lease}: {error}"), &hint)
    })
}

pub(crate) fn tokens(number: Number, field: &Field<'_>) -> Checked<u64> {
    match field.whole(number.0)? {
        0 => Err(field.refuse("0 is no number of tokens", "write a whole number from 1 on")),
        count => Ok(count),
    }
}

fn every(text: &str, field: &Field<'_>) -> Checked<u64> {
    let hint = "write a span such as 1s, 15m, 1h, 1day or 30days";
    let span = humantime::parse_duration(text).map_err(|error| {
        field.refuse(format_args!("`{text}` is no span of time: {error}"), hint)
    })?;
    if span < Duration::from_millis(1) || span > EVERY_MAX {
        return Err(field.refuse(
            format_args!("`{text}` is not between 1ms and 10 years"),
            hint,
        ));
    }
    if !span.subsec_nanos().is_multiple_of(1_000_000) {
        return Err(field.refuse(
            format_args!("`{text}` is not a whole number of milliseconds"),
            hint,
        ));
    }
    u64::try_from(span.as_millis()).map_err(|error| field.refuse(error, hint))
}

/// Returns the text of a time between two refills, as in the files.
pub fn every_text(rate: QuotaRate) -> String {
    humantime::format_duration(Duration::from_millis(rate.every_ms())).to_string()
}
