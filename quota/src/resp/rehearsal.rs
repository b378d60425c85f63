//! A connection without sockets and buckets, for fuzz targets that try any bytes of a client.

use std::net::SocketAddr;

use bytes::{Buf, BytesMut};
use plimsoll_admin::access::Access;
use plimsoll_core::quota::QuotaTime;

use super::batch::{Batch, End, Rules};
use super::session::Session;
use crate::leases::Leases;

/// Connection that answers all operations as unavailable.
#[derive(Debug)]
pub struct Rehearsal {
    session: Session,
    access: Access,
    leases: Leases,
    input: BytesMut,
    output: BytesMut,
    is_open: bool,
}

impl Rehearsal {
    /// Begins a connection of a client that may have to authenticate first.
    #[must_use]
    pub fn new(needs_token: bool) -> Self {
        Self {
            session: Session::new(1, SocketAddr::from(([127, 0, 0, 1], 0)), needs_token),
            access: Access::default(),
            leases: Leases::default(),
            input: BytesMut::new(),
            output: BytesMut::new(),
            is_open: true,
        }
    }

    /// Adds bytes from the client, and returns true while the connection is open.
    pub fn feed(&mut self, bytes: &[u8]) -> bool {
        self.input.extend_from_slice(bytes);
        while self.is_open {
            let rules = Rules {
                access: &self.access,
                leases: &self.leases,
                time: QuotaTime::default(),
                at_ahead_max_ms: u64::MAX,
            };
            let batch = Batch::read(&self.input, &mut self.session, rules);
            let (length, end) = (batch.length, batch.end);
            batch.reply(&[], &mut self.output);
            self.input.advance(length);
            self.is_open = end != End::Close;
            if end == End::NeedsInput {
                break;
            }
        }
        self.is_open
    }

    /// Returns the replies so far.
    #[must_use]
    pub fn replies(&self) -> &[u8] {
        &self.output
    }

    /// Returns the number of bytes that wait for the rest of their command.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.input.len()
    }
}
