//! A process of several controllers: stands by until it is elected, leads until the store says otherwise, and stands by
//! again, without a restart.

use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_admin::security::Opened;
use plimsoll_core::exchange::PeerRole;
use plimsoll_etcd::Client;
use plimsoll_host::hostname;
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, interval, sleep};
use tokio_util::sync::CancellationToken;

use super::roster::{self, Roster};
use super::session::Session;
use super::standby;
use super::{Member, Membership, Part};
use crate::state::store::Claim;
use crate::state::store::etcd::EtcdStore;
use crate::tasks::policy_file::PolicyFiles;
use crate::tasks::{policy, unix_s};
use crate::{Args, Controller, Error, Listeners, random};

/// Between two looks at the own policy files, for their hash.
const FILES_EVERY: Duration = Duration::from_secs(5);
/// Delay before the next attempt to lead after one that failed.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The sockets of a member, which stay open while it changes between standby and leader.
struct Sockets {
    grpc: StdListener,
    admin: StdListener,
}

/// Runs a member until `shutdown` is cancelled.
///
/// # Errors
/// When it cannot start, or one of its servers fails.
pub(crate) async fn run(
    args: Args,
    client: Client,
    listeners: Listeners,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let sockets = Sockets {
        grpc: listeners.grpc.into_std()?,
        admin: listeners.admin.into_std()?,
    };
    let (listen, admin) = (sockets.grpc.local_addr()?, sockets.admin.local_addr()?);
    tracing::info!(%listen, %admin, "controller serves, as one of several");
    let args = Arc::new(args);
    let opening = Arc::clone(&args);
    let (claim, security) = spawn_blocking(move || {
        // A file that is not valid is an error now, and not at the first election.
        let (_, warnings) = opening.files().read()?;
        policy::log_warnings(&warnings, &[]);
        opening.events.receivers()?;
        let mut claim = Claim::default();
        claim.lock(&opening.state_dir)?;
        let security =
            opening
                .security
                .open(PeerRole::Controller, opening.listen, opening.admin, None)?;
        Ok::<_, Error>((claim, security))
    })
    .await??;
    // Held until the end: another process with this directory would write to the same audit log.
    let _claim = claim;
    let own = Member {
        address: advertised(&args, &security, listen),
        admin: advertised(&args, &security, admin),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        since_s: unix_s(),
        files: None,
        sought: false,
    };
    let id = format!("{:032x}", u128::from_be_bytes(random()?));
    let (parts, part) = watch::channel(Part::Standby { leader: None });
    let (describe, described) = watch::channel(own);
    let (rosters, roster) = watch::channel(Roster::default());
    let membership = Membership {
        client: client.clone(),
        own: describe.clone(),
        part,
        roster,
        resign: Arc::new(Notify::new()),
        deposed: Arc::new(Notify::new()),
    };
    let reading = tokio::spawn(roster::follow(client.clone(), rosters));
    let session = Session {
        client,
        id,
        ttl: args.store.lead_ttl,
        own: described,
        part: parts,
        resign: Arc::clone(&membership.resign),
        deposed: Arc::clone(&membership.deposed),
    };
    // The session outlives the servers: a leader that stops saves its state first, and then hands the lead over.
    let ending = CancellationToken::new();
    let ended_with_this = ending.clone().drop_guard();
    let session = tokio::spawn(session.run(ending));
    let describing = tokio::spawn(describe_files(args.files(), describe));
    let served = serve(&args, &sockets, &security, &membership, &shutdown).await;
    describing.abort();
    reading.abort();
    drop(ended_with_this);
    let _ = session.await;
    served
}

/// Serves as a standby, and as the leader whenever this member is elected, until `shutdown` is cancelled.
async fn serve(
    args: &Arc<Args>,
    sockets: &Sockets,
    security: &Opened,
    membership: &Membership,
    shutdown: &CancellationToken,
) -> Result<(), Error> {
    let mut part = membership.part.clone();
    while !shutdown.is_cancelled() {
        let stop = shutdown.child_token();
        let stops_the_standby = stop.clone().drop_guard();
        let standby = standby::serve(sockets.listeners()?, args, security, membership, stop);
        tokio::select! {
            served = standby => {
                served?;
                continue;
            }
            elected = part.wait_for(|part| part.lead().is_some()) => drop(elected),
        }
        drop(stops_the_standby);
        let Some(lead) = part.borrow_and_update().lead() else {
            continue;
        };
        let stop = shutdown.child_token();
        let until_deposed = tokio::spawn({
            let (mut part, stop) = (part.clone(), stop.clone());
            async move {
                let _ = part.wait_for(|part| part.lead() != Some(lead)).await;
                stop.cancel();
            }
        });
        let led = self::lead(args, sockets, security, membership, lead, stop).await;
        until_deposed.abort();
        match led {
            Ok(()) => {}
            Err(error @ (Error::Store(_) | Error::Policy(_))) => {
                tracing::error!(%error, "this controller cannot lead: it leaves the lead to another one");
                give_up(membership, lead, shutdown).await;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Hands the lead over as soon as the store answers, unless `shutdown` is cancelled.
async fn give_up(membership: &Membership, lead: u64, shutdown: &CancellationToken) {
    membership.resign.notify_one();
    let mut part = membership.part.clone();
    let given_up = async {
        let _ = part.wait_for(|part| part.lead() != Some(lead)).await;
        sleep(RETRY_DELAY).await;
    };
    shutdown.run_until_cancelled(given_up).await;
}

/// Leads until `stop` is cancelled. `lead` is the revision at which the key of this leader was created.
async fn lead(
    args: &Arc<Args>,
    sockets: &Sockets,
    security: &Opened,
    membership: &Membership,
    lead: u64,
    stop: CancellationToken,
) -> Result<(), Error> {
    let since = Instant::now();
    let opened = EtcdStore::open(
        membership.client.clone(),
        lead,
        Arc::clone(&membership.deposed),
    )
    .await?;
    let (args, security) = (Arc::clone(args), security.clone());
    let of = membership.clone();
    let controller =
        spawn_blocking(move || Controller::elected(&args, security, opened, of)).await??;
    tracing::info!(
        ready_ms = since.elapsed().as_millis(),
        "elected: this controller leads"
    );
    controller.serve(sockets.listeners()?, stop).await
}

/// Keeps the hash of the policy files in the record of this member.
async fn describe_files(files: PolicyFiles, record: watch::Sender<Member>) {
    let mut looks = interval(FILES_EVERY);
    let mut known = None;
    loop {
        looks.tick().await;
        let (files, mut before) = (files.clone(), known.take());
        let read = spawn_blocking(move || (files.hash_again(&mut before).ok(), before)).await;
        let (hash, now) = read.unwrap_or_default();
        known = now;
        let hash = hash.map(|hash| hash.to_string());
        record
            .send_if_modified(|member| std::mem::replace(&mut member.files, hash.clone()) != hash);
    }
}

/// Returns the address at which others reach a port of this process.
fn advertised(args: &Args, security: &Opened, listen: SocketAddr) -> String {
    let is_plain = security.certificates().is_none()
        || listen.ip().is_loopback() && args.store.advertise.is_none();
    let scheme = if is_plain { "http" } else { "https" };
    let port = listen.port();
    match &args.store.advertise {
        Some(host) if host.contains(':') => format!("{scheme}://[{host}]:{port}"),
        Some(host) => format!("{scheme}://{host}:{port}"),
        None if listen.ip().is_unspecified() => {
            format!("{scheme}://{}:{port}", hostname().unwrap_or_default())
        }
        None => format!("{scheme}://{listen}"),
    }
}

// === impl Sockets ===

impl Sockets {
    /// Returns handles of the sockets for a standby or a leader.
    fn listeners(&self) -> Result<Listeners, Error> {
        let handle = |socket: &StdListener| TcpListener::from_std(socket.try_clone()?);
        Ok(Listeners {
            grpc: handle(&self.grpc)?,
            admin: handle(&self.admin)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_etcd::Options;
    use tokio::time::timeout;

    #[tokio::test(start_paused = true)]
    async fn shutdown_waits_for_no_store() {
        let confirmed_until = Instant::now().into_std();
        let leading = Part::Leading {
            lead: 7,
            confirmed_until,
        };
        let own = Member {
            address: String::new(),
            admin: String::new(),
            version: String::new(),
            since_s: 0,
            files: None,
            sought: false,
        };
        // The part does not change while the store does not answer.
        let (_parts, part) = watch::channel(leading);
        let address = "etcd://127.0.0.1:1/p".parse().unwrap();
        let membership = Membership {
            client: Client::connect(&address, Options::default()).unwrap(),
            own: watch::Sender::new(own),
            part,
            roster: watch::channel(Roster::default()).1,
            resign: Arc::default(),
            deposed: Arc::default(),
        };
        let shutdown = CancellationToken::new();
        let given_up = give_up(&membership, 7, &shutdown);
        let stopping = async {
            sleep(RETRY_DELAY).await;
            shutdown.cancel();
        };
        let ended = timeout(10 * RETRY_DELAY, async { tokio::join!(given_up, stopping) }).await;
        assert!(ended.is_ok());
    }
}
