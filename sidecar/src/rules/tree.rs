//! The rules of a domain as a tree. Each entry of a descriptor takes one step with a few look-ups.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::RandomState;

use super::RefusalForm;

#[derive(Clone, Debug, Default)]
pub(super) struct Level {
    keys: HashMap<Box<str>, Choices, RandomState>,
}

#[derive(Clone, Debug, Default)]
struct Choices {
    exact: HashMap<Box<str>, Node, RandomState>,
    /// Rules for prefixes of values, by their length in bytes.
    prefixes: BTreeMap<usize, HashMap<Box<str>, Node, RandomState>>,
    any: Option<Box<Node>>,
}

/// Rule of one entry: it matches descriptors that end here, if it has a target, and leads to longer
/// ones.
#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    pub(super) target: Option<Target>,
    pub(super) next: Level,
}

#[derive(Clone, Debug)]
pub(super) enum Target {
    /// With the index of the rule among those with a target.
    Unlimited(usize),
    Limited(Limited),
}

#[derive(Clone, Debug)]
pub(super) struct Limited {
    /// Index of the rule among those with a target.
    pub(super) rule: usize,
    pub(super) bucket: NameOf,
    pub(super) tenant: TenantOf,
    /// The plan of the tenant; absent if the rule has none.
    pub(super) plan: Option<NameOf>,
    pub(super) cost: u32,
    pub(super) refusal: RefusalForm,
}

/// A name that is written in the rule, or the index of the descriptor's entry with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NameOf {
    Fixed(Box<str>),
    Entry(usize),
}

/// A tenant that is written in the rule, or the indexes of the descriptor's entries with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TenantOf {
    Fixed(Box<str>),
    Entries(Box<[usize]>),
}

/// Values of an entry that a rule matches.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Values {
    Exactly(String),
    /// All values with this prefix.
    From(String),
    Any,
}

impl Level {
    /// Arranges rules. No two are for the same values of a key.
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

    /// Returns the effect of the rule that the last entry of a descriptor selects, if every entry selects one. Each
    /// takes the most precise rule, without backtracking.
    pub(super) fn find<'a>(
        &self,
        entries: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Option<&Target> {
        let mut level = self;
        let mut target = None;
        for (key, value) in entries {
            let node = level.keys.get(key)?.get(value)?;
            target = node.target.as_ref();
            level = &node.next;
        }
        target
    }

    /// Returns the number of rules, nested ones included. Recursion is bounded by the depth of
    /// rules.
    pub(super) fn count(&self) -> usize {
        let choices = self.keys.values();
        choices
            .flat_map(Choices::nodes)
            .map(|node| 1 + node.next.count())
            .sum()
    }
}

impl Choices {
    fn nodes(&self) -> impl Iterator<Item = &Node> {
        let prefixes = self.prefixes.values().flat_map(HashMap::values);
        self.exact
            .values()
            .chain(prefixes)
            .chain(self.any.as_deref())
    }

    /// Returns the rule for a value, or for its longest prefix. Takes one look-up for each length
    /// of prefixes.
    fn get(&self, value: &str) -> Option<&Node> {
        let longest = || {
            self.prefixes
                .iter()
                .rev()
                .find_map(|(length, of)| of.get(value.get(..*length)?))
        };
        self.exact
            .get(value)
            .or_else(longest)
            .or(self.any.as_deref())
    }
}
