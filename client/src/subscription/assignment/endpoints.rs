//! The endpoints of a limiter's aggregators: one address, a list, or a DNS name that is resolved again and
//! again.
//!
//! An endpoint is `HOST:PORT`. The scheme of its address is not a part of it, because buckets are assigned by a
//! hash of it: clients that connect by TLS and others agree on the aggregator of a bucket.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use tonic::transport::Uri;

/// Maximum number of aggregators with a stream of a limiter. From a longer list a limiter takes the
/// first by name, so that all clients take the same.
pub const ENDPOINTS_MAX: usize = 64;
/// The number of DNS answers in a row that an address must be missing from before it is dropped: some servers
/// return only a part of many addresses.
const MISSING_MAX: u32 = 3;

#[derive(Clone, Debug, Default)]
pub(crate) struct Addresses {
    pub(crate) scheme: Scheme,
    pub(crate) aggregators: Aggregators,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Scheme {
    Https,
    #[default]
    Http,
    /// A name to resolve, by mutual TLS if the limiter has certificates.
    Dns,
}

#[derive(Clone, Debug, Default)]
pub(crate) enum Aggregators {
    #[default]
    None,
    /// One, which is resolved again with each connection.
    One(Arc<str>),
    List(Vec<Arc<str>>),
    /// All addresses of a DNS name, given as `HOST:PORT`.
    ByName(Arc<str>),
}

impl fmt::Display for Aggregators {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => Ok(()),
            Self::One(name) => f.write_str(name),
            Self::List(names) => f.write_str(&names.join(", ")),
            Self::ByName(name) => write!(f, "dns://{name}"),
        }
    }
}

impl Addresses {
    /// Parses `https://HOST:PORT` or `http://HOST:PORT` for each aggregator, all with one scheme, or a single
    /// `dns://HOST:PORT` for all addresses of a name. Returns the first address that breaks this rule, if any does.
    pub(crate) fn of<'a>(addresses: &[&'a str]) -> Result<Self, &'a str> {
        let mut scheme = None;
        let mut names = Vec::new();
        for address in addresses {
            let (found, name) = parse(address).ok_or(*address)?;
            let is_alone = found != Scheme::Dns || addresses.len() == 1;
            if *scheme.get_or_insert(found) != found || !is_alone {
                return Err(address);
            }
            names.push(name);
        }
        let scheme = scheme.unwrap_or_default();
        let aggregators = match (names.as_slice(), scheme) {
            ([], _) => Aggregators::None,
            ([name], Scheme::Dns) => Aggregators::ByName(name.as_str().into()),
            ([name], _) => Aggregators::One(name.as_str().into()),
            _ => Aggregators::List(bounded(names, &mut false)),
        };
        Ok(Self {
            scheme,
            aggregators,
        })
    }

    /// Returns the address of an endpoint in lower case, for errors.
    pub(crate) fn written(&self, endpoint: &str) -> String {
        format!("{}://{endpoint}", self.scheme)
    }

    pub(crate) fn first(&self) -> String {
        self.aggregators
            .names()
            .first()
            .map_or_else(String::new, |name| self.written(name))
    }
}

/// Returns the scheme of an address and its `HOST:PORT`, written in one way, or clients would compute different
/// homes of a bucket.
fn parse(address: &str) -> Option<(Scheme, String)> {
    let uri: Uri = address.parse().ok()?;
    let scheme = match uri.scheme_str()? {
        "https" => Scheme::Https,
        "http" => Scheme::Http,
        "dns" => Scheme::Dns,
        _ => return None,
    };
    let authority = uri
        .authority()
        .filter(|authority| authority.port_u16().is_some())?;
    let is_bare = uri.path_and_query().is_none_or(|path| path.as_str() == "/");
    let is_plain = is_bare && !authority.as_str().contains('@');
    is_plain.then(|| (scheme, authority.as_str().to_ascii_lowercase()))
}

impl Aggregators {
    pub(crate) fn names(&self) -> &[Arc<str>] {
        match self {
            Self::None => &[],
            Self::One(name) | Self::ByName(name) => std::slice::from_ref(name),
            Self::List(names) => names,
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Https => "https",
            Self::Http => "http",
            Self::Dns => "dns",
        })
    }
}

/// The addresses of a DNS name, over all answers so far.
#[derive(Debug, Default)]
pub(crate) struct Resolved {
    /// By address: the number of answers in a row that it was missing from.
    missing: BTreeMap<Arc<str>, u32>,
    /// True while there are more than have room.
    is_above: bool,
}

impl Resolved {
    /// Applies an answer and returns the addresses that are valid now. An empty answer changes nothing.
    pub(crate) fn on_answer(&mut self, answer: &[SocketAddr]) -> Vec<Arc<str>> {
        if !answer.is_empty() {
            // An aggregator that has an address of either family is one aggregator, not two.
            let any_v4 = answer.iter().any(SocketAddr::is_ipv4);
            let one_family = answer.iter().filter(|address| address.is_ipv4() == any_v4);
            let present: Vec<Arc<str>> = one_family
                .map(|address| address.to_string().into())
                .collect();
            if any_v4 {
                // Those of an earlier answer without it are the same aggregators.
                self.missing.retain(|name, _| !name.starts_with('['));
            }
            self.missing.values_mut().for_each(|missing| *missing += 1);
            self.missing.retain(|_, missing| *missing < MISSING_MAX);
            // An answer without IPv4 may lack it only this once.
            if any_v4 || self.missing.keys().all(|name| name.starts_with('[')) {
                self.missing
                    .extend(present.into_iter().map(|name| (name, 0)));
            }
        }
        let names = self.missing.keys().map(|name| name.to_string()).collect();
        bounded(names, &mut self.is_above)
    }
}

/// Returns the first names that have room. Warns once until all have: `is_above` is true between.
fn bounded(mut names: Vec<String>, is_above: &mut bool) -> Vec<Arc<str>> {
    names.sort_unstable();
    names.dedup();
    let was_above = std::mem::replace(is_above, names.len() > ENDPOINTS_MAX);
    if *is_above && !was_above {
        tracing::warn!(
            given = names.len(),
            max = ENDPOINTS_MAX,
            "too many aggregators: only the first by name are used"
        );
    }
    names.truncate(ENDPOINTS_MAX);
    names.into_iter().map(Arc::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(all: &[&str]) -> Vec<SocketAddr> {
        all.iter().map(|address| address.parse().unwrap()).collect()
    }

    fn answered(held: &mut Resolved, answer: &[&str]) -> Vec<String> {
        held.on_answer(&addresses(answer))
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    fn names_of(given: &[&str]) -> (Scheme, Vec<String>) {
        let Addresses {
            scheme,
            aggregators,
        } = Addresses::of(given).unwrap();
        (
            scheme,
            aggregators
                .names()
                .iter()
                .map(ToString::to_string)
                .collect(),
        )
    }

    #[test]
    fn addresses_become_one_sorted_list() {
        let of = |given: &[&'static str]| Addresses::of(given).unwrap().aggregators;
        assert!(matches!(of(&["http://a:7410"]), Aggregators::One(name) if &*name == "a:7410"));
        assert!(matches!(of(&[]), Aggregators::None));
        let given = ["http://B:7410/", "http://a:7410", "http://b:7410"];
        assert!(matches!(of(&given), Aggregators::List(_)));
        assert_eq!(
            names_of(&given),
            (
                Scheme::Http,
                ["a:7410", "b:7410"].map(str::to_owned).to_vec()
            )
        );
        let by_name = of(&["dns://aggregators.plimsoll.svc:7410"]);
        assert!(
            matches!(by_name, Aggregators::ByName(name) if &*name == "aggregators.plimsoll.svc:7410")
        );
    }

    #[test]
    fn endpoints_are_equal_under_any_scheme() {
        let (https, endpoints) = names_of(&["https://B:7410", "https://a:7410/"]);
        assert_eq!(https, Scheme::Https);
        assert_eq!(
            names_of(&["HTTP://a:7410", "http://b:7410"]),
            (Scheme::Http, endpoints)
        );
        assert_eq!(names_of(&["https://[fd00::1]:7410"]).1, ["[fd00::1]:7410"]);
    }

    #[test]
    fn address_that_breaks_the_rule_is_returned() {
        for bad in [
            &["dns://aggregators"][..],
            &["dns://"],
            &["a:7410"],
            &["https://a"],
            &["grpc://a:7410"],
            &["https://me@a:7410"],
            &["https://a:7410/path"],
            &["https://a:7410?query"],
            &["http://a:7410", "dns://b:7410"],
            &["dns://a:7410", "dns://b:7410"],
            &["https://a:7410", "http://b:7410"],
        ] {
            let found = Addresses::of(bad).unwrap_err();
            assert!(bad.contains(&found), "{found}");
        }
    }

    #[test]
    fn empty_answer_keeps_the_known_addresses() {
        let mut held = Resolved::default();
        assert_eq!(answered(&mut held, &[]), [""; 0]);
        let two = ["10.0.0.1:7410", "10.0.0.2:7410"];
        assert_eq!(
            answered(&mut held, &["10.0.0.2:7410", "10.0.0.1:7410"]),
            two
        );
        for _ in 0..10 {
            assert_eq!(answered(&mut held, &[]), two);
        }
    }

    #[test]
    fn address_is_dropped_after_three_absences() {
        let mut held = Resolved::default();
        answered(&mut held, &["10.0.0.1:7410", "10.0.0.2:7410"]);
        for _ in 0..10 {
            assert_eq!(answered(&mut held, &["10.0.0.1:7410"]).len(), 2);
            assert_eq!(answered(&mut held, &["10.0.0.2:7410"]).len(), 2);
        }
        for left in [2, 2, 1] {
            assert_eq!(answered(&mut held, &["10.0.0.1:7410"]).len(), left);
        }
        assert_eq!(
            answered(&mut held, &["10.0.0.3:7410"]).len(),
            2,
            "a new address is used at once"
        );
    }

    #[test]
    fn address_of_ipv4_outlives_an_answer_without_it() {
        let mut held = Resolved::default();
        let v4 = ["10.0.0.1:7410"];
        answered(&mut held, &v4);
        for expected in [v4, v4, ["[fd00::1]:7410"]] {
            assert_eq!(answered(&mut held, &["[fd00::1]:7410"]), expected);
        }
    }

    #[test]
    fn both_address_families_name_one_aggregator() {
        let mut held = Resolved::default();
        answered(&mut held, &["[fd00::1]:7410"]);
        assert_eq!(
            answered(&mut held, &["[fd00::1]:7410", "10.0.0.1:7410"]),
            ["10.0.0.1:7410"]
        );
        assert_eq!(
            answered(&mut Resolved::default(), &["[fd00::1]:7410"]),
            ["[fd00::1]:7410"]
        );
        let mut many: Vec<String> = (0..100).map(|at| format!("10.0.0.{at}:7410")).collect();
        let first = Resolved::default().on_answer(&addresses(
            &many.iter().map(String::as_str).collect::<Vec<_>>(),
        ));
        many.reverse();
        let second = Resolved::default().on_answer(&addresses(
            &many.iter().map(String::as_str).collect::<Vec<_>>(),
        ));
        assert_eq!((first.len(), first), (ENDPOINTS_MAX, second));
    }
}
