//! Every relative link of a document leads to a file that exists, and every anchor to a heading.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use super::{Page, pages, read, root};

/// Returns the targets of the Markdown links in a line. Code spans are not links.
fn targets(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (at, part) in line.split('`').enumerate() {
        if at % 2 == 0 {
            found.extend(
                part.split("](")
                    .skip(1)
                    .filter_map(|rest| rest.split(')').next()),
            );
        }
    }
    // The split above cuts a link with code as text: `[`name`](target)`.
    found.extend(
        line.split("`](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next()),
    );
    found.sort_unstable();
    found.dedup();
    found
}

/// Returns the anchor that the usual renderers give to a heading.
fn slug(heading: &str) -> String {
    let kept = heading
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// Returns the text below each heading of a page, up to the next one, by the anchor of the heading.
fn by_anchor(page: &Page) -> BTreeMap<String, String> {
    let mut sections: BTreeMap<String, String> = BTreeMap::new();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut current = None;
    for line in page.lines() {
        if line.fence.is_none() && line.text.starts_with('#') {
            let slug = slug(line.text.trim_start_matches('#').trim());
            let times = seen.entry(slug.clone()).or_default();
            *times += 1;
            current = Some(match *times {
                1 => slug,
                times => format!("{slug}-{}", times - 1),
            });
        }
        if let Some(anchor) = &current {
            let section = sections.entry(anchor.clone()).or_default();
            *section += line.text;
            section.push('\n');
        }
    }
    sections
}

/// Returns the sections of the document at this path.
pub(super) fn sections(path: &str) -> BTreeMap<String, String> {
    by_anchor(&Page {
        path: path.into(),
        text: read(path),
    })
}

/// Resolves `target` against the folder of `page`, both from the root of the repository.
fn resolve(page: &Path, target: &str) -> PathBuf {
    let mut path = page.parent().map(Path::to_path_buf).unwrap_or_default();
    for part in Path::new(target).components() {
        match part {
            Component::ParentDir => {
                path.pop();
            }
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    path
}

#[test]
fn every_link_leads_to_a_target() {
    let pages = pages();
    let anchors: BTreeMap<&Path, BTreeMap<String, String>> = pages
        .iter()
        .map(|page| (page.path.as_path(), by_anchor(page)))
        .collect();
    let mut broken = Vec::new();
    let mut links = 0;
    for page in &pages {
        for line in page.lines().iter().filter(|line| line.fence.is_none()) {
            for target in targets(line.text)
                .into_iter()
                .filter(|target| !target.contains("://"))
            {
                links += 1;
                let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
                let path = if file.is_empty() {
                    page.path.clone()
                } else {
                    resolve(&page.path, file)
                };
                let leads = root().join(&path).exists()
                    && (anchor.is_empty()
                        || anchors
                            .get(path.as_path())
                            .is_some_and(|all| all.contains_key(anchor)));
                if !leads {
                    broken.push(format!("{}:{}: {target}", page.path.display(), line.number));
                }
            }
        }
    }
    assert!(links > 20, "only {links} links were found");
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
}

#[test]
fn anchors_are_made_from_headings() {
    for (heading, anchor) in [
        ("Bounds", "bounds"),
        ("The life of a count", "the-life-of-a-count"),
        ("`up`: a demo", "up-a-demo"),
    ] {
        assert_eq!(slug(heading), anchor);
    }
    assert_eq!(
        targets("see [a](b.md#c), [`d`](e) and `[f](g)`"),
        ["b.md#c", "e"]
    );
}
