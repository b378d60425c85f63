//! Reads a policy from its two texts: structure first, then shape, then values; every fault has its place.

mod room;

pub use room::{BUCKETS_MAX, KEYS_MAX, LEARNED_MAX, TENANTS_MAX};

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_path_to_error::{Deserializer, Segment, Track};
use serde_yaml::Error as YamlError;
use serde_yaml::options::{DuplicateKeyPolicy, MergeKeyPolicy, NonFiniteFloatPolicy};

use crate::Policy;
use crate::buckets::quotas::Definitions;
use crate::buckets::{BucketKey, BucketPolicy, Buckets, RolloutPolicy};
use crate::hash::PolicyTexts;
use crate::spec::{PolicySpec, TenantsSpec};
use crate::tenants::{Fairness, Plans, Quotas, TenantPolicy, Tenants};
use crate::warning::Warning;
use crate::warning::checks::{self, Floor};
use crate::yaml::{
    Checked, Document, FILE_BYTES_MAX, Field, NESTING_MAX, PolicyError, PolicyFault, Source,
    SourcePlace, check_entries, hint,
};
use plimsoll_core::names::{DEFAULT_TENANT, Encoded, Tenant};

const NAME_HINT: &str = "1 to 128 letters, digits and . _ : / @ -";

fn tenant_hint(text: &str) -> String {
    let named =
        |name: Encoded<'_>| format!("a tenant that sends this text has the name `{}`", &*name);
    Encoded::of(text).map_or_else(|| NAME_HINT.to_owned(), named)
}

/// The content of the file of the tenants.
struct Sharing {
    tenants: Tenants,
    fairness: Fairness,
    /// The floor of the `fairness` block, if there is one.
    floor: Option<Floor>,
    warnings: Vec<Warning>,
}

/// The content of the policy file.
struct Protection {
    kill_switch: bool,
    guardrails: bool,
    buckets: Buckets,
    quotas: Quotas,
    /// The place of `buckets`.
    at: SourcePlace,
    warnings: Vec<Warning>,
}

pub(crate) fn read(
    policy: Source<'_>,
    tenants: Source<'_>,
) -> Result<(Policy, Vec<Warning>), PolicyError> {
    let protection = protection(policy);
    let defined = protection.as_ref().ok().map(|of| &of.quotas);
    let sharing = sharing(tenants, defined);
    match (protection, sharing) {
        (
            Ok(Protection {
                kill_switch,
                guardrails,
                mut buckets,
                mut quotas,
                at,
                mut warnings,
            }),
            Ok(sharing),
        ) => {
            let Sharing {
                tenants: listed,
                fairness,
                floor,
                warnings: of_tenants,
            } = sharing;
            room::check_keys(policy, at, buckets.exact.len(), listed.listed.len())?;
            listed.override_quotas(&mut quotas, &mut buckets, (policy, at))?;
            warnings.extend(floor.and_then(|floor| floor.above_limits(&buckets)));
            warnings.extend(of_tenants);
            let texts = Arc::new(PolicyTexts {
                policy: policy.text.to_owned(),
                tenants: tenants.text.to_owned(),
                catalogue: None,
            });
            let tenants = listed;
            let policy = Policy {
                kill_switch,
                guardrails,
                buckets,
                quotas,
                tenants,
                fairness,
                hash: texts.hash(),
                texts,
                catalogue: None,
                compared: None,
            };
            Ok((policy, warnings))
        }
        (protection, sharing) => Err(PolicyError::of_either(protection.err(), sharing.err())),
    }
}

fn protection(source: Source<'_>) -> Result<Protection, PolicyError> {
    let document = Document::open(source)?;
    let root = document.root();
    let spec: PolicySpec = document.parse()?;
    let mut faults = Vec::new();
    let rollout = RolloutPolicy::default().overridden(&spec.rollout, &root.then("rollout"));
    let rollout = rollout.unwrap_or_else(|fault| {
        faults.push(*fault);
        RolloutPolicy::default()
    });
    let mut buckets = Buckets::default();
    let mut warnings = Vec::new();
    let field = root.then("buckets");
    check_entries(
        &field,
        BUCKETS_MAX,
        "BUCKETS_MAX",
        "a pattern such as \"api/*\" covers many buckets",
    )?;
    let mut quotas = Definitions::read(spec.quotas, root.then("quotas"), &mut faults)?;
    for (name, spec) in spec.buckets {
        let field = field.then(&name);
        let key = BucketKey::parse(&name).map_err(|e| field.refuse_name(e, NAME_HINT));
        match key.and_then(|key| {
            Ok((
                key,
                BucketPolicy::read(spec, &field, &rollout, &mut quotas)?,
            ))
        }) {
            Ok((key, bucket)) => {
                warnings.extend(checks::of_bucket(&root, &field, &bucket));
                buckets.insert(key, bucket);
            }
            Err(fault) => faults.push(*fault),
        }
    }
    if !faults.is_empty() {
        return Err(PolicyError::of(faults));
    }
    room::check_learned(&field, &buckets.exact)?;
    warnings.extend(checks::of_policy(&root));
    let (quotas, unused) = quotas.finish();
    warnings.extend(unused);
    // Many buckets may have a gate of the common rollout block.
    warnings.sort_by(|one, other| (one.at, &one.message).cmp(&(other.at, &other.message)));
    warnings.dedup();
    Ok(Protection {
        kill_switch: spec.kill_switch.0,
        guardrails: spec.guardrails.is_none_or(|switch| switch.0),
        buckets,
        quotas,
        at: field.name_at(),
        warnings,
    })
}

fn sharing(source: Source<'_>, quotas: Option<&Quotas>) -> Result<Sharing, PolicyError> {
    let document = Document::open(source)?;
    let root = document.root();
    let spec: TenantsSpec = document.parse()?;
    let mut faults = Vec::new();
    let mut listed = BTreeMap::new();
    let mut warnings = Vec::new();
    let field = root.then("tenants");
    check_entries(
        &field,
        TENANTS_MAX,
        "TENANTS_MAX",
        "all others share the class `default`",
    )?;
    let has_default = [&spec.plans, &spec.tenants].map(|map| map.contains_key(DEFAULT_TENANT));
    let plans = Plans::read(
        spec.plans,
        &root.then("plans"),
        &mut listed,
        &mut faults,
        quotas,
    )?;
    for (name, spec) in spec.tenants {
        let field = field.then(&name);
        let key = Tenant::new(&name)
            .map_err(|e| field.refuse_name(e, &tenant_hint(&name)))
            .and_then(|key| not_of_plan(key, &field));
        match key.and_then(|key| Ok((key, TenantPolicy::read(spec, &field, &plans)?))) {
            Ok((key, tenant)) => {
                warnings.extend(checks::of_tenant(&field, &tenant));
                listed.insert(key, tenant);
            }
            Err(fault) => faults.push(*fault),
        }
    }
    let fairness = match &spec.fairness {
        None => Fairness::default(),
        Some(spec) => Fairness::read(spec, &root.then("fairness")).unwrap_or_else(|fault| {
            faults.push(*fault);
            Fairness::default()
        }),
    };
    match has_default {
        [false, false] => faults.push(*missing(
            &field,
            DEFAULT_TENANT,
            "every tenant that is not listed and has no plan belongs to it: add `default: {}`",
        )),
        [true, true] => faults.push(*field.then(DEFAULT_TENANT).refuse_name(
            "`default` is a plan, too",
            "keep one of the two: they mean the same",
        )),
        _ => {}
    }
    let Some(tenants) = Tenants::new(listed).filter(|_| faults.is_empty()) else {
        return Err(PolicyError::of(faults));
    };
    let count = tenants.listed.len();
    let floor = root
        .entry("fairness")
        .map(|field| Floor::new(&field, fairness.min_floor, count));
    Ok(Sharing {
        tenants,
        fairness,
        floor,
        warnings,
    })
}

/// Refuses a name that only a request with a plan has.
fn not_of_plan(name: Tenant, field: &Field<'_>) -> Checked<Tenant> {
    if name.plan().is_none() {
        return Ok(name);
    }
    let hint = "write the name alone, with the field `plan`";
    Err(field.refuse_name("the name of a tenant has no plan in it", hint))
}

fn missing(field: &Field<'_>, name: &str, hint: &str) -> Box<PolicyFault> {
    field
        .then(name)
        .refuse_name(format_args!("`{name}` is missing"), hint)
}

impl Document<'_> {
    /// Reads the document strictly as a `T`.
    ///
    /// # Errors
    /// The first field that is unknown, missing or of another shape, with its place.
    pub fn parse<T: DeserializeOwned>(&self) -> Checked<T> {
        let mut track = Track::new();
        let result =
            serde_yaml::with_deserializer_from_str_with_options(self.text(), options(), |yaml| {
                T::deserialize(Deserializer::new(yaml, &mut track))
            });
        result.map_err(|error| {
            let path = track.path();
            let names = path.iter().filter_map(|segment| match segment {
                Segment::Map { key } => Some(key.clone()),
                Segment::Seq { index } => Some(index.to_string()),
                Segment::Enum { .. } | Segment::Unknown => None,
            });
            let field = names.fold(self.root(), |field, name| field.then(&name));
            shape_fault(&error, &field)
        })
    }
}

/// The options of the YAML reader. It refuses the same constructs as the outline.
fn options() -> serde_yaml::Options {
    serde_yaml::options! {
        budget: serde_yaml::budget! {
            // A file of the largest size has at most one node or event per byte, plus its frame.
            max_nodes: FILE_BYTES_MAX + 16,
            max_events: 2 * FILE_BYTES_MAX + 16,
            max_depth: NESTING_MAX + 1,
            max_aliases: 0,
            max_anchors: 0,
        },
        duplicate_keys: DuplicateKeyPolicy::Error,
        merge_keys: MergeKeyPolicy::AsOrdinary,
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        strict_booleans: true,
        reject_unsupported_tags: true,
        emit_comments: false,
        with_snippet: false,
    }
}

/// Returns the remedy for a field or a value that earlier versions had, or that the other file has.
fn remedy_of(word: &str) -> Option<&'static str> {
    Some(match word {
        "on_silence" => "remove it: a zone keeps its rate while the controller is silent",
        "law" => "remove it: every bucket has the balanced law",
        "buckets" => "it belongs in the policy file",
        "tenants" | "plans" => "it belongs in the file of the tenants, which `--tenants` names",
        "independent" => "write `dithered`, which spreads refusals evenly, or remove `coin`",
        _ => return None,
    })
}

fn shape_fault(error: &YamlError, field: &Field<'_>) -> Box<PolicyFault> {
    match error {
        YamlError::SerdeUnknownField {
            field: name,
            expected,
            ..
        } => {
            let hint = remedy_of(name).map_or_else(|| hint(name, expected), str::to_owned);
            field.refuse_name(format_args!("unknown field `{name}`"), &hint)
        }
        YamlError::SerdeUnknownVariant {
            variant, expected, ..
        } => {
            let hint = remedy_of(variant).map_or_else(|| hint(variant, expected), str::to_owned);
            field.refuse(
                format_args!("`{variant}` is not a value of this field"),
                &hint,
            )
        }
        YamlError::SerdeMissingField { field: name, .. } => {
            missing(field, name, "this field has no default: write it")
        }
        YamlError::InvalidBooleanStrict { .. } => {
            field.refuse("not a truth value", "write `true` or `false`")
        }
        YamlError::SerdeInvalidType {
            unexpected,
            expected,
            ..
        }
        | YamlError::SerdeInvalidValue {
            unexpected,
            expected,
            ..
        } => {
            let hint = if unexpected.starts_with("string") && expected.contains("number") {
                "a number is written without quotes, units and separators"
            } else {
                "see the documentation for the form of this field"
            };
            field.refuse(
                format_args!("expected {expected}, found {unexpected}"),
                hint,
            )
        }
        other => {
            let text = other.without_snippet().to_string();
            let what = text
                .rsplit_once(" at line ")
                .map_or(text.as_str(), |(what, _)| what);
            let place = other.location().map_or(field.at(), |at| SourcePlace {
                line: usize::try_from(at.line()).unwrap_or(1),
                column: usize::try_from(at.column()).unwrap_or(1),
            });
            match what.trim() {
                "expected sequence start" => {
                    field.refuse_at(place, "not a list", "write a list, such as [name]")
                }
                "expected mapping start" => field.refuse_at(
                    place,
                    "not a map",
                    "write fields and values, such as { field: value }",
                ),
                what => field.refuse_at(
                    place,
                    what,
                    "see the documentation for the form of this field",
                ),
            }
        }
    }
}
