//! The rules of a domain as a tree, in which each entry of a descriptor takes one step by a few look-ups.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::RandomState;

use super::RefusalForm;

/// The rules that the next entry of a descriptor is compared with.
#[derive(Clone, Debug, Default)]
pub(super) struct Level {
    keys: HashMap<Box<str>, Choices, RandomState>,
}

/// The rules for one key.
#[derive(Clone, Debug, Default)]
struct Choices {
    exact: HashMap<Box<str>, Node, RandomState>,
    /// The rules for beginnings of values, by their length in bytes.
    prefixes: BTreeMap<usize, HashMap<Box<str>, Node, RandomState>>,
    any: Option<Box<Node>>,
}

/// The rule of one entry: it matches descriptors that end here, if it has a target, and leads to longer ones.
#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    pub(super) target: Option<Target>,
    pub(super) next: Level,
}

/// The effect of a rule on the descriptors that it matches.
#[derive(Clone, Debug)]
pub(super) enum Target {
    Unlimited,
    Limited(Limited),
}

/// The key that descriptors count for.
#[derive(Clone, Debug)]
pub(super) struct Limited {
    pub(super) bucket: BucketOf,
    pub(super) tenant: TenantOf,
    pub(super) cost: u32,
    pub(super) refusal: RefusalForm,
}

/// A name that is written in the rule, or the value of the descriptor's entry at an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BucketOf {
    Fixed(Box<str>),
    Entry(usize),
}

/// A tenant that is written in the rule, or the values of the descriptor's entries at some indexes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TenantOf {
    Fixed(Box<str>),
    Entries(Box<[usize]>),
}

/// The values that an entry must have.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Values {
    Exactly(String),
    /// All values that begin so.
    From(String),
    Any,
}

impl Level {
    /// Arranges rules, of which no two are for the same values of a key.
    pub(super) fn new(rules: impl IntoIterator<Item = (String, Values, Node)>) -> Self {
        let mut keys: HashMap<Box<str>, Choices, RandomState> = HashMap::default();
        for (key, values, node) in rules {
            let choices = keys.entry(key.into()).or_default();
            match values {
                Values::Exactly(value) => drop(choices.exact.insert(value.into(), node)),
                Values::From(prefix) => {
                    let same_length = choices.prefixes.entry(prefix.len()).or_default();
                    same_length.insert(prefix.into(), node);
                }
                Values::Any => choices.any = Some(Box::new(node)),
            }
        }
        Self { keys }
    }

    /// Returns the effect of the rule for the entries of a descriptor, if they are consumed. Each entry goes to the most
    /// precise rule, without a way back.
    pub(super) fn find<'a>(&self, entries: impl Iterator<Item = (&'a str, &'a str)>) -> Option<&Target> {
        let mut level = self;
        let mut target = None;
        for (key, value) in entries {
            let node = level.keys.get(key)?.get(value)?;
            target = node.target.as_ref();
            level = &node.next;
        }
        target
    }

    /// Returns the number of rules, nested ones included. Recursion is bounded by the depth of rules.
    pub(super) fn count(&self) -> usize {
        let choices = self.keys.values();
        choices.flat_map(Choices::nodes).map(|node| 1 + node.next.count()).sum()
    }
}

impl Choices {
    fn nodes(&self) -> impl Iterator<Item = &Node> {
        let prefixes = self.prefixes.values().flat_map(HashMap::values);
        self.exact.values().chain(prefixes).chain(self.any.as_deref())
    }

    /// Returns the rule for a value, or that of its longest prefix. Takes one look-up for each length of prefixes.
    fn get(&self, value: &str) -> Option<&Node> {
        let longest = || self.prefixes.iter().rev().find_map(|(length, of)| of.get(value.get(..*length)?));
        self.exact.get(value).or_else(longest).or(self.any.as_deref())
    }
}
