//! The loss of the durable state on the admin port: operators acknowledge it.

use axum::extract::State;
use axum::http::Method;
use axum::{Extension, Json};
use plimsoll_admin::access::{AdminCaller, Routes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::admin::Commands;
use crate::audit::Entry;
use crate::tasks::events::{Event, EventKind};

/// The route that acknowledges the loss of the state.
pub const ACKNOWLEDGE_LOSS: &str = "/state/acknowledge-loss";

/// The loss that was acknowledged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Acknowledged {
    /// The loss; null without one.
    pub loss: Option<String>,
    /// True once it is saved and survives a restart.
    pub saved: bool,
}

pub(crate) fn routes() -> Routes<Commands> {
    Routes::new().operator(Method::POST, ACKNOWLEDGE_LOSS, acknowledge)
}

async fn acknowledge(
    State(commands): State<Commands>,
    Extension(caller): Extension<AdminCaller>,
) -> Json<Acknowledged> {
    let loss = commands.brain.with(|brain, _| brain.acknowledge_loss());
    if let Some(loss) = &loss {
        let text = format!("the loss of the state is acknowledged: {loss}");
        let event = Event::new(EventKind::StateLossAcknowledged, "controller", text);
        commands.events.add(event.by(&caller.name));
    }
    let change = Entry {
        what: "acknowledge loss of state".to_owned(),
        before: loss.clone().unwrap_or_default(),
        ..Entry::default()
    };
    let saved = commands.note(&caller, change).await;
    Json(Acknowledged { loss, saved })
}
