//! The rules of a domain as a tree, in which each entry of a descriptor takes one step by a few look-ups.

use std::collections::HashMap;

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
    prefixes: Prefixes,
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
    pub(super) takes_limit: bool,
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

/// Rules by the beginnings of values, in the order of these.
#[derive(Clone, Debug, Default)]
struct Prefixes(Vec<Prefix>);

#[derive(Clone, Debug)]
struct Prefix {
    text: Box<str>,
    /// The index of the longest other prefix that this one begins with.
    parent: Option<usize>,
    node: Node,
}

impl Level {
    /// Arranges rules, of which no two are for the same values of a key.
    pub(super) fn new(rules: impl IntoIterator<Item = (String, Values, Node)>) -> Self {
        let mut keys: HashMap<Box<str>, Choices, RandomState> = HashMap::default();
        for (key, values, node) in rules {
            let choices = keys.entry(key.into()).or_default();
            match values {
                Values::Exactly(value) => drop(choices.exact.insert(value.into(), node)),
                Values::From(prefix) => choices.prefixes.push(prefix, node),
                Values::Any => choices.any = Some(Box::new(node)),
            }
        }
        keys.values_mut().for_each(|choices| choices.prefixes.arrange());
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
        let prefixes = self.prefixes.0.iter().map(|prefix| &prefix.node);
        self.exact.values().chain(prefixes).chain(self.any.as_deref())
    }

    fn get(&self, value: &str) -> Option<&Node> {
        self.exact.get(value).or_else(|| self.prefixes.longest(value)).or(self.any.as_deref())
    }
}

impl Prefixes {
    fn push(&mut self, text: String, node: Node) {
        self.0.push(Prefix { text: text.into(), parent: None, node });
    }

    /// Sorts the prefixes and links each to the one that it extends.
    fn arrange(&mut self) {
        self.0.sort_by(|one, other| one.text.cmp(&other.text));
        for index in 1..self.0.len() {
            // In this order a prefix comes before all that extend it, so that the one before or its parents are it.
            let mut parent = Some(index - 1);
            while let Some(at) = parent.filter(|at| !self.0[index].text.starts_with(&*self.0[*at].text)) {
                parent = self.0[at].parent;
            }
            self.0[index].parent = parent;
        }
    }

    /// Returns the rule of the longest prefix of a value: the last one that is not after the value, or one that this
    /// extends. The time is logarithmic in the number of prefixes, and linear in how many extend each other.
    fn longest(&self, value: &str) -> Option<&Node> {
        let last = self.0.partition_point(|prefix| &*prefix.text <= value).checked_sub(1)?;
        let common = common_length(&self.0[last].text, value);
        let mut found = Some(last);
        while let Some(at) = found.filter(|at| self.0[*at].text.len() > common) {
            found = self.0[at].parent;
        }
        found.map(|at| &self.0[at].node)
    }
}

/// Returns the number of bytes at the start of two texts that are equal.
fn common_length(one: &str, other: &str) -> usize {
    one.bytes().zip(other.bytes()).take_while(|(one, other)| one == other).count()
}
