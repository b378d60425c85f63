//! Conversions of what the catalogue of tenants says of names: each name or key with the class of its plan, which is
//! `default` without a plan.

use plimsoll_core::directive::CATALOGUED_MAX;
use plimsoll_core::names::{KeyId, Tenant};

use super::DecodeError;
use super::scalars::{decode_class, decode_list, decode_name, encode_class};
use crate::wire;

pub(super) fn encode_catalogued(names: &[(Tenant, Tenant)]) -> Vec<wire::CatalogueName> {
    let each = names.iter().map(|(tenant, class)| wire::CatalogueName {
        tenant: tenant.to_string(),
        plan: encode_class(class),
    });
    each.collect()
}

pub(super) fn decode_catalogued(
    names: &[wire::CatalogueName],
) -> Result<Vec<(Tenant, Tenant)>, DecodeError> {
    decode_list("catalogued", names, CATALOGUED_MAX, |name| {
        let tenant = decode_name("catalogued", &name.tenant, Tenant::new)?;
        Ok((tenant, decode_class("catalogued", &name.plan)?))
    })
}

pub(super) fn encode_key_plans(keys: &[(KeyId, Tenant)]) -> Vec<wire::KeyPlan> {
    let each = keys.iter().map(|(id, class)| wire::KeyPlan {
        id: id.0,
        plan: encode_class(class),
    });
    each.collect()
}

pub(super) fn decode_key_plans(
    keys: &[wire::KeyPlan],
) -> Result<Vec<(KeyId, Tenant)>, DecodeError> {
    decode_list("key_plans", keys, CATALOGUED_MAX, |key| {
        Ok((KeyId(key.id), decode_class("key_plans", &key.plan)?))
    })
}
