//! Guesses which word was meant, for hints.

/// Longer words are not compared: the work grows with the product of the lengths.
const WORD_CHARS_MAX: usize = 40;

/// The hint for a `word` that is none of `known`: the nearest one if it is near, and all of them.
pub(crate) fn hint(word: &str, known: &[&str]) -> String {
    let all = known.iter().map(|k| format!("`{k}`")).collect::<Vec<_>>().join(", ");
    match nearest(word, known) {
        Some(meant) => format!("did you mean `{meant}`? known here: {all}"),
        None => format!("known here: {all}"),
    }
}

/// The word of `known` that takes the fewest edits, if that is at most one edit in three characters.
fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let word: Vec<char> = word.chars().take(WORD_CHARS_MAX + 1).flat_map(char::to_lowercase).collect();
    if word.len() > WORD_CHARS_MAX {
        return None;
    }
    let distance = |k: &&str| edits(&word, &k.chars().collect::<Vec<_>>());
    let best = known.iter().copied().min_by_key(distance)?;
    (distance(&best) <= word.len().max(best.len()).div_ceil(3)).then_some(best)
}

/// How many characters must be put in, left out, replaced or swapped with their neighbour to turn `a` into `b`.
fn edits(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut next = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let mut cost = (row[j] + usize::from(x != y)).min(row[j + 1] + 1).min(next[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                cost = cost.min(before[j - 1] + 1);
            }
            next.push(cost);
        }
        before = std::mem::replace(&mut row, next);
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_found_and_far_ones_are_not() {
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
            assert_eq!(nearest(word, &known), meant, "{word}");
        }
        assert_eq!(nearest(&"x".repeat(1 << 20), &known), None);
        assert!(hint("limt", &known).starts_with("did you mean `limit`?"));
    }
}
