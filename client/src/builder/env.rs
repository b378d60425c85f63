//! A limiter that is configured by environment variables, under the names that the flags of Plimsoll's processes have.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use plimsoll_core::names::nearest;

use super::quota::StoreVariables;
use super::{BUCKETS_MAX, BuildError, KEYS_MAX, LimiterBuilder};
use crate::feed::parse_yes_no;
use crate::setup::SETUP_PROBLEMS_MAX;

/// The beginning of all names.
const PREFIX: &str = "PLIMSOLL_";
/// The longest part of a value, and of what is wrong with it, that an error quotes, in characters.
const QUOTED_MAX: usize = 500;

/// The variables that configure a limiter.
const OWN: [&str; 13] = [
    "PLIMSOLL_AGGREGATOR",
    "PLIMSOLL_BEFORE_POLICY",
    "PLIMSOLL_BUCKETS_MAX",
    "PLIMSOLL_CERTS",
    "PLIMSOLL_COLD_RPS",
    "PLIMSOLL_DIRECTIVES",
    "PLIMSOLL_GRACE",
    "PLIMSOLL_INSECURE",
    "PLIMSOLL_KEYS_MAX",
    "PLIMSOLL_KILL_FILE",
    "PLIMSOLL_NAME",
    "PLIMSOLL_READY_WITHIN",
    "PLIMSOLL_ZONE",
];

/// Returns the variables that configure a limiter and its store of quotas.
fn all() -> impl Iterator<Item = &'static str> {
    OWN.into_iter().chain(StoreVariables::NAMES)
}

/// Endings of the variables that Kubernetes sets for a Service, whose name may begin with `plimsoll-`.
const OF_KUBERNETES: [&str; 4] = ["_SERVICE_HOST", "_SERVICE_PORT", "_PORT", "_PROTO"];

impl LimiterBuilder {
    /// Starts from an instance of `service` and the environment of this process; see
    /// [`variables`](Self::variables). Later calls of the builder win over the environment.
    ///
    /// # Errors
    /// When the service's name or the value of a variable is invalid.
    pub fn from_env(service: &str) -> Result<Self, BuildError> {
        Self::new(service)?.variables(std::env::vars_os())
    }

    /// Configures the limiter by environment variables that the caller passes, and ignores others:
    ///
    /// | variable | in place of |
    /// |---|---|
    /// | `PLIMSOLL_AGGREGATOR`, addresses with commas between | [`aggregators`](Self::aggregators) |
    /// | `PLIMSOLL_ZONE` | [`zone`](Self::zone) |
    /// | `PLIMSOLL_NAME` | [`name`](Self::name) |
    /// | `PLIMSOLL_CERTS` | `certificates` |
    /// | `PLIMSOLL_INSECURE`, `true` or `false` | [`insecure`](Self::insecure) |
    /// | `PLIMSOLL_DIRECTIVES` | [`directive_cache`](Self::directive_cache) |
    /// | `PLIMSOLL_KILL_FILE` | [`kill_file`](Self::kill_file) |
    /// | `PLIMSOLL_COLD_RPS`, as `checkout=100,search=50` | [`cold_rps`](Self::cold_rps) |
    /// | `PLIMSOLL_BEFORE_POLICY`, `allow` or `deny` | [`before_policy`](Self::before_policy) |
    /// | `PLIMSOLL_READY_WITHIN`, such as `5s` | [`ready_within`](Self::ready_within) |
    /// | `PLIMSOLL_KEYS_MAX` | [`keys_max`](Self::keys_max) |
    /// | `PLIMSOLL_BUCKETS_MAX` | [`buckets_max`](Self::buckets_max) |
    /// | `PLIMSOLL_GRACE`, such as `20s` | [`failover_delay`](Self::failover_delay) |
    /// | `PLIMSOLL_QUOTA_STORE`, the address of the store | `quota_store` |
    /// | `PLIMSOLL_QUOTA_USERNAME`, `_PASSWORD_FILE`, `_CA`, `_TIMEOUT` such as `20ms` | the settings of the store |
    ///
    /// A variable that is similar to one of these is logged as a warning.
    ///
    /// ```
    /// # fn main() -> Result<(), plimsoll_client::BuildError> {
    /// use plimsoll_client::Limiter;
    ///
    /// let variables = [("PLIMSOLL_ZONE", "eu-1a"), ("PLIMSOLL_AGGREGATOR", "http://127.0.0.1:7410")];
    /// let (limiter, feed) = Limiter::builder("shop")?.variables(variables)?.build()?;
    /// # drop((limiter, feed));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When a value is invalid or empty; the error names the variable and its value.
    pub fn variables<N, V>(self, variables: impl IntoIterator<Item = (N, V)>) -> Result<Self, BuildError>
    where
        N: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        let mut own: BTreeMap<&'static str, OsString> = BTreeMap::new();
        let mut misspelt = 0;
        for (name, value) in variables {
            let Some(name) = name.as_ref().to_str() else { continue };
            if let Some(name) = all().find(|own| *own == name) {
                own.insert(name, value.as_ref().to_owned());
            } else if let Some(meant) = meant(name).filter(|_| misspelt < SETUP_PROBLEMS_MAX) {
                misspelt += 1;
                tracing::warn!(
                    variable = name,
                    "unknown environment variable: did you mean {meant}? it has no effect on this limiter"
                );
            }
        }
        let fault = |(name, value, cause): (_, OsString, String)| BuildError::Variable {
            name,
            value: quoted(&value.to_string_lossy()),
            cause: quoted(&cause),
        };
        let mut of_store = StoreVariables::default();
        let builder = own.into_iter().try_fold(self, |builder, (name, value)| {
            if StoreVariables::NAMES.contains(&name) && !value.is_empty() {
                of_store.take(name, value);
                return Ok(builder);
            }
            builder.variable(name, &value).map_err(|cause| fault((name, value, cause)))
        });
        of_store.apply(builder?).map_err(fault)
    }

    /// Applies the value of one variable, or returns what is wrong with it.
    fn variable(self, name: &str, value: &OsStr) -> Result<Self, String> {
        if value.is_empty() {
            return Err("the value is empty; give it one or unset the variable".to_owned());
        }
        // Paths need not be text.
        match name {
            "PLIMSOLL_CERTS" => return self.certs(value),
            "PLIMSOLL_DIRECTIVES" => return Ok(self.directive_cache(value)),
            "PLIMSOLL_KILL_FILE" => return Ok(self.kill_file(value)),
            _ => {}
        }
        let text = value.to_str().ok_or("the value is not UTF-8")?.trim();
        let built = match name {
            "PLIMSOLL_AGGREGATOR" => self.aggregators(&text.split(',').map(str::trim).collect::<Vec<_>>()),
            "PLIMSOLL_ZONE" => self.zone(text),
            "PLIMSOLL_NAME" => self.name(text),
            "PLIMSOLL_INSECURE" => {
                let yes = parse_yes_no(value).ok_or("write true or false")?;
                Ok(if yes { self.insecure() } else { self })
            }
            "PLIMSOLL_COLD_RPS" => return text.split(',').try_fold(self, Self::cold_entry),
            "PLIMSOLL_BEFORE_POLICY" => Ok(self.before_policy(text.parse()?)),
            "PLIMSOLL_READY_WITHIN" => {
                let time = humantime::parse_duration(text);
                Ok(self.ready_within(time.map_err(|error| format!("{error}; write it like 5s"))?))
            }
            "PLIMSOLL_KEYS_MAX" => Ok(self.keys_max(up_to(text, KEYS_MAX)?)),
            "PLIMSOLL_BUCKETS_MAX" => Ok(self.buckets_max(up_to(text, BUCKETS_MAX)?)),
            "PLIMSOLL_GRACE" => {
                let delay = humantime::parse_duration(text);
                Ok(self.failover_delay(delay.map_err(|error| format!("{error}; write it like 20s"))?))
            }
            _ => {
                debug_assert!(false, "{name} is one of OWN");
                Ok(self)
            }
        };
        built.map_err(|error| error.to_string())
    }

    #[cfg(feature = "tls")]
    fn certs(self, directory: &OsStr) -> Result<Self, String> {
        Ok(self.certificates(directory))
    }

    #[cfg(not(feature = "tls"))]
    fn certs(self, _: &OsStr) -> Result<Self, String> {
        Err("this library was built without TLS; build plimsoll-client with its feature `tls`".to_owned())
    }

    /// Applies `NAME=RATE`.
    fn cold_entry(self, entry: &str) -> Result<Self, String> {
        let (bucket, rps) = entry
            .split_once('=')
            .ok_or_else(|| format!("`{entry}`: write it as NAME=RATE, such as checkout=100"))?;
        let rps = rps.trim().parse().map_err(|_| format!("`{rps}` is not a number of requests/s"))?;
        self.cold_rps(bucket.trim(), rps).map_err(|error| error.to_string())
    }
}

fn quoted(text: &str) -> String {
    text.chars().take(QUOTED_MAX).collect()
}

fn up_to(text: &str, max: usize) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=max).contains(number));
    number.ok_or_else(|| format!("write a whole number from 1 to {max}"))
}

/// Methods of the builder whose variables have other names.
const METHODS: [(&str, &str); 3] = [
    ("certificates", "PLIMSOLL_CERTS"),
    ("directive_cache", "PLIMSOLL_DIRECTIVES"),
    ("failover_delay", "PLIMSOLL_GRACE"),
];

/// Returns the variable that a similar one was probably meant to be, also if its prefix is misspelt or in lower case.
/// Those of other processes of Plimsoll are not similar enough, except by a slip of one or two letters.
fn meant(name: &str) -> Option<&'static str> {
    let is_of_kubernetes =
        OF_KUBERNETES.iter().any(|ending| name.ends_with(ending)) || name.contains("_PORT_");
    if is_of_kubernetes || OTHERS.contains(&name) {
        return None;
    }
    let (prefix, suffix) = name.split_once(['_', '-'])?;
    nearest(prefix, ["plimsoll"])?;
    let suffix = suffix.to_lowercase().replace('-', "_");
    let of_own = all().filter_map(|own| Some((own.strip_prefix(PREFIX)?.to_lowercase(), own)));
    let of_methods = METHODS.iter().map(|(method, own)| ((*method).to_owned(), *own));
    let known: Vec<(String, &'static str)> = of_own.chain(of_methods).collect();
    let found = nearest(&suffix, known.iter().map(|(suffix, _)| suffix.as_str()))?;
    known.iter().find(|(suffix, _)| suffix == found).map(|(_, own)| *own)
}

/// The variables of other processes of Plimsoll that are similar to one of a limiter.
const OTHERS: [&str; 9] = [
    "PLIMSOLL_AGGREGATOR_ADMIN",
    "PLIMSOLL_BUCKET",
    "PLIMSOLL_BUCKETS",
    "PLIMSOLL_KEYS",
    "PLIMSOLL_KILL_REASON",
    "PLIMSOLL_OUT",
    "PLIMSOLL_ROLE",
    "PLIMSOLL_TRACE",
    "PLIMSOLL_ZONES",
];

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::subscription::assignment::endpoints::Aggregators;
    use crate::{BeforePolicy, Limiter};

    fn with(variables: &[(&str, &str)]) -> Result<LimiterBuilder, BuildError> {
        Limiter::builder("shop")?.variables(variables.iter().copied())
    }

    #[test]
    fn each_variable_sets_what_its_method_sets() {
        let builder = with(&[
            ("PLIMSOLL_AGGREGATOR", "http://127.0.0.1:7410, http://127.0.0.1:7411"),
            ("PLIMSOLL_ZONE", "eu-1a"),
            ("PLIMSOLL_NAME", "host:8080"),
            ("PLIMSOLL_INSECURE", "true"),
            ("PLIMSOLL_DIRECTIVES", "/var/cache/shop"),
            ("PLIMSOLL_KILL_FILE", "/etc/kill"),
            ("PLIMSOLL_COLD_RPS", "checkout=100,search=0.5"),
            ("PLIMSOLL_KEYS_MAX", "500"),
            ("PLIMSOLL_BUCKETS_MAX", "2000"),
            ("PLIMSOLL_GRACE", "1m 30s"),
            ("PLIMSOLL_BEFORE_POLICY", "deny"),
            ("PLIMSOLL_READY_WITHIN", "7s"),
            ("PATH", "/bin"),
        ])
        .unwrap();
        let Aggregators::List(names) = &builder.addresses.aggregators else { panic!("{builder:?}") };
        assert_eq!(names.iter().map(AsRef::as_ref).collect::<Vec<_>>(), ["127.0.0.1:7410", "127.0.0.1:7411"]);
        assert_eq!((builder.zone.as_str(), builder.name.as_ref().unwrap().as_str()), ("eu-1a", "host:8080"));
        assert_eq!(builder.directive_cache.as_deref(), Some("/var/cache/shop".as_ref()));
        assert_eq!(builder.kill_file.as_deref(), Some("/etc/kill".as_ref()));
        let cold: Vec<_> =
            builder.cold.iter().map(|(name, rate)| (name.as_str(), rate.per_second())).collect();
        assert_eq!(cold, [("checkout", 100.0), ("search", 0.5)]);
        assert_eq!((builder.keys_max, builder.buckets_max), (500, 2_000));
        assert!(builder.is_insecure);
        assert_eq!(builder.failover_delay, Duration::from_secs(90));
        assert_eq!((builder.before_policy, builder.ready_within.as_secs()), (BeforePolicy::Deny, 7));
        #[cfg(feature = "tls")]
        assert_eq!(with(&[("PLIMSOLL_CERTS", "/c")]).unwrap().certificates.as_deref(), Some("/c".as_ref()));
    }

    #[test]
    fn explicit_calls_win_and_without_variables_the_defaults_hold() {
        let builder = with(&[("PLIMSOLL_ZONE", "eu-1a")]).unwrap().zone("eu-1b").unwrap();
        assert_eq!(builder.zone.as_str(), "eu-1b");
        let (plain, default) = (with(&[("HOME", "/")]).unwrap(), Limiter::builder("shop").unwrap());
        assert_eq!(format!("{plain:?}"), format!("{default:?}"));
    }

    #[test]
    fn bad_value_is_an_error_that_names_variable_and_value() {
        for (name, value, remedy) in [
            ("PLIMSOLL_AGGREGATOR", "127.0.0.1:7410", "https://HOST:PORT"),
            ("PLIMSOLL_AGGREGATOR", "http://127.0.0.1:7410,", "https://HOST:PORT"),
            ("PLIMSOLL_AGGREGATOR", "", "unset"),
            ("PLIMSOLL_ZONE", "eu 1a", "letters"),
            ("PLIMSOLL_ZONE", "", "unset"),
            ("PLIMSOLL_NAME", "a b", "letters"),
            ("PLIMSOLL_INSECURE", "maybe", "true or false"),
            ("PLIMSOLL_COLD_RPS", "checkout", "NAME=RATE"),
            ("PLIMSOLL_COLD_RPS", "checkout=many", "number of requests/s"),
            ("PLIMSOLL_COLD_RPS", "checkout=-1", "rate"),
            ("PLIMSOLL_KEYS_MAX", "0", "1 to 100000"),
            ("PLIMSOLL_KEYS_MAX", "100001", "1 to 100000"),
            ("PLIMSOLL_BUCKETS_MAX", "-5", "whole number"),
            ("PLIMSOLL_GRACE", "20", "20s"),
            ("PLIMSOLL_BEFORE_POLICY", "refuse", "allow or deny"),
            ("PLIMSOLL_READY_WITHIN", "5", "5s"),
        ] {
            let error = with(&[(name, value)]).unwrap_err().to_string();
            for part in [name, &format!("`{value}`"), remedy] {
                assert!(error.contains(part), "{error} has no {part}");
            }
        }
        let long = with(&[("PLIMSOLL_ZONE", &"x".repeat(100_000))]).unwrap_err().to_string();
        assert!(long.len() < 2_000, "{} bytes", long.len());
    }

    #[test]
    fn misspelt_variable_is_matched_and_one_of_others_is_not() {
        for (name, expected) in [
            ("PLIMSOLL_AGGREGATORS", Some("PLIMSOLL_AGGREGATOR")),
            ("PLIMSOLL_AGREGATOR", Some("PLIMSOLL_AGGREGATOR")),
            ("PLIMSOLL_KEY_MAX", Some("PLIMSOLL_KEYS_MAX")),
            ("PLIMSOLL_CERT", Some("PLIMSOLL_CERTS")),
            ("PLIMSOLL_KILLFILE", Some("PLIMSOLL_KILL_FILE")),
            ("PLIMSOL_AGGREGATOR", Some("PLIMSOLL_AGGREGATOR")),
            ("plimsoll_zone", Some("PLIMSOLL_ZONE")),
            ("PLIMSOLL-ZONE", Some("PLIMSOLL_ZONE")),
            ("PLIMSOLL_DIRECTIVE_CACHE", Some("PLIMSOLL_DIRECTIVES")),
            ("PLIMSOLL_FAILOVER_DELAY", Some("PLIMSOLL_GRACE")),
            ("PLIMSOLL_CERTIFICATES", Some("PLIMSOLL_CERTS")),
            ("PLIMSOLL_QUOTA_STOR", Some("PLIMSOLL_QUOTA_STORE")),
            ("ZONE", None),
            ("CLIMATE_ZONE", None),
            ("PATH", None),
            ("PLIMSOLL_LISTEN", None),
            ("PLIMSOLL_BUCKETS", None),
            ("PLIMSOLL_AGGREGATOR_ADMIN", None),
            ("PLIMSOLL_AGGREGATOR_PORT", None),
            ("PLIMSOLL_AGGREGATOR_SERVICE_HOST", None),
            ("PLIMSOLL_AGGREGATOR_PORT_7410_TCP_ADDR", None),
            ("PLIMSOLL_PORT", None),
        ] {
            assert_eq!(meant(name), expected, "{name}");
        }
    }
}
