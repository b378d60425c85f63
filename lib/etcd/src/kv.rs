//! Reads of keys. Every read is linearizable: it sees all changes that were acknowledged before.

use bytes::Bytes;

use crate::calls::Client;
use crate::error::Error;
use crate::lease::LeaseId;
use crate::wire;

/// Maximum size of a value, in bytes: etcd takes requests of at most 1.5 MiB by default.
pub const VALUE_BYTES_MAX: usize = 1 << 20;
/// Maximum size of the keys and values of a listing, in bytes.
pub const LISTING_BYTES_MAX: usize = 64 << 20;
/// Maximum number of entries in one answer of a listing.
const PAGE_ENTRIES_MAX: u64 = 64;

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValue {
    /// Key, without the prefix of the store's address.
    pub key: Bytes,
    /// Value.
    pub value: Bytes,
    /// Revision at which the key was created.
    pub created_revision: u64,
    /// Revision at which the value was written.
    pub modified_revision: u64,
    /// Lease whose end deletes the key; `None` if it has none.
    pub lease: Option<LeaseId>,
}

/// All entries below a key, as of one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// Revision of the store that the entries are of.
    pub revision: u64,
    /// Entries in the order of their keys.
    pub entries: Vec<KeyValue>,
}

/// The keys of one request: a single key, or all that begin alike.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    pub(crate) first: Bytes,
    /// First key after the range; empty for a single key.
    pub(crate) end: Bytes,
}

impl Client {
    /// Returns a key's value; `None` if it does not exist.
    ///
    /// # Errors
    /// If no endpoint answers in time, or the store refuses.
    pub async fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<KeyValue>, Error> {
        let keys = self.single(key.as_ref());
        let answer = self.call(keys.read()).await?;
        keys.only(answer, self)
    }

    /// Returns all entries whose keys begin with `prefix_key`, as of one revision. Reads them in
    /// several requests, each with a timeout of its own.
    ///
    /// # Errors
    /// As `get`; [`Error::TooLarge`] if there are more than `limit` entries, or if they are larger than
    /// [`LISTING_BYTES_MAX`]; [`Error::Compacted`] if the revision was compacted meanwhile.
    pub async fn list(&self, prefix_key: impl AsRef<[u8]>, limit: u64) -> Result<Listing, Error> {
        let mut keys = self.beginning(prefix_key.as_ref());
        let (mut entries, mut revision, mut bytes) = (Vec::new(), 0, 0);
        let mut page = PAGE_ENTRIES_MAX;
        loop {
            let left = limit.saturating_sub(entries.len() as u64);
            let mut request = keys.read();
            request.limit = signed(left.saturating_add(1).min(page));
            request.revision = signed(revision);
            let asked = request.limit as usize;
            let answer = match self.call(request).await {
                Err(Error::TooLarge { .. }) if page > 1 => {
                    page /= 4;
                    continue;
                }
                Err(Error::Compacted { .. }) => return Err(Error::Compacted { revision }),
                answer => answer?,
            };
            if revision == 0 {
                revision = header_revision(answer.header.as_ref())?;
            }
            if answer.entries.len() > asked || (answer.more && answer.entries.is_empty()) {
                return Err(Error::invalid("a page of another size"));
            }
            for entry in answer.entries {
                keys.check(&entry.key)?;
                // The next page begins after this key, and this one must be in order.
                keys.first = [&entry.key, &[0][..]].concat().into();
                bytes += entry.key.len() + entry.value.len();
                entries.push(KeyValue::new(entry, self)?);
            }
            if entries.len() as u64 > limit {
                let what = format!("more than {limit} keys of the store begin alike");
                return Err(Error::TooLarge { what });
            }
            if bytes > LISTING_BYTES_MAX {
                let mib = LISTING_BYTES_MAX >> 20;
                let what = format!("keys of the store that begin alike are larger than {mib} MiB");
                return Err(Error::TooLarge { what });
            }
            if !answer.more {
                return Ok(Listing { revision, entries });
            }
        }
    }

    pub(crate) fn single(&self, key: &[u8]) -> Keys {
        Keys::one([self.prefix(), key].concat().into())
    }

    pub(crate) fn beginning(&self, prefix_key: &[u8]) -> Keys {
        let first = [self.prefix(), prefix_key].concat();
        let mut end = first.clone();
        // The prefix ends with a slash, so a byte below the largest one remains.
        while let Some(last) = end.pop() {
            if let Some(next) = last.checked_add(1) {
                end.push(next);
                break;
            }
        }
        Keys {
            first: first.into(),
            end: end.into(),
        }
    }
}

impl Keys {
    pub(crate) fn one(key: Bytes) -> Self {
        let end = Bytes::new();
        Self { first: key, end }
    }

    pub(crate) fn read(&self) -> wire::RangeRequest {
        wire::RangeRequest {
            key: self.first.clone(),
            range_end: self.end.clone(),
            limit: 0,
            revision: 0,
        }
    }

    /// Checks a key of an answer.
    pub(crate) fn check(&self, key: &[u8]) -> Result<(), Error> {
        let is_among = if self.end.is_empty() {
            key == self.first
        } else {
            (&*self.first..&*self.end).contains(&key)
        };
        let outside = || Error::invalid("a key that was not asked for");
        is_among.then_some(()).ok_or_else(outside)
    }

    /// Returns the entry of a single key.
    pub(crate) fn only(
        &self,
        answer: wire::RangeResponse,
        client: &Client,
    ) -> Result<Option<KeyValue>, Error> {
        let mut entries = answer.entries.into_iter();
        let (entry, None) = (entries.next(), entries.next()) else {
            return Err(Error::invalid("several values of one key"));
        };
        let entry = entry.map(|entry| {
            self.check(&entry.key)?;
            KeyValue::new(entry, client)
        });
        entry.transpose()
    }
}

impl KeyValue {
    /// Checks an entry whose key begins with the prefix of the store.
    pub(crate) fn new(entry: wire::KeyValue, client: &Client) -> Result<Self, Error> {
        let created_revision = unsigned(entry.create_revision)?;
        let modified_revision = unsigned(entry.mod_revision)?;
        if created_revision == 0 || created_revision > modified_revision {
            return Err(Error::invalid(
                "a key that was changed before it was created",
            ));
        }
        let key = entry.key.get(client.prefix().len()..).unwrap_or_default();
        Ok(Self {
            // Copied, or they would keep the memory of the whole answer.
            key: Bytes::copy_from_slice(key),
            value: Bytes::copy_from_slice(&entry.value),
            created_revision,
            modified_revision,
            lease: (entry.lease != 0).then_some(LeaseId(entry.lease)),
        })
    }
}

pub(crate) fn header_revision(header: Option<&wire::ResponseHeader>) -> Result<u64, Error> {
    match header {
        Some(header) if header.revision > 0 => unsigned(header.revision),
        _ => Err(Error::invalid("an answer without a revision")),
    }
}

pub(crate) fn unsigned(number: i64) -> Result<u64, Error> {
    u64::try_from(number).map_err(|_| Error::invalid("a negative number"))
}

pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
