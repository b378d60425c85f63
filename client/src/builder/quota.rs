//! The store of exact quotas: its setting, and the environment variables for it.

use std::ffi::OsString;
#[cfg(feature = "quota")]
use std::sync::Arc;

use super::LimiterBuilder;
#[cfg(feature = "quota")]
use super::error::BuildError;
#[cfg(feature = "quota")]
use crate::hot::table::Table;
#[cfg(feature = "quota")]
use crate::limiter::layered::Store;
#[cfg(feature = "quota")]
use crate::limiter::quota::{QuotaStore, Quotas};

/// The variables of the store, as they were given.
#[derive(Debug, Default)]
pub(super) struct StoreVariables {
    values: Vec<(&'static str, OsString)>,
}

impl StoreVariables {
    /// The variable that the others need.
    const ADDRESS: &str = "PLIMSOLL_QUOTA_STORE";

    /// The names of all.
    pub(super) const NAMES: [&str; 5] = [
        "PLIMSOLL_QUOTA_CA",
        "PLIMSOLL_QUOTA_PASSWORD_FILE",
        Self::ADDRESS,
        "PLIMSOLL_QUOTA_TIMEOUT",
        "PLIMSOLL_QUOTA_USERNAME",
    ];

    /// Takes the value of a variable that is not empty.
    pub(super) fn take(&mut self, name: &'static str, value: OsString) {
        self.values.push((name, value));
    }

    /// Sets the store, or returns the variable at fault, its value and the fault.
    #[cfg(feature = "quota")]
    pub(super) fn apply(
        mut self,
        mut builder: LimiterBuilder,
    ) -> Result<LimiterBuilder, (&'static str, OsString, String)> {
        let Some(at) = self.values.iter().position(|(name, _)| *name == Self::ADDRESS) else {
            let Some((name, value)) = self.values.pop() else { return Ok(builder) };
            return Err((name, value, format!("it needs the address of the store: set {}", Self::ADDRESS)));
        };
        let (name, address) = self.values.swap_remove(at);
        let fault = |cause: String, value: &OsString, name| (name, value.clone(), cause);
        let text =
            address.to_str().ok_or_else(|| fault("the value is not UTF-8".to_owned(), &address, name))?;
        let store = QuotaStore::new(text.trim());
        let mut store = store.map_err(|error| fault(error.to_string(), &address, name))?;
        for (name, value) in &self.values {
            store = with(store, name, value).map_err(|cause| fault(cause, value, name))?;
        }
        builder.quota_store = Some(store);
        Ok(builder)
    }

    #[cfg(not(feature = "quota"))]
    pub(super) fn apply(
        mut self,
        builder: LimiterBuilder,
    ) -> Result<LimiterBuilder, (&'static str, OsString, String)> {
        let Some((name, value)) = self.values.pop() else { return Ok(builder) };
        let cause =
            "this library was built without exact quotas; build plimsoll-client with its feature `quota`";
        Err((name, value, cause.to_owned()))
    }
}

#[cfg(feature = "quota")]
fn with(store: QuotaStore, name: &str, value: &OsString) -> Result<QuotaStore, String> {
    // Paths need not be text.
    match name {
        "PLIMSOLL_QUOTA_CA" => return Ok(store.ca(value)),
        "PLIMSOLL_QUOTA_PASSWORD_FILE" => return Ok(store.password_file(value)),
        _ => {}
    }
    let text = value.to_str().ok_or("the value is not UTF-8")?.trim();
    Ok(match name {
        "PLIMSOLL_QUOTA_TIMEOUT" => {
            let timeout = humantime::parse_duration(text);
            store.timeout(timeout.map_err(|error| format!("{error}; write it like 20ms"))?)
        }
        _ => store.username(text),
    })
}

#[cfg(feature = "quota")]
impl LimiterBuilder {
    /// Sets the store of exact quotas: a quota server of Plimsoll, or Redis. The quotas themselves come from the policy,
    /// with the directives. Without a store they are not enforced here, which is a
    /// [setup problem](crate::Limiter::setup_problems).
    ///
    /// The middleware asks the store, and so do methods such as
    /// [`Limiter::decide_with_quotas`](crate::Limiter::decide_with_quotas); [`admit`](crate::BucketHandle::admit) and its
    /// kin decide by coin and guard alone. The [feed](crate::Feed) connects to the store when it starts, and gives leases
    /// back when it is shut down.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use plimsoll_client::{Limiter, QuotaStore};
    ///
    /// let store = QuotaStore::new("plimsolls://quota.internal:9049")?.password_file("/run/secrets/quota");
    /// let (limiter, feed) = Limiter::builder("shop")?
    ///     .aggregator("http://127.0.0.1:7410")?
    ///     .quota_store(store)
    ///     .build()?;
    /// # drop((limiter, feed));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn quota_store(mut self, store: QuotaStore) -> Self {
        self.quota_store = Some(store);
        self
    }
}

/// Gives the store to a limiter, if one is set.
#[cfg(feature = "quota")]
pub(super) fn set_store(table: &Arc<Table>, store: Option<&QuotaStore>) -> Result<(), BuildError> {
    if let Some(store) = store {
        table.layered.set_store(Store::Remote(Quotas::new(store)?));
        table.quotas.set_store();
    }
    Ok(())
}

#[cfg(test)]
#[cfg(feature = "quota")]
#[cfg(not(feature = "loom"))]
mod tests {
    use crate::Limiter;

    fn with(variables: &[(&str, &str)]) -> Result<String, String> {
        let builder = Limiter::builder("shop").unwrap().variables(variables.iter().copied());
        builder.map(|builder| format!("{:?}", builder.quota_store)).map_err(|error| error.to_string())
    }

    #[test]
    fn variables_configure_the_store_in_any_order() {
        let store = with(&[
            ("PLIMSOLL_QUOTA_TIMEOUT", "7ms"),
            ("PLIMSOLL_QUOTA_USERNAME", "shop"),
            ("PLIMSOLL_QUOTA_PASSWORD_FILE", "/run/secret"),
            ("PLIMSOLL_QUOTA_CA", "/etc/ca.crt"),
            ("PLIMSOLL_QUOTA_STORE", "plimsoll://quota:9049"),
        ])
        .unwrap();
        for part in ["quota", "9049", "7ms", "shop", "/run/secret", "/etc/ca.crt"] {
            assert!(store.contains(part), "{store} has no {part}");
        }
        assert_eq!(with(&[]).unwrap(), "None");
    }

    #[test]
    fn faulty_variable_of_the_store_is_named_with_the_remedy() {
        let address = ("PLIMSOLL_QUOTA_STORE", "plimsoll://quota:9049");
        for (variables, name, remedy) in [
            (
                &[("PLIMSOLL_QUOTA_USERNAME", "shop")][..],
                "PLIMSOLL_QUOTA_USERNAME",
                "set PLIMSOLL_QUOTA_STORE",
            ),
            (&[("PLIMSOLL_QUOTA_STORE", "quota:9049")], "PLIMSOLL_QUOTA_STORE", "plimsoll://HOST:PORT"),
            (&[("PLIMSOLL_QUOTA_STORE", "")], "PLIMSOLL_QUOTA_STORE", "unset"),
            (&[address, ("PLIMSOLL_QUOTA_TIMEOUT", "20")], "PLIMSOLL_QUOTA_TIMEOUT", "20ms"),
        ] {
            let error = with(variables).unwrap_err();
            assert!(error.contains(name) && error.contains(remedy), "{error}");
        }
    }
}
