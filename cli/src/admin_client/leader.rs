//! The search for the controller that leads, among several.

use std::thread;
use std::time::Duration;

use anyhow::bail;
use futures_util::future::join_all;
use reqwest::StatusCode;

use super::{Address, AdminError, CredentialArgs, root_cause};
use crate::shutdown;

/// Maximum time that a controller has to say whether it leads.
const LOOK_MAX: Duration = Duration::from_secs(3);

/// What a controller says of itself.
enum Said {
    Leads,
    StandsBy,
    Nothing(String),
}

/// Asks all controllers at once, without a token, and returns the address of the one that leads, or of one that stands by
/// if that serves, too.
///
/// # Errors
/// If no controller leads, with what each one said.
pub(super) fn find(
    addresses: &[Address],
    credentials: &CredentialArgs,
    or_standby: bool,
) -> Result<Address, AdminError> {
    // Some callers have a runtime already, in which another one cannot be waited for.
    let asking = || -> anyhow::Result<Vec<Said>> {
        let asking = addresses.iter().map(|address| ask(address, credentials));
        Ok(shutdown::runtime()?.block_on(join_all(asking)))
    };
    let said = thread::scope(|scope| scope.spawn(asking).join());
    let said = said
        .unwrap_or_else(|_| bail!("the search for the leader panicked"))
        .map_err(|error| AdminError::Failed(error.to_string()))?;
    let of = |wanted: fn(&Said) -> bool| {
        let found = said.iter().position(wanted);
        found.and_then(|at| addresses.get(at)).cloned()
    };
    let leader = of(|said| matches!(said, Said::Leads));
    let standby = || of(|said| matches!(said, Said::StandsBy)).filter(|_| or_standby);
    leader.or_else(standby).ok_or_else(|| {
        let each = addresses
            .iter()
            .zip(&said)
            .map(|(address, said)| match said {
                Said::Nothing(cause) => format!("\n  {address}: {cause}"),
                _ => format!("\n  {address}: stands by"),
            });
        AdminError::Failed(format!("no controller leads:{}", each.collect::<String>()))
    })
}

async fn ask(address: &Address, credentials: &CredentialArgs) -> Said {
    let asked = async {
        let (client, _) = credentials.open(address)?;
        let request = client.get(format!("{address}/lead")).timeout(LOOK_MAX);
        let answer = request.send().await.map_err(|error| root_cause(&error))?;
        match answer.status() {
            StatusCode::SERVICE_UNAVAILABLE => Ok(Said::StandsBy),
            status if status.is_success() => Ok(Said::Leads),
            status => Err(format!(
                "it answers {status}: is it the admin port of a controller?"
            )),
        }
    };
    asked.await.unwrap_or_else(Said::Nothing)
}
