//! The search for the controller that leads, among several.

use std::thread;
use std::time::Duration;

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
    let said = thread::scope(|scope| {
        let asking = addresses
            .iter()
            .map(|address| scope.spawn(|| ask(address, credentials)));
        let asking: Vec<_> = asking.collect();
        let joined = asking.into_iter().map(thread::ScopedJoinHandle::join);
        joined
            .map(|said| said.unwrap_or_else(|_| Said::Nothing("the search panicked".to_owned())))
            .collect::<Vec<_>>()
    });
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

fn ask(address: &Address, credentials: &CredentialArgs) -> Said {
    let asked = || -> Result<Said, String> {
        let (client, _) = credentials.open(address)?;
        let request = client.get(format!("{address}/lead")).timeout(LOOK_MAX);
        let runtime = shutdown::runtime().map_err(|error| error.to_string())?;
        let answer = runtime.block_on(async { request.send().await });
        match answer.map_err(|error| root_cause(&error))?.status() {
            StatusCode::SERVICE_UNAVAILABLE => Ok(Said::StandsBy),
            status if status.is_success() => Ok(Said::Leads),
            status => Err(format!(
                "it answers {status}: is it the admin port of a controller?"
            )),
        }
    };
    asked().unwrap_or_else(Said::Nothing)
}
