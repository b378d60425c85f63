//! The figures of one aggregator and its clients, for the lines of output.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::args::Target;
use super::client::Clients;
use super::kills::KillFigures;
use super::process;
use super::propagation::PropagationFigures;

pub(super) struct Watched {
    pub(super) target: Target,
    pub(super) clients: Arc<Clients>,
    pid: Option<u32>,
    /// Bytes up and down at the last line.
    bytes: (u64, u64),
    /// Processor time of the aggregator at the last line.
    processor_time: Option<Duration>,
}

#[derive(Debug, Serialize)]
pub(super) struct Figures {
    aggregator: String,
    streams: usize,
    connected: usize,
    /// Streams that ended after they were open.
    lost: u64,
    storms: u64,
    /// Seconds until all clients were connected again in the latest storm; null if they are not
    /// yet.
    storm_s: Option<f64>,
    asked: u64,
    admitted: u64,
    decision: PropagationFigures,
    kill: KillFigures,
    up_bytes_per_client_s: f64,
    down_bytes_per_client_s: f64,
    /// Processors in use since the last line; null without a process id.
    cores: Option<f64>,
    processor_s: Option<f64>,
    resident_bytes: Option<u64>,
}

impl Watched {
    pub(super) fn new(target: &Target, pid: Option<u32>) -> Self {
        let processor_time = pid.and_then(process::processor_time);
        Self {
            target: target.clone(),
            clients: Arc::default(),
            pid,
            bytes: (0, 0),
            processor_time,
        }
    }

    pub(super) fn figures(&mut self, now: Instant, span: Duration) -> Figures {
        let clients = &self.clients;
        let connected = clients.connected.load(Ordering::Relaxed);
        let traffic = &clients.traffic;
        let bytes = (
            traffic.up.load(Ordering::Relaxed),
            traffic.down.load(Ordering::Relaxed),
        );
        let rate = |now: u64, before: u64| {
            (now - before) as f64 / span.as_secs_f64() / connected.max(1) as f64
        };
        let (storms, storm_took) = clients.storm.figures();
        let processor_time = self.pid.and_then(process::processor_time);
        let used = processor_time
            .zip(self.processor_time)
            .and_then(|(now, before)| now.checked_sub(before));
        let figures = Figures {
            aggregator: self.target.url.clone(),
            streams: self.target.streams,
            connected,
            lost: clients.lost.load(Ordering::Relaxed),
            storms,
            storm_s: storm_took.map(|took| took.as_secs_f64()),
            asked: clients.asked.load(Ordering::Relaxed),
            admitted: clients.admitted.load(Ordering::Relaxed),
            decision: clients.propagation.figures(now, connected),
            kill: clients.kills.figures(),
            up_bytes_per_client_s: rate(bytes.0, self.bytes.0),
            down_bytes_per_client_s: rate(bytes.1, self.bytes.1),
            cores: used.map(|used| used.as_secs_f64() / span.as_secs_f64()),
            processor_s: processor_time.map(|used| used.as_secs_f64()),
            resident_bytes: self.pid.and_then(process::resident_bytes),
        };
        (self.bytes, self.processor_time) = (bytes, processor_time);
        figures
    }
}
