//! Reads the rules for requests over HTTP, which are the rules of the tower layer.

use http::{HeaderName, Method};
use plimsoll_policy::{Checked, Field, check_entries};
use plimsoll_tower::{Rule, RulesError};

use super::super::bounds::HTTP_RULES_MAX;
use super::super::spec::{HttpAlsoSpec, HttpRuleSpec, HttpSpec, HttpTenantSpec};
use super::super::{HttpRules, HttpTenant, TENANT_HEADER};
use super::{Findings, Names, cost};

pub(super) fn read(
    spec: HttpSpec,
    field: &Field<'_>,
    names: &mut Names,
    findings: &mut Findings,
) -> HttpRules {
    let default = HttpRules::default();
    let tenant = match spec.tenant {
        None => default.tenant,
        Some(spec) => findings
            .take(tenant(&spec, &field.then("tenant")))
            .unwrap_or(default.tenant),
    };
    let plan = spec.plan.and_then(|plan| {
        let field = field.then("plan").then("header");
        findings.take(header(&plan.header, &field))
    });
    let without_rules = HttpRules {
        tenant,
        plan,
        ignore_case: spec.ignore_case.0,
        rules: None,
    };
    let Some(list) = spec.rules else {
        return without_rules;
    };
    if field.entry("tenant").is_none() {
        let why = format!(
            "requests without the header {TENANT_HEADER} count for the class `default`: name the header under `tenant`"
        );
        findings.warn(field, why);
    }
    let field = field.then("rules");
    let hint = "a path such as `/orders/{id}`, or a `prefix`, covers many paths";
    if findings
        .take(check_entries(
            &field,
            HTTP_RULES_MAX,
            "HTTP_RULES_MAX",
            hint,
        ))
        .is_none()
    {
        return without_rules;
    }
    if list.is_empty() {
        let hint = "write a rule, or leave `rules` out: then headers name the bucket";
        findings.refuse(&field, "the list is empty", hint);
    }
    let mut rules = Vec::with_capacity(list.len());
    let mut indexes = Vec::with_capacity(list.len());
    for (index, spec) in list.into_iter().enumerate() {
        if let Some(rule) = rule(&spec, &field.then(&index.to_string()), names, findings) {
            rules.push(rule);
            indexes.push(index);
        }
    }
    for (at, error) in plimsoll_tower::Rules::faults(&rules) {
        let index = indexes.get(at).copied().unwrap_or(at);
        findings
            .faults
            .push(*fault(&error, index, &field.then(&index.to_string())));
    }
    HttpRules {
        rules: Some(rules),
        ..without_rules
    }
}

fn tenant(spec: &HttpTenantSpec, field: &Field<'_>) -> Checked<HttpTenant> {
    match spec {
        HttpTenantSpec::Fixed(text) => {
            super::tenant(text, field)?;
            Ok(HttpTenant::Fixed(text.as_str().into()))
        }
        HttpTenantSpec::Header(name) => header(name, &field.then("header")).map(HttpTenant::Header),
    }
}

fn header(name: &str, field: &Field<'_>) -> Checked<HeaderName> {
    HeaderName::try_from(name).map_err(|_| {
        let why = format!("`{name}` is not the name of a header");
        field.refuse(why, "write a name such as x-tenant")
    })
}

fn rule(
    spec: &HttpRuleSpec,
    field: &Field<'_>,
    names: &mut Names,
    findings: &mut Findings,
) -> Option<Rule> {
    let faults = findings.faults.len();
    let paths = [
        ("path", &spec.path),
        ("prefix", &spec.prefix),
        ("exact", &spec.exact),
    ];
    let mut paths = paths
        .into_iter()
        .filter_map(|(name, text)| Some((name, text.as_deref()?)));
    let path = paths.next();
    if let (Some((one, _)), Some((other, _))) = (path, paths.next()) {
        let why = format!("a rule has one condition on paths, not `{one}` and `{other}`");
        findings.refuse_name(&field.then(other), why, "write a rule for each");
    }
    let cost = findings.take(cost(spec.cost, &field.then("cost")));
    let rule = match &spec.bucket {
        Some(bucket) => {
            if spec.unlimited.0 {
                let why = "a rule has a bucket or is unlimited, not both";
                findings.refuse(&field.then("unlimited"), why, "remove one of the two");
            }
            names.add(bucket, &field.then("bucket"), findings);
            Rule::bucket(bucket)
        }
        None => {
            if !spec.unlimited.0 {
                let hint = "write `bucket: NAME`, or `unlimited: true`";
                findings.refuse(field, "the rule names no bucket", hint);
            } else if path.is_none() && spec.methods.is_none() {
                findings.warn(
                    field,
                    "every request that no rule above matches passes without a limit",
                );
            }
            if spec.cost.is_some() {
                findings.refuse_name(
                    &field.then("cost"),
                    "`cost` without a bucket",
                    "write `bucket` as well",
                );
            }
            Rule::unlimited()
        }
    };
    let rule = match path {
        Some(("path", text)) => rule.path(text),
        Some(("prefix", text)) => rule.prefix(text),
        Some((_, text)) => rule.exact(text),
        None => rule,
    };
    let rule = match &spec.methods {
        Some(list) => {
            let field = field.then("methods");
            let methods = list.iter().enumerate();
            let methods = methods
                .filter_map(|(at, text)| findings.take(method(text, &field.then(&at.to_string()))));
            rule.methods(methods.collect::<Vec<_>>())
        }
        None => rule,
    };
    let others = spec.also.iter().flatten().enumerate();
    let also: Vec<Rule> = others
        .filter_map(|(at, spec)| {
            let field = field.then("also").then(&at.to_string());
            also(spec, &field, names, findings)
        })
        .collect();
    if findings.faults.len() > faults {
        return None;
    }
    let cost = cost?;
    let rule = also.into_iter().fold(rule, Rule::also);
    Some(if spec.bucket.is_some() && cost != 1 {
        rule.cost(move |_| cost)
    } else {
        rule
    })
}

/// Reads another bucket of a rule. `None` with a fault.
fn also(
    spec: &HttpAlsoSpec,
    field: &Field<'_>,
    names: &mut Names,
    findings: &mut Findings,
) -> Option<Rule> {
    names.add(&spec.bucket, &field.then("bucket"), findings);
    let cost = findings.take(cost(spec.cost, &field.then("cost")))?;
    let rule = Rule::bucket(&spec.bucket).cost(move |_| cost);
    let Some(source) = &spec.tenant else {
        return Some(rule);
    };
    let source = findings.take(tenant(source, &field.then("tenant")))?;
    Some(rule.tenant(source.to_middleware().ok()?))
}

fn method(text: &str, field: &Field<'_>) -> Checked<Method> {
    let hint = "write a method such as GET, in upper case as requests have it";
    match Method::from_bytes(text.as_bytes()) {
        Ok(method) if !text.contains(|c: char| c.is_ascii_lowercase()) => Ok(method),
        _ => Err(field.refuse(format_args!("`{text}` is not the name of a method"), hint)),
    }
}

/// Gives a fault of the middleware's rules its place, in the words of the file.
fn fault(error: &RulesError, index: usize, field: &Field<'_>) -> Box<plimsoll_policy::PolicyFault> {
    let path = ["path", "prefix", "exact"]
        .into_iter()
        .find_map(|name| field.entry(name));
    match error {
        RulesError::Path { fault, .. } => {
            let text = fault.to_string();
            let (why, hint) = text
                .split_once(": ")
                .unwrap_or((&text, "see the forms of paths in the documentation"));
            path.unwrap_or_else(|| field.clone()).refuse(why, hint)
        }
        RulesError::NoMethods { .. } => {
            let why = "the list of methods is empty, so that no request matches";
            field
                .then("methods")
                .refuse(why, "name a method, or leave `methods` out for all")
        }
        RulesError::Also { fault, .. } => {
            let (why, hint) = fault.split_once(": ").unwrap_or((fault, ""));
            field.then("also").refuse(why, hint)
        }
        RulesError::Duplicate { earlier, .. } => {
            let why = format!(
                "the rule can never match: {earlier} matches the same requests and applies first"
            );
            field.refuse(why, "remove one of the two")
        }
        RulesError::Unreachable { earlier, .. } => {
            let why = format!("the rule can never match: {earlier} matches all its requests first");
            field.refuse(why, "write the narrower rule first")
        }
        other => field.refuse(
            format!("rule {}: {other}", index + 1),
            "see the forms of rules in the documentation",
        ),
    }
}
