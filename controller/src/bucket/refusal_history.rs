//! What each key asked for and was refused in the last 24 hours, in parts of 10 s: `why` answers from it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use plimsoll_core::decision::Mode;
use plimsoll_core::names::{Bucket, Tenant};
use plimsoll_core::quantity::MonoTime;

use super::Refusals;

const EVERY: Duration = Duration::from_secs(10);
const KEPT_S: i64 = 24 * 3_600;
/// Keys of one bucket in a part: the most refused ones, and as many of the largest. The rest is added up.
const KEYS_MAX: usize = 50;
/// Memory of all parts. The oldest leave earlier than after a day to stay below it.
const BYTES_MAX: usize = 64 << 20;
/// Parts without a refusal between two that belong to the same time of refusals: a minute.
const PAUSE_PARTS: usize = 6;

/// The history, oldest first, and the part that is not over.
#[derive(Debug, Default)]
pub(crate) struct RefusalHistory {
    open: HashMap<Bucket, HashMap<Tenant, Refusals>>,
    began: Option<MonoTime>,
    parts: VecDeque<Part>,
    bytes: usize,
}

/// What happened in 10 s, or in more after a pause.
#[derive(Debug)]
pub(crate) struct Part {
    /// Its end, in seconds since 1970.
    pub(crate) at_s: i64,
    span_s: f64,
    buckets: BTreeMap<Bucket, BucketPart>,
    bytes: usize,
}

#[derive(Debug)]
struct BucketPart {
    limit_rps: Option<f64>,
    mode: Mode,
    /// Sorted by name.
    keys: Box<[(Tenant, Counted)]>,
    rest: Counted,
}

/// The counts of [`Refusals`] in less room: a greater one is `u32::MAX`.
#[derive(Clone, Copy, Debug)]
struct Counted([u32; 8]);

/// A bucket in one part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RefusalsOfBucket<'a> {
    span_s: f64,
    of: &'a BucketPart,
}

// === impl RefusalHistory ===

impl RefusalHistory {
    /// Adds requests that were just reported.
    pub(crate) fn add(&mut self, bucket: &Bucket, tenant: &Tenant, refusals: Refusals) {
        if refusals.asked == 0 {
            return;
        }
        let keys = self.open.entry(bucket.clone()).or_default();
        let sum = keys.entry(tenant.clone()).or_default();
        *sum = sum.plus(refusals);
    }

    /// Ends a part if 10 s are over. `terms` returns the limit and the mode of a bucket.
    pub(crate) fn on_tick(
        &mut self,
        now: MonoTime,
        unix_s: i64,
        terms: impl Fn(&Bucket) -> (Option<f64>, Mode),
    ) {
        let span = now.since(*self.began.get_or_insert(now));
        if span < EVERY {
            return;
        }
        self.began = Some(now);
        let open = std::mem::take(&mut self.open);
        let buckets: BTreeMap<Bucket, BucketPart> = open
            .into_iter()
            .map(|(bucket, keys)| {
                let part = BucketPart::new(keys.into_iter().collect(), terms(&bucket));
                (bucket, part)
            })
            .collect();
        let keys: usize = buckets.values().map(|part| part.keys.len()).sum();
        let bytes = size_of::<Part>()
            + buckets.len() * 2 * size_of::<(Bucket, BucketPart)>()
            + keys * size_of::<(Tenant, Counted)>();
        self.bytes += bytes;
        self.parts.push_back(Part {
            at_s: unix_s,
            span_s: span.as_secs_f64(),
            buckets,
            bytes,
        });
        let is_over = |oldest: &Part, bytes| bytes > BYTES_MAX || oldest.at_s < unix_s - KEPT_S;
        while let Some(oldest) = self.parts.front().filter(|part| is_over(part, self.bytes)) {
            self.bytes -= oldest.bytes;
            self.parts.pop_front();
        }
    }

    /// The beginning of the oldest part, in seconds since 1970.
    pub(crate) fn since_s(&self) -> Option<i64> {
        self.parts.front().map(Part::since_s)
    }

    /// Returns the number of the part that has a moment, or of the latest one; `None` if that is not recorded.
    pub(crate) fn find(&self, at_s: Option<i64>) -> Option<usize> {
        let Some(at_s) = at_s else {
            return self.parts.len().checked_sub(1);
        };
        let at = self.parts.partition_point(|part| part.at_s < at_s);
        let part = self.parts.get(at)?;
        (part.at_s.saturating_sub(at_s) <= part.span_s.ceil() as i64).then_some(at)
    }

    pub(crate) fn part(&self, at: usize) -> Option<&Part> {
        self.parts.get(at)
    }

    /// The latest parts, the oldest first.
    pub(crate) fn latest(&self, count: usize) -> impl Iterator<Item = &Part> {
        self.parts
            .iter()
            .skip(self.parts.len().saturating_sub(count))
    }

    /// Returns the beginning of the time in which a key was refused up to this part, in seconds since 1970, and true if
    /// it may have begun before the history. `None` if neither this part nor the minute before it has a refusal.
    pub(crate) fn refused_since(
        &self,
        bucket: &Bucket,
        tenant: &Tenant,
        at: usize,
    ) -> Option<(i64, bool)> {
        let mut first = None;
        let mut pause = 0;
        for number in (0..=at).rev() {
            let part = self.parts.get(number)?;
            let refusals = part.bucket(bucket).and_then(|shown| shown.of_key(tenant));
            if refusals.is_some_and(|refusals| refusals.refused() > 0) {
                first = Some((number, part.since_s()));
                pause = 0;
            } else {
                pause += 1;
            }
            if pause > PAUSE_PARTS {
                break;
            }
        }
        first.map(|(number, since_s)| (since_s, number <= PAUSE_PARTS.min(at)))
    }
}

// === impl Part ===

impl Part {
    /// The beginning, in seconds since 1970.
    pub(crate) fn since_s(&self) -> i64 {
        self.at_s - self.span_s as i64
    }

    pub(crate) fn bucket(&self, bucket: &Bucket) -> Option<RefusalsOfBucket<'_>> {
        let of = self.buckets.get(bucket)?;
        Some(RefusalsOfBucket {
            span_s: self.span_s,
            of,
        })
    }

    /// Returns the bucket where a tenant was refused most, or, without refusals, where it asked most.
    pub(crate) fn worst(&self, tenant: &Tenant) -> Option<&Bucket> {
        let asked = self.buckets.keys().filter_map(|bucket| {
            let refusals = self.bucket(bucket)?.of_key(tenant)?;
            Some(((refusals.refused(), refusals.asked), bucket))
        });
        asked.max().map(|(_, bucket)| bucket)
    }
}

// === impl BucketPart ===

impl BucketPart {
    fn new(mut keys: Vec<(Tenant, Refusals)>, (limit_rps, mode): (Option<f64>, Mode)) -> Self {
        let mut rest = Refusals::default();
        if keys.len() > 2 * KEYS_MAX {
            keys.sort_by_key(|(_, of)| std::cmp::Reverse((of.refused(), of.asked)));
            keys[KEYS_MAX..].sort_by_key(|(_, of)| std::cmp::Reverse(of.asked));
            let others = keys.drain(2 * KEYS_MAX..);
            rest = others.fold(rest, |sum, (_, of)| sum.plus(of));
        }
        keys.sort_by(|(one, _), (other, _)| one.cmp(other));
        let keys = keys.into_iter().map(|(tenant, of)| (tenant, of.into()));
        Self {
            limit_rps,
            mode,
            keys: keys.collect(),
            rest: rest.into(),
        }
    }
}

// === impl RefusalsOfBucket ===

impl RefusalsOfBucket<'_> {
    pub(crate) const fn limit_rps(&self) -> Option<f64> {
        self.of.limit_rps
    }

    pub(crate) const fn mode(&self) -> Mode {
        self.of.mode
    }

    /// Returns `None` for a key without requests, and for one of the rest.
    pub(crate) fn of_key(&self, tenant: &Tenant) -> Option<Refusals> {
        let keys = &self.of.keys;
        let at = keys.binary_search_by(|(name, _)| name.cmp(tenant)).ok()?;
        keys.get(at).map(|(_, counted)| counted.over(self.span_s))
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = (&Tenant, Refusals)> {
        let keys = self.of.keys.iter();
        keys.map(|(name, counted)| (name, counted.over(self.span_s)))
    }

    /// The keys that are not recorded by name, added up.
    pub(crate) fn rest(&self) -> Refusals {
        self.of.rest.over(self.span_s)
    }

    pub(crate) fn all(&self) -> Refusals {
        let mut all = self.keys().fold(self.rest(), |sum, (_, of)| sum.plus(of));
        all.span_s = self.span_s;
        all
    }
}

// === impl Counted ===

impl From<Refusals> for Counted {
    fn from(of: Refusals) -> Self {
        Self(
            of.counts()
                .map(|count| u32::try_from(count).unwrap_or(u32::MAX)),
        )
    }
}

impl Counted {
    fn over(self, span_s: f64) -> Refusals {
        Refusals::new(span_s, self.0.map(u64::from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket() -> Bucket {
        Bucket::new("orders").unwrap()
    }

    fn tenant(number: usize) -> Tenant {
        Tenant::new(&format!("t{number}")).unwrap()
    }

    fn refused(asked: u64, refused: u64) -> Refusals {
        Refusals {
            asked,
            cluster_overload: refused,
            ..Refusals::default()
        }
    }

    fn run(history: &mut RefusalHistory, part: u64) {
        let now = MonoTime::from_elapsed(EVERY * part as u32);
        history.on_tick(now, 1_000 + part as i64 * 10, |_| {
            (Some(5.0), Mode::Enforce)
        });
    }

    #[test]
    fn refusals_have_a_beginning_and_pauses() {
        let mut history = RefusalHistory::default();
        run(&mut history, 0);
        for part in 1..=60 {
            let is_refused = (10..=12).contains(&part) || (18..=20).contains(&part) || part >= 40;
            history.add(&bucket(), &tenant(1), refused(10, u64::from(is_refused)));
            run(&mut history, part);
        }
        let since = |at_s| {
            let at = history.find(Some(at_s)).unwrap();
            history.refused_since(&bucket(), &tenant(1), at)
        };
        assert_eq!(since(1_200), Some((1_090, false)), "a pause of 50 s");
        assert_eq!(since(1_600), Some((1_390, false)));
        assert_eq!(since(1_300), None);
        assert_eq!(since(1_050), None);
        assert_eq!(history.find(Some(900)), None, "before the history");
        assert_eq!(history.find(Some(i64::MIN)), None);
        assert_eq!(history.find(Some(1_601)), None, "later");
        assert_eq!(history.since_s(), Some(1_000));
    }

    #[test]
    fn most_refused_and_largest_keys_are_kept() {
        let mut history = RefusalHistory::default();
        run(&mut history, 0);
        for number in 0..300_u64 {
            let is_refused = u64::from(number < 60);
            let refusals = refused(1_000 + number, is_refused * (number + 1));
            history.add(&bucket(), &tenant(number as usize), refusals);
        }
        run(&mut history, 1);
        let part = history.part(0).unwrap();
        let shown = part.bucket(&bucket()).unwrap();
        let is_kept = |number| shown.of_key(&tenant(number)).is_some();
        assert!((10..60).all(is_kept) && (250..300).all(is_kept));
        assert_eq!(shown.keys().count(), 2 * KEYS_MAX);
        assert!(!is_kept(5) && !is_kept(100));
        assert_eq!(
            shown.all().asked,
            (0..300).map(|number| 1_000 + number).sum::<u64>()
        );
        assert_eq!(part.worst(&tenant(59)), Some(&bucket()));
    }

    #[test]
    fn memory_and_age_are_bounded() {
        let mut history = RefusalHistory::default();
        run(&mut history, 0);
        for part in 1..=10_000 {
            history.add(&bucket(), &tenant(1), refused(1, 0));
            run(&mut history, part);
        }
        assert_eq!(history.parts.len() as i64, KEPT_S / 10 + 1);
        let buckets: Vec<_> = (0..100)
            .map(|b| Bucket::new(&format!("b{b}")).unwrap())
            .collect();
        for part in 10_001..=10_400 {
            for bucket in &buckets {
                (0..100).for_each(|key| history.add(bucket, &tenant(key), refused(1, 0)));
            }
            run(&mut history, part);
        }
        assert!(history.bytes <= BYTES_MAX && history.bytes > BYTES_MAX / 2);
        assert_eq!(
            history.bytes,
            history.parts.iter().map(|part| part.bytes).sum::<usize>()
        );
    }
}
