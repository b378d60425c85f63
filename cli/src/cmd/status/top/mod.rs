//! `plimsoll top`: buckets, tenants and zones on a screen that follows the fleet.

mod draw;
mod rows;
mod state;
#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal};
use std::mem;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use plimsoll_core::names::{Bucket, Tenant};
use ratatui::crossterm::event::{self, Event};
use tokio::sync::{mpsc, watch};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::in_query;
use crate::admin_client::ControllerArgs;
use crate::cmd::{unix_ms, unusable};
use crate::shutdown;
use state::{Look, Top};

/// Interval between questions, and of the clock on the screen.
const EVERY: Duration = Duration::from_secs(1);
/// Maximum number of keys and answers that wait for the screen.
const WAITING_MAX: usize = 64;

/// Follow buckets, tenants and zones on the terminal
///
/// Enter opens the tenants of a bucket, then why a tenant is refused, and Esc goes back; 1 to 4 choose buckets, tenants, zones
/// and problems; s sorts by the next column, r turns the order, and / filters by name. It asks the controller each second,
/// goes on while that does not answer, and changes nothing. Exit code 0: ended by q, Ctrl-C or SIGTERM; 1: the terminal
/// fails; 2: invalid arguments, or no terminal.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    controller: ControllerArgs,
}

enum Input {
    Event(io::Result<Event>),
    Look(Box<Look>),
}

pub(crate) fn run(args: TopArgs) -> anyhow::Result<ExitCode> {
    if !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
        return Err(unusable(
            "`plimsoll top` needs a terminal; `plimsoll status --watch` writes to a pipe or a file",
        ));
    }
    match args.controller.port() {
        Err(error) if error.is_usage() => return Err(error.into()),
        // A controller that is away is waited for.
        _ => shutdown::run_until_signal(async move |shutdown| {
            let done = follow(args.controller, shutdown).await;
            // A panic does this, too.
            ratatui::restore();
            done
        })?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn follow(controller: ControllerArgs, shutdown: CancellationToken) -> anyhow::Result<()> {
    let (inputs, mut received) = mpsc::channel(WAITING_MAX);
    let (asks, asked) = watch::channel(None);
    let mut screen = ratatui::try_init().context("cannot use the terminal")?;
    tokio::spawn(look_again(controller, asked, inputs.clone()));
    // Waits for the terminal, and ends with the process.
    thread::spawn(move || while inputs.blocking_send(Input::Event(event::read())).is_ok() {});
    let (mut top, mut tick) = (Top::new(), tokio::time::interval(EVERY));
    loop {
        let drawn = screen.draw(|frame| {
            let height = frame.area().height.saturating_sub(draw::FRAME_LINES);
            top.height = height.max(1).into();
            draw::draw(frame, &top, unix_ms() / 1_000);
        });
        drawn.context("cannot write to the terminal")?;
        let input = tokio::select! {
            input = received.recv() => input,
            _ = tick.tick() => continue,
            () = shutdown.cancelled() => return Ok(()),
        };
        match input {
            Some(Input::Event(event)) => {
                let key = event
                    .context("cannot read the terminal")?
                    .as_key_press_event();
                if key.is_some_and(|key| top.key(key)) {
                    return Ok(());
                }
                asks.send_if_modified(|asks| {
                    let before = mem::replace(asks, top.asks());
                    before != *asks
                });
            }
            Some(Input::Look(look)) => top.answered(*look),
            None => return Ok(()),
        }
    }
}

/// Asks the controller each second, and when a page has another question.
async fn look_again(
    controller: ControllerArgs,
    mut asked: watch::Receiver<Option<(Bucket, Tenant)>>,
    inputs: mpsc::Sender<Input>,
) {
    loop {
        let (why, controller) = (asked.borrow_and_update().clone(), controller.clone());
        // The search for the leader blocks.
        let looked = spawn_blocking(move || look(&controller, why)).await;
        let Ok(looked) = looked else { return };
        if inputs.send(Input::Look(Box::new(looked))).await.is_err() {
            return;
        }
        let _ = timeout(EVERY, asked.changed()).await;
    }
}

/// Asks for the status, and for the reasons of a tenant.
fn look(controller: &ControllerArgs, why: Option<(Bucket, Tenant)>) -> Look {
    let reason = |error: anyhow::Error| error.to_string();
    let status = controller.get("/status").map_err(reason);
    let why = why.filter(|_| status.is_ok()).map(|(bucket, tenant)| {
        let (bucket, tenant) = (in_query(bucket.as_str()), in_query(tenant.as_str()));
        let asked = controller.get(&format!("/why?tenant={tenant}&bucket={bucket}"));
        asked.map_err(reason)
    });
    let at_s = unix_ms() / 1_000;
    Look { status, why, at_s }
}
