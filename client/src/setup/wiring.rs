//! The wiring of one list of rules, as its requests show it: the matches of each rule, and the setup problems of rules
//! that never match and of tenants that are never found.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};

use crate::hot::sync::lock;
use crate::hot::table::Table;
use crate::hot::thread_counters::{Rows, TenantFound};
use crate::setup::SetupProblem;

/// The requests among which one should match a rule, and one should have a tenant.
pub(crate) const TRIAL: u32 = 100;
/// Maximum number of characters of a path and of a rule in a text.
const CHARS_MAX: usize = 128;

/// Where tenants are read, for the setup problem of one that is never found.
#[derive(Clone, Debug)]
pub struct TenantSource {
    /// The source, such as `header x-tenant`.
    pub name: String,
    /// The likely causes of a missing tenant, and what to do about them.
    pub remedy: String,
}

/// Watches one list of rules. Its problems are cleared when it is dropped.
pub struct Wiring {
    table: Arc<Table>,
    /// The text of each rule.
    rules: Box<[String]>,
    matches: Rows,
    matching: Trial,
    /// Absent where requests are not asked for a tenant.
    source: Option<TenantSource>,
    finding: Trial,
}

/// The wiring of all lists of rules of a limiter.
#[derive(Default)]
pub(crate) struct Wirings(Mutex<Vec<Weak<Wiring>>>);

/// Counts the requests in a row, from the first on, without an event; [`MET`] after the event.
#[derive(Default)]
struct Trial(AtomicU32);

const MET: u32 = u32::MAX;

impl Trial {
    #[inline]
    fn is_met(&self) -> bool {
        self.0.load(Ordering::Relaxed) == MET
    }

    /// Records the event. Returns true if it was missed before.
    #[cold]
    fn meet(&self) -> bool {
        self.0.swap(MET, Ordering::AcqRel) == TRIAL
    }

    /// Records a request without the event. Returns true for the last one that may be without.
    #[cold]
    fn miss(&self) -> bool {
        let next = |missed| (missed < TRIAL).then_some(missed + 1);
        let before = self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, next);
        before == Ok(TRIAL - 1)
    }
}

impl Wiring {
    pub(crate) fn watch(
        table: &Arc<Table>,
        rules: impl IntoIterator<Item = String>,
        source: Option<TenantSource>,
    ) -> Arc<Self> {
        let rules: Box<[String]> = rules.into_iter().map(|rule| shown(&rule)).collect();
        let wiring = Arc::new(Self {
            table: Arc::clone(table),
            matches: Rows::new(table.passes.0.slots(), rules.len()),
            rules,
            matching: Trial::default(),
            source,
            finding: Trial::default(),
        });
        let mut all = lock(&table.wirings.0);
        all.retain(|wiring| wiring.strong_count() > 0);
        all.push(Arc::downgrade(&wiring));
        wiring
    }

    /// Counts a request that counts for the bucket of a rule.
    #[inline]
    pub fn on_match(&self, rule: usize) {
        self.matches.add(rule);
        if !self.matching.is_met() && self.matching.meet() {
            self.table.problems.clear(&self.unmatched(""));
        }
    }

    /// Counts a request that a rule exempts. It says nothing about the other rules.
    #[inline]
    pub fn on_exempt(&self, rule: usize) {
        self.matches.add(rule);
    }

    /// Watches a request that no rule matches.
    #[inline]
    pub fn on_no_rule(&self, path: &str) {
        if !self.matching.is_met() && self.matching.miss() {
            self.raise(&self.matching, self.unmatched(path));
        }
    }

    /// Counts a request that was asked for its tenant.
    #[inline]
    pub fn on_tenant(&self, found: TenantFound) {
        self.table.passes.count_tenant(found);
        if !self.finding.is_met() {
            self.on_early_tenant(found);
        }
    }

    #[cold]
    fn on_early_tenant(&self, found: TenantFound) {
        let is_found = found == TenantFound::Found;
        let has_ended = if is_found {
            self.finding.meet()
        } else {
            self.finding.miss()
        };
        if !has_ended {
            return;
        }
        match self.without_tenants() {
            Some(problem) if is_found => self.table.problems.clear(&problem),
            Some(problem) => self.raise(&self.finding, problem),
            None => {}
        }
    }

    fn without_tenants(&self) -> Option<SetupProblem> {
        let TenantSource { name, remedy } = self.source.clone()?;
        Some(SetupProblem::NoTenant {
            tenant_by: name,
            remedy,
        })
    }

    fn unmatched(&self, path: &str) -> SetupProblem {
        SetupProblem::NoRuleMatches {
            rule: self.rules.first().cloned().unwrap_or_default(),
            path: shown(path),
        }
    }

    fn raise(&self, trial: &Trial, problem: SetupProblem) {
        self.table.problems.raise(problem.clone());
        // Another thread may have cleared it before it was raised.
        if trial.is_met() {
            self.table.problems.clear(&problem);
        }
    }
}

impl Drop for Wiring {
    fn drop(&mut self) {
        if self.matching.meet() {
            self.table.problems.clear(&self.unmatched(""));
        }
        if let Some(problem) = self.without_tenants()
            && self.finding.meet()
        {
            self.table.problems.clear(&problem);
        }
    }
}

impl fmt::Debug for Wiring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wiring").finish_non_exhaustive()
    }
}

impl Wirings {
    /// Returns the matches of each rule in use. Rules of equal texts count together.
    pub(crate) fn matches(&self) -> BTreeMap<String, u64> {
        let all: Vec<Arc<Wiring>> = lock(&self.0).iter().filter_map(Weak::upgrade).collect();
        let mut matches = BTreeMap::new();
        for wiring in all {
            for (at, rule) in wiring.rules.iter().enumerate() {
                *matches.entry(rule.clone()).or_default() += wiring.matches.total(at);
            }
        }
        matches
    }
}

/// Returns the beginning of a text, with control characters escaped: callers choose paths.
fn shown(text: &str) -> String {
    let mut characters = text.chars();
    let mut shown: String = characters
        .by_ref()
        .take(CHARS_MAX)
        .flat_map(char::escape_debug)
        .collect();
    if characters.next().is_some() {
        shown.push_str("..");
    }
    shown
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests {
    use super::*;

    fn watched() -> (Arc<Table>, Arc<Wiring>) {
        let table = Arc::new(Table::new(8, 2, 7));
        let source = TenantSource {
            name: "header x-tenant".to_owned(),
            remedy: "send it".to_owned(),
        };
        let rules = ["bucket `a`", "unlimited"].map(str::to_owned);
        let wiring = Wiring::watch(&table, rules, Some(source));
        (table, wiring)
    }

    fn kinds(table: &Table) -> Vec<&'static str> {
        let problems = table.problems.list();
        problems.iter().map(SetupProblem::kind).collect()
    }

    #[test]
    fn trial_ends_with_its_last_request() {
        let (table, wiring) = watched();
        for _ in 1..TRIAL {
            wiring.on_exempt(1);
            wiring.on_no_rule("/");
            wiring.on_tenant(TenantFound::Absent);
        }
        assert_eq!(kinds(&table), [""; 0]);
        wiring.on_no_rule("/a\n");
        wiring.on_tenant(TenantFound::Invalid);
        assert_eq!(kinds(&table), ["no_rule_matches", "no_tenant"]);
        assert!(table.problems.list()[0].to_string().contains("`/a\\n`"));
        wiring.on_match(0);
        wiring.on_tenant(TenantFound::Found);
        assert_eq!(kinds(&table), [""; 0], "what has happened is no problem");
        for _ in 0..2 * TRIAL {
            wiring.on_no_rule("/");
            wiring.on_tenant(TenantFound::Absent);
        }
        assert_eq!(kinds(&table), [""; 0], "the wiring has shown that it works");
        let matches = table.wirings.matches();
        let rules = [("bucket `a`", 1), ("unlimited", 99)];
        assert_eq!(
            matches,
            rules.map(|(rule, count)| (rule.to_owned(), count)).into()
        );
        assert_eq!(
            table.passes.tenants(),
            [("found", 1), ("absent", 299), ("invalid", 1)]
        );
    }

    #[test]
    fn problems_end_with_their_rules() {
        let (table, wiring) = watched();
        let long = "/é".repeat(4 * CHARS_MAX);
        (0..TRIAL).for_each(|_| wiring.on_no_rule(&long));
        (0..TRIAL).for_each(|_| wiring.on_tenant(TenantFound::Absent));
        assert_eq!(kinds(&table).len(), 2);
        assert!(table.problems.list()[0].to_string().len() < 1_000);
        drop(wiring);
        assert_eq!(kinds(&table), [""; 0]);
        assert_eq!(table.wirings.matches(), BTreeMap::new());
    }
}
