//! The latest bucket names in requests to a parent that does not serve them, as no policy names
//! them or no room is left.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::directive::Unlisted;
use crate::names::Bucket;
use crate::quantity::MonoTime;

/// A bucket that no child is subscribed to for this time is not needed anymore for children.
pub const UNUSED: Duration = Duration::from_secs(120);
/// Maximum number of names that are remembered.
pub const NAMES_MAX: usize = 64;
/// A name is forgotten if no child names it within this time.
const FORGOTTEN: Duration = Duration::from_secs(3_600);
/// A name that takes the place of one requested within this time is not logged: names that a child
/// invents must not fill the log.
const QUIET: Duration = Duration::from_secs(60);

/// The latest names, in alphabetical order.
#[derive(Debug, Default)]
pub struct LatestNames {
    names: BTreeMap<Bucket, Asked>,
    unlogged: Vec<Bucket>,
    /// Count of requests for any name, remembered or not.
    pub count: u64,
}

/// A name that children ask for.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// The number of times since it is remembered.
    pub times: u64,
    /// The latest of these times.
    pub at: MonoTime,
    /// Set once the policy was searched for a similar name, found or not.
    pub nearest: Option<Unlisted>,
}

impl LatestNames {
    /// Notes that a child asks for a name. Returns the name that it replaces.
    pub fn note(&mut self, now: MonoTime, bucket: &Bucket) -> Option<Bucket> {
        self.count += 1;
        if let Some(asked) = self.names.get_mut(bucket) {
            (asked.times, asked.at) = (asked.times + 1, now);
            return None;
        }
        let oldest = self.names.iter().min_by_key(|(_, asked)| asked.at);
        let displaced = oldest.filter(|_| self.names.len() >= NAMES_MAX);
        let displaced = displaced.map(|(name, asked)| (name.clone(), asked.at));
        if displaced
            .as_ref()
            .is_none_or(|(_, at)| now.since(*at) >= QUIET)
        {
            self.unlogged.push(bucket.clone());
        }
        self.names.insert(
            bucket.clone(),
            Asked {
                times: 1,
                at: now,
                nearest: None,
            },
        );
        let (displaced, _) = displaced?;
        self.remove(&displaced);
        Some(displaced)
    }

    /// Forgets a name.
    pub fn remove(&mut self, bucket: &Bucket) {
        self.names.remove(bucket);
        self.unlogged.retain(|name| name != bucket);
    }

    /// Forgets the names that no child has named lately.
    pub fn prune(&mut self, now: MonoTime) {
        self.names
            .retain(|_, asked| now.since(asked.at) < FORGOTTEN);
    }

    /// Returns each name, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&Bucket, &Asked)> {
        self.names.iter()
    }

    /// Returns each name, in order, to note what is similar to it.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&Bucket, &mut Asked)> {
        self.names.iter_mut()
    }

    /// Returns true for a name that is remembered.
    pub fn contains(&self, bucket: &Bucket) -> bool {
        self.names.contains_key(bucket)
    }

    /// Takes the names to log, which are new since the last call.
    pub fn take_unlogged(&mut self) -> Vec<Bucket> {
        std::mem::take(&mut self.unlogged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> MonoTime {
        MonoTime::from_elapsed(Duration::from_secs(seconds))
    }

    fn name(number: usize) -> Bucket {
        Bucket::new(&format!("b{number}")).unwrap()
    }

    #[test]
    fn names_are_counted_and_forgotten_in_time() {
        let mut latest = LatestNames::default();
        for (second, number) in [(0, 1), (0, 2), (30, 1)] {
            assert_eq!(latest.note(at(second), &name(number)), None);
        }
        assert_eq!(
            (latest.count, latest.take_unlogged()),
            (3, vec![name(1), name(2)])
        );
        latest.prune(at(3_600));
        assert!(
            latest
                .iter()
                .map(|(name, asked)| (name.clone(), asked.times))
                .eq([(name(1), 2)])
        );
        latest.remove(&name(1));
        assert!(latest.iter().next().is_none());
    }

    #[test]
    fn flood_keeps_only_the_latest_names() {
        let mut latest = LatestNames::default();
        for number in 0..1_000 {
            latest.note(at(number as u64 / 100), &name(number));
        }
        assert_eq!((latest.count, latest.iter().count()), (1_000, NAMES_MAX));
        assert!(latest.contains(&name(999)) && !latest.contains(&name(0)));
        assert!(latest.take_unlogged().len() <= NAMES_MAX);
        latest.note(at(100), &name(5_000));
        assert_eq!(latest.take_unlogged(), [name(5_000)]);
    }
}
