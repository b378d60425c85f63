//! A text with its name, and a cursor over its fields that gives faults their place.

use std::fmt::Display;
use std::time::Duration;

use crate::yaml::{Checked, Fault, Node, Place};
use plimsoll_core::quantity::Rate;

/// The largest file that is read, in bytes.
pub const FILE_BYTES_MAX: usize = 1 << 20;

/// A text and the name of the file it came from.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The name of the file in messages: its path as the operator gave it.
    pub name: &'a str,
    /// The whole text.
    pub text: &'a str,
}

/// A source that is well-formed YAML of the allowed kind, with its outline: a mapping without anchors, aliases, tags,
/// nulls and repeated keys.
pub struct Document<'a> {
    source: Source<'a>,
    root: Node,
}

/// One field of a document, with its name and place. An absent field has the place of the mapping that lacks it.
#[derive(Clone)]
pub struct Field<'a> {
    document: &'a Document<'a>,
    node: &'a Node,
    written: bool,
    path: Vec<String>,
}

// === impl Source ===

impl<'a> Source<'a> {
    /// Decodes the bytes of a file. To detect a file that is too large, [`FILE_BYTES_MAX`] + 1 bytes are enough.
    ///
    /// # Errors
    /// If there are more than [`FILE_BYTES_MAX`] bytes, or they are not UTF-8.
    pub fn from_bytes(name: &'a str, bytes: &'a [u8]) -> Result<Self, super::PolicyError> {
        if bytes.len() > FILE_BYTES_MAX {
            return Err(Self { name, text: "" }.too_large().into());
        }
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Self { name, text }),
            Err(e) => {
                let good =
                    bytes.get(..e.valid_up_to()).and_then(|b| std::str::from_utf8(b).ok()).unwrap_or("");
                let line = good.matches('\n').count() + 1;
                let column = good.rsplit('\n').next().map_or(0, |last| last.chars().count()) + 1;
                let hint = "save the file as UTF-8";
                let place = Place { line, column };
                Err(Fault::new((name, good), place, "", "a byte here is not UTF-8", hint).into())
            }
        }
    }

    /// Refuses a text that is too large, before parsing.
    pub(crate) fn check_size(self) -> Checked<()> {
        if self.text.len() > FILE_BYTES_MAX { Err(self.too_large()) } else { Ok(()) }
    }

    fn too_large(self) -> Box<Fault> {
        let what = format!("the file is larger than {FILE_BYTES_MAX} bytes");
        let hint = "a pattern such as \"api/*\" covers many buckets, the class `default` many tenants";
        Fault::new((self.name, ""), Place { line: 1, column: 1 }, "", &what, hint)
    }
}

// === impl Document ===

impl<'a> Document<'a> {
    /// Checks size and structure of `source`. Linear in its length, except for sorting keys.
    ///
    /// # Errors
    /// The first fault of its structure.
    pub fn open(source: Source<'a>) -> Checked<Self> {
        source.check_size()?;
        match Node::read(source.text) {
            Ok(root) => Ok(Self { source, root }),
            Err(d) => {
                let file = (source.name, source.text);
                Err(Fault::new(file, d.at, &joined(&d.path), &d.message, &d.hint))
            }
        }
    }

    pub(crate) const fn text(&self) -> &'a str {
        self.source.text
    }

    /// The root mapping.
    #[must_use]
    pub fn root(&self) -> Field<'_> {
        Field { document: self, node: &self.root, written: true, path: Vec::new() }
    }
}

// === impl Field ===

impl<'a> Field<'a> {
    /// Returns the field `name` inside this one, present or absent. Items of a sequence are named by their index.
    #[must_use]
    pub fn then(&self, name: &str) -> Self {
        let mut path = self.path.clone();
        path.push(name.to_owned());
        match self.node.entry(name).filter(|_| self.written) {
            Some(node) => Self { node, path, ..*self },
            None => Self { written: false, path, ..*self },
        }
    }

    /// Returns the field `name` inside this one, if present.
    #[must_use]
    pub fn entry(&self, name: &str) -> Option<Self> {
        Some(self.then(name)).filter(|field| field.written)
    }

    /// The fields present inside this one, by name.
    pub fn entries(&self) -> impl Iterator<Item = Self> {
        self.node.names().filter_map(|name| self.entry(name))
    }

    /// The field's name in messages.
    #[must_use]
    pub fn path(&self) -> String {
        joined(&self.path)
    }

    /// The file's name in messages.
    pub(crate) const fn file(&self) -> &'a str {
        self.document.source.name
    }

    /// The place of the name, or of an item of a sequence.
    #[must_use]
    pub const fn name_at(&self) -> Place {
        self.node.key_at
    }

    /// The place of the value.
    #[must_use]
    pub const fn at(&self) -> Place {
        self.node.at
    }

    /// Refuses the value.
    #[must_use]
    pub fn refuse(&self, why: impl Display, hint: &str) -> Box<Fault> {
        self.refuse_at(self.node.at, why, hint)
    }

    /// Refuses the field's name.
    #[must_use]
    pub fn refuse_name(&self, why: impl Display, hint: &str) -> Box<Fault> {
        self.refuse_at(self.node.key_at, why, hint)
    }

    pub(crate) fn refuse_at(&self, place: Place, why: impl Display, hint: &str) -> Box<Fault> {
        let Source { name, text } = self.document.source;
        Fault::new((name, text), place, &self.path(), &why.to_string(), hint)
    }

    /// Validates a finite number, zero or more.
    pub(crate) fn not_negative(&self, number: f64) -> Checked<f64> {
        if number.is_finite() && number >= 0.0 {
            return Ok(number + 0.0);
        }
        Err(self
            .refuse(format_args!("{number} is not a finite number of 0 or more"), "write a number from 0 on"))
    }

    /// Validates a rate in requests per second.
    pub(crate) fn rate(&self, number: f64) -> Checked<Rate> {
        Rate::new(number)
            .map_err(|e| self.refuse(e, "write a number of requests/s from 0 on; 0 denies everything"))
    }

    /// Validates a span of `number` times `unit`.
    pub(crate) fn span(&self, number: f64, unit: Duration) -> Checked<Duration> {
        let seconds = self.not_negative(number)? * unit.as_secs_f64();
        Duration::try_from_secs_f64(seconds)
            .map_err(|_| self.refuse("longer than time can be told", "write less"))
    }
}

/// Joins a path as `a.b.c`; a name with a dot or other special characters is quoted, so that the path stays readable.
fn joined(path: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-/:@*".contains(c);
    let quoted: Vec<String> = path
        .iter()
        .map(
            |name| {
                if !name.is_empty() && name.chars().all(plain) { name.clone() } else { format!("{name:?}") }
            },
        )
        .collect();
    quoted.join(".")
}
