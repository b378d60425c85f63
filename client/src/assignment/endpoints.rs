//! The endpoints of a limiter's aggregators: one address, a list, or a DNS name that is resolved again and
//! again.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use plimsoll_proto::transport::{self, InvalidEndpoint};
use tonic::transport::Endpoint;

/// The most aggregators that a limiter has streams to. Of more, it takes the first by name, so that all
/// clients take the same.
pub const ENDPOINTS_MAX: usize = 64;
/// The number of DNS answers in a row that an address must be missing from before it is dropped: some servers
/// return only a part of many addresses.
const MISSING_MAX: u32 = 3;
/// The scheme of an address that is resolved by DNS.
const DNS_SCHEME: &str = "dns://";

/// The aggregators that a limiter was set up with.
#[derive(Clone, Debug)]
pub(crate) enum Aggregators {
    /// No aggregator.
    None,
    /// One, which is resolved again with each connection.
    One(Box<Endpoint>),
    /// Several, by their addresses.
    List(Vec<Arc<str>>),
    /// All addresses of a DNS name, given as `HOST:PORT`.
    ByName(Arc<str>),
}

impl Aggregators {
    /// Parses `http://HOST:PORT` for each aggregator, or a single `dns://HOST:PORT` for all addresses of a
    /// name.
    pub(crate) fn of<S: AsRef<str>>(addresses: &[S]) -> Result<Self, InvalidEndpoint> {
        if let [only] = addresses {
            let only = only.as_ref();
            let name = only.strip_prefix(DNS_SCHEME);
            // A name and a port are required, as in any other address.
            let name = name.filter(|name| transport::endpoint(&format!("http://{name}")).is_ok());
            return Ok(match name {
                Some(name) => Self::ByName(name.trim_end_matches('/').into()),
                None => Self::One(Box::new(transport::endpoint(only)?)),
            });
        }
        let mut names = Vec::new();
        for address in addresses {
            let endpoint = transport::endpoint(address.as_ref())?;
            // Written in one way, or clients would compute different homes of a bucket.
            let authority =
                endpoint.uri().authority().map(|authority| authority.as_str().to_ascii_lowercase());
            names.push(format!("http://{}", authority.unwrap_or_default()));
        }
        match bounded(names) {
            names if names.is_empty() => Ok(Self::None),
            names => Ok(Self::List(names)),
        }
    }
}

/// The addresses of a DNS name, over all answers so far.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    /// By address: the number of answers in a row that it was missing from.
    missing: BTreeMap<Arc<str>, u32>,
}

impl Addresses {
    /// Applies an answer and returns the addresses that are valid now. An empty answer changes nothing.
    pub(crate) fn on_answer(&mut self, answer: &[SocketAddr]) -> Vec<Arc<str>> {
        if !answer.is_empty() {
            // An aggregator that has an address of either family is one aggregator, not two.
            let any_v4 = answer.iter().any(SocketAddr::is_ipv4);
            let one_family = answer.iter().filter(|address| address.is_ipv4() == any_v4);
            let present: Vec<Arc<str>> =
                one_family.map(|address| format!("http://{address}").into()).collect();
            self.missing.values_mut().for_each(|missing| *missing += 1);
            self.missing.extend(present.into_iter().map(|name| (name, 0)));
            self.missing.retain(|_, missing| *missing < MISSING_MAX);
        }
        bounded(self.missing.keys().map(|name| name.to_string()).collect())
    }
}

fn bounded(mut names: Vec<String>) -> Vec<Arc<str>> {
    names.sort_unstable();
    names.dedup();
    if names.len() > ENDPOINTS_MAX {
        tracing::warn!(
            given = names.len(),
            max = ENDPOINTS_MAX,
            "too many aggregators: only the first by name are used"
        );
        names.truncate(ENDPOINTS_MAX);
    }
    names.into_iter().map(Arc::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(all: &[&str]) -> Vec<SocketAddr> {
        all.iter().map(|address| address.parse().unwrap()).collect()
    }

    fn answered(held: &mut Addresses, answer: &[&str]) -> Vec<String> {
        held.on_answer(&addresses(answer)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn several_addresses_become_a_sorted_list_in_one_spelling() {
        assert!(matches!(Aggregators::of(&["http://a:7410"]), Ok(Aggregators::One(_))));
        assert!(matches!(Aggregators::of::<&str>(&[]), Ok(Aggregators::None)));
        let list = Aggregators::of(&["http://B:7410/", "http://a:7410", "http://b:7410"]).unwrap();
        let Aggregators::List(names) = list else { panic!("{list:?}") };
        assert_eq!(names.iter().map(|name| &**name).collect::<Vec<_>>(), ["http://a:7410", "http://b:7410"]);
        let by_name = Aggregators::of(&["dns://aggregators.plimsoll.svc:7410"]).unwrap();
        assert!(matches!(by_name, Aggregators::ByName(name) if &*name == "aggregators.plimsoll.svc:7410"));
        for bad in [&["dns://aggregators"][..], &["dns://"], &["a:7410"], &["http://a:7410", "dns://b:7410"]]
        {
            let error = Aggregators::of(bad).unwrap_err().to_string();
            assert!(error.contains(bad[bad.len() - 1]), "{error}");
        }
    }

    #[test]
    fn empty_answer_keeps_the_known_addresses() {
        let mut held = Addresses::default();
        assert_eq!(answered(&mut held, &[]), [""; 0]);
        let two = ["http://10.0.0.1:7410", "http://10.0.0.2:7410"];
        assert_eq!(answered(&mut held, &["10.0.0.2:7410", "10.0.0.1:7410"]), two);
        for _ in 0..10 {
            assert_eq!(answered(&mut held, &[]), two);
        }
    }

    #[test]
    fn address_is_dropped_after_it_was_missing_from_three_answers_in_a_row() {
        let mut held = Addresses::default();
        answered(&mut held, &["10.0.0.1:7410", "10.0.0.2:7410"]);
        for _ in 0..10 {
            assert_eq!(answered(&mut held, &["10.0.0.1:7410"]).len(), 2);
            assert_eq!(answered(&mut held, &["10.0.0.2:7410"]).len(), 2);
        }
        for left in [2, 2, 1] {
            assert_eq!(answered(&mut held, &["10.0.0.1:7410"]).len(), left);
        }
        assert_eq!(answered(&mut held, &["10.0.0.3:7410"]).len(), 2, "a new address is used at once");
    }

    #[test]
    fn two_address_families_are_one_aggregator_and_the_cut_of_too_many_is_the_same_in_any_order() {
        let mut held = Addresses::default();
        assert_eq!(answered(&mut held, &["[fd00::1]:7410", "10.0.0.1:7410"]), ["http://10.0.0.1:7410"]);
        assert_eq!(answered(&mut Addresses::default(), &["[fd00::1]:7410"]), ["http://[fd00::1]:7410"]);
        let mut many: Vec<String> = (0..100).map(|at| format!("10.0.0.{at}:7410")).collect();
        let first =
            Addresses::default().on_answer(&addresses(&many.iter().map(String::as_str).collect::<Vec<_>>()));
        many.reverse();
        let second =
            Addresses::default().on_answer(&addresses(&many.iter().map(String::as_str).collect::<Vec<_>>()));
        assert_eq!((first.len(), first), (ENDPOINTS_MAX, second));
    }
}
