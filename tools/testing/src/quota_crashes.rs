//! A quota server that is killed under load, again and again, while its callers keep the books: how
//! many tokens each bucket has granted, and when.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use redis::{Client, Connection, RedisResult};
use tempfile::TempDir;

use crate::process::{FREE, Process, until, until_true};

/// More than a test takes.
pub const MAX: u64 = 1_000_000;
/// In seconds: no refill happens in a test.
const EVERY_S: u64 = 100_000_000;
const CALLERS: usize = 8;
/// On average, one kill out of this many hits a server that is opening its store.
const KILLS_PER_EARLY_KILL: u64 = 5;

/// A quota server, its data, and the books of its callers.
pub struct Crashes {
    data: TempDir,
    durability: String,
    /// Debits of this time may be lost.
    loses: Duration,
    books: Vec<Book>,
    rng: SmallRng,
    pub totals: Totals,
}

/// Tokens of a bucket when the server last started, and demands since.
#[derive(Default)]
struct Book {
    had: u64,
    asked: AtomicU64,
    /// Times of the grants.
    granted: Mutex<Vec<Instant>>,
}

/// Sums over all crashes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    pub kills: u64,
    pub granted: u64,
    /// Tokens that were granted before a kill and exist again after it.
    pub over_granted: u64,
    /// Tokens granted within the durability's time before a kill: as many may be granted twice.
    pub allowed: u64,
    /// Excess over this number, in any bucket at any kill.
    pub beyond: u64,
    /// Tokens taken without a reply to their caller.
    pub unanswered: u64,
    /// Maximum time from the start of a process to its listening sockets.
    pub slowest_start: Duration,
}

impl Crashes {
    pub fn new(durability: &str, loses: Duration, buckets: usize, seed: u64) -> Self {
        let books = (0..buckets)
            .map(|_| Book {
                had: MAX,
                ..Book::default()
            })
            .collect();
        Self {
            data: tempfile::tempdir().unwrap(),
            durability: durability.to_owned(),
            loses,
            books,
            rng: SmallRng::seed_from_u64(seed),
            totals: Totals::default(),
        }
    }

    /// Starts the server, loads it, and kills it after about as many grants as given.
    pub fn crash(&mut self, grants: u64) {
        if self.rng.random_range(0..KILLS_PER_EARLY_KILL) == 0 {
            self.kill_while_opening();
        }
        let mut server = self.open();
        let wanted = self.rng.random_range(1..=2 * grants);
        let granted = AtomicU64::new(0);
        let address = server.address("listen");
        let seeds: [u64; CALLERS] = std::array::from_fn(|_| self.rng.random());
        let killed = thread::scope(|scope| {
            for seed in seeds {
                let (books, granted) = (&self.books, &granted);
                scope.spawn(move || call(address, books, granted, seed));
            }
            until_true("the grants before a kill", || {
                granted.load(Ordering::Relaxed) >= wanted
            });
            let killed = Instant::now();
            server.kill_9();
            killed
        });
        self.totals.kills += 1;
        self.audit(killed);
    }

    /// Starts the server, compares each bucket with its book, and begins new books.
    fn audit(&mut self, killed: Instant) {
        let server = self.open();
        let left = left(&server, self.books.len());
        let lost_from = killed.checked_sub(self.loses).unwrap();
        for (at, (book, left)) in self.books.iter_mut().zip(left).enumerate() {
            let granted = std::mem::take(book.granted.get_mut().unwrap());
            let may_be_lost = granted.iter().filter(|when| **when >= lost_from).count() as u64;
            let (granted, asked) = (granted.len() as u64, std::mem::take(book.asked.get_mut()));
            assert!(
                book.had.saturating_sub(asked) <= left && left <= book.had,
                "bucket {at} had {}, was asked for {asked}, and has {left}",
                book.had
            );
            let over = left.saturating_sub(book.had - granted);
            self.totals.granted += granted;
            self.totals.over_granted += over;
            self.totals.allowed += may_be_lost;
            self.totals.beyond += over.saturating_sub(may_be_lost);
            self.totals.unanswered += (book.had - granted).saturating_sub(left);
            book.had = left;
        }
    }

    /// Kills a server as soon as it has opened a file of its store.
    fn kill_while_opening(&mut self) {
        let mut server = Process::spawn(&self.arguments());
        let folder = PathBuf::from(format!("/proc/{}/fd", server.id()));
        until("a file of the store to be open", || {
            let mut open = fs::read_dir(&folder)
                .ok()?
                .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
            open.any(|path| path.starts_with(self.data.path()))
                .then_some(())
        });
        server.kill_9();
    }

    fn open(&mut self) -> Process {
        let began = Instant::now();
        let server = Process::start(&self.arguments());
        self.totals.slowest_start = self.totals.slowest_start.max(began.elapsed());
        server
    }

    fn arguments(&self) -> Vec<String> {
        arguments(
            &self.data.path().join("data"),
            &["--durability", &self.durability],
        )
    }
}

/// Returns the arguments of a quota server on free ports.
pub fn arguments(data: &Path, flags: &[&str]) -> Vec<String> {
    let data = data.display().to_string();
    let fixed = ["quota", "--data", &data];
    let all = fixed.iter().chain(&FREE).chain(flags);
    all.map(ToString::to_string).collect()
}

pub fn connect(address: SocketAddr) -> Connection {
    Client::open(format!("redis://{address}"))
        .unwrap()
        .get_connection()
        .unwrap()
}

/// Takes one token of a bucket, and returns the tokens before.
pub fn take(connection: &mut Connection, bucket: usize) -> RedisResult<u64> {
    redis::cmd("RL.REDUCE")
        .arg(name(bucket))
        .arg(MAX)
        .arg(EVERY_S)
        .query(connection)
}

fn left(server: &Process, buckets: usize) -> Vec<u64> {
    let mut connection = connect(server.address("listen"));
    // The disk may be slower than the deadline.
    (0..buckets)
        .map(|bucket| {
            until("a bucket to be read", || {
                left_in(&mut connection, bucket).ok()
            })
        })
        .collect()
}

pub fn left_in(connection: &mut Connection, bucket: usize) -> RedisResult<u64> {
    redis::cmd("RL.GET")
        .arg(name(bucket))
        .arg(MAX)
        .arg(EVERY_S)
        .query(connection)
}

/// Returns the tokens taken from buckets that are not full, by bucket.
pub fn taken(server: &Process, buckets: usize) -> BTreeMap<usize, u64> {
    let left = left(server, buckets).into_iter().enumerate();
    left.filter(|(_, left)| *left < MAX)
        .map(|(bucket, left)| (bucket, MAX - left))
        .collect()
}

fn name(bucket: usize) -> String {
    format!("{{tenant-{bucket}}}:api")
}

/// Takes tokens of random buckets until the server dies.
fn call(address: SocketAddr, books: &[Book], granted: &AtomicU64, seed: u64) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut connection = connect(address);
    loop {
        let bucket = rng.random_range(0..books.len());
        let book = &books[bucket];
        book.asked.fetch_add(1, Ordering::Relaxed);
        match take(&mut connection, bucket) {
            Ok(before) => {
                assert!(before >= 1, "a bucket of {MAX} tokens is empty");
                book.granted.lock().unwrap().push(Instant::now());
                granted.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) if error.is_io_error() => return,
            // The disk was slower than the deadline: nothing was granted.
            Err(error) if error.code() == Some("UNAVAILABLE") => {}
            Err(error) => panic!("{error}"),
        }
    }
}
