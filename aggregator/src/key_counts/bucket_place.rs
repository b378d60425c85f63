//! The small number of a bucket while it is known, so that sums by bucket need no search for each entry.

use plimsoll_core::names::{Bucket, KeyId};

use super::KeyCounts;

impl KeyCounts {
    #[inline]
    pub(crate) fn bucket_of(&self, id: KeyId) -> usize {
        self.keys.value(id).quota as usize
    }

    /// Returns the number of a bucket. Another bucket may reuse it after the removal.
    pub(crate) fn bucket_place(&self, bucket: &Bucket) -> Option<usize> {
        self.by_bucket.get(bucket).map(|place| *place as usize)
    }
}
