//! The search for the parent among its addresses. One pass tries each of them, until one answers the greeting.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;

use http::Uri;
use plimsoll_core::exchange::backoff::Backoff;
use tokio::net::lookup_host;
use tokio::time::{Duration, Instant};

use super::observer::StreamError;
use super::stream::{ANSWER_MAX, answered};
use crate::transport::{Dial, ParentList};

/// Maximum number of candidates of a pass. Each name has an equal part of them.
const CANDIDATES_MAX: usize = 32;
/// Maximum time of each step of the opening of a stream to one member of a group: a member that hangs must not keep the
/// child from the leader.
const MEMBER_ANSWER_MAX: Duration = Duration::from_secs(3);
/// Maximum time for which a member that did not answer in time is left out.
const REST_MAX: Duration = Duration::from_secs(10);

/// One address of a parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    /// The position of its name in the list.
    dial: usize,
    pub(super) address: SocketAddr,
    /// Maximum time of each step of the opening of a stream.
    pub(super) answer_max: Duration,
}

enum Untried {
    Name(usize),
    Address(Candidate),
}

pub(super) struct Search<'a> {
    pub(super) parents: &'a ParentList,
    /// The position of the name that the next pass begins with.
    first: usize,
    untried: VecDeque<Untried>,
    /// The failures of this pass, the last one of each name.
    failures: BTreeMap<usize, StreamError>,
    /// A candidate of this pass does not lead.
    is_electing: bool,
    /// The earliest time at which a candidate of this pass may be tried again.
    earliest: Option<Instant>,
    /// The parent is one of several controllers.
    is_group: bool,
    has_logged_foreign: bool,
    /// The end of the rest of candidates that asked for one, or did not answer in time.
    resting: HashMap<SocketAddr, Instant>,
    backoff: Backoff,
}

impl<'a> Search<'a> {
    pub(super) fn new(parents: &'a ParentList) -> Self {
        Self {
            parents,
            first: 0,
            untried: VecDeque::new(),
            failures: BTreeMap::new(),
            is_electing: false,
            earliest: None,
            is_group: parents.dials().len() > 1,
            has_logged_foreign: false,
            resting: HashMap::new(),
            backoff: Backoff::default(),
        }
    }

    pub(super) fn dial(&self, candidate: Candidate) -> &'a Dial {
        &self.parents.dials()[candidate.dial]
    }

    /// Begins a pass over all candidates.
    pub(super) fn begin(&mut self) {
        let names = self.parents.dials().len();
        let each = (0..names).map(|number| Untried::Name((self.first + number) % names));
        self.untried = each.collect();
        self.end_pass();
        let now = Instant::now();
        self.resting.retain(|_, until| *until > now);
    }

    /// Returns the next candidate, and `None` after the last one of the pass. Each name is resolved when it is its turn.
    pub(super) async fn next(&mut self) -> Option<Candidate> {
        loop {
            match self.untried.pop_front()? {
                Untried::Name(dial) => match self.resolve(dial).await {
                    Ok(found) => {
                        let found = found.into_iter().rev().map(Untried::Address);
                        found.for_each(|candidate| self.untried.push_front(candidate));
                    }
                    Err(error) => {
                        self.note_retry(Instant::now());
                        self.failures.insert(dial, error);
                    }
                },
                Untried::Address(candidate) => match self.resting.get(&candidate.address) {
                    Some(until) if *until > Instant::now() => self.note_retry(*until),
                    _ => return Some(candidate),
                },
            }
        }
    }

    async fn resolve(&self, dial: usize) -> Result<Vec<Candidate>, StreamError> {
        let names = self.parents.dials();
        let answer_max = if self.is_group {
            MEMBER_ANSWER_MAX
        } else {
            ANSWER_MAX
        };
        let authority = names[dial].authority();
        let found = answered(answer_max, async { Ok(lookup_host(authority).await?) }).await?;
        let found: Vec<_> = found
            .take(CANDIDATES_MAX / names.len())
            .map(|address| Candidate {
                dial,
                address,
                answer_max,
            })
            .collect();
        if found.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the host has no address").into());
        }
        Ok(found)
    }

    /// Takes the first message of a parent. The pass after the loss of its stream begins with the next name.
    pub(super) fn on_connected(&mut self, candidate: Candidate) {
        self.first = (candidate.dial + 1) % self.parents.dials().len();
        self.backoff.reset();
        self.end_pass();
    }

    /// Takes the end of a stream, or of an attempt to open it. `was_connected` is true if the parent had sent a message.
    pub(super) fn on_failure(
        &mut self,
        candidate: Candidate,
        error: StreamError,
        was_connected: bool,
        draw: u32,
    ) {
        if let Some(leader) = error.leader() {
            (self.is_electing, self.is_group) = (true, true);
            self.follow(leader);
        }
        let rest = match error.asked_wait() {
            Some(asked) => Some(self.backoff.next_wait_after(asked, draw)),
            // Random, so that the children of a busy leader do not return together.
            None if self.is_group && !was_connected && error.is_late() => {
                Some(REST_MAX.mul_f64(0.5 + share(draw) / 2.0))
            }
            None => None,
        };
        let until = Instant::now() + rest.unwrap_or_default();
        self.note_retry(until);
        if rest.is_some() && self.resting.len() < CANDIDATES_MAX {
            self.resting.insert(candidate.address, until);
        }
        self.failures.insert(candidate.dial, error);
    }

    /// Tries the leader next that a standby names, or first in the next pass if it was tried in this one.
    fn follow(&mut self, leader: &str) {
        let Ok(uri) = leader.parse::<Uri>() else {
            return;
        };
        let authority = uri
            .authority()
            .map(|name| name.as_str().to_ascii_lowercase());
        let Some(leader) = authority.and_then(|name| self.parents.position(&name)) else {
            if !std::mem::replace(&mut self.has_logged_foreign, true) {
                tracing::debug!(%uri, "a standby names a leader that is none of the addresses of the parent");
            }
            return;
        };
        let is_leader =
            |untried: &Untried| matches!(untried, Untried::Name(name) if *name == leader);
        match self.untried.iter().position(is_leader) {
            Some(at) => {
                self.untried.remove(at);
                self.untried.push_front(Untried::Name(leader));
            }
            None => self.first = leader,
        }
    }

    /// Returns the failures of the pass, with the name of each candidate.
    pub(super) fn take_failures(
        &mut self,
    ) -> impl Iterator<Item = (String, StreamError)> + use<'a> {
        let names = self.parents.dials();
        let failures = std::mem::take(&mut self.failures).into_iter();
        failures.map(|(dial, error)| (names[dial].authority(), error))
    }

    /// Returns the wait before the next pass.
    pub(super) fn wait(&mut self, draw: u32) -> Duration {
        let rest = self.earliest.map(|earliest| earliest - Instant::now());
        match rest {
            _ if self.is_electing => self.backoff.next_wait_in_election(draw),
            Some(rest) if !rest.is_zero() => rest,
            _ => self.backoff.next_wait(draw),
        }
    }

    /// Lets candidates be tried again before their rest is over.
    pub(super) fn end_rests(&mut self) {
        self.resting.clear();
    }

    fn end_pass(&mut self) {
        self.failures.clear();
        self.is_electing = false;
        self.earliest = None;
    }

    fn note_retry(&mut self, at: Instant) {
        self.earliest = Some(self.earliest.map_or(at, |earliest| earliest.min(at)));
    }
}

/// Returns a draw as a number from 0 to 1.
pub(super) fn share(draw: u32) -> f64 {
    f64::from(draw) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use plimsoll_core::exchange::backoff::{ELECTION, FIRST};
    use tokio::time::advance;
    use tonic::Status;

    use super::*;
    use crate::driver::{LEADER_METADATA, RETRY_METADATA};
    use crate::transport::Security;

    fn parents(ports: &[u16]) -> ParentList {
        let security = Security::Plain { anywhere: false };
        let dial = |port| Dial::new(&format!("http://127.0.0.1:{port}"), &security).unwrap();
        ParentList::new(ports.iter().map(dial).collect()).unwrap()
    }

    fn refused() -> StreamError {
        io::Error::from(io::ErrorKind::ConnectionRefused).into()
    }

    fn closed(name: &'static str, value: &str) -> StreamError {
        let mut status = Status::unavailable("");
        status.metadata_mut().insert(name, value.parse().unwrap());
        StreamError::Closed(Box::new(status))
    }

    fn standby(leader: &str) -> StreamError {
        closed(LEADER_METADATA, leader)
    }

    fn asks(wait: &str) -> StreamError {
        closed(RETRY_METADATA, wait)
    }

    /// Makes a pass in which each candidate fails, by its port, and returns the ports in order.
    async fn pass(search: &mut Search<'_>, fail: impl Fn(u16) -> StreamError) -> Vec<u16> {
        let mut tried = Vec::new();
        search.begin();
        while let Some(candidate) = search.next().await {
            let port = candidate.address.port();
            tried.push(port);
            search.on_failure(candidate, fail(port), false, u32::MAX);
        }
        tried
    }

    #[tokio::test(start_paused = true)]
    async fn sole_candidate_waits_as_asked() {
        let parents = parents(&[1]);
        let mut search = Search::new(&parents);
        for (failure, secs) in [
            (refused(), 0.5),
            (StreamError::Silent(ANSWER_MAX), 1.0),
            (asks("7000"), 9.0),
            (refused(), 4.0),
        ] {
            search.begin();
            let candidate = search.next().await.unwrap();
            assert_eq!(candidate.answer_max, ANSWER_MAX);
            search.on_failure(candidate, failure, false, u32::MAX);
            assert!(search.next().await.is_none());
            assert_eq!(search.take_failures().count(), 1);
            let wait = search.wait(u32::MAX);
            assert_eq!(wait, Duration::from_secs_f64(secs));
            advance(wait).await;
        }
        // A renewed certificate ends the rest.
        assert_eq!(pass(&mut search, |_| asks("7000")).await, [1]);
        assert!(pass(&mut search, |_| refused()).await.is_empty());
        search.end_rests();
        assert_eq!(pass(&mut search, |_| refused()).await, [1]);
    }

    #[tokio::test(start_paused = true)]
    async fn hint_in_the_list_is_tried_next() {
        let parents = parents(&[1, 2, 3, 4]);
        for (hint, expected, next) in [
            ("http://127.0.0.1:4", [1, 2, 4, 3], 1),
            ("https://127.0.0.1:3/", [1, 2, 3, 4], 1),
            // Tried already: the next pass begins with it.
            ("http://127.0.0.1:1", [1, 2, 3, 4], 1),
            ("http://127.0.0.1:2", [1, 2, 3, 4], 2),
            ("http://127.0.0.1:5", [1, 2, 3, 4], 1),
            ("", [1, 2, 3, 4], 1),
            ("no url", [1, 2, 3, 4], 1),
        ] {
            let mut search = Search::new(&parents);
            let fail = |port| match port {
                2 => standby(hint),
                _ => refused(),
            };
            assert_eq!(pass(&mut search, fail).await, expected, "{hint}");
            assert_eq!(search.take_failures().count(), 4);
            assert_eq!(search.wait(u32::MAX), FIRST);
            assert_eq!(pass(&mut search, fail).await[0], next, "{hint}");
            assert_eq!(search.wait(u32::MAX), ELECTION);
            assert_eq!(pass(&mut search, fail).await.len(), 4);
            assert_eq!(search.wait(u32::MAX), ELECTION, "no 2 s");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn pass_after_a_loss_begins_with_the_next() {
        let parents = parents(&[1, 2, 3]);
        let mut search = Search::new(&parents);
        pass(&mut search, |_| refused()).await;
        search.begin();
        search.next().await;
        let second = search.next().await.unwrap();
        search.on_connected(second);
        search.on_failure(second, StreamError::Ended, true, 0);
        assert_eq!(search.take_failures().count(), 1);
        assert_eq!(search.wait(u32::MAX), FIRST);
        assert_eq!(pass(&mut search, |_| refused()).await, [3, 1, 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn standby_reveals_a_group() {
        let parents = parents(&[1]);
        let mut search = Search::new(&parents);
        for (failure, longest) in [
            (refused(), ANSWER_MAX),
            (standby(""), ANSWER_MAX),
            (refused(), MEMBER_ANSWER_MAX),
        ] {
            search.begin();
            let candidate = search.next().await.unwrap();
            assert_eq!(candidate.answer_max, longest);
            search.on_failure(candidate, failure, false, 0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn busy_and_late_members_rest() {
        let parents = parents(&[1, 2, 3]);
        let mut search = Search::new(&parents);
        let fail = |port| match port {
            1 => asks("7000"),
            2 => StreamError::Silent(MEMBER_ANSWER_MAX),
            _ => standby(""),
        };
        assert_eq!(pass(&mut search, fail).await, [1, 2, 3]);
        for expected in [&[3][..], &[1, 3], &[2, 3]] {
            assert_eq!(pass(&mut search, fail).await, expected);
            assert!(search.wait(u32::MAX) <= ELECTION);
            advance(Duration::from_millis(7_900)).await;
        }
        // Without another one, the earliest end of a rest is awaited.
        search.end_rests();
        pass(&mut search, |port| asks(&format!("{port}000"))).await;
        let wait = search.wait(0);
        assert!(
            wait > Duration::from_secs(1) && wait <= Duration::from_secs(3),
            "{wait:?}"
        );
    }
}
