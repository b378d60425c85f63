//! A fleet with several controllers on a cluster of etcd, and an aggregator in each of three zones.

use std::fs;
use std::net::SocketAddr;

use serde_json::Value;
use tempfile::TempDir;

use crate::etcd::{EtcdServer, start_cluster};
use crate::fleet::{TENANTS, aggregator, controller_in, save};
use crate::process::{FREE_PORT, Process, free_addresses, http, until};
use crate::proxy::Proxy;

pub const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];

/// The host of the proxies before controllers, whose ports are those of the controllers.
const OF_PROXIES: [u8; 4] = [127, 0, 0, 2];

/// Proxies between a controller and the others.
pub struct Links {
    pub store: Vec<Proxy>,
    pub aggregators: Proxy,
}

pub struct Members {
    /// The links of each controller; empty if there are no proxies.
    pub links: Vec<Links>,
    pub store: [EtcdServer; 3],
    pub controllers: Vec<Process>,
    pub aggregators: Vec<Process>,
    directory: TempDir,
}

impl Members {
    /// Starts the store and controllers with this policy, waits until one leads, and starts the aggregators. Returns
    /// `None`, and notes the skipped test, if etcd is not installed.
    pub fn start(test: &str, controllers: usize, policy: &str) -> Option<Self> {
        Self::start_with(test, controllers, policy, false)
    }

    /// As [`Self::start`], with links of each controller that can be cut.
    pub fn behind_proxies(test: &str, controllers: usize, policy: &str) -> Option<Self> {
        Self::start_with(test, controllers, policy, true)
    }

    fn start_with(test: &str, controllers: usize, policy: &str, proxies: bool) -> Option<Self> {
        let store = start_cluster(test)?;
        let directory = tempfile::tempdir().unwrap();
        let mut members = Self {
            links: Vec::new(),
            store,
            controllers: Vec::new(),
            aggregators: Vec::new(),
            directory,
        };
        for number in 0..controllers {
            members.write(number, "policy.yaml", policy);
            members.write(number, "tenants.yaml", TENANTS);
            let listen = if proxies {
                members.link()
            } else {
                FREE_PORT.to_owned()
            };
            let started = members.controller(number, &listen, FREE_PORT);
            members.controllers.push(started);
        }
        members.until_led();
        let parents = if proxies {
            let links = members.links.iter();
            let urls = links.map(|it| format!("http://{}", it.aggregators.address));
            urls.collect::<Vec<_>>().join(",")
        } else {
            members.urls("listen")
        };
        members.aggregators = ZONES
            .map(|zone| aggregator(zone, &parents, FREE_PORT, FREE_PORT))
            .into();
        Some(members)
    }

    /// The URLs of one port of all controllers, separated by commas.
    pub fn urls(&self, port: &str) -> String {
        let urls = self.controllers.iter().map(|it| it.url(port));
        urls.collect::<Vec<_>>().join(",")
    }

    /// Starts the proxies of the next controller, and returns the address for it to listen at.
    fn link(&mut self) -> String {
        let [listen] = free_addresses();
        let store = self.store.iter();
        let store = store.map(|server| Proxy::start(([127, 0, 0, 1], 0).into(), server.address));
        let links = Links {
            store: store.collect(),
            aggregators: Proxy::start((OF_PROXIES, listen.port()).into(), listen),
        };
        self.links.push(links);
        listen.to_string()
    }

    /// The URL of the store for one controller.
    fn store_url(&self, number: usize) -> String {
        let endpoints: Vec<SocketAddr> = match self.links.get(number) {
            Some(links) => links.store.iter().map(|it| it.address).collect(),
            None => self.store.iter().map(|it| it.address).collect(),
        };
        let endpoints: Vec<String> = endpoints.iter().map(ToString::to_string).collect();
        format!("etcd://{}/plimsoll", endpoints.join(","))
    }

    /// Saves a file of one controller, as an editor does.
    pub fn write(&self, number: usize, name: &str, text: &str) {
        let folder = self.directory.path().join(number.to_string());
        fs::create_dir_all(&folder).unwrap();
        save(&folder, name, text);
    }

    fn controller(&self, number: usize, listen: &str, admin: &str) -> Process {
        let folder = self.directory.path().join(number.to_string());
        let store = self.store_url(number);
        let advertised = std::net::IpAddr::from(OF_PROXIES).to_string();
        let flags = ["--store", &store, "--advertise", &advertised];
        let flags = if self.links.is_empty() {
            &flags[..2]
        } else {
            &flags
        };
        controller_in(&folder, listen, admin, flags)
    }

    /// Starts a controller that has ended again on its addresses.
    pub fn restart(&mut self, number: usize) {
        let [listen, admin] =
            ["listen", "admin"].map(|port| self.controllers[number].address(port).to_string());
        self.controllers[number] = self.controller(number, &listen, &admin);
    }

    /// The number of the controller that leads, among these.
    pub fn leader(&self, among: &[usize]) -> Option<usize> {
        let leads = |number: &&usize| {
            let controller = &self.controllers[**number];
            !controller.has_ended()
                && http(controller.address("admin"), "GET", "/lead", &[])
                    .is_ok_and(|(code, _)| code == 200)
        };
        among.iter().find(leads).copied()
    }

    pub fn until_led(&self) -> usize {
        self.until_led_without(usize::MAX)
    }

    /// Waits until another controller than `excluded` leads.
    pub fn until_led_without(&self, excluded: usize) -> usize {
        let others: Vec<usize> = (0..self.controllers.len())
            .filter(|number| *number != excluded)
            .collect();
        until("a controller to lead", || self.leader(&others))
    }

    /// `None` while that controller does not lead.
    pub fn status(&self, number: usize) -> Option<Value> {
        let admin = self.controllers[number].address("admin");
        let (code, body) = http(admin, "GET", "/status", &[]).ok()?;
        (code == 200).then(|| serde_json::from_str(&body).unwrap())
    }

    /// The epoch of the directives that each aggregator has.
    pub fn epochs(&self) -> Vec<u64> {
        let epoch = |aggregator: &Process| {
            let (_, body) = http(aggregator.address("admin"), "GET", "/status", &[]).ok()?;
            let status: Value = serde_json::from_str(&body).ok()?;
            status["epoch"].as_u64()
        };
        let epochs = self.aggregators.iter().map(|it| epoch(it).unwrap_or(0));
        epochs.collect()
    }
}
