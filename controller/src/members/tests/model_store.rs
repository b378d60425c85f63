//! A store as the members see it: keys with revisions, leases, and transactions that hold as a whole or not at all.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_etcd::{KeyValue, LeaseId};
use plimsoll_policy::PolicyTexts;

use super::super::kill_orders::StoredOrder;
use super::Ms;
use crate::state::DurableState;

/// A request of a member.
#[derive(Clone, Debug)]
pub(super) enum Ask {
    Grant,
    KeepAlive(LeaseId),
    Campaign(LeaseId),
    Look,
    Resign(u64),
    Open,
    Save(Box<Save>),
    List,
    Delete(u64, Vec<u64>),
    Append(StoredOrder),
}

/// A write of the state, as `EtcdStore::save` makes it.
#[derive(Clone, Debug)]
pub(super) struct Save {
    pub(super) lead: u64,
    /// The revision of the state that it follows.
    pub(super) after: u64,
    pub(super) durable: DurableState,
    /// Written only if it differs from the policy that the member has read or written before.
    pub(super) policy: Option<Option<Arc<PolicyTexts>>>,
}

/// The state with its policy, and the revision of its last write.
#[derive(Clone, Debug, Default)]
pub(super) struct Stored {
    pub(super) durable: Option<DurableState>,
    pub(super) revision: u64,
}

#[derive(Clone, Debug)]
pub(super) enum Answer {
    Lease(LeaseId),
    NoLease,
    Elected(u64),
    Leader(Option<KeyValue>),
    Opened(Box<Stored>),
    Saved(u64),
    /// The guards of a save did not hold; another member may lead.
    Refused(Option<u64>),
    Orders(Vec<(u64, StoredOrder)>),
    Done,
}

#[derive(Debug, Default)]
pub(super) struct ModelStore {
    revision: u64,
    leases: BTreeMap<i64, Ms>,
    leader: Option<KeyValue>,
    pub(super) stored: Stored,
    orders: BTreeMap<u64, StoredOrder>,
}

impl ModelStore {
    /// The revision at which the key of the leader was created.
    pub(super) fn lead(&self) -> Option<u64> {
        self.leader.as_ref().map(|key| key.created_revision)
    }

    pub(super) fn orders(&self) -> impl Iterator<Item = &StoredOrder> {
        self.orders.values()
    }

    pub(super) fn expire(&mut self, now: Ms) {
        self.leases.retain(|_, until| *until > now);
        let leases = &self.leases;
        self.leader
            .take_if(|key| key.lease.is_none_or(|lease| !leases.contains_key(&lease.0)));
    }

    pub(super) fn apply(&mut self, now: Ms, ttl: Ms, ask: Ask) -> Answer {
        self.expire(now);
        match ask {
            Ask::Grant => {
                self.revision += 1;
                let id = LeaseId(self.revision as i64);
                self.leases.insert(id.0, now + ttl);
                Answer::Lease(id)
            }
            Ask::KeepAlive(id) => match self.leases.get_mut(&id.0) {
                Some(until) => {
                    *until = now + ttl;
                    Answer::Lease(id)
                }
                None => Answer::NoLease,
            },
            Ask::Campaign(lease) => {
                if self.leader.is_some() || !self.leases.contains_key(&lease.0) {
                    return Answer::Leader(self.leader.clone());
                }
                self.revision += 1;
                self.leader = Some(KeyValue {
                    key: Default::default(),
                    value: Default::default(),
                    created_revision: self.revision,
                    modified_revision: self.revision,
                    lease: Some(lease),
                });
                Answer::Elected(self.revision)
            }
            Ask::Look => Answer::Leader(self.leader.clone()),
            Ask::Resign(lead) => {
                self.leader.take_if(|key| key.created_revision == lead);
                Answer::Done
            }
            Ask::Open => Answer::Opened(Box::new(self.stored.clone())),
            Ask::Save(save) => self.save(*save),
            Ask::List => Answer::Orders(self.orders.clone().into_iter().collect()),
            Ask::Delete(lead, keys) => {
                if self.lead() == Some(lead) {
                    keys.iter().for_each(|key| drop(self.orders.remove(key)));
                }
                Answer::Done
            }
            Ask::Append(order) => {
                self.revision += 1;
                self.orders.insert(self.revision, order);
                Answer::Done
            }
        }
    }

    fn save(&mut self, save: Save) -> Answer {
        let is_next = save.after == self.stored.revision || super::is_without("state guard");
        let leads = self.lead() == Some(save.lead) || super::is_without("lead guard");
        if !is_next || !leads {
            return Answer::Refused(self.lead());
        }
        self.revision += 1;
        let policy = match save.policy {
            Some(policy) => policy,
            None => self
                .stored
                .durable
                .as_ref()
                .and_then(|durable| durable.policy.clone()),
        };
        self.stored = Stored {
            durable: Some(DurableState {
                policy,
                ..save.durable
            }),
            revision: self.revision,
        };
        Answer::Saved(self.revision)
    }
}
