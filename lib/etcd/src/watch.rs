//! Watches: the changes of keys in the order of the store. A watch whose connection breaks continues
//! at another endpoint without a gap.

use bytes::Bytes;
use tonic::Streaming;

use crate::calls::Client;
use crate::error::{Error, INVALID_TOKEN, bounded, lost};
use crate::kv::{KeyValue, Keys, header_revision, signed, unsigned};
use crate::wire;
use crate::wire::event::Kind;

/// The changes of keys that begin alike. It is opened by the first [`Watch::next`].
#[derive(Debug)]
pub struct Watch {
    client: Client,
    keys: Keys,
    /// First revision whose events have not arrived.
    next_revision: u64,
    answers: Option<Streaming<wire::WatchResponse>>,
    /// The token was renewed since the last answer.
    has_renewed: bool,
}

/// A change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The key was created or written.
    Put(KeyValue),
    /// The key was deleted, or its lease ended.
    Deleted {
        /// Key, without the prefix of the store's address.
        key: Bytes,
        /// Revision of the deletion.
        revision: u64,
    },
}

impl Client {
    /// Watches the keys that begin with `prefix_key`, from this revision on: that after a
    /// [`Listing`](crate::Listing) or a transaction.
    pub fn watch(&self, prefix_key: impl AsRef<[u8]>, from_revision: u64) -> Watch {
        Watch {
            client: self.clone(),
            keys: self.beginning(prefix_key.as_ref()),
            next_revision: from_revision.max(1),
            answers: None,
            has_renewed: false,
        }
    }
}

impl Keys {
    fn watch(&self, from_revision: u64) -> wire::WatchRequest {
        let create = wire::WatchCreateRequest {
            key: self.first.clone(),
            range_end: self.end.clone(),
            start_revision: signed(from_revision),
            progress_notify: true,
            fragment: true,
        };
        wire::WatchRequest {
            request: Some(wire::watch_request::Request::Create(create)),
        }
    }
}

impl Watch {
    /// Returns the first revision whose changes have not arrived.
    pub fn next_revision(&self) -> u64 {
        self.next_revision
    }

    /// Waits for changes, in the order of their revisions. If the future is dropped, no change is
    /// lost. The changes of one revision may be split over two calls and, if the connection breaks
    /// between these, be repeated.
    ///
    /// # Errors
    /// [`Error::Compacted`] if changes are lost: read the keys again and watch from there. After any
    /// other error the next call continues where this one stopped.
    pub async fn next(&mut self) -> Result<Vec<Event>, Error> {
        // Each endpoint may fail once, and a token be renewed; then the caller decides how long to wait.
        let mut failures = 0;
        loop {
            let answers = match &mut self.answers {
                Some(answers) => answers,
                empty => {
                    let request = self.keys.watch(self.next_revision);
                    empty.insert(self.client.call(request).await?)
                }
            };
            let cause = match answers.message().await {
                Ok(Some(answer)) => match self.take(answer) {
                    Ok(events) if events.is_empty() => continue,
                    Ok(events) => return Ok(events),
                    Err(Error::Denied { cause }) if !self.has_renewed => {
                        self.has_renewed = true;
                        self.client.forget_token().await;
                        cause
                    }
                    Err(error) => {
                        self.answers = None;
                        return Err(error);
                    }
                },
                Ok(None) => "the stream ended".to_owned(),
                Err(status) => lost(&status),
            };
            self.answers = None;
            self.client.leave_current();
            failures += 1;
            if failures > self.client.members().len() + 1 {
                let causes = format!("the watch broke {failures} times, at last: {cause}");
                return Err(Error::Unreachable { causes });
            }
        }
    }

    /// Checks an answer and returns its events.
    pub(crate) fn take(&mut self, answer: wire::WatchResponse) -> Result<Vec<Event>, Error> {
        if answer.compact_revision != 0 {
            let revision = unsigned(answer.compact_revision)?;
            return Err(Error::Compacted { revision });
        }
        if answer.canceled {
            return Err(cancelled(&answer.cancel_reason));
        }
        self.has_renewed = false;
        let mut events = Vec::with_capacity(answer.events.len());
        let mut last = self.next_revision;
        for event in answer.events {
            let kind = event.kind();
            let entry = event
                .entry
                .ok_or_else(|| Error::invalid("an event without a key"))?;
            self.keys.check(&entry.key)?;
            let revision = unsigned(entry.mod_revision)?;
            if revision < last {
                return Err(Error::invalid("an event of an earlier revision"));
            }
            last = revision;
            events.push(match kind {
                Kind::Put => Event::Put(KeyValue::new(entry, &self.client)?),
                Kind::Delete => Event::Deleted {
                    key: self.client.own_key(&entry.key),
                    revision,
                },
            });
        }
        if !events.is_empty() {
            // After a fragment, more events of the same revision may follow.
            self.next_revision = last.saturating_add(u64::from(!answer.fragment));
        } else if !answer.created && !answer.fragment {
            // That all events up to this revision were sent is certain only for such an answer.
            let revision = header_revision(answer.header.as_ref())?;
            self.next_revision = self.next_revision.max(revision.saturating_add(1));
        }
        Ok(events)
    }
}

/// Returns the error of a watch that the store has ended. etcd 3.4 calls also a token that is no longer
/// valid a lack of permission.
fn cancelled(reason: &str) -> Error {
    let of_access = INVALID_TOKEN.iter().chain(&["permission denied"]);
    if of_access.into_iter().any(|text| reason.contains(text)) {
        return Error::denied(reason);
    }
    let message = format!("the watch was cancelled: {}", bounded(reason));
    let code = tonic::Code::Cancelled.into();
    Error::Other { code, message }
}
