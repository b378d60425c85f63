//! The classes of plans in each bucket: their numbers, and the words that their names follow.

use std::collections::{HashMap, HashSet};

use plimsoll_core::directive::Posted;
use plimsoll_core::names::{is_class_of_plan, plan_of};

use crate::hot::directive_word::DirectiveWord;
use crate::hot::table::{ClassWords, PLAN_CLASSES_MAX, Table};
use crate::setup::SetupProblem;

#[derive(Default)]
pub(super) struct Plans {
    /// By bucket: the number of each class.
    numbers: HashMap<u32, HashMap<Box<str>, u32>>,
    /// The numbers given so far.
    count: u32,
    /// The numbers of classes that the policy has no more.
    gone: HashSet<u32>,
    /// The classes with a key, by bucket.
    pinned: HashSet<(u32, Box<str>)>,
}

impl Plans {
    /// Sets the class that a key follows, if the bucket has it.
    pub(super) fn set_class(&self, table: &Table, bucket: u32, key: u32, class: &str) {
        let class = self.numbers.get(&bucket).and_then(|of| of.get(class));
        table.classes.set(key, class.copied());
    }

    /// Publishes the words of a bucket's classes. Returns true if one of them is new: then each key of the bucket needs
    /// its class.
    pub(super) fn publish(&mut self, table: &Table, bucket: u32, posted: &Posted) -> bool {
        let before = self.count;
        let classes = posted.keys().map(|(tenant, _)| tenant.as_str());
        for class in classes.filter(|name| is_class_of_plan(name)) {
            let key = table.keys.known(bucket, class).map(|word| word.id());
            let words = key.map(|key| ClassWords {
                key,
                established: established(table, key, posted, class),
            });
            if let Some(number) = self.number(table, bucket, class) {
                table.classes.publish(number, words);
            }
        }
        let numbers = self.numbers.get(&bucket).into_iter().flatten();
        for (_, number) in numbers.filter(|(class, _)| posted.own(class).is_none()) {
            table.classes.publish(*number, None);
            self.gone.insert(*number);
        }
        before != self.count
    }

    /// Returns the key of a class, which is never evicted: its id is part of the words that names follow.
    pub(super) fn key_of_class(&mut self, table: &Table, bucket: u32, class: &str) -> Option<u32> {
        let pin = (bucket, Box::from(class));
        if self.pinned.contains(&pin) {
            return table.keys.intern(bucket, class);
        }
        if self.pinned.len() >= PLAN_CLASSES_MAX {
            return None;
        }
        let key = table.keys.pin(bucket, class)?;
        self.pinned.insert(pin);
        Some(key)
    }

    fn number(&mut self, table: &Table, bucket: u32, class: &str) -> Option<u32> {
        let numbers = self.numbers.entry(bucket).or_default();
        if let Some(number) = numbers.get(class) {
            if self.gone.remove(number) {
                clear_unknown(table, class);
            }
            return Some(*number);
        }
        let number = self.count;
        if number as usize >= PLAN_CLASSES_MAX {
            return None;
        }
        self.count += 1;
        numbers.insert(class.into(), number);
        table
            .classes
            .begin(number, plan_of(class).unwrap_or_default());
        clear_unknown(table, class);
        Some(number)
    }
}

fn clear_unknown(table: &Table, class: &str) {
    let plan = plan_of(class).unwrap_or_default().to_owned();
    table.problems.clear(&SetupProblem::UnknownPlan { plan });
}

/// Returns the word of a class's established names.
pub(super) fn established(table: &Table, key: u32, posted: &Posted, class: &str) -> DirectiveWord {
    let word = table.own_directive(key);
    let cut = posted.terms().of_class(class).cut;
    cut.filter(|_| !word.is_cold())
        .map_or(word, |cut| word.with_ratio(cut.ratio))
}
