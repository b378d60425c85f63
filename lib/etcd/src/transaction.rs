//! Transactions: operations that the store applies together, if all conditions hold. They are never
//! sent again after their answer was lost.

use bytes::Bytes;
use tonic::Request;
use tonic::transport::Channel;

use crate::calls::{ANSWER_BYTES_MAX, Answered, Client, Rpc};
use crate::error::Error;
use crate::kv::{KeyValue, Keys, VALUE_BYTES_MAX, header_revision, signed};
use crate::lease::LeaseId;
use crate::wire;
use crate::wire::compare::{Field, Operand, Relation};
use crate::wire::{request_op, response_op};

/// Operations that are applied together, depending on conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    conditions: Vec<Condition>,
    then: Vec<Operation>,
    or_else: Vec<Operation>,
}

/// A condition of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    key: Bytes,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    Absent,
    Exists,
    CreatedRevision(u64),
    ModifiedRevision(u64),
    Value(Bytes),
}

/// A read or a change of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation(Change);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Change {
    Put(Bytes, Bytes, Option<LeaseId>),
    Delete(Bytes),
    DeletePrefix(Bytes),
    Get(Bytes),
}

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
        Self::new(key, Test::Absent)
    }

    /// The key exists.
    pub fn exists(key: impl Into<Bytes>) -> Self {
        Self::new(key, Test::Exists)
    }

    /// The key was created at this revision, and not deleted since.
    pub fn created_at(key: impl Into<Bytes>, revision: u64) -> Self {
        Self::new(key, Test::CreatedRevision(revision))
    }

    /// The key was last written at this revision.
    pub fn modified_at(key: impl Into<Bytes>, revision: u64) -> Self {
        Self::new(key, Test::ModifiedRevision(revision))
    }

    /// The key has this value.
    pub fn value_is(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        Self::new(key, Test::Value(value.into()))
    }

    fn new(key: impl Into<Bytes>, test: Test) -> Self {
        let key = key.into();
        Self { key, test }
    }

    fn encode(self, client: &Client) -> wire::Compare {
        let (relation, field, operand) = match self.test {
            Test::Absent => (Relation::Equal, Field::Create, Operand::CreateRevision(0)),
            Test::Exists => (Relation::Greater, Field::Create, Operand::CreateRevision(0)),
            Test::CreatedRevision(revision) => {
                let revision = signed(revision);
                (
                    Relation::Equal,
                    Field::Create,
                    Operand::CreateRevision(revision),
                )
            }
            Test::ModifiedRevision(revision) => (
                Relation::Equal,
                Field::Mod,
                Operand::ModRevision(signed(revision)),
            ),
            Test::Value(value) => (Relation::Equal, Field::Value, Operand::Value(value)),
        };
        wire::Compare {
            relation: relation.into(),
            field: field.into(),
            key: client.single(&self.key).first,
            operand: Some(operand),
        }
    }
}

impl Operation {
    /// Writes a value. With a lease, the key is deleted when the lease ends.
    pub fn put(
        key: impl Into<Bytes>,
        value: impl Into<Bytes>,
        lease: impl Into<Option<LeaseId>>,
    ) -> Self {
        Self(Change::Put(key.into(), value.into(), lease.into()))
    }

    /// Deletes a key, if it exists.
    pub fn delete(key: impl Into<Bytes>) -> Self {
        Self(Change::Delete(key.into()))
    }

    /// Deletes all keys that begin with `prefix_key`.
    pub fn delete_prefix(prefix_key: impl Into<Bytes>) -> Self {
        Self(Change::DeletePrefix(prefix_key.into()))
    }

    /// Reads a key. The answer is in [`Committed::reads`].
    pub fn get(key: impl Into<Bytes>) -> Self {
        Self(Change::Get(key.into()))
    }

    fn encode(&self, client: &Client) -> Result<wire::RequestOp, Error> {
        let delete = |keys: Keys| {
            request_op::Request::DeleteRange(wire::DeleteRangeRequest {
                key: keys.first,
                range_end: keys.end,
            })
        };
        let request = match &self.0 {
            Change::Put(key, value, lease) => {
                if value.len() > VALUE_BYTES_MAX {
                    let len = value.len();
                    let what = format!("a value has {len} bytes, maximum {VALUE_BYTES_MAX}");
                    return Err(Error::TooLarge { what });
                }
                request_op::Request::Put(wire::PutRequest {
                    key: client.single(key).first,
                    value: value.clone(),
                    lease: lease.map_or(0, |lease| lease.0),
                })
            }
            Change::Delete(key) => delete(client.single(key)),
            Change::DeletePrefix(prefix_key) => delete(client.beginning(prefix_key)),
            Change::Get(key) => request_op::Request::Range(client.single(key).read()),
        };
        Ok(wire::RequestOp {
            request: Some(request),
        })
    }

    /// Returns what a `get` found; `None` for another operation.
    fn decode(
        &self,
        answer: wire::ResponseOp,
        client: &Client,
    ) -> Result<Option<Option<KeyValue>>, Error> {
        match (&self.0, answer.response) {
            (Change::Get(key), Some(response_op::Response::Range(answer))) => {
                client.single(key).only(answer, client).map(Some)
            }
            (Change::Put(..), Some(response_op::Response::Put(_)))
            | (
                Change::Delete(_) | Change::DeletePrefix(_),
                Some(response_op::Response::DeleteRange(_)),
            ) => Ok(None),
            _ => Err(Error::invalid("the answer to another operation")),
        }
    }
}

impl Client {
    /// Applies a transaction.
    ///
    /// # Errors
    /// [`Error::Unknown`] and [`Error::Invalid`] if it may have been applied; with every other error it
    /// was not.
    pub async fn transact(&self, transaction: Transaction) -> Result<Committed, Error> {
        let Transaction {
            conditions,
            then,
            or_else,
        } = transaction;
        let encode = |operations: &[Operation]| {
            let operations = operations.iter().map(|operation| operation.encode(self));
            operations.collect::<Result<Vec<_>, _>>()
        };
        let request = wire::TxnRequest {
            success: encode(&then)?,
            failure: encode(&or_else)?,
            compare: conditions
                .into_iter()
                .map(|condition| condition.encode(self))
                .collect(),
        };
        let answer = self.call(request).await?;
        let applied = if answer.succeeded { then } else { or_else };
        if applied.len() != answer.responses.len() {
            return Err(Error::invalid("another number of answers than operations"));
        }
        let answers = applied.iter().zip(answer.responses);
        let reads =
            answers.filter_map(|(operation, answer)| operation.decode(answer, self).transpose());
        Ok(Committed {
            succeeded: answer.succeeded,
            revision: header_revision(answer.header.as_ref())?,
            reads: reads.collect::<Result<_, _>>()?,
        })
    }
}

impl Rpc for wire::TxnRequest {
    type Answer = wire::TxnResponse;
    const IS_REPEATABLE: bool = false;

    async fn send(request: Request<Self>, channel: Channel) -> Answered<Self::Answer> {
        let client = wire::kv_client::KvClient::new(channel);
        let mut client = client.max_decoding_message_size(ANSWER_BYTES_MAX);
        client.txn(request).await
    }
}
