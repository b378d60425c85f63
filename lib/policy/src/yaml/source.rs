//! A text with its name, and a cursor over its fields that gives faults their place.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::yaml::{Checked, Node, PolicyFault, SourcePlace};
use plimsoll_core::quantity::Rate;

/// Maximum span of time in a policy: ten years.
const SPAN_MAX: Duration = Duration::from_secs(3_650 * 86_400);

/// Maximum size of a file, in bytes.
pub const FILE_BYTES_MAX: usize = 1 << 20;

/// A text and the name of its file.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The name of the file in messages: its path as the operator gave it.
    pub name: &'a str,
    /// The whole text.
    pub text: &'a str,
}

/// A source that is well-formed YAML of the allowed kind, with its outline: a mapping without anchors,
/// aliases, tags, nulls and repeated keys.
pub struct Document<'a> {
    source: Source<'a>,
    root: Node,
}

/// One field of a document, with its name and place. An absent field has the place of the mapping that lacks
/// it.
#[derive(Clone)]
pub struct Field<'a> {
    document: &'a Document<'a>,
    /// The field's node; of an absent field that of the mapping that lacks it.
    node: &'a Node,
    /// False if the field is absent.
    written: bool,
    path: Vec<String>,
}

// === impl Source ===

impl<'a> Source<'a> {
    /// Decodes the bytes of a file. To detect a file that is too large, [`FILE_BYTES_MAX`] + 1 bytes are
    /// enough.
    ///
    /// # Errors
    /// If there are more than [`FILE_BYTES_MAX`] bytes, or they are not UTF-8.
    pub fn from_bytes(name: &'a str, bytes: &'a [u8]) -> Result<Self, super::PolicyError> {
        if bytes.len() > FILE_BYTES_MAX {
            return Err(Self::too_large(name).into());
        }
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Self { name, text }),
            Err(e) => {
                let good = bytes
                    .get(..e.valid_up_to())
                    .and_then(|b| std::str::from_utf8(b).ok())
                    .unwrap_or("");
                let line = good.matches('\n').count() + 1;
                let last = good.rsplit('\n').next().unwrap_or_default();
                let column = last.chars().count() + 1;
                let (source, place) = (Self { name, text: good }, SourcePlace { line, column });
                let hint = "save the file as UTF-8";
                Err(PolicyFault::new(source, place, "", "a byte here is not UTF-8", hint).into())
            }
        }
    }

    fn too_large(name: &str) -> Box<PolicyFault> {
        let what = format!("the file is larger than {FILE_BYTES_MAX} bytes");
        let hint =
            "a pattern such as \"api/*\" covers many buckets, the class `default` many tenants";
        PolicyFault::new(
            Source { name, text: "" },
            SourcePlace { line: 1, column: 1 },
            "",
            &what,
            hint,
        )
    }
}

// === impl Document ===

impl<'a> Document<'a> {
    /// Checks size and structure of `source`. Linear in its length, except for sorting keys.
    ///
    /// # Errors
    /// The first fault of its structure.
    pub fn open(source: Source<'a>) -> Checked<Self> {
        if source.text.len() > FILE_BYTES_MAX {
            return Err(Source::too_large(source.name));
        }
        Ok(Self {
            root: Node::read(source)?,
            source,
        })
    }

    pub(crate) const fn text(&self) -> &'a str {
        self.source.text
    }

    /// The root mapping.
    pub fn root(&self) -> Field<'_> {
        Field {
            document: self,
            node: &self.root,
            written: true,
            path: Vec::new(),
        }
    }
}

// === impl Field ===

impl<'a> Field<'a> {
    /// Returns the field `name` inside this one, present or absent. Items of a sequence are named by their
    /// index.
    pub fn then(&self, name: &str) -> Self {
        let mut path = self.path.clone();
        path.push(name.to_owned());
        match self.node.entries.get(name).filter(|_| self.written) {
            Some(node) => Self {
                node,
                path,
                ..*self
            },
            None => Self {
                written: false,
                path,
                ..*self
            },
        }
    }

    /// Returns the field `name` inside this one, if present.
    pub fn entry(&self, name: &str) -> Option<Self> {
        Some(self.then(name)).filter(|field| field.written)
    }

    /// The fields present inside this one, by name.
    pub fn entries(&self) -> impl Iterator<Item = Self> {
        self.node.entries.keys().filter_map(|name| self.entry(name))
    }

    /// Returns every value inside this field by its path. Items with a `name` are named by it in place of their index.
    pub(crate) fn values(&self) -> BTreeMap<String, String> {
        if self.node.entries.is_empty() {
            let value = self.node.text.clone().unwrap_or_else(|| "{}".to_owned());
            return BTreeMap::from([(self.path(), value)]);
        }
        let inner = self.entries().flat_map(|mut entry| {
            let own = entry
                .node
                .entries
                .get("name")
                .and_then(|name| name.text.clone());
            if let Some((last, own)) = entry.path.last_mut().zip(own) {
                *last = own;
            }
            entry.values()
        });
        inner.collect()
    }

    /// The field's name in messages.
    pub fn path(&self) -> String {
        joined(self.path.iter().map(String::as_str))
    }

    /// The file's name in messages.
    pub const fn file(&self) -> &'a str {
        self.document.source.name
    }

    /// The place of the name, or of an item of a sequence.
    pub const fn name_at(&self) -> SourcePlace {
        self.node.key_at
    }

    /// The place of the value.
    pub const fn at(&self) -> SourcePlace {
        self.node.at
    }

    /// Refuses the value.
    pub fn refuse(&self, why: impl Display, hint: &str) -> Box<PolicyFault> {
        self.refuse_at(self.node.at, why, hint)
    }

    /// Refuses the field's name.
    pub fn refuse_name(&self, why: impl Display, hint: &str) -> Box<PolicyFault> {
        self.refuse_at(self.node.key_at, why, hint)
    }

    /// Refuses the field, at the given place.
    pub fn refuse_at(&self, place: SourcePlace, why: impl Display, hint: &str) -> Box<PolicyFault> {
        PolicyFault::new(
            self.document.source,
            place,
            &self.path(),
            &why.to_string(),
            hint,
        )
    }

    pub(crate) fn not_negative(&self, number: f64) -> Checked<f64> {
        if number.is_finite() && number >= 0.0 {
            return Ok(number + 0.0);
        }
        Err(self.refuse(
            format_args!("{number} is not a finite number of 0 or more"),
            "write a number from 0 on",
        ))
    }

    pub(crate) fn rate(&self, number: f64) -> Checked<Rate> {
        Rate::new(number).map_err(|e| {
            self.refuse(
                e,
                "write a number of requests/s from 0 on; 0 denies everything",
            )
        })
    }

    /// Validates a number within a range.
    ///
    /// # Errors
    /// The fault of this field, with `hint`.
    pub fn within(&self, number: f64, range: RangeInclusive<f64>, hint: &str) -> Checked<f64> {
        if range.contains(&number) {
            return Ok(number);
        }
        let (least, most) = range.into_inner();
        Err(self.refuse(format_args!("{number} is not in {least}..={most}"), hint))
    }

    /// Validates a whole number. From 2^53 on, two written numbers can be read as the same one.
    ///
    /// # Errors
    /// The fault of this field.
    pub fn whole(&self, number: f64) -> Checked<u64> {
        let count = self.not_negative(number)?;
        if count.fract() == 0.0 && count < 9_007_199_254_740_992.0 {
            return Ok(count as u64);
        }
        Err(self.refuse(
            format_args!("{number} is not a whole number below 2^53"),
            "write a whole number, without a fraction",
        ))
    }

    pub(crate) fn span(&self, number: f64, unit: Duration) -> Checked<Duration> {
        self.span_up_to(number, unit, SPAN_MAX)
    }

    pub(crate) fn span_up_to(
        &self,
        number: f64,
        unit: Duration,
        longest: Duration,
    ) -> Checked<Duration> {
        let seconds = self.not_negative(number)? * unit.as_secs_f64();
        if seconds <= longest.as_secs_f64() {
            return Ok(Duration::from_secs_f64(seconds));
        }
        let most = longest.as_secs_f64() / unit.as_secs_f64();
        Err(self.refuse(format_args!("{number} is longer than {most}"), "write less"))
    }

    pub(crate) fn printable(&self, text: &str) -> Checked<()> {
        match text
            .chars()
            .find(|c| c.is_control() && !matches!(c, '\n' | '\t'))
        {
            None => Ok(()),
            Some(c) => Err(self.refuse(format_args!("the control character {c:?}"), "remove it")),
        }
    }
}

/// Joins a path as `a.b.c`; a name with a dot or other special characters is quoted, so that the path stays
/// readable.
pub(super) fn joined<'a>(path: impl Iterator<Item = &'a str>) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-/:@*".contains(c);
    let quoted = path.map(|name| match name {
        name if !name.is_empty() && name.chars().all(is_plain) => name.to_owned(),
        name => format!("{name:?}"),
    });
    quoted.collect::<Vec<_>>().join(".")
}
