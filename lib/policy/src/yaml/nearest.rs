//! "Did you mean" hints for names that are unknown.

use plimsoll_core::names::nearest;

/// Returns the hint for an unknown `word`: the nearest of `known` if it is near, and all of them.
pub fn hint(word: &str, known: &[&str]) -> String {
    let all = known
        .iter()
        .map(|k| format!("`{k}`"))
        .collect::<Vec<_>>()
        .join(", ");
    match nearest(word, known.iter().copied()) {
        Some(meant) => format!("did you mean `{meant}`? known here: {all}"),
        None => format!("known here: {all}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hint_begins_with_the_nearest_word() {
        let known = ["limit", "mode"];
        assert_eq!(
            hint("limt", &known),
            "did you mean `limit`? known here: `limit`, `mode`"
        );
        assert_eq!(hint("percentile", &known), "known here: `limit`, `mode`");
    }
}
