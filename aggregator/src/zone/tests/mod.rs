//! The zone between scripted clients and a scripted controller.

mod bounds;
mod evidence;
mod fast_loop;
mod headroom;
mod hold;
mod kills;
mod peers;
mod relay;
mod scripted;
mod stacked;
mod tree;

use std::time::Duration;

use plimsoll_core::directive::{Board, Directives, Entitlement, Epoch, StaleDirective};
use plimsoll_core::exchange::{Child, Parent, StreamId, StreamRejected};
use plimsoll_core::law::Parameters;
use plimsoll_core::names::{Bucket, Key, Tenant};
use plimsoll_core::quantity::{DropRatio, MonoTime, Rate};
use plimsoll_core::report::{Echo, Evidence, Identity, InstanceId, Report, Role};

use super::*;
use crate::schedule::report_interval::Load;
use scripted::{
    Client, Scene, Script, aggregator, answered, entitled, identity, per_second, ratio_of, zone,
};

fn at(ms: u64) -> MonoTime {
    MonoTime::from_elapsed(Duration::from_millis(ms))
}

fn bucket() -> Bucket {
    Bucket::new("api").unwrap()
}

fn tenant(name: &str) -> Tenant {
    Tenant::new(name).unwrap()
}
