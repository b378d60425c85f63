//! Bounds of a scenario's numbers, and the checks that hold them.

use plimsoll_policy::{Field, Number, PolicyFault};

/// A day.
pub(crate) const DURATION_MAX_S: f64 = 86_400.0;
pub(crate) const CLIENTS_MAX: u32 = 100_000;
pub(crate) const ZONES_MAX: u32 = 1_000;
pub(crate) const TRAFFIC_MAX: usize = 1_000;
/// Requests/s.
pub(crate) const RPS_MAX: f64 = 1e7;

pub(crate) type Checked<T> = Result<T, Box<PolicyFault>>;

/// Returns a number within bounds.
///
/// # Errors
/// If it is out of bounds or not finite.
pub(crate) fn within(number: Number, field: &Field<'_>, min: f64, max: f64) -> Checked<f64> {
    if (min..=max).contains(&number.0) {
        return Ok(number.0);
    }
    Err(field.refuse(
        format_args!("{} is out of range", number.0),
        &format!("write a number from {min} to {max}"),
    ))
}

/// Returns each entry of a list with its field.
pub(crate) fn entries<'a, T>(
    field: &Field<'a>,
    list: impl IntoIterator<Item = T>,
) -> impl Iterator<Item = (Field<'a>, T)> {
    let numbered = list.into_iter().enumerate();
    numbered.map(|(at, entry)| (field.then(&at.to_string()), entry))
}

pub(crate) fn all_within<const N: usize>(
    numbers: [(&str, Number); N],
    field: &Field<'_>,
    min: f64,
    max: f64,
) -> Checked<()> {
    numbers
        .into_iter()
        .try_for_each(|(name, number)| within(number, &field.then(name), min, max).map(drop))
}

pub(crate) fn whole(number: u32, field: &Field<'_>, min: u32, max: u32) -> Checked<u32> {
    within(Number(number.into()), field, min.into(), max.into()).map(|_| number)
}
