//! Compares the table of `docs/reference/bounds.md` with the constants in the code.
//!
//! A row reads `| what | bound | CONSTANT | value in the code | file |`. Constants are `const NAME:
//! T = value;`, and fields of a `Default` implementation are `name: value,`.

use super::{pages, read};

const PAGE: &str = "docs/reference/bounds.md";

/// Returns the text of the value that `file` gives to `name`, with white space folded.
fn value(file: &str, name: &str) -> Option<String> {
    let fold = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let constant = file
        .split(&format!("const {name}:"))
        .nth(1)
        .and_then(|rest| {
            let (declared, _) = rest.split_once(';')?;
            Some(fold(declared.split_once('=')?.1))
        });
    constant.or_else(|| {
        let line = file.lines().find_map(|line| {
            line.trim()
                .strip_prefix(&format!("{name}: "))?
                .strip_suffix(',')
        });
        line.map(fold)
    })
}

#[test]
fn table_bounds_equal_those_in_code() {
    let page = pages()
        .into_iter()
        .find(|page| page.path.ends_with("reference/bounds.md"))
        .unwrap();
    let mut rows = 0;
    let mut faults = Vec::new();
    for line in page.lines() {
        let cells: Vec<&str> = line.text.split('|').map(str::trim).collect();
        let ["", _, _, name, stated, path, ""] = cells[..] else {
            continue;
        };
        if name == "constant" || name.starts_with("--") {
            continue;
        }
        let [name, stated, path] = [name, stated, path].map(|cell| cell.trim_matches('`'));
        rows += 1;
        match value(&read(path), name) {
            Some(value) if value == stated => {}
            found => faults.push(format!(
                "{PAGE}:{}: {name} is {found:?} in {path}, not {stated}",
                line.number
            )),
        }
    }
    assert!(rows > 40, "only {rows} bounds were found");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn values_are_found_in_the_code() {
    let file = "pub const A: u32 =\n    1 << 4;\n    const B_MAX: Duration = Duration::from_secs(5);\n  wait: ms(5),\n";
    assert_eq!(value(file, "A").as_deref(), Some("1 << 4"));
    assert_eq!(
        value(file, "B_MAX").as_deref(),
        Some("Duration::from_secs(5)")
    );
    assert_eq!(value(file, "wait").as_deref(), Some("ms(5)"));
    assert_eq!(value(file, "C"), None);
}
