//! The outline of a YAML text: every key with its place. It refuses constructs that the schema does not use
//! (anchors, aliases, tags, nulls, odd numbers, repeated keys, a second document) and gives errors the place of a
//! field.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use serde_yaml::granit_parser::{self as yaml, Event, ScalarStyle};

use crate::yaml::source::joined;
use crate::yaml::spelling::is_odd_number;
use crate::yaml::{Checked, PolicyFault, Source, SourcePlace};

/// The deepest nesting of mappings and sequences, the root included.
pub(crate) const NESTING_MAX: usize = 64;

#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// The place of the key; of an item of a sequence that of its value.
    pub(crate) key_at: SourcePlace,
    /// The place of the value.
    pub(crate) at: SourcePlace,
    /// The scalar; `None` for a mapping or a sequence.
    pub(crate) text: Option<String>,
    /// The entries of a mapping by key, or the items of a sequence by index.
    pub(crate) entries: BTreeMap<String, Node>,
}

struct Open {
    node: Node,
    name: String,
    shape: Shape,
}

enum Shape {
    /// A mapping, with the key whose value is next.
    Mapping(Option<(String, SourcePlace)>),
    /// A sequence, with the index of the next item.
    Sequence(usize),
}

impl Node {
    fn new(key_at: SourcePlace, at: SourcePlace) -> Self {
        Self {
            key_at,
            at,
            text: None,
            entries: BTreeMap::new(),
        }
    }

    /// Reads the outline of a text. Linear in its length, except for sorting keys; recursion is bounded by
    /// [`NESTING_MAX`].
    pub(crate) fn read(source: Source<'_>) -> Checked<Self> {
        Outliner {
            source,
            open: Vec::new(),
            root: None,
        }
        .read()
    }
}

struct Outliner<'a> {
    source: Source<'a>,
    open: Vec<Open>,
    root: Option<Node>,
}

impl Outliner<'_> {
    fn read(mut self) -> Checked<Node> {
        let options = yaml::options! {
            emit_comments: false,
            emit_anchor_events: true,
            emit_unresolved_aliases: true,
            // The scanner runs ahead of the events that nesting is counted from here.
            flow_nesting_limit: NESTING_MAX,
            block_nesting_limit: NESTING_MAX,
        };
        let mut events = yaml::Parser::new_from_str_with_options(self.source.text, options);
        while let Some(next) = events.next() {
            let (event, span) = next.map_err(|e| match e.kind() {
                yaml::ErrorKind::RecursionLimitExceeded => self.too_deep(place(e.marker())),
                _ => {
                    let what = format!("this is not YAML: {}", e.info());
                    self.fault(
                        place(e.marker()),
                        &what,
                        "check indentation, quotes and brackets around here",
                    )
                }
            })?;
            let at = place(&span.start);
            if let Some(tag_at) = event.tag().and(span.tag_start()) {
                return Err(self.fault(place(&tag_at), "tags are not allowed", "remove the tag"));
            }
            if let Event::Scalar(_, _, 1.., _)
            | Event::MappingStart(_, 1.., _)
            | Event::SequenceStart(_, 1.., _) = event
            {
                // The parser gives the place right after the node that carries the `&name`.
                let at = match events.next() {
                    Some(Ok((Event::Anchor(..), span))) => place(&span.start),
                    _ => at,
                };
                let hint = "write the value out where it is used";
                return Err(self.fault(at, "anchors are not allowed", hint));
            }
            match event {
                Event::Alias(_) | Event::UnresolvedAlias(_) => {
                    return Err(self.fault(at, "aliases are not allowed", "write the value out"));
                }
                Event::DocumentStart(..) if self.root.is_some() => {
                    let hint = "a file holds one document: remove the `---` and what follows it";
                    return Err(self.fault(at, "a second document begins here", hint));
                }
                Event::Scalar(text, style, ..) => self.scalar(&text, style, at)?,
                Event::MappingStart(..) => self.begin(Shape::Mapping(None), at)?,
                Event::SequenceStart(..) => self.begin(Shape::Sequence(0), at)?,
                Event::MappingEnd | Event::SequenceEnd => self.end()?,
                _ => {}
            }
        }
        let start = SourcePlace { line: 1, column: 1 };
        self.root.take().ok_or_else(|| {
            self.fault(
                start,
                "the file is empty",
                "write at least the required keys",
            )
        })
    }

    fn scalar(&mut self, text: &str, style: ScalarStyle, at: SourcePlace) -> Checked<()> {
        let null =
            style == ScalarStyle::Plain && matches!(text, "" | "~" | "null" | "Null" | "NULL");
        match self.open.last_mut().map(|open| &mut open.shape) {
            None if null => {
                Err(self.fault(at, "the file is empty", "write at least the required keys"))
            }
            None => Err(self.fault(at, "the root is not a mapping", "write `key: value` lines")),
            Some(Shape::Mapping(None)) if null => Err(self.fault(
                at,
                "a key must not be null",
                "write a name, quoted if need be",
            )),
            Some(Shape::Mapping(key @ None)) => {
                *key = Some((text.to_owned(), at));
                Ok(())
            }
            Some(Shape::Mapping(Some(_)) | Shape::Sequence(_)) => {
                let (name, key_at) = self.next_name(at);
                if null {
                    let hint = "write a value, or remove the key";
                    return Err(self.fault_of(
                        Some(&name),
                        key_at,
                        "null where a value belongs",
                        hint,
                    ));
                }
                if style == ScalarStyle::Plain && is_odd_number(text) {
                    let what = format!("`{text}` is not a number in plain decimal digits");
                    let hint = "write digits such as 1000, 0.5 or 1e6, or quotes around a text";
                    return Err(self.fault_of(Some(&name), at, &what, hint));
                }
                self.close(
                    name,
                    Node {
                        text: Some(text.to_owned()),
                        ..Node::new(key_at, at)
                    },
                )
            }
        }
    }

    fn begin(&mut self, shape: Shape, at: SourcePlace) -> Checked<()> {
        if self.open.len() >= NESTING_MAX {
            return Err(self.too_deep(at));
        }
        match self.open.last().map(|open| &open.shape) {
            None if matches!(shape, Shape::Sequence(_)) => {
                return Err(self.fault(
                    at,
                    "the root is not a mapping",
                    "write `key: value` lines",
                ));
            }
            Some(Shape::Mapping(None)) => {
                return Err(self.fault(at, "a key must be a name", "write a name"));
            }
            _ => {}
        }
        let (name, key_at) = self.next_name(at);
        self.open.push(Open {
            node: Node::new(key_at, at),
            name,
            shape,
        });
        Ok(())
    }

    fn end(&mut self) -> Checked<()> {
        match self.open.pop() {
            Some(Open { node, .. }) if self.open.is_empty() => self.root = Some(node),
            Some(Open { node, name, .. }) => return self.close(name, node),
            None => {}
        }
        Ok(())
    }

    fn next_name(&mut self, at: SourcePlace) -> (String, SourcePlace) {
        match self.open.last_mut().map(|open| &mut open.shape) {
            Some(Shape::Mapping(key)) => key.take().unwrap_or((String::new(), at)),
            Some(Shape::Sequence(next)) => {
                *next += 1;
                ((*next - 1).to_string(), at)
            }
            None => (String::new(), at),
        }
    }

    fn close(&mut self, name: String, node: Node) -> Checked<()> {
        let Some(open) = self.open.last_mut() else {
            return Ok(());
        };
        match open.node.entries.entry(name) {
            Entry::Vacant(free) => {
                free.insert(node);
                Ok(())
            }
            Entry::Occupied(first) => {
                let (name, first_at) = (first.key().clone(), first.get().key_at);
                let what = format!("duplicate key `{name}`, first written at {first_at}");
                Err(self.fault_of(Some(&name), node.key_at, &what, "keep one of the two"))
            }
        }
    }

    fn too_deep(&self, at: SourcePlace) -> Box<PolicyFault> {
        self.fault(
            at,
            &format!("nested deeper than {NESTING_MAX}"),
            "no field lies that deep",
        )
    }

    fn fault(&self, at: SourcePlace, message: &str, hint: &str) -> Box<PolicyFault> {
        let key = match self.open.last() {
            Some(Open {
                shape: Shape::Mapping(Some((key, _))),
                ..
            }) => Some(key.as_str()),
            _ => None,
        };
        self.fault_of(key, at, message, hint)
    }

    fn fault_of(
        &self,
        name: Option<&str>,
        at: SourcePlace,
        message: &str,
        hint: &str,
    ) -> Box<PolicyFault> {
        let path = self
            .open
            .iter()
            .skip(1)
            .map(|open| open.name.as_str())
            .chain(name);
        PolicyFault::new(self.source, at, &joined(path), message, hint)
    }
}

/// The parser counts lines from 1 and columns from 0.
fn place(marker: &yaml::Marker) -> SourcePlace {
    SourcePlace {
        line: marker.line().max(1),
        column: marker.col() + 1,
    }
}
