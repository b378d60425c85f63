//! What the catalogue of tenants says of the names that requests bring: each is asked for when it has a key, and keeps the
//! last answer.

use std::collections::{HashMap, HashSet, VecDeque};

use plimsoll_core::directive::{CATALOGUED_MAX, CatalogueNews};
use plimsoll_core::names::Tenant;

/// Names that wait for an answer, at most. Further ones are asked for when they have a key anew.
const ASKED_MAX: usize = 100_000;
/// Names with a plan, at most. Beyond it, those without a key are forgotten.
const CLASSES_MAX: usize = 200_000;

#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    /// The hash of the catalogue; `None` without one.
    pub(crate) hash: Option<u64>,
    /// The class of each name with a plan.
    classes: HashMap<Tenant, Tenant>,
    asked: HashSet<Tenant>,
    /// Names that were not sent on this stream.
    unsent: VecDeque<Tenant>,
    /// True once the parent of this stream was asked for the names that are held.
    has_asked: bool,
}

impl Catalogue {
    /// Returns the class of a name whose requests bring no plan; `None` for the class `default`.
    pub(crate) fn class_of(&self, tenant: &str) -> Option<&str> {
        self.classes.get(tenant).map(Tenant::as_str)
    }

    /// Asks for a name that has a key now: its answer may be known, but the controller must know of its requests.
    pub(crate) fn ask(&mut self, tenant: &Tenant) {
        let has_room = self.hash.is_some() && self.asked.len() < ASKED_MAX;
        if has_room && self.asked.insert(tenant.clone()) {
            self.unsent.push_back(tenant.clone());
        }
    }

    /// A new stream begins. Its parent may be another one, which knows of no name that has requests.
    pub(crate) fn open(&mut self) {
        self.has_asked = false;
        self.asked.clear();
        self.unsent.clear();
    }

    /// Takes the names for the next report.
    pub(crate) fn take_asked(&mut self) -> Vec<Tenant> {
        let next = self.unsent.len().min(CATALOGUED_MAX);
        let unanswered = |tenant: &Tenant| self.asked.contains(tenant);
        self.unsent.drain(..next).filter(unanswered).collect()
    }

    /// Takes the answers of the parent. On a new stream, and of another catalogue, every name in `held` is asked for again,
    /// and keeps its class until then. Returns true if the class of a name has changed.
    pub(crate) fn on_news<'a, I>(&mut self, news: &CatalogueNews, held: impl Fn() -> I) -> bool
    where
        I: Iterator<Item = &'a Tenant>,
    {
        if news.hash.is_none() {
            return !std::mem::take(self).classes.is_empty();
        }
        let is_other = std::mem::replace(&mut self.hash, news.hash) != news.hash;
        if !std::mem::replace(&mut self.has_asked, true) || is_other {
            held().for_each(|tenant| self.ask(tenant));
        }
        let mut is_changed = false;
        for (tenant, class) in &news.names {
            self.asked.remove(tenant);
            is_changed |= match class.plan() {
                Some(_) => {
                    self.classes.insert(tenant.clone(), class.clone()).as_ref() != Some(class)
                }
                None => self.classes.remove(tenant).is_some(),
            };
        }
        if self.classes.len() > CLASSES_MAX {
            let held: HashSet<&Tenant> = held().collect();
            self.classes.retain(|tenant, _| held.contains(tenant));
        }
        is_changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> Tenant {
        Tenant::new(name).unwrap()
    }

    fn news(hash: Option<u64>, names: &[(&str, &str)]) -> CatalogueNews {
        let names = names
            .iter()
            .map(|(name, class)| (tenant(name), tenant(class)));
        CatalogueNews {
            hash,
            names: names.collect(),
            ..CatalogueNews::default()
        }
    }

    #[test]
    fn each_name_is_asked_for_once_on_each_stream() {
        let mut catalogue = Catalogue::default();
        let none = || std::iter::empty::<&Tenant>();
        catalogue.ask(&tenant("acme"));
        assert!(catalogue.take_asked().is_empty(), "there is no catalogue");
        assert!(!catalogue.on_news(&news(Some(1), &[]), none));
        (0..2).for_each(|_| catalogue.ask(&tenant("acme")));
        assert_eq!(catalogue.take_asked(), [tenant("acme")]);
        assert!(catalogue.take_asked().is_empty());
        assert!(catalogue.on_news(&news(Some(1), &[("acme", "%~pro")]), none));
        catalogue.open();
        let acme = [tenant("acme")];
        for due in [&acme[..], &[]] {
            assert!(!catalogue.on_news(&news(Some(1), &[]), || acme.iter()));
            assert_eq!(catalogue.take_asked(), due);
        }
        assert_eq!(
            catalogue.class_of("acme"),
            Some("%~pro"),
            "until the answer"
        );
    }

    #[test]
    fn another_catalogue_is_asked_for_all_names_that_are_held() {
        let mut catalogue = Catalogue::default();
        let held = [tenant("acme"), tenant("initech")];
        catalogue.on_news(&news(Some(1), &[("acme", "%~pro")]), || held.iter());
        assert_eq!(
            catalogue.take_asked(),
            [tenant("initech")],
            "acme is answered"
        );
        assert!(!catalogue.on_news(&news(Some(1), &[("initech", "default")]), || held.iter()));
        catalogue.on_news(&news(Some(2), &[]), || held.iter());
        assert_eq!(catalogue.take_asked(), held);
        assert_eq!(
            catalogue.class_of("acme"),
            Some("%~pro"),
            "until the answer"
        );
        assert!(catalogue.on_news(&news(Some(2), &[("acme", "default")]), || held.iter()));
        assert_eq!(catalogue.class_of("acme"), None);
        catalogue.on_news(&news(Some(2), &[("acme", "%~pro")]), || held.iter());
        assert!(catalogue.on_news(&news(None, &[]), || held.iter()));
        assert_eq!(
            catalogue.class_of("acme"),
            None,
            "there is no catalogue any more"
        );
    }
}
