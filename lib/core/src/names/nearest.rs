//! The nearest known name, for "did you mean" hints.

/// Maximum length of a compared word, in characters: the work grows with the product of the
/// lengths.
const WORD_CHARS_MAX: usize = 40;

/// Returns the word of `known` at the smallest edit distance, if that is at most one edit for every three
/// characters, rounded up. `None` for a word that is too long to compare.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.chars().nth(WORD_CHARS_MAX).is_some() {
        return None;
    }
    let word = word.to_lowercase();
    let near = known
        .into_iter()
        .map(|known| (strsim::osa_distance(&word, known), known));
    let (distance, best) = near.min_by_key(|(edits, _)| *edits)?;
    let longer = word.chars().count().max(best.chars().count());
    (distance <= longer.div_ceil(3)).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_near_words_are_found() {
        let known = ["limit", "mode", "burst_s", "kill_switch"];
        for (word, meant) in [
            ("limt", Some("limit")),
            ("Limit", Some("limit")),
            ("limits", Some("limit")),
            ("mdoe", Some("mode")),
            ("killswitch", Some("kill_switch")),
            ("burst", Some("burst_s")),
            ("percentile", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, known), meant, "{word}");
        }
        assert_eq!(nearest(&"x".repeat(1 << 20), known), None);
    }
}
