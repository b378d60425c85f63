//! Fan-out of directives: an update that many children need is composed and encoded once and shared by all of
//! them.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use super::{BucketDirective, Directives};
use crate::names::Bucket;

/// Maximum number of distinct updates of one bucket that are kept until the next change of the board, besides the
/// whole state. Children that have seen yet another version get the whole state.
const UPDATES_PER_BUCKET_MAX: usize = 4;
/// The updates of whole audiences kept until the next change; further ones are composed for each child.
const AUDIENCE_UPDATES_MAX: usize = 1_024;

/// A set of buckets that a number of children are subscribed to.
pub type Audience = Arc<BTreeSet<Bucket>>;

/// The updates of all buckets of an audience, for all children that have seen the same version.
pub type AudienceUpdate = Arc<[Arc<BucketUpdate>]>;

/// The update of one bucket, for all children that have seen the same version, with its encoding.
#[derive(Debug)]
pub struct BucketUpdate {
    directive: BucketDirective,
    encoded: OnceLock<Box<[Chunk]>>,
}

/// One encoded piece of an update. The transport defines the encoding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The encoded bytes.
    pub bytes: Box<[u8]>,
    /// The number of keys in it.
    pub keys: usize,
}

impl BucketUpdate {
    /// Wraps a directive that is not encoded yet.
    pub const fn new(directive: BucketDirective) -> Self {
        Self {
            directive,
            encoded: OnceLock::new(),
        }
    }

    /// The directive.
    pub const fn directive(&self) -> &BucketDirective {
        &self.directive
    }

    /// Returns the encoding. Calls `encode` once, regardless of the number of children that receive
    /// the update.
    pub fn encoded(&self, encode: impl FnOnce(&BucketDirective) -> Box<[Chunk]>) -> &[Chunk] {
        self.encoded.get_or_init(|| encode(&self.directive))
    }
}

/// A message to one child: its own head, and updates that it shares with other children.
#[derive(Clone, Debug)]
pub struct Message {
    /// Everything but the buckets.
    pub head: Directives,
    /// The updates shared with all children of the same audience that have seen the same version.
    pub shared: Option<AudienceUpdate>,
    /// The whole state of buckets that are new to this child.
    pub first: Vec<Arc<BucketUpdate>>,
}

impl Message {
    /// All updates, in their order of application.
    pub fn updates(&self) -> impl Iterator<Item = &Arc<BucketUpdate>> {
        self.shared
            .iter()
            .flat_map(|shared| shared.iter())
            .chain(&self.first)
    }
}

impl From<Message> for Directives {
    fn from(message: Message) -> Self {
        let buckets = message
            .updates()
            .map(|update| update.directive().clone())
            .collect();
        Self {
            buckets,
            ..message.head
        }
    }
}

impl From<Directives> for Message {
    fn from(mut directives: Directives) -> Self {
        let buckets = std::mem::take(&mut directives.buckets);
        let first = buckets
            .into_iter()
            .map(|bucket| Arc::new(BucketUpdate::new(bucket)))
            .collect();
        Self {
            head: directives,
            shared: None,
            first,
        }
    }
}

/// The updates composed since the last change of a board, for reuse by further children.
#[derive(Debug, Default)]
pub(super) struct UpdateCache {
    by_bucket: HashMap<Bucket, Vec<(Seen, Arc<BucketUpdate>)>>,
    /// By the address of the audience. Each entry holds the audience, so that its address is not reused.
    by_audience: HashMap<(usize, Seen), (Audience, Option<AudienceUpdate>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Seen {
    /// The version that a reader saw last; 0 asks for the whole state.
    pub(super) version: u64,
    /// False if values are withheld from the reader.
    pub(super) values: bool,
}

impl UpdateCache {
    pub(super) fn clear(&mut self) {
        self.by_bucket.clear();
        self.by_audience.clear();
    }

    /// Returns the update of a bucket for children that have `seen` this version, or the whole state if the
    /// cache is full.
    pub(super) fn of_bucket(
        &mut self,
        bucket: &Bucket,
        seen: Seen,
        compose: impl FnOnce(Seen) -> BucketDirective,
    ) -> Arc<BucketUpdate> {
        let cache = self.by_bucket.entry(bucket.clone()).or_default();
        let whole = Seen { version: 0, ..seen };
        let known = |seen: Seen| {
            cache
                .iter()
                .find(|(of, _)| *of == seen)
                .map(|(_, update)| Arc::clone(update))
        };
        if let Some(update) = known(seen) {
            return update;
        }
        let alike = cache
            .iter()
            .filter(|(of, _)| of.values == seen.values && of.version > 0)
            .count();
        let seen = if alike < UPDATES_PER_BUCKET_MAX {
            seen
        } else if let Some(update) = known(whole) {
            return update;
        } else {
            whole
        };
        let update = Arc::new(BucketUpdate::new(compose(seen)));
        cache.push((seen, Arc::clone(&update)));
        update
    }

    /// Returns the update of an audience: `None` before it was composed, `Some(None)` if it says nothing.
    pub(super) fn audience_update(
        &self,
        audience: &Audience,
        seen: Seen,
    ) -> Option<Option<AudienceUpdate>> {
        self.by_audience
            .get(&(identity(audience), seen))
            .map(|(_, update)| update.clone())
    }

    pub(super) fn keep(
        &mut self,
        audience: &Audience,
        seen: Seen,
        update: &Option<AudienceUpdate>,
    ) {
        if self.by_audience.len() < AUDIENCE_UPDATES_MAX {
            self.by_audience.insert(
                (identity(audience), seen),
                (Arc::clone(audience), update.clone()),
            );
        }
    }
}

fn identity(audience: &Audience) -> usize {
    Arc::as_ptr(audience) as usize
}

/// Equal sets of buckets, kept once, so that the children with these buckets share one audience.
#[derive(Debug, Default)]
pub(super) struct Audiences {
    known: HashSet<Audience>,
    /// Number of audiences that triggers the removal of unused ones.
    sweep_at: usize,
}

impl Audiences {
    pub(super) fn of(&mut self, buckets: BTreeSet<Bucket>) -> Audience {
        if let Some(known) = self.known.get(&buckets) {
            return Arc::clone(known);
        }
        if self.known.len() >= self.sweep_at {
            self.known
                .retain(|audience| Arc::strong_count(audience) > 1);
            self.sweep_at = (self.known.len() * 2).max(16);
        }
        let audience = Audience::new(buckets);
        self.known.insert(Arc::clone(&audience));
        audience
    }
}
