//! The key that an operator names, directly or by tenant and quota, and the URL of a request about it.

use clap::Args;
use plimsoll_core::names::{Name, Tenant};
use plimsoll_quota::admin::api::Reset;
use plimsoll_quota::admin::key_text::unescape;
use reqwest::Url;

use crate::admin_client::AdminError;

/// A key, or a tenant with one of its quotas.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub(crate) struct KeyArgs {
    /// Key of the buckets as `plimsoll quota list` shows it; with --tenant, the name of a quota
    #[arg(env = "PLIMSOLL_QUOTA_KEY", value_name = "KEY_OR_QUOTA", value_parser = check_escapes)]
    key: Option<String>,
    /// Tenant whose buckets are meant; all of its quotas unless one is named
    #[arg(long, env = "PLIMSOLL_TENANT", value_name = "NAME")]
    tenant: Option<Tenant>,
}

impl KeyArgs {
    /// Returns the key, or the beginning of the keys of a tenant.
    ///
    /// # Errors
    /// When the key is empty, or what is given with a tenant is no name of a quota.
    pub(super) fn wanted(&self) -> Result<Reset, AdminError> {
        let unusable = |text: String| AdminError::Unsent(text);
        match (&self.tenant, &self.key) {
            (Some(tenant), None) => Ok(Reset::Prefix(format!("{{{tenant}}}:"))),
            (Some(tenant), Some(quota)) => {
                let quota =
                    Name::new(quota).map_err(|error| unusable(format!("quota `{quota}`: {error}")))?;
                Ok(Reset::Key(format!("{{{tenant}}}:{quota}")))
            }
            (None, Some(key)) if !key.is_empty() => Ok(Reset::Key(key.clone())),
            (None, _) => Err(unusable("give a key, or a tenant with --tenant".to_owned())),
        }
    }
}

/// Checks the escapes of a key.
pub(super) fn check_escapes(text: &str) -> Result<String, String> {
    unescape(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// Returns a route with its parameters.
pub(super) fn route(path: &str, query: &[(&str, &str)]) -> String {
    // The host is left out again: it only makes a URL of the route.
    let url = Url::parse_with_params(&format!("http://localhost{path}"), query);
    url.map_or_else(|_| path.to_owned(), |url| format!("{}?{}", url.path(), url.query().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(key: Option<&str>, tenant: Option<&str>) -> Result<Reset, String> {
        let tenant = tenant.map(|tenant| tenant.parse().unwrap());
        KeyArgs { key: key.map(str::to_owned), tenant }.wanted().map_err(|error| error.to_string())
    }

    #[test]
    fn key_is_given_directly_or_by_tenant_and_quota() {
        for (key, tenant, expected) in [
            (Some("user:17"), None, Reset::Key("user:17".to_owned())),
            (Some("api_calls"), Some("acme"), Reset::Key("{acme}:api_calls".to_owned())),
            (None, Some("acme"), Reset::Prefix("{acme}:".to_owned())),
        ] {
            assert_eq!(wanted(key, tenant), Ok(expected));
        }
        assert!(wanted(Some(""), None).unwrap_err().contains("--tenant"));
        assert!(wanted(Some("a b"), Some("acme")).unwrap_err().contains("quota `a b`"));
    }

    #[test]
    fn parameters_are_encoded_into_the_url() {
        assert_eq!(route("/quotas", &[("prefix", "{a&b}: +\\xff"), ("limit", "5")]), {
            "/quotas?prefix=%7Ba%26b%7D%3A+%2B%5Cxff&limit=5"
        });
    }
}
