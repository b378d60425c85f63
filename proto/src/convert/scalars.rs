//! Conversions of single values: names, ids, epochs, and rates.
//!
//! A rate travels as thousandths of a request per second, because an integer cannot be NaN.

use std::time::Duration;

use plimsoll_core::directive::{Epoch, Leader};
use plimsoll_core::names::{InvalidName, Tenant};
use plimsoll_core::quantity::Rate;
use plimsoll_core::report::InstanceId;

use super::DecodeError;
use crate::wire;

/// Encodes a rate in thousandths, rounded. A positive rate never becomes zero, and the
/// highest fits.
pub(super) fn encode_rate(rate: Rate) -> u64 {
    let nearest = (rate.per_second() * 1e3).round() as u64;
    nearest.max(u64::from(rate > Rate::ZERO))
}

pub(super) fn decode_rate(milli: u64) -> Result<Rate, DecodeError> {
    Ok(Rate::new(milli as f64 / 1e3)?)
}

pub(super) fn encode_instance(instance: InstanceId) -> Vec<u8> {
    instance.0.to_be_bytes().to_vec()
}

pub(super) fn decode_instance(bytes: &[u8]) -> Result<InstanceId, DecodeError> {
    let instance = bytes
        .try_into()
        .map_err(|_| DecodeError::Instance(bytes.len()))?;
    Ok(InstanceId(u128::from_be_bytes(instance)))
}

pub(super) fn decode_optional_instance(
    bytes: Option<Vec<u8>>,
) -> Result<Option<InstanceId>, DecodeError> {
    bytes.map(|bytes| decode_instance(&bytes)).transpose()
}

pub(super) fn encode_controller(controller: Leader) -> wire::Controller {
    wire::Controller {
        epoch: controller.epoch.0,
        instance: controller.instance.map(encode_instance),
    }
}

pub(super) fn decode_controller(controller: wire::Controller) -> Result<Leader, DecodeError> {
    let leader = decode_leader(Some(controller.epoch), controller.instance)?;
    Ok(leader.unwrap_or_default())
}

pub(super) fn encode_millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Encodes the epoch and the instance of an optional controller.
pub(super) fn encode_leader(leader: Option<Leader>) -> (Option<u64>, Option<Vec<u8>>) {
    let instance = leader.and_then(|leader| leader.instance);
    (
        leader.map(|leader| leader.epoch.0),
        instance.map(encode_instance),
    )
}

/// Decodes an optional controller. An epoch of zero is an error, and an instance without an epoch is ignored.
pub(super) fn decode_leader(
    epoch: Option<u64>,
    instance: Option<Vec<u8>>,
) -> Result<Option<Leader>, DecodeError> {
    if epoch == Some(0) {
        return Err(DecodeError::Zero("epoch"));
    }
    let instance = decode_optional_instance(instance)?;
    Ok(epoch.map(|epoch| Leader {
        epoch: Epoch(epoch),
        instance,
    }))
}

pub(super) fn decode_name<N>(
    field: &'static str,
    text: &str,
    new: impl FnOnce(&str) -> Result<N, InvalidName>,
) -> Result<N, DecodeError> {
    new(text).map_err(|source| DecodeError::Name { field, source })
}

/// Encodes the plan of a class, which is empty for the class `default`.
pub(super) fn encode_class(class: &Tenant) -> String {
    class.plan().unwrap_or_default().to_owned()
}

pub(super) fn decode_class(field: &'static str, plan: &str) -> Result<Tenant, DecodeError> {
    match plan {
        "" => Ok(Tenant::default_class()),
        plan => decode_name(field, plan, Tenant::class_of_plan),
    }
}

/// Rejects a list of `got` entries if `most` are allowed.
pub(super) fn check_len(field: &'static str, got: usize, most: usize) -> Result<(), DecodeError> {
    if got > most {
        Err(DecodeError::TooMany { field, got, most })
    } else {
        Ok(())
    }
}

/// Decodes each entry of a list that has at most `most`. In a map the last of equal keys counts.
pub(super) fn decode_list<W, T, L: FromIterator<T>>(
    field: &'static str,
    list: &[W],
    most: usize,
    decode: impl Fn(&W) -> Result<T, DecodeError>,
) -> Result<L, DecodeError> {
    check_len(field, list.len(), most)?;
    list.iter().map(decode).collect()
}

pub(super) fn check_column(
    field: &'static str,
    got: usize,
    expected: usize,
) -> Result<(), DecodeError> {
    if got == expected {
        Ok(())
    } else {
        Err(DecodeError::Columns {
            field,
            got,
            expected,
        })
    }
}
