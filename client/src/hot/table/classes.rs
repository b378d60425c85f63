//! The classes of plans, as the request path reads them: the class of each key with a plan, and the two words that
//! unlisted tenants of the class follow, one for established tenants and one for all others.

use std::sync::OnceLock;

use crate::hot::directive_word::{DirectiveWord, KeyWord};
use crate::hot::sync::{AtomicU32, AtomicU64, Ordering, zeroed};

/// The classes of plans in all buckets. The tenants of further classes follow their bucket's class `default`.
pub(crate) const PLAN_CLASSES_MAX: usize = 4_096;

/// The words that the unlisted tenants of one class follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClassWords {
    /// The key of the class, whose directive new names follow.
    pub(crate) key: u32,
    /// The directive of established names without their own ratio, which a surge of new names does not change.
    pub(crate) established: DirectiveWord,
}

pub(crate) struct PlanClasses {
    /// By key: the number of its class plus one; 0 for a key without a plan.
    class_of_key: Vec<AtomicU32>,
    /// By class: the id of its key plus one; 0 while the policy does not have the plan.
    key_of_class: Vec<AtomicU32>,
    /// By class: [`ClassWords::established`].
    established: Vec<AtomicU64>,
    /// By class: the plan's name. Without plans it takes no memory.
    plans: OnceLock<Box<[OnceLock<Box<str>>]>>,
}

impl PlanClasses {
    pub(super) fn new(keys_max: usize) -> Self {
        Self {
            class_of_key: zeroed(keys_max),
            key_of_class: zeroed(PLAN_CLASSES_MAX),
            established: zeroed(PLAN_CLASSES_MAX),
            plans: OnceLock::new(),
        }
    }

    pub(crate) fn set(&self, key: u32, class: Option<u32>) {
        if let Some(of_key) = self.class_of_key.get(key as usize) {
            of_key.store(class.map_or(0, |class| class + 1), Ordering::Relaxed);
        }
    }

    /// Gives a new class the name of its plan.
    pub(crate) fn begin(&self, class: u32, plan: &str) {
        let names = || (0..PLAN_CLASSES_MAX).map(|_| OnceLock::new()).collect();
        if let Some(name) = self.plans.get_or_init(names).get(class as usize) {
            // A class has one plan forever.
            let _ = name.set(plan.into());
        }
    }

    /// Publishes the words of a class; `None` for a plan that the policy does not have.
    pub(crate) fn publish(&self, class: u32, words: Option<ClassWords>) {
        let at = class as usize;
        let (Some(key), Some(established)) = (self.key_of_class.get(at), self.established.get(at))
        else {
            return;
        };
        // The key is stored last: whoever reads it finds the word.
        if let Some(words) = words {
            KeyWord::new(0, words.established).store(established);
        }
        key.store(words.map_or(0, |words| words.key + 1), Ordering::Release);
    }

    /// Returns the words of a key's class; `None` for a key without a plan that the policy has.
    pub(super) fn of_key(&self, key: u32) -> Option<ClassWords> {
        let at = self.class_of(key)?;
        let key = self
            .key_of_class
            .get(at)?
            .load(Ordering::Acquire)
            .checked_sub(1)?;
        let established = KeyWord::load(self.established.get(at)?).directive();
        Some(ClassWords { key, established })
    }

    /// Returns the plan of a key; `None` without a plan that the policy has or had.
    pub(crate) fn plan_of(&self, key: u32) -> Option<&str> {
        let name = self.plans.get()?.get(self.class_of(key)?)?;
        name.get().map(|name| &**name)
    }

    fn class_of(&self, key: u32) -> Option<usize> {
        let class = self.class_of_key.get(key as usize)?.load(Ordering::Relaxed);
        Some(class.checked_sub(1)? as usize)
    }
}
