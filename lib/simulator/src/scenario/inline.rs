//! A policy inside a scenario. The policy's own reader parses the scenario's text, so that a
//! mistake is reported with its true place.

use plimsoll_policy::{Document, SourcePlace};

/// Replaces everything in `document` except the value of the top-level field `name` by spaces, so
/// that lines and columns are unchanged; `None` if the field is absent.
pub(crate) fn only(text: &str, document: &Document<'_>, name: &str) -> Option<String> {
    let root = document.root();
    let field = root.entry(name)?;
    let from = field.at();
    let to = root
        .entries()
        .map(|entry| entry.name_at())
        .filter(|at| *at > from)
        .min();
    let mut kept = String::with_capacity(text.len());
    let mut at = SourcePlace { line: 1, column: 1 };
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let inside = at >= from && to.is_none_or(|to| at < to);
        let ends_line = c == '\n' || (c == '\r' && chars.peek() != Some(&'\n'));
        kept.push(if inside || c == '\n' || c == '\r' {
            c
        } else {
            ' '
        });
        at = if ends_line {
            SourcePlace {
                line: at.line + 1,
                column: 1,
            }
        } else {
            SourcePlace {
                line: at.line,
                column: at.column + 1,
            }
        };
    }
    if root.at()
        < root
            .entries()
            .map(|entry| entry.name_at())
            .min()
            .unwrap_or(root.at())
    {
        // The root is written in braces, so the value is followed by a comma or a brace of the root.
        let end = if to.is_some() { ',' } else { '}' };
        let bare = kept.trim_end();
        if let Some(bare) = bare.strip_suffix(end) {
            kept.truncate(bare.len());
        }
    }
    Some(kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_policy::{ONE_CLASS_TENANTS, Policy, Source};

    fn only_policy(text: &str) -> String {
        let document = Document::open(Source {
            name: "s.yaml",
            text,
        })
        .unwrap();
        only(text, &document, "policy").unwrap()
    }

    #[test]
    fn only_the_inline_value_keeps_its_place() {
        let block = "name: x\npolicy:\n  buckets:\n    a: { limit: 1 }\ntenants: {}\n";
        assert_eq!(
            only_policy(block).trim_end(),
            "       \n       \n  buckets:\n    a: { limit: 1 }"
        );
        let flow = "policy: { buckets: { a: { limit: 1 } } } # why\nname: x\n";
        assert_eq!(
            only_policy(flow).trim_end(),
            "        { buckets: { a: { limit: 1 } } } # why"
        );
        let braces = "{ policy: { buckets: { a: { limit: 1 } } }, name: x }";
        assert_eq!(
            only_policy(braces).trim_end(),
            "          { buckets: { a: { limit: 1 } } }"
        );
        let last = "{ name: x, policy: { buckets: { a: { limit: 1 } } } }";
        assert_eq!(
            only_policy(last).trim_end(),
            "                   { buckets: { a: { limit: 1 } } }"
        );
        for text in [block, flow, braces, last] {
            let policy = only_policy(text);
            let tenants = Source {
                name: "tenants",
                text: ONE_CLASS_TENANTS,
            };
            Policy::read(
                Source {
                    name: "s.yaml",
                    text: &policy,
                },
                tenants,
            )
            .unwrap();
        }
    }

    #[test]
    fn inline_mistake_has_its_scenario_place() {
        let text = "name: x\nduration_s: 1\npolicy:\n  buckets:\n    a: { limit: -1 }\nzones: 1\n";
        let policy = only_policy(text);
        let tenants = Source {
            name: "tenants",
            text: ONE_CLASS_TENANTS,
        };
        let error = Policy::read(
            Source {
                name: "s.yaml",
                text: &policy,
            },
            tenants,
        )
        .unwrap_err();
        let fault = &error.faults()[0];
        assert_eq!(
            (fault.file.as_str(), fault.place),
            (
                "s.yaml",
                SourcePlace {
                    line: 5,
                    column: 17
                }
            )
        );
        assert_eq!(fault.path, "buckets.a.limit");
    }
}
