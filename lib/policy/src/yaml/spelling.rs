//! The one spelling of numbers: plain decimal digits. YAML 1.1, YAML 1.2 and their readers disagree about the
//! others, and a limit that two readers take for different numbers protects nothing.

/// Returns true if some reader of YAML takes a scalar without quotes for a number although it is not written
/// in plain decimal digits, or is not the number that its digits say: `1_000`, `0x10`, `017`, `+5`, `.5`,
/// `.inf`, `-0`, `1e400`, `1e-400`.
pub(super) fn is_odd_number(text: &str) -> bool {
    is_number(text) && !is_plain_number(text)
}

fn is_number(text: &str) -> bool {
    let unsigned = text
        .strip_prefix(['+', '-'])
        .unwrap_or(text)
        .to_ascii_lowercase();
    let is_digit = |digit: char| digit == '_' || digit.is_ascii_hexdigit();
    let with_radix = ["0x", "0o", "0b"]
        .iter()
        .find_map(|radix| unsigned.strip_prefix(radix));
    let is_decimal = || unsigned.replace('_', "").parse::<f64>().is_ok();
    match unsigned.trim_start_matches('.').chars().next() {
        Some('0'..='9') => {
            with_radix.is_some_and(|digits| digits.chars().all(is_digit)) || is_decimal()
        }
        _ => matches!(unsigned.as_str(), ".inf" | ".nan"),
    }
}

fn is_plain_number(text: &str) -> bool {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let (mantissa, exponent) = split(unsigned, ['e', 'E']);
    let (whole, fraction) = split(mantissa, ['.', '.']);
    let is_digits =
        |text: &str| !text.is_empty() && text.chars().all(|digit| digit.is_ascii_digit());
    let has_leading_zero = whole.len() > 1 && whole.starts_with('0');
    let is_zero = unsigned == text && mantissa.chars().all(|digit| matches!(digit, '0' | '.'));
    is_digits(whole)
        && !has_leading_zero
        && fraction.is_none_or(is_digits)
        && exponent
            .is_none_or(|digits| is_digits(digits.strip_prefix(['+', '-']).unwrap_or(digits)))
        && text
            .parse()
            .is_ok_and(|number: f64| number.is_finite() && (number != 0.0 || is_zero))
}

fn split(text: &str, at: [char; 2]) -> (&str, Option<&str>) {
    text.split_once(at)
        .map_or((text, None), |(before, after)| (before, Some(after)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_one_spelling() {
        for plain in [
            "0", "7", "10", "0.5", "-1", "1e3", "1E+3", "2.50e-1", "0e5", "0.0", "-1e-9",
        ] {
            assert!(!is_odd_number(plain), "{plain}");
        }
        for odd in [
            "1_000", "0x1F", "0o17", "017", "+5", ".5", "5.", ".inf", "-.NaN", "-0", "1e400",
            "1e-400",
        ] {
            assert!(is_odd_number(odd), "{odd}");
        }
    }

    #[test]
    fn text_is_no_number() {
        for text in [
            "",
            "-",
            ".",
            "shadow",
            "inf",
            "nan",
            "e3",
            "2026-12-01T00:00:00Z",
            "10.0.0.1",
            "5xx",
            "0xyz",
            "api/1",
        ] {
            assert!(!is_odd_number(text), "{text}");
        }
    }
}
