//! The bound of the entries of a mapping or sequence.

use std::collections::BTreeMap;

use super::{Checked, Field, SourcePlace};

/// Checks that a mapping or sequence has at most `most` entries. The first one beyond is refused, by the name of the
/// bound.
///
/// # Errors
/// The fault of the first entry beyond.
pub fn check_entries(field: &Field<'_>, most: usize, bound: &str, hint: &str) -> Checked<()> {
    let by_place: BTreeMap<SourcePlace, Field<'_>> = field
        .entries()
        .map(|entry| (entry.name_at(), entry))
        .collect();
    let count = by_place.len();
    by_place.into_values().nth(most).map_or(Ok(()), |beyond| {
        Err(beyond.refuse_name(
            format_args!(
                "entry {} of {count}, at most {most} fit ({bound})",
                most + 1
            ),
            hint,
        ))
    })
}
