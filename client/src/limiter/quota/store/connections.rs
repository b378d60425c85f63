//! The connections to a store: a few, each shared by all requests, made when they are needed.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::{ClusterClient, ClusterClientBuilder};
use redis::cluster_async::ClusterConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind,
    IntoConnectionInfo, RedisConnectionInfo, RedisError, RedisResult, ServerErrorKind, Value,
};

use super::Failure;
use super::hint::hint;
use crate::hot::sync::lock;
use crate::limiter::quota::config::{QuotaStore, QuotaStoreError, StoreKind};

/// The connections to one server. Redis Cluster has this number to each node.
const CONNECTIONS: usize = 2;
pub(crate) const CONNECT_MAX: Duration = Duration::from_secs(1);
/// Maximum time that a connection waits for a reply, also after the request has stopped waiting.
pub(crate) const LATE_MAX: Duration = Duration::from_secs(2);
const FAULT_CHARS_MAX: usize = 200;
/// The retries of Redis Cluster, for keys that have moved.
const CLUSTER_RETRIES: u32 = 2;

pub(crate) struct Connections {
    config: QuotaStore,
    slots: [Slot; CONNECTIONS],
    next: AtomicUsize,
    /// The last error since the last answer.
    fault: Mutex<Option<String>>,
}

/// A place for one connection: the number of connections made so far, and the last one while it is open. Locked while
/// one is made, so that there is one at a time.
#[derive(Default)]
struct Slot(tokio::sync::Mutex<(u64, Option<Connection>)>);

#[derive(Clone)]
enum Connection {
    One(MultiplexedConnection),
    Cluster(Box<ClusterConnection>),
}

impl Connections {
    pub(super) fn new(config: QuotaStore) -> Result<Self, QuotaStoreError> {
        config.check()?;
        if config.is_tls {
            ensure_provider();
        }
        Ok(Self {
            config,
            slots: Default::default(),
            next: AtomicUsize::new(0),
            fault: Mutex::default(),
        })
    }

    pub(super) fn is_cluster(&self) -> bool {
        self.config.kind == StoreKind::Cluster
    }

    /// Runs `command(false)`, which names the script by its hash; if the server does not know it, `command(true)`, which
    /// has its text.
    pub(super) async fn run(&self, command: impl Fn(bool) -> Cmd) -> Result<Value, Failure> {
        let at = self.next.fetch_add(1, Ordering::Relaxed) % CONNECTIONS;
        let slot = &self.slots[at];
        let (number, mut connection) = self.connected(slot).await?;
        let mut result = connection.run(&command(false)).await;
        if let Err(error) = &result
            && error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
        {
            result = connection.run(&command(true)).await;
        }
        match result {
            Ok(value) => {
                *lock(&self.fault) = None;
                Ok(value)
            }
            Err(error) => {
                if !self.is_cluster() && is_broken(&error) {
                    slot.close(number).await;
                }
                Err(self.failed(&error))
            }
        }
    }

    pub(super) async fn connect(&self) -> Result<(), Failure> {
        for slot in &self.slots {
            self.connected(slot).await?;
        }
        Ok(())
    }

    pub(super) fn fault(&self) -> Option<String> {
        lock(&self.fault).clone()
    }

    async fn connected(&self, slot: &Slot) -> Result<(u64, Connection), Failure> {
        slot.get(&self.config)
            .await
            .map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &RedisError) -> Failure {
        tracing::debug!(store = %self.config, %error, "quota store failed");
        let mut text: String = error.to_string().chars().take(FAULT_CHARS_MAX).collect();
        if let Some(hint) = hint(self.config.kind, &text) {
            text = format!("{hint} ({text})");
        }
        *lock(&self.fault) = Some(text);
        failure(error)
    }

    pub(super) async fn close(&self) {
        for Slot(slot) in &self.slots {
            slot.lock().await.1 = None;
        }
    }
}

impl Slot {
    async fn get(&self, config: &QuotaStore) -> RedisResult<(u64, Connection)> {
        let mut slot = self.0.lock().await;
        let (number, open) = &mut *slot;
        if let Some(open) = open {
            return Ok((*number, open.clone()));
        }
        let connection = connect(config).await?;
        *number += 1;
        *open = Some(connection.clone());
        Ok((*number, connection))
    }

    /// Closes this connection, unless another has taken its place.
    async fn close(&self, number: u64) {
        let mut slot = self.0.lock().await;
        if slot.0 == number {
            slot.1 = None;
        }
    }
}

impl Connection {
    async fn run(&mut self, command: &Cmd) -> RedisResult<Value> {
        match self {
            Self::One(connection) => connection
                .req_packed_command(command)
                .await?
                .extract_error(),
            Self::Cluster(connection) => connection
                .req_packed_command(command)
                .await?
                .extract_error(),
        }
    }
}

async fn connect(config: &QuotaStore) -> RedisResult<Connection> {
    let config = Arc::new(config.clone());
    // The password file may be on a slow disk.
    let files = Arc::clone(&config);
    let files = tokio::task::spawn_blocking(move || Ok((files.password()?, files.authorities()?)));
    let files: Result<_, QuotaStoreError> = files.await.map_err(std::io::Error::other)?;
    let (password, authorities) = files.map_err(std::io::Error::other)?;

    let mut redis = RedisConnectionInfo::default()
        .set_db(config.db)
        .set_lib_name("plimsoll", env!("CARGO_PKG_VERSION"));
    if let Some(username) = &config.username {
        redis = redis.set_username(username);
    }
    if let Some(password) = &password {
        redis = redis.set_password(password);
    }
    let settings = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT_MAX))
        .set_response_timeout(Some(LATE_MAX));
    let nodes = config
        .hosts
        .iter()
        .map(|(host, port)| address(&config, host, *port));
    match config.kind {
        StoreKind::Server | StoreKind::Redis => {
            let address = nodes
                .into_iter()
                .next()
                .ok_or((ErrorKind::InvalidClientConfig, "no host"))?;
            let info = address.into_connection_info()?.set_redis_settings(redis);
            let client = client(info, authorities)?;
            client
                .get_multiplexed_async_connection_with_config(&settings)
                .await
                .map(Connection::One)
        }
        StoreKind::Cluster => {
            let client = cluster(
                ClusterClient::builder(nodes),
                &config,
                password,
                authorities,
            )?;
            client
                .get_async_connection()
                .await
                .map(|connection| Connection::Cluster(Box::new(connection)))
        }
    }
}

fn cluster(
    mut builder: ClusterClientBuilder,
    config: &QuotaStore,
    password: Option<String>,
    authorities: Option<Vec<u8>>,
) -> RedisResult<ClusterClient> {
    builder = builder
        .connection_timeout(CONNECT_MAX)
        .response_timeout(LATE_MAX)
        .retries(CLUSTER_RETRIES);
    if let Some(username) = &config.username {
        builder = builder.username(username);
    }
    if let Some(password) = password {
        builder = builder.password(password);
    }
    #[cfg(feature = "tls")]
    if config.is_tls {
        builder = builder.tls(redis::TlsMode::Secure);
        if let Some(root_cert) = authorities {
            builder = builder.certs(redis::TlsCertificates {
                client_tls: None,
                root_cert: Some(root_cert),
            });
        }
    }
    #[cfg(not(feature = "tls"))]
    drop(authorities);
    builder.build()
}

fn address(config: &QuotaStore, host: &str, port: u16) -> ConnectionAddr {
    let host = host.to_owned();
    if config.is_tls {
        return ConnectionAddr::TcpTls {
            host,
            port,
            insecure: false,
            tls_params: None,
        };
    }
    ConnectionAddr::Tcp(host, port)
}

#[cfg(feature = "tls")]
fn client(info: ConnectionInfo, authorities: Option<Vec<u8>>) -> RedisResult<Client> {
    match authorities {
        Some(root_cert) if matches!(info.addr(), ConnectionAddr::TcpTls { .. }) => {
            Client::build_with_tls(
                info,
                redis::TlsCertificates {
                    client_tls: None,
                    root_cert: Some(root_cert),
                },
            )
        }
        _ => Client::open(info),
    }
}

#[cfg(not(feature = "tls"))]
fn client(info: ConnectionInfo, _authorities: Option<Vec<u8>>) -> RedisResult<Client> {
    Client::open(info)
}

/// Sets the cryptography of the process where nothing has: the client of Redis uses the provider of the process.
fn ensure_provider() {
    #[cfg(feature = "tls")]
    if plimsoll_tls::rustls::crypto::CryptoProvider::get_default().is_none() {
        // Another thread may have been first.
        let _ = plimsoll_tls::rustls::crypto::ring::default_provider().install_default();
    }
}

fn is_broken(error: &RedisError) -> bool {
    error.is_unrecoverable_error()
        // Also after the time limit of a command: the connection may be dead, while another one to the same server
        // answers.
        || error.is_io_error()
        // A primary that a failover has made a replica.
        || error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly)
}

fn failure(error: &RedisError) -> Failure {
    match error.code() {
        Some("UNAVAILABLE") => Failure::Unavailable,
        Some("BUSY" | "LOADING" | "CLUSTERDOWN" | "TRYAGAIN" | "MASTERDOWN" | "READONLY") => {
            Failure::Busy
        }
        Some(_) => Failure::Reply,
        None if error.is_timeout() => Failure::Timeout,
        None if error.is_io_error()
            || error.is_connection_dropped()
            || matches!(
                error.kind(),
                ErrorKind::ClusterConnectionNotFound | ErrorKind::AuthenticationFailed
            ) =>
        {
            Failure::Connection
        }
        None => Failure::Reply,
    }
}
