//! A limiter that is configured by environment variables, under the names that the flags of Plimsoll's processes have.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::time::Duration;

use super::{BUCKETS_MAX, BuildError, KEYS_MAX, LimiterBuilder};
#[cfg(feature = "quota")]
use crate::QuotaStore;

/// Maximum length of a value, and of its fault, that an error quotes, in characters.
const QUOTED_MAX: usize = 500;

type Apply = fn(LimiterBuilder, &OsStr) -> LimiterBuilder;

const OWN: [(&str, Apply); 13] = [
    ("PLIMSOLL_AGGREGATOR", |builder, value| {
        builder.parse(text(value), |builder, text| {
            builder.aggregators(&text.split(',').map(str::trim).collect::<Vec<_>>())
        })
    }),
    ("PLIMSOLL_BEFORE_POLICY", |builder, value| {
        let policy = text(value).and_then(|text| text.parse().map_err(str::to_owned));
        builder.parse(policy, LimiterBuilder::before_policy)
    }),
    ("PLIMSOLL_BUCKETS_MAX", |builder, value| {
        builder.parse(up_to(value, BUCKETS_MAX), LimiterBuilder::buckets_max)
    }),
    ("PLIMSOLL_CERTS", |builder, value| {
        #[cfg(feature = "tls")]
        return builder.certificates(value);
        #[cfg(not(feature = "tls"))]
        {
            let _ = value;
            builder.without("TLS", "tls")
        }
    }),
    ("PLIMSOLL_COLD_RPS", |builder, value| {
        builder.parse(text(value), cold)
    }),
    ("PLIMSOLL_DIRECTIVES", |builder, value| {
        builder.directive_cache(value)
    }),
    ("PLIMSOLL_GRACE", |builder, value| {
        builder.parse(time(value, "20s"), LimiterBuilder::failover_delay)
    }),
    ("PLIMSOLL_INSECURE", |builder, value| {
        builder.parse(yes_or_no(value), |builder, yes| {
            if yes { builder.insecure() } else { builder }
        })
    }),
    ("PLIMSOLL_KEYS_MAX", |builder, value| {
        builder.parse(up_to(value, KEYS_MAX), LimiterBuilder::keys_max)
    }),
    ("PLIMSOLL_KILL_FILE", |builder, value| {
        builder.kill_file(value)
    }),
    ("PLIMSOLL_NAME", |builder, value| {
        builder.parse(text(value), LimiterBuilder::name)
    }),
    ("PLIMSOLL_READY_WITHIN", |builder, value| {
        builder.parse(time(value, "5s"), LimiterBuilder::ready_within)
    }),
    ("PLIMSOLL_ZONE", |builder, value| {
        builder.parse(text(value), LimiterBuilder::zone)
    }),
];

/// The address first: the others need it.
#[cfg(feature = "quota")]
const OF_STORE: [(&str, Apply); 5] = [
    ("PLIMSOLL_QUOTA_STORE", |builder, value| {
        let store =
            text(value).and_then(|url| QuotaStore::new(url).map_err(|error| error.to_string()));
        builder.parse(store, LimiterBuilder::quota_store)
    }),
    ("PLIMSOLL_QUOTA_CA", |builder, value| {
        of_store(builder, |store| Ok(store.ca(value)))
    }),
    ("PLIMSOLL_QUOTA_PASSWORD_FILE", |builder, value| {
        of_store(builder, |store| Ok(store.password_file(value)))
    }),
    ("PLIMSOLL_QUOTA_TIMEOUT", |builder, value| {
        of_store(builder, |store| Ok(store.timeout(time(value, "20ms")?)))
    }),
    ("PLIMSOLL_QUOTA_USERNAME", |builder, value| {
        of_store(builder, |store| Ok(store.username(text(value)?)))
    }),
];
#[cfg(not(feature = "quota"))]
const OF_STORE: [(&str, Apply); 5] = {
    const WITHOUT: Apply = |builder, _| builder.without("exact quotas", "quota");
    [
        ("PLIMSOLL_QUOTA_STORE", WITHOUT),
        ("PLIMSOLL_QUOTA_CA", WITHOUT),
        ("PLIMSOLL_QUOTA_PASSWORD_FILE", WITHOUT),
        ("PLIMSOLL_QUOTA_TIMEOUT", WITHOUT),
        ("PLIMSOLL_QUOTA_USERNAME", WITHOUT),
    ]
};

fn all() -> impl Iterator<Item = (&'static str, Apply)> {
    OWN.into_iter().chain(OF_STORE)
}

impl LimiterBuilder {
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
    /// ```
    /// # fn main() -> Result<(), plimsoll_client::BuildError> {
    /// use plimsoll_client::Limiter;
    ///
    /// let variables = [("PLIMSOLL_ZONE", "eu-1a"), ("PLIMSOLL_READY_WITHIN", "5s")];
    /// let (limiter, _feed) = Limiter::builder("shop").variables(variables).build()?;
    /// # drop(limiter);
    /// # Ok(()) }
    /// ```
    ///
    /// An invalid or empty value is an error, which names the variable and its value.
    pub fn variables<N, V>(mut self, variables: impl IntoIterator<Item = (N, V)>) -> Self
    where
        N: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        let owned = |(name, value): (N, V)| (name.as_ref().to_owned(), value.as_ref().to_owned());
        let given: BTreeMap<OsString, OsString> = variables.into_iter().map(owned).collect();
        for (name, apply) in all() {
            let Some(value) = given.get(OsStr::new(name)) else {
                continue;
            };
            let earlier = self.error.take();
            self = match value.is_empty() {
                true => {
                    self.fail("the value is empty; give it one or unset the variable".to_owned())
                }
                false => apply(self, value),
            };
            let fault = self.error.take().map(|error| {
                let cause = match error {
                    BuildError::Variable { cause, .. } => cause,
                    error => error.to_string(),
                };
                BuildError::Variable {
                    name,
                    value: quoted(&value.to_string_lossy()),
                    cause: quoted(&cause),
                }
            });
            self.error = earlier.or(fault);
        }
        self
    }

    fn parse<T>(self, value: Result<T, String>, apply: impl FnOnce(Self, T) -> Self) -> Self {
        match value {
            Ok(value) => apply(self, value),
            Err(cause) => self.fail(cause),
        }
    }

    fn fail(self, cause: String) -> Self {
        self.set(|_| {
            Err(BuildError::Variable {
                name: "",
                value: String::new(),
                cause,
            })
        })
    }

    #[cfg(not(all(feature = "tls", feature = "quota")))]
    fn without(self, what: &str, feature: &str) -> Self {
        let library = "this library was built without";
        self.fail(format!(
            "{library} {what}; build plimsoll-client with its feature `{feature}`"
        ))
    }
}

#[cfg(feature = "quota")]
fn of_store(
    mut builder: LimiterBuilder,
    apply: impl FnOnce(QuotaStore) -> Result<QuotaStore, String>,
) -> LimiterBuilder {
    match builder.quota_store.take() {
        Some(store) => builder.parse(apply(store), LimiterBuilder::quota_store),
        None => {
            builder.fail("it needs the address of the store: set PLIMSOLL_QUOTA_STORE".to_owned())
        }
    }
}

fn text(value: &OsStr) -> Result<&str, String> {
    value
        .to_str()
        .map(str::trim)
        .ok_or_else(|| "the value is not UTF-8".to_owned())
}

fn time(value: &OsStr, example: &str) -> Result<Duration, String> {
    humantime::parse_duration(text(value)?)
        .map_err(|error| format!("{error}; write it like {example}"))
}

fn yes_or_no(value: &OsStr) -> Result<bool, String> {
    match text(value)?.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        _ => Err("write true or false".to_owned()),
    }
}

fn up_to(value: &OsStr, max: usize) -> Result<usize, String> {
    let number = text(value)?
        .parse()
        .ok()
        .filter(|number| (1..=max).contains(number));
    number.ok_or_else(|| format!("write a whole number from 1 to {max}"))
}

/// Applies `NAME=RATE,NAME=RATE`.
fn cold(builder: LimiterBuilder, rates: &str) -> LimiterBuilder {
    rates
        .split(',')
        .fold(builder, |builder, entry| match entry.split_once('=') {
            None => builder.fail(format!(
                "`{entry}`: write it as NAME=RATE, such as checkout=100"
            )),
            Some((bucket, rps)) => {
                let rate = rps
                    .trim()
                    .parse()
                    .map_err(|_| format!("`{rps}` is not a number of requests/s"));
                builder.parse(rate, |builder, rps| builder.cold_rps(bucket.trim(), rps))
            }
        })
}

fn quoted(text: &str) -> String {
    text.chars().take(QUOTED_MAX).collect()
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::subscription::assignment::endpoints::Aggregators;
    use crate::{BeforePolicy, Limiter};

    fn with(variables: &[(&str, &str)]) -> Result<LimiterBuilder, BuildError> {
        let mut builder = Limiter::builder("shop").variables(variables.iter().copied());
        builder.error.take().map_or(Ok(builder), Err)
    }

    #[test]
    fn each_variable_sets_what_its_method_sets() {
        let builder = with(&[
            (
                "PLIMSOLL_AGGREGATOR",
                "http://127.0.0.1:7410, http://127.0.0.1:7411",
            ),
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
        let Aggregators::List(names) = &builder.addresses.aggregators else {
            panic!("{builder:?}")
        };
        assert_eq!(
            names.iter().map(AsRef::as_ref).collect::<Vec<_>>(),
            ["127.0.0.1:7410", "127.0.0.1:7411"]
        );
        assert_eq!(
            (
                builder.zone.unwrap().as_str(),
                builder.name.unwrap().as_str()
            ),
            ("eu-1a", "host:8080")
        );
        assert_eq!(
            builder.directive_cache.as_deref(),
            Some("/var/cache/shop".as_ref())
        );
        assert_eq!(builder.kill_file.as_deref(), Some("/etc/kill".as_ref()));
        let cold: Vec<_> = builder
            .cold
            .iter()
            .map(|(name, rate)| (name.as_str(), rate.per_second()))
            .collect();
        assert_eq!(cold, [("checkout", 100.0), ("search", 0.5)]);
        assert_eq!((builder.keys_max, builder.buckets_max), (500, 2_000));
        assert!(builder.is_insecure);
        assert_eq!(builder.failover_delay, Duration::from_secs(90));
        assert_eq!(
            (builder.before_policy, builder.ready_within.as_secs()),
            (BeforePolicy::Deny, 7)
        );
        #[cfg(feature = "tls")]
        assert_eq!(
            with(&[("PLIMSOLL_CERTS", "/c")])
                .unwrap()
                .certificates
                .as_deref(),
            Some("/c".as_ref())
        );
    }

    #[test]
    fn explicit_calls_override_variables_and_defaults() {
        let builder = with(&[("PLIMSOLL_ZONE", "eu-1a")]).unwrap().zone("eu-1b");
        assert_eq!(builder.zone.unwrap().as_str(), "eu-1b");
        let (plain, default) = (with(&[("HOME", "/")]).unwrap(), Limiter::builder("shop"));
        assert_eq!(format!("{plain:?}"), format!("{default:?}"));
    }

    #[test]
    fn bad_value_error_names_its_variable() {
        for (name, value, remedy) in [
            ("PLIMSOLL_AGGREGATOR", "127.0.0.1:7410", "https://HOST:PORT"),
            (
                "PLIMSOLL_AGGREGATOR",
                "http://127.0.0.1:7410,",
                "https://HOST:PORT",
            ),
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
        let long = with(&[("PLIMSOLL_ZONE", &"x".repeat(100_000))])
            .unwrap_err()
            .to_string();
        assert!(long.len() < 2_000, "{} bytes", long.len());
    }

    #[cfg(feature = "quota")]
    fn store_of(variables: &[(&str, &str)]) -> Result<String, String> {
        let builder = with(variables);
        builder
            .map(|builder| format!("{:?}", builder.quota_store))
            .map_err(|error| error.to_string())
    }

    #[cfg(feature = "quota")]
    #[test]
    fn variables_configure_the_store_in_any_order() {
        let store = store_of(&[
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
        assert_eq!(store_of(&[]).unwrap(), "None");
    }

    #[cfg(feature = "quota")]
    #[test]
    fn faulty_store_variable_is_named_with_remedy() {
        let address = ("PLIMSOLL_QUOTA_STORE", "plimsoll://quota:9049");
        for (variables, name, remedy) in [
            (
                &[("PLIMSOLL_QUOTA_USERNAME", "shop")][..],
                "PLIMSOLL_QUOTA_USERNAME",
                "set PLIMSOLL_QUOTA_STORE",
            ),
            (
                &[("PLIMSOLL_QUOTA_STORE", "quota:9049")],
                "PLIMSOLL_QUOTA_STORE",
                "plimsoll://HOST:PORT",
            ),
            (
                &[("PLIMSOLL_QUOTA_STORE", "")],
                "PLIMSOLL_QUOTA_STORE",
                "unset",
            ),
            (
                &[address, ("PLIMSOLL_QUOTA_TIMEOUT", "20")],
                "PLIMSOLL_QUOTA_TIMEOUT",
                "20ms",
            ),
        ] {
            let error = store_of(variables).unwrap_err();
            assert!(error.contains(name) && error.contains(remedy), "{error}");
        }
    }
}
