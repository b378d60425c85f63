//! Transactions: operations that the store applies together, if all conditions hold. They are never
//! sent again after their answer was lost.

use bytes::Bytes;

use crate::calls::Client;
use crate::error::Error;
use crate::kv::{KeyValue, Keys, VALUE_BYTES_MAX, header_revision, signed};
use crate::lease::LeaseId;
use crate::wire::compare::{Field, Operand, Relation};
use crate::wire::request_op::Request;
use crate::wire::response_op::Response as Answer;
use crate::wire::{self, Compare};

/// Operations that are applied together, depending on conditions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transaction {
    conditions: Vec<Condition>,
    then: Vec<Operation>,
    or_else: Vec<Operation>,
}

/// A condition of a transaction.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition(Compare);

/// A read or a change of a transaction. The keys lack the prefix of the store.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation(Request);

/// The answer to a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Whether all conditions held, so that the operations of `then` were applied.
    pub succeeded: bool,
    /// Revision of the store after the transaction.
    pub revision: u64,
    /// What each `get` of the applied operations found, in their order.
    pub reads: Vec<Option<KeyValue>>,
}

impl Transaction {
    /// Adds a condition; all must hold.
    #[must_use]
    pub fn when(mut self, condition: Condition) -> Self {
        self.conditions.push(condition);
        self
    }

    /// Adds an operation for the case that all conditions hold.
    #[must_use]
    pub fn then(mut self, operation: Operation) -> Self {
        self.then.push(operation);
        self
    }

    /// Adds an operation for the case that a condition does not hold.
    #[must_use]
    pub fn or_else(mut self, operation: Operation) -> Self {
        self.or_else.push(operation);
        self
    }
}

impl Condition {
    /// The key does not exist.
    pub fn absent(key: impl Into<Bytes>) -> Self {
        Self::created_at(key, 0)
    }

    /// The key was created at this revision, and not deleted since.
    pub fn created_at(key: impl Into<Bytes>, revision: u64) -> Self {
        let revision = Operand::CreateRevision(signed(revision));
        Self::equal(key, Field::Create, revision)
    }

    /// The key was last written at this revision; 0: it does not exist.
    pub fn modified_at(key: impl Into<Bytes>, revision: u64) -> Self {
        let revision = Operand::ModRevision(signed(revision));
        Self::equal(key, Field::Mod, revision)
    }

    fn equal(key: impl Into<Bytes>, field: Field, operand: Operand) -> Self {
        Self(Compare {
            relation: Relation::Equal.into(),
            field: field.into(),
            key: key.into(),
            operand: Some(operand),
        })
    }
}

impl Operation {
    /// Writes a value. With a lease, the key is deleted when the lease ends.
    pub fn put(
        key: impl Into<Bytes>,
        value: impl Into<Bytes>,
        lease: impl Into<Option<LeaseId>>,
    ) -> Self {
        Self(Request::Put(wire::PutRequest {
            key: key.into(),
            value: value.into(),
            lease: lease.into().map_or(0, |lease| lease.0),
        }))
    }

    /// Deletes a key, if it exists.
    pub fn delete(key: impl Into<Bytes>) -> Self {
        Self::delete_range(key.into(), Bytes::new())
    }

    /// Deletes all keys that begin with `prefix_key`.
    pub fn delete_prefix(prefix_key: impl Into<Bytes>) -> Self {
        // Any end but an empty one: `encode` sets the end that belongs to the key with its prefix.
        Self::delete_range(prefix_key.into(), Bytes::from_static(&[0]))
    }

    fn delete_range(key: Bytes, range_end: Bytes) -> Self {
        let range = wire::DeleteRangeRequest { key, range_end };
        Self(Request::DeleteRange(range))
    }

    /// Reads a key. The answer is in [`Committed::reads`].
    pub fn get(key: impl Into<Bytes>) -> Self {
        Self(Request::Range(Keys::one(key.into()).read()))
    }

    /// Returns the operation with the prefix of the store before its keys.
    fn encode(mut self, client: &Client) -> Result<wire::RequestOp, Error> {
        match &mut self.0 {
            Request::Put(put) if put.value.len() > VALUE_BYTES_MAX => {
                let len = put.value.len();
                let what = format!("a value has {len} bytes, maximum {VALUE_BYTES_MAX}");
                return Err(Error::TooLarge { what });
            }
            Request::Put(put) => put.key = client.single(&put.key).first,
            Request::Range(range) => *range = client.single(&range.key).read(),
            Request::DeleteRange(delete) if delete.range_end.is_empty() => {
                delete.key = client.single(&delete.key).first;
            }
            Request::DeleteRange(delete) => {
                let keys = client.beginning(&delete.key);
                (delete.key, delete.range_end) = (keys.first, keys.end);
            }
        }
        let request = Some(self.0);
        Ok(wire::RequestOp { request })
    }
}

/// Returns what an operation read; `None` for another operation than `get`.
fn decode(
    request: &wire::RequestOp,
    answer: wire::ResponseOp,
    client: &Client,
) -> Result<Option<Option<KeyValue>>, Error> {
    match (&request.request, answer.response) {
        (Some(Request::Range(asked)), Some(Answer::Range(answer))) => {
            let keys = Keys::one(asked.key.clone());
            keys.only(answer, client).map(Some)
        }
        (Some(Request::Put(_)), Some(Answer::Put(_)))
        | (Some(Request::DeleteRange(_)), Some(Answer::DeleteRange(_))) => Ok(None),
        _ => Err(Error::invalid("the answer to another operation")),
    }
}

impl Client {
    /// Applies a transaction.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::NoSpace`] and [`Error::Invalid`] if it may have been applied; with
    /// every other error it was not.
    pub async fn transact(&self, transaction: Transaction) -> Result<Committed, Error> {
        let request = self.request_of(transaction)?;
        let answer = self.call(request.clone()).await?;
        self.committed(request, answer)
    }

    fn request_of(&self, transaction: Transaction) -> Result<wire::TxnRequest, Error> {
        let encode = |operations: Vec<Operation>| {
            let operations = operations.into_iter();
            let encoded = operations.map(|operation| operation.encode(self));
            encoded.collect::<Result<Vec<_>, _>>()
        };
        let prefixed = |Condition(mut compare)| {
            compare.key = self.single(&compare.key).first;
            compare
        };
        Ok(wire::TxnRequest {
            compare: transaction.conditions.into_iter().map(prefixed).collect(),
            success: encode(transaction.then)?,
            failure: encode(transaction.or_else)?,
        })
    }

    fn committed(
        &self,
        request: wire::TxnRequest,
        answer: wire::TxnResponse,
    ) -> Result<Committed, Error> {
        let applied = match answer.succeeded {
            true => request.success,
            false => request.failure,
        };
        if applied.len() != answer.responses.len() {
            return Err(Error::invalid("another number of answers than operations"));
        }
        let answers = applied.iter().zip(answer.responses);
        let reads =
            answers.filter_map(|(request, answer)| decode(request, answer, self).transpose());
        Ok(Committed {
            succeeded: answer.succeeded,
            revision: header_revision(answer.header.as_ref())?,
            reads: reads.collect::<Result<_, _>>()?,
        })
    }
}
