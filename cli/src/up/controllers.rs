//! The controllers of the demo: one with a state directory, or several on an etcd that is started for them.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use plimsoll_controller::admin::status::{Policies, Status};
use plimsoll_controller::{Args, Listeners};
use plimsoll_tls::Tier;
use serde::de::DeserializeOwned;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

use super::fleet::bind;
use crate::admin_client::{Address, ControllerArgs, CredentialArgs};
use crate::cmd::unusable;

/// Maximum time until a controller leads.
const START_MAX: Duration = Duration::from_secs(30);
const RETRY_DELAY: Duration = Duration::from_millis(20);
/// Runs etcd until this process closes its end of the pipe, also by a `kill -9`.
const ETCD: &str = r#"exec 2>etcd.log; etcd "$@" & read -r _; kill $!; wait $!"#;

/// The admin ports of the controllers.
#[derive(Debug)]
pub(super) struct Controllers {
    admin: ControllerArgs,
    /// Ends when this is dropped, which closes its end of the pipe.
    _etcd: Option<Child>,
}

impl Controllers {
    /// Returns the arguments and the listeners of each controller, and the admin ports to ask once they run.
    ///
    /// # Errors
    /// etcd is needed and is not installed, or no port is free.
    pub(super) async fn prepare(
        count: usize,
        directory: &Path,
        common: Args,
    ) -> anyhow::Result<(Vec<(Args, Listeners)>, Self)> {
        let mut controllers = Vec::new();
        for number in 0..count {
            let mut args = common.clone();
            let grpc = bind(plimsoll_controller::PORT).await?;
            let admin = bind(plimsoll_controller::ADMIN_PORT).await?;
            args.listen = grpc.local_addr()?;
            args.admin = admin.local_addr()?;
            args.state_dir = directory.join(format!("state-{number}"));
            controllers.push((args, Listeners { grpc, admin }));
        }
        let etcd = if count > 1 {
            let (url, etcd) = start_etcd(directory).await?;
            for (args, _) in &mut controllers {
                args.store.store = Some(url.parse()?);
                args.store.lead_ttl = Duration::from_secs(5);
            }
            Some(etcd)
        } else {
            None
        };
        let addresses = controllers.iter().map(|(args, _)| {
            let address = format!("http://{}", args.admin);
            Address::parse(&address, Tier::Controller).map_err(anyhow::Error::msg)
        });
        let admin = ControllerArgs {
            context: None,
            addresses: addresses.collect::<Result<_, _>>()?,
            credentials: CredentialArgs::default(),
        };
        Ok((controllers, Self { admin, _etcd: etcd }))
    }

    /// Waits until a controller leads.
    ///
    /// # Errors
    /// None does within [`START_MAX`].
    pub(super) async fn started(&self) -> anyhow::Result<()> {
        let since = Instant::now();
        while let Err(error) = self.status().await {
            if since.elapsed() > START_MAX {
                return Err(error.context("no controller leads"));
            }
            sleep(RETRY_DELAY).await;
        }
        Ok(())
    }

    /// Asks the controller that leads.
    ///
    /// # Errors
    /// None does, such as during a takeover.
    pub(super) async fn status(&self) -> anyhow::Result<Status> {
        self.ask("/status").await
    }

    pub(super) async fn policies(&self) -> anyhow::Result<Policies> {
        self.ask("/policy").await
    }

    async fn ask<T: DeserializeOwned + Send + 'static>(
        &self,
        route: &'static str,
    ) -> anyhow::Result<T> {
        let admin = self.admin.clone();
        spawn_blocking(move || admin.get(route)).await?
    }
}

/// Starts a single etcd with its data in `directory`. Returns the address of a store in it.
async fn start_etcd(directory: &Path) -> anyhow::Result<(String, Child)> {
    if Command::new("etcd").arg("--version").output().is_err() {
        return Err(unusable(
            "--controllers needs etcd, where several controllers keep their state: install it (Debian: etcd-server), or \
             leave the flag out for one controller",
        ));
    }
    // Those of etcd itself if they are free: a port that is free for a moment may be given to an outgoing connection.
    let ports = [bind(2379).await?, bind(2380).await?];
    let client = format!("http://{}", ports[0].local_addr()?);
    let peer = format!("http://{}", ports[1].local_addr()?);
    drop(ports);
    let flags = [
        ("--data-dir", "etcd"),
        ("--listen-client-urls", &client),
        ("--advertise-client-urls", &client),
        ("--listen-peer-urls", &peer),
        ("--initial-advertise-peer-urls", &peer),
        ("--initial-cluster", &format!("default={peer}")),
    ];
    let etcd = Command::new("sh")
        .args(["-c", ETCD, "etcd"])
        .args(flags.iter().flat_map(|(flag, value)| [flag, value]))
        .current_dir(directory)
        .stdin(Stdio::piped())
        .spawn()
        .context("cannot start etcd")?;
    let url = client.replacen("http", "etcd", 1);
    Ok((format!("{url}/plimsoll"), etcd))
}
