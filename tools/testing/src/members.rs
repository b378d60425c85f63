//! A fleet with several controllers on a cluster of etcd, and an aggregator in each of three zones.

use std::fs;

use serde_json::Value;
use tempfile::TempDir;

use crate::etcd::{EtcdServer, start_cluster};
use crate::fleet::{TENANTS, aggregator, controller_in, free};
use crate::process::{Process, http, until};

pub const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];

pub struct Members {
    pub store: [EtcdServer; 3],
    pub controllers: Vec<Process>,
    pub aggregators: Vec<Process>,
    directory: TempDir,
}

impl Members {
    /// Starts the store and controllers with this policy, waits until one leads, and starts the aggregators. Returns
    /// `None`, and notes the skipped test, if etcd is not installed.
    pub fn start(test: &str, controllers: usize, policy: &str) -> Option<Self> {
        let store = start_cluster(test)?;
        let directory = tempfile::tempdir().unwrap();
        let mut members = Self {
            store,
            controllers: Vec::new(),
            aggregators: Vec::new(),
            directory,
        };
        for number in 0..controllers {
            members.write(number, "policy.yaml", policy);
            members.write(number, "tenants.yaml", TENANTS);
            let started = members.controller(number, &free(), &free());
            members.controllers.push(started);
        }
        members.until_led();
        let parents = members.urls("listen");
        members.aggregators = ZONES
            .map(|zone| aggregator(zone, &parents, &free(), &free()))
            .into();
        Some(members)
    }

    /// The URLs of one port of all controllers, separated by commas.
    pub fn urls(&self, port: &str) -> String {
        let urls = self
            .controllers
            .iter()
            .map(|it| format!("http://{}", it.address(port)));
        urls.collect::<Vec<_>>().join(",")
    }

    /// The URL of the store.
    pub fn store_url(&self) -> String {
        let endpoints = self.store.iter().map(|server| server.address.to_string());
        format!(
            "etcd://{}/plimsoll",
            endpoints.collect::<Vec<_>>().join(",")
        )
    }

    /// Saves a file of one controller, as an editor does.
    pub fn write(&self, number: usize, name: &str, text: &str) {
        let folder = self.directory.path().join(number.to_string());
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("swap"), text).unwrap();
        fs::rename(folder.join("swap"), folder.join(name)).unwrap();
    }

    fn controller(&self, number: usize, listen: &str, admin: &str) -> Process {
        let folder = self.directory.path().join(number.to_string());
        controller_in(&folder, listen, admin, &["--store", &self.store_url()])
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
