//! Conversions of what the catalogue of tenants says of names.

use plimsoll_core::directive::CATALOGUED_MAX;
use plimsoll_core::names::{KeyId, Tenant};

use super::DecodeError;
use super::scalars::{check_len, decode_name};
use crate::wire;

pub(super) fn encode_catalogued(names: &[(Tenant, Tenant)]) -> Vec<wire::CatalogueName> {
    let each = names.iter().map(|(tenant, class)| wire::CatalogueName {
        tenant: tenant.to_string(),
        plan: plan_text(class),
    });
    each.collect()
}

pub(super) fn decode_catalogued(
    names: &[wire::CatalogueName],
) -> Result<Vec<(Tenant, Tenant)>, DecodeError> {
    check_len("catalogued", names.len(), CATALOGUED_MAX)?;
    let each = names.iter().map(|name| {
        let tenant = decode_name("catalogued", &name.tenant, Tenant::new)?;
        Ok((tenant, decode_class("catalogued", &name.plan)?))
    });
    each.collect()
}

pub(super) fn encode_key_plans(keys: &[(KeyId, Tenant)]) -> Vec<wire::KeyPlan> {
    let each = keys.iter().map(|(id, class)| wire::KeyPlan {
        id: id.0,
        plan: plan_text(class),
    });
    each.collect()
}

pub(super) fn decode_key_plans(
    keys: &[wire::KeyPlan],
) -> Result<Vec<(KeyId, Tenant)>, DecodeError> {
    check_len("key_plans", keys.len(), CATALOGUED_MAX)?;
    let each = keys
        .iter()
        .map(|key| Ok((KeyId(key.id), decode_class("key_plans", &key.plan)?)));
    each.collect()
}

fn plan_text(class: &Tenant) -> String {
    class.plan().unwrap_or_default().to_owned()
}

fn decode_class(field: &'static str, plan: &str) -> Result<Tenant, DecodeError> {
    match plan {
        "" => Ok(Tenant::default_class()),
        plan => decode_name(field, plan, Tenant::class_of_plan),
    }
}
