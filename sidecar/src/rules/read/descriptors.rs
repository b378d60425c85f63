//! Reads the rules for descriptors of Envoy's rate limit service.

use std::collections::HashMap;

use plimsoll_policy::{Checked, Field, SourcePlace, check_entries, hint};

use super::super::bounds::{DESCRIPTOR_RULES_MAX, DOMAINS_MAX, ENTRIES_MAX, ENTRY_BYTES_MAX};
use super::super::spec::{DescriptorSpec, NameSpec, RlsSpec};
use super::super::tree::{Level, Limited, NameOf, Node, Target, TenantOf, Values};
use super::super::{ANY_DOMAIN, Domains, RefusalForm};
use super::{Findings, Names, cost, tenant};
use plimsoll_core::names::{DEFAULT_TENANT, check_plan};

const TARGET_HINT: &str = "write `bucket` or `unlimited: true` for descriptors that end here, or `descriptors` for \
                           longer ones";

pub(super) struct DescriptorReader<'a> {
    names: &'a mut Names,
    findings: &'a mut Findings,
    /// Rules so far, in all domains.
    count: usize,
    /// Entries on the path to the current rule, including its own.
    way: Vec<(String, Values)>,
    domain: String,
    /// Text of each rule with a target.
    texts: Vec<String>,
}

struct Read {
    key: String,
    values: Values,
    node: Node,
    index: usize,
    at: SourcePlace,
}

impl<'a> DescriptorReader<'a> {
    pub(super) const fn new(names: &'a mut Names, findings: &'a mut Findings) -> Self {
        Self {
            names,
            findings,
            count: 0,
            way: Vec::new(),
            domain: String::new(),
            texts: Vec::new(),
        }
    }

    pub(super) fn domains(mut self, spec: RlsSpec, field: &Field<'_>) -> Domains {
        let field = field.then("domains");
        let hint = "the domain `*` covers all others";
        if self
            .findings
            .take(check_entries(&field, DOMAINS_MAX, "DOMAINS_MAX", hint))
            .is_none()
        {
            return Domains::default();
        }
        if spec.domains.is_empty() {
            let hint = "name a domain, or leave `rls` out: then the entries `bucket` and `tenant` are the names";
            self.findings.refuse(&field, "no domain has rules", hint);
        }
        let mut domains = Domains::default();
        for (domain, spec) in spec.domains {
            if self.findings.is_full() {
                break;
            }
            let field = field.then(&domain);
            self.findings
                .take(text(&domain, "domain", field.name_at(), &field));
            self.domain.clone_from(&domain);
            let form = spec.refusal.unwrap_or_default();
            let level = self.level(spec.descriptors, &field.then("descriptors"), form);
            if domain == ANY_DOMAIN {
                domains.any = Some(level);
            } else {
                domains.named.insert(domain.into(), level);
            }
        }
        domains.texts = self.texts;
        domains
    }

    fn level(&mut self, list: Vec<DescriptorSpec>, field: &Field<'_>, form: RefusalForm) -> Level {
        if list.is_empty() {
            let hint = "write a rule with a `key`, or leave it out";
            self.findings.refuse(field, "the list is empty", hint);
        }
        if self.way.len() == ENTRIES_MAX {
            let why = format!("a descriptor has at most {ENTRIES_MAX} entries (ENTRIES_MAX)");
            self.findings
                .refuse_name(field, why, "remove these rules: none can match");
            return Level::default();
        }
        let mut read = Vec::with_capacity(list.len());
        for (index, spec) in list.into_iter().enumerate() {
            if self.findings.is_full() {
                break;
            }
            let field = field.then(&index.to_string());
            self.count += 1;
            if self.count > DESCRIPTOR_RULES_MAX {
                if self.count == DESCRIPTOR_RULES_MAX + 1 {
                    let why = format!(
                        "a file has at most {DESCRIPTOR_RULES_MAX} rules for descriptors (DESCRIPTOR_RULES_MAX)"
                    );
                    let hint = "a value that ends in `*`, or a bucket by `{ entry: KEY }`, covers many values";
                    self.findings.refuse(&field, why, hint);
                }
                break;
            }
            read.push(self.rule(spec, index, &field, form));
        }
        self.compare(&read, field);
        Level::new(
            read.into_iter()
                .map(|rule| (rule.key, rule.values, rule.node)),
        )
    }

    fn rule(
        &mut self,
        spec: DescriptorSpec,
        index: usize,
        field: &Field<'_>,
        form: RefusalForm,
    ) -> Read {
        let key_field = field.then("key");
        self.findings
            .take(text(&spec.key, "key", key_field.at(), &key_field));
        let values = self.values(spec.value.as_deref(), &field.then("value"));
        self.way.push((spec.key.clone(), values.clone()));
        let form = spec.refusal.unwrap_or(form);
        let target = self.target(&spec, field, form);
        let next = match spec.descriptors {
            Some(list) => self.level(list, &field.then("descriptors"), form),
            None => Level::default(),
        };
        self.way.pop();
        Read {
            key: spec.key,
            values,
            node: Node { target, next },
            index,
            at: field.at(),
        }
    }

    fn values(&mut self, value: Option<&str>, field: &Field<'_>) -> Values {
        let Some(value) = value else {
            return Values::Any;
        };
        self.findings.take(text(value, "value", field.at(), field));
        let prefix = value.strip_suffix('*');
        if prefix.unwrap_or(value).contains('*') {
            let hint =
                "write the beginning and one `*` at the end, or leave `value` out for all values";
            self.findings
                .refuse(field, "`*` stands for any text at the end alone", hint);
        }
        let Some(prefix) = prefix else {
            return Values::Exactly(value.to_owned());
        };
        if prefix.is_empty() {
            self.findings.refuse(
                field,
                "`*` alone is every value",
                "leave `value` out for all values",
            );
        }
        Values::From(prefix.to_owned())
    }

    /// Reads the effect of a rule on descriptors that end at it. `None` if it has none, or a fault.
    fn target(
        &mut self,
        spec: &DescriptorSpec,
        field: &Field<'_>,
        refusal: RefusalForm,
    ) -> Option<Target> {
        if spec.takes_limit.is_some() {
            let why = "a sidecar applies no limits that descriptors bring along";
            let hint = "remove it, and give the bucket a limit or a quota in the policy";
            self.findings
                .refuse_name(&field.then("takes_limit"), why, hint);
        }
        let Some(bucket) = &spec.bucket else {
            return self.without_bucket(spec, field);
        };
        if spec.unlimited.0 {
            let why = "a rule has a bucket or is unlimited, not both";
            self.findings
                .refuse(&field.then("unlimited"), why, "remove one of the two");
        }
        let bucket = self.bucket(bucket, &field.then("bucket"));
        let plan = spec.plan.as_ref();
        let plan = plan.and_then(|plan| self.plan(plan, &field.then("plan")));
        let tenant = match &spec.tenant {
            None => Some(self.of_values([bucket.as_ref(), plan.as_ref()])),
            Some(tenant) => self.tenant(tenant, &field.then("tenant")),
        };
        let cost = self.findings.take(cost(spec.cost, &field.then("cost")));
        Some(Target::Limited(Limited {
            rule: self.add_text(),
            bucket: bucket?,
            tenant: tenant?,
            plan,
            cost: cost?,
            refusal,
        }))
    }

    fn without_bucket(&mut self, spec: &DescriptorSpec, field: &Field<'_>) -> Option<Target> {
        let written = [
            ("tenant", spec.tenant.is_some()),
            ("plan", spec.plan.is_some()),
            ("cost", spec.cost.is_some()),
        ];
        for (name, _) in written.into_iter().filter(|(_, is_written)| *is_written) {
            let fault = field.then(name).refuse_name(
                format_args!("`{name}` without a bucket"),
                "write `bucket` as well",
            );
            self.findings.faults.push(*fault);
        }
        if spec.unlimited.0 {
            if self.way.len() == 1 && matches!(self.way.last(), Some((_, Values::Any))) {
                let why = format!(
                    "every descriptor of the one entry `{}` passes without a limit",
                    spec.key
                );
                self.findings.warn(&field.then("unlimited"), why);
            }
            return Some(Target::Unlimited(self.add_text()));
        }
        if spec.descriptors.is_none() {
            self.findings
                .refuse(field, "the rule does nothing", TARGET_HINT);
        }
        None
    }

    /// Adds the text of the current rule. Returns its index.
    fn add_text(&mut self) -> usize {
        let entry = |(key, values): &(String, Values)| match values {
            Values::Exactly(value) => format!("{key}={value}"),
            Values::From(prefix) => format!("{key}={prefix}*"),
            Values::Any => key.clone(),
        };
        let entries: Vec<String> = self.way.iter().map(entry).collect();
        self.texts
            .push(format!("domain `{}`: {}", self.domain, entries.join(", ")));
        self.texts.len() - 1
    }

    /// Returns the tenant of a rule that names none: the values of all entries whose rules match any
    /// value, except those of bucket and plan. So each value counts separately, as in Envoy's own rate limit
    /// service.
    fn of_values(&self, others: [Option<&NameOf>; 2]) -> TenantOf {
        let way = self.way.iter().enumerate();
        let is_free = |(index, (_, values)): &(usize, &(String, Values))| {
            *values == Values::Any && !others.contains(&Some(&NameOf::Entry(*index)))
        };
        let indexes: Box<[usize]> = way.filter(is_free).map(|(index, _)| index).collect();
        if indexes.is_empty() {
            TenantOf::Fixed(DEFAULT_TENANT.into())
        } else {
            TenantOf::Entries(indexes)
        }
    }

    fn bucket(&mut self, spec: &NameSpec, field: &Field<'_>) -> Option<NameOf> {
        let entry = match spec {
            NameSpec::Fixed(text) => {
                return Some(NameOf::Fixed(
                    self.names.add(text, field, self.findings)?.as_str().into(),
                ));
            }
            NameSpec::Entry(entry) => entry,
        };
        let index = self.entry(entry, &field.then("entry"))?;
        if self.names.listed.is_none() {
            let hint = "list the names that it may have under `buckets:` at the end of the file";
            self.findings.refuse(
                field,
                "a bucket from a value needs the list `buckets`",
                hint,
            );
            return None;
        }
        Some(NameOf::Entry(index))
    }

    fn plan(&mut self, spec: &NameSpec, field: &Field<'_>) -> Option<NameOf> {
        match spec {
            NameSpec::Fixed(plan) => {
                let hint = "1 to 32 letters, digits and . _ : / @ -";
                let checked = check_plan(plan).map_err(|error| field.refuse(error, hint));
                self.findings.take(checked)?;
                Some(NameOf::Fixed(plan.as_str().into()))
            }
            NameSpec::Entry(entry) => self.entry(entry, &field.then("entry")).map(NameOf::Entry),
        }
    }

    fn tenant(&mut self, spec: &NameSpec, field: &Field<'_>) -> Option<TenantOf> {
        match spec {
            NameSpec::Fixed(text) => {
                self.findings.take(tenant(text, field))?;
                Some(TenantOf::Fixed(text.as_str().into()))
            }
            NameSpec::Entry(entry) => self
                .entry(entry, &field.then("entry"))
                .map(|index| TenantOf::Entries([index].into())),
        }
    }

    fn entry(&mut self, key: &str, field: &Field<'_>) -> Option<usize> {
        let mut found = self
            .way
            .iter()
            .enumerate()
            .filter(|(_, (on_way, _))| on_way == key);
        let fault = match (found.next(), found.next()) {
            (Some((index, _)), None) => return Some(index),
            (None, _) => {
                let known: Vec<&str> = self.way.iter().map(|(key, _)| key.as_str()).collect();
                field.refuse(
                    format_args!("no entry `{key}` on the way to this rule"),
                    &hint(key, &known),
                )
            }
            (Some(_), Some(_)) => {
                let hint = "give the two different keys";
                field.refuse(
                    format_args!("two entries on the way to this rule have the key `{key}`"),
                    hint,
                )
            }
        };
        self.findings.faults.push(*fault);
        None
    }

    /// Refuses each rule with the key and the value of an earlier one.
    fn compare(&mut self, rules: &[Read], field: &Field<'_>) {
        let mut firsts: HashMap<(&str, &Values), SourcePlace> = HashMap::with_capacity(rules.len());
        for rule in rules {
            if self.findings.is_full() {
                return;
            }
            let Some(first) = firsts.insert((&rule.key, &rule.values), rule.at) else {
                continue;
            };
            let why =
                format!("the rule can never match: the one at {first} has the same key and value");
            self.findings.refuse(
                &field.then(&rule.index.to_string()),
                why,
                "keep one of the two",
            );
        }
    }
}

/// Validates the length of a key, value or domain of a rule. Of requests only keys are bounded so: a longer value matches
/// prefixes and rules for any value.
fn text(text: &str, what: &str, at: SourcePlace, field: &Field<'_>) -> Checked<()> {
    let hint = "write the text that the proxy sends";
    match text.len() {
        0 if what == "value" => {
            Err(field.refuse("the value is empty", "leave `value` out for all values"))
        }
        0 => Err(field.refuse_at(at, format_args!("the {what} is empty"), hint)),
        1..=ENTRY_BYTES_MAX => Ok(()),
        bytes => {
            let why = format!(
                "a {what} has at most {ENTRY_BYTES_MAX} bytes, this one has {bytes} (ENTRY_BYTES_MAX)"
            );
            Err(field.refuse_at(at, why, hint))
        }
    }
}
