//! The outline of a YAML text: every key with its place. It refuses constructs that the schema does not use (anchors,
//! aliases, tags, nulls, repeated keys, a second document) and gives errors the place of a field.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use serde_yaml::granit_parser::{self as yaml, Event, ScalarStyle};

use crate::yaml::Place;

/// The deepest nesting of mappings and sequences, the root included.
pub(crate) const NESTING_MAX: usize = 64;

/// A key with its value, or the root, with the start of the text as its key.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// The place of the key.
    pub(crate) key_at: Place,
    /// The place of the value.
    pub(crate) at: Place,
    entries: BTreeMap<String, Node>,
}

/// A fault in the structure of a text, with its place.
#[derive(Debug)]
pub(crate) struct Defect {
    pub(crate) at: Place,
    pub(crate) path: Vec<String>,
    pub(crate) message: String,
    pub(crate) hint: String,
}

/// A mapping or sequence that has not ended yet.
struct Open {
    node: Node,
    name: String,
    shape: Shape,
}

enum Shape {
    /// A mapping, and the key without a value yet.
    Mapping(Option<(String, Place)>),
    /// A sequence, and the index of its next item.
    Sequence(usize),
}

impl Node {
    fn new(key_at: Place, at: Place) -> Self {
        Self { key_at, at, entries: BTreeMap::new() }
    }

    /// Reads the outline of `text`. Linear in its length, except for sorting keys; recursion is bounded by [`NESTING_MAX`].
    pub(crate) fn read(text: &str) -> Result<Self, Defect> {
        Outliner::default().read(text)
    }

    /// Returns the entry `name` of a mapping.
    pub(crate) fn entry(&self, name: &str) -> Option<&Self> {
        self.entries.get(name)
    }

    /// The names of all entries of a mapping, in order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }
}

#[derive(Default)]
struct Outliner {
    open: Vec<Open>,
    root: Option<Node>,
}

impl Outliner {
    fn read(mut self, text: &str) -> Result<Node, Defect> {
        let options = yaml::options! {
            emit_comments: false,
            emit_anchor_events: true,
            emit_unresolved_aliases: true,
            // The scanner runs ahead of the events by which nesting is counted here.
            flow_nesting_limit: NESTING_MAX,
            block_nesting_limit: NESTING_MAX,
        };
        let mut events = yaml::Parser::new_from_str_with_options(text, options);
        while let Some(next) = events.next() {
            let (event, span) = next.map_err(|e| match e.kind() {
                yaml::ErrorKind::RecursionLimitExceeded => self.too_deep(place(e.marker())),
                _ => {
                    let what = format!("this is not YAML: {}", e.info());
                    self.defect(
                        place(e.marker()),
                        &what,
                        "check indentation, quotes and brackets around here",
                    )
                }
            })?;
            let at = place(&span.start);
            if let Some(tag_at) = event.tag().and(span.tag_start()) {
                return Err(self.defect(place(&tag_at), "tags are not allowed", "remove the tag"));
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
                return Err(self.defect(
                    at,
                    "anchors are not allowed",
                    "write the value out where it is used",
                ));
            }
            match event {
                Event::Alias(_) | Event::UnresolvedAlias(_) => {
                    return Err(self.defect(at, "aliases are not allowed", "write the value out"));
                }
                Event::DocumentStart(..) if self.root.is_some() => {
                    let hint = "a file holds one document: remove the `---` and what follows it";
                    return Err(self.defect(at, "a second document begins here", hint));
                }
                Event::Scalar(text, style, ..) => self.scalar(&text, style, at)?,
                Event::MappingStart(..) => self.begin(Shape::Mapping(None), at)?,
                Event::SequenceStart(..) => self.begin(Shape::Sequence(0), at)?,
                Event::MappingEnd | Event::SequenceEnd => self.end()?,
                _ => {}
            }
        }
        let start = Place { line: 1, column: 1 };
        self.root
            .take()
            .ok_or_else(|| self.defect(start, "the file is empty", "write at least the required keys"))
    }

    fn scalar(&mut self, text: &str, style: ScalarStyle, at: Place) -> Result<(), Defect> {
        let null = style == ScalarStyle::Plain && matches!(text, "" | "~" | "null" | "Null" | "NULL");
        match self.open.last_mut().map(|open| &mut open.shape) {
            None if null => Err(self.defect(at, "the file is empty", "write at least the required keys")),
            None => Err(self.defect(at, "the root is not a mapping", "write `key: value` lines")),
            Some(Shape::Mapping(None)) if null => {
                Err(self.defect(at, "a key must not be null", "write a name, quoted if need be"))
            }
            Some(Shape::Mapping(key @ None)) => {
                *key = Some((text.to_owned(), at));
                Ok(())
            }
            Some(Shape::Mapping(Some(_)) | Shape::Sequence(_)) => {
                let (name, key_at) = self.next_name(at);
                if null {
                    let mut defect =
                        self.defect(key_at, "null where a value belongs", "write a value, or remove the key");
                    defect.path.push(name);
                    return Err(defect);
                }
                self.close(name, Node::new(key_at, at))
            }
        }
    }

    fn begin(&mut self, shape: Shape, at: Place) -> Result<(), Defect> {
        if self.open.len() >= NESTING_MAX {
            return Err(self.too_deep(at));
        }
        match self.open.last().map(|open| &open.shape) {
            None if matches!(shape, Shape::Sequence(_)) => {
                return Err(self.defect(at, "the root is not a mapping", "write `key: value` lines"));
            }
            Some(Shape::Mapping(None)) => {
                return Err(self.defect(at, "a key must be a name", "write a name"));
            }
            _ => {}
        }
        let (name, key_at) = self.next_name(at);
        self.open.push(Open { node: Node::new(key_at, at), name, shape });
        Ok(())
    }

    fn end(&mut self) -> Result<(), Defect> {
        match self.open.pop() {
            Some(Open { node, .. }) if self.open.is_empty() => self.root = Some(node),
            Some(Open { node, name, .. }) => return self.close(name, node),
            None => {}
        }
        Ok(())
    }

    /// Returns the name of the value that begins at `at`, and the place of that name.
    fn next_name(&mut self, at: Place) -> (String, Place) {
        match self.open.last_mut().map(|open| &mut open.shape) {
            Some(Shape::Mapping(key)) => key.take().unwrap_or((String::new(), at)),
            Some(Shape::Sequence(next)) => {
                *next += 1;
                ((*next - 1).to_string(), at)
            }
            None => (String::new(), at),
        }
    }

    /// Adds a finished value to the mapping or sequence around it.
    fn close(&mut self, name: String, node: Node) -> Result<(), Defect> {
        let Some(open) = self.open.last_mut() else { return Ok(()) };
        match open.node.entries.entry(name) {
            Entry::Vacant(free) => {
                free.insert(node);
                Ok(())
            }
            Entry::Occupied(first) => {
                let (name, first_at) = (first.key().clone(), first.get().key_at);
                let what = format!("duplicate key `{name}`, first written at {first_at}");
                let mut defect = self.defect(node.key_at, &what, "keep one of the two");
                defect.path.push(name);
                Err(defect)
            }
        }
    }

    fn too_deep(&self, at: Place) -> Defect {
        self.defect(at, &format!("nested deeper than {NESTING_MAX}"), "no field of a policy lies that deep")
    }

    fn defect(&self, at: Place, message: &str, hint: &str) -> Defect {
        let mut path: Vec<String> = self.open.iter().skip(1).map(|open| open.name.clone()).collect();
        if let Some(Open { shape: Shape::Mapping(Some((key, _))), .. }) = self.open.last() {
            path.push(key.clone());
        }
        Defect { at, path, message: message.to_owned(), hint: hint.to_owned() }
    }
}

/// The parser counts lines from 1 and columns from 0.
fn place(marker: &yaml::Marker) -> Place {
    Place { line: marker.line().max(1), column: marker.col() + 1 }
}
