//! The tasks of a controller that serves: they give the brain the time, save its state and its history, reload the policy,
//! and log what changed.

pub(crate) mod counters;
pub mod events;
pub(crate) mod history;
pub(crate) mod journal;
pub(crate) mod kill_log;
pub(crate) mod lead;
pub(crate) mod policy;
pub mod policy_file;
pub(crate) mod promotions;
pub(crate) mod save;
#[cfg(test)]
pub(crate) mod tests;

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plimsoll_admin::server as admin_server;
use plimsoll_core::law::Parameters;
use plimsoll_host::Shared;
use plimsoll_proto::driver::parent::ParentService;
use plimsoll_proto::transport::{self, ServeError};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use crate::admin::Commands;
use crate::admin::console::Console;
use crate::brain::Brain;
use crate::events::{Event, EventKind};
use crate::prometheus::query_task::QueryTask;
use crate::state::DurableState;
use crate::state::store::StateStore;
use crate::{Controller, Error, Listeners, admin, members};

/// Maximum time that the end of a controller waits for its last answers, and then for its last writes.
const ENDING_MAX: Duration = Duration::from_secs(3);

/// The time of day in seconds since 1970.
pub(crate) fn unix_s() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// Ticks the brain at a fixed interval, forever. A tick that was missed is not made up for.
pub(crate) async fn tick(brain: Shared<Brain>) {
    let mut ticks = interval(Parameters::default().tick);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let (claims, unprotected) = brain.with(|brain, now| {
            brain.on_tick(now, unix_s());
            (brain.take_kill_claims(now), brain.take_unprotected())
        });
        for bucket in unprotected {
            tracing::warn!(%bucket, "bucket without room: it is unprotected, whatever the policy says");
        }
        for (scope, claim) in claims {
            tracing::warn!(
                %scope, claimed = claim.generation.0, zone = %claim.zone, service = %claim.service, name = %claim.name,
                "kill generation without an order: ignored; the process that holds it stays in shadow until \
                 `plimsoll kill off` for the scope"
            );
        }
        brain.notify();
    }
}

impl Controller {
    /// Serves until `shutdown` is cancelled.
    ///
    /// # Errors
    /// When one of its servers fails.
    pub async fn serve(
        self,
        listeners: Listeners,
        shutdown: CancellationToken,
    ) -> Result<(), Error> {
        let (files, source) = (self.policy.files.clone(), self.source());
        // Cancelled by `shutdown`, and by the end of either server.
        let stop = shutdown.child_token();
        let _stops_the_tasks = stop.clone().drop_guard();
        // Cancelled after both servers have ended, whose last requests still make events and changes.
        let served_all = CancellationToken::new();
        let _stops_the_writers = served_all.clone().drop_guard();
        let commands = &self.commands;
        let Commands {
            brain,
            audit,
            events,
        } = commands.clone();
        spawn(&stop, tick(brain.clone()));
        spawn(&stop, journal::follow(commands.clone()));
        spawn(&stop, promotions::run(commands.clone()));
        spawn(&stop, self.policy.run());
        spawn(&stop, self.recorder.clone().run(commands.clone()));
        spawn(&stop, self.security.clone().follow());
        spawn(
            &stop,
            events::follow_certificates(self.security.clone(), events.clone()),
        );
        for receiver in self.receivers {
            spawn(&stop, receiver.run(events.clone(), self.counters.clone()));
        }
        let queries = QueryTask {
            commands: commands.clone(),
            counters: self.counters.clone(),
            every: self.query_every,
        };
        spawn(&stop, queries.run());
        // The writers end by themselves, so that no write is cut short.
        let event_saver = tokio::spawn(self.event_saver.run(served_all.clone()));
        let audit_writer = tokio::spawn(audit.clone().run(served_all.clone()));
        let (shared, ends) = (audit.shared().cloned(), served_all.clone());
        let audit_sharer = tokio::spawn(async move {
            if let Some(shared) = shared {
                shared.run(ends).await;
            }
        });
        let store = Arc::clone(&self.store);
        let save = move |durable: &DurableState| store.save(durable);
        let state_saver = tokio::spawn(save::run(
            commands.clone(),
            save,
            self.kill_log,
            served_all.clone(),
        ));
        if let Some(membership) = self.membership.clone() {
            spawn(&stop, lead::follow(membership, commands.clone()));
        }
        if let StateStore::Etcd(store) = &*self.store {
            spawn(
                &stop,
                members::follow_kill_orders(Arc::clone(store), commands.clone()),
            );
        }
        let epoch = brain.with(|brain, _| brain.durable().epoch.0);
        let parent = ParentService::new(
            brain.clone(),
            stop.clone(),
            self.counters.rejected_streams.clone(),
        )
        .of_epoch(epoch);
        let parent = match self.security.certificates() {
            Some(certificates) => parent.secured(certificates.clone()),
            None => parent,
        };
        let ports = self.counters.ports.clone();
        let grpc = transport::serve(
            listeners.grpc,
            ports.grpc,
            parent,
            stop.clone().cancelled_owned(),
        );
        let (console, refresh) = Console::new(source.clone());
        spawn(&stop, refresh);
        let routes = admin::routes(source, files, self.recorder, self.counters, console);
        let access = self.security.access().clone();
        let admin = admin_server::serve(listeners.admin, ports.admin, access, routes, stop.clone());
        let served = until_both_ended(grpc, admin, &stop).await;
        let membership = self.membership.as_ref();
        let leads = membership.is_none_or(|it| it.part.borrow().lead().is_some());
        if leads && shutdown.is_cancelled() {
            let text =
                "controller stopped: zones live on their holds, and clients on their last ratios";
            events.add(Event::new(EventKind::ControllerStopped, "controller", text));
        }
        served_all.cancel();
        let writers = async { tokio::join!(event_saver, audit_writer, audit_sharer, state_saver) };
        if timeout(ENDING_MAX, writers).await.is_err() {
            tracing::warn!(
                "the last events, changes or audit lines may be lost: the disk or the store is slow"
            );
        }
        served
    }
}

/// Stops both servers with the end of the first one, so that both answer what they have begun.
async fn until_both_ended(
    grpc: impl Future<Output = Result<(), ServeError>>,
    admin: impl Future<Output = ()>,
    stop: &CancellationToken,
) -> Result<(), Error> {
    let (mut grpc, mut admin) = (pin!(grpc), pin!(admin));
    let served = tokio::select! {
        served = &mut grpc => {
            stop.cancel();
            let _ = timeout(ENDING_MAX, admin).await;
            served
        }
        () = &mut admin => {
            stop.cancel();
            grpc.await
        }
    };
    Ok(served?)
}

fn spawn(stop: &CancellationToken, task: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(stop.clone().run_until_cancelled_owned(task));
}
