//! A fleet of every kind of limiter under one limit: two services with the client, a sidecar behind
//! Envoy and a sidecar behind nginx. `./measure` uses it too.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::fleet::{BUCKET, LOAD, policy, start_controller};
use crate::process::{FREE, FREE_PORT, FREE_SIDECAR, Process, free_addresses, http, until};

/// Tenants with equal demands, and their weights.
pub const WEIGHTS: [(&str, f64); 2] = [("acme", 3.0), ("corner-shop", 1.0)];
/// Number of paths to the bucket.
const PATHS: usize = 4;

pub struct Mixed {
    pub controller: Process,
    _aggregator: Process,
    services: [Process; 2],
    sidecars: [Process; 2],
    /// Envoy, nginx, and the service behind both, which limits nothing.
    _behind: [Process; 3],
    proxies: [SocketAddr; 2],
    load: Option<Process>,
    _directory: TempDir,
}

/// Answers to all callers up to a moment of the load.
#[derive(Clone, Copy, Debug)]
pub struct Answered {
    pub at_s: f64,
    /// Served requests in total, and by tenant in the order of [`WEIGHTS`].
    pub served: f64,
    pub of_tenants: [f64; 2],
    pub refused: f64,
    pub failed: f64,
}

impl Mixed {
    /// Starts the fleet with this limit, and waits until every path answers.
    pub fn start(limit: u32, envoy: &Path, nginx: &Path) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let weight = |(name, weight): &(&str, f64)| format!("  {name}: {{ weight: {weight} }}\n");
        let tenants: String = WEIGHTS.iter().map(weight).collect();
        let tenants = format!("tenants:\n  default: {{ weight: 1 }}\n{tenants}");
        let controller = start_controller(&directory, &policy(limit, "enforce", false), &tenants);
        let uplink = controller.url("listen");
        let aggregator =
            Process::start(&[&["aggregator", "--controller", &uplink], &FREE[..]].concat());
        let parent = aggregator.url("listen");

        let service = |name: &str, parent: &str| {
            let flags = ["service", "--name", name, "--buckets", BUCKET];
            let ports = ["--listen", FREE_PORT, "--aggregator", parent];
            Process::start(&[&flags[..], &ports].concat())
        };
        let sidecar = |name: &str| {
            let flags = ["sidecar", "--name", name, "--aggregator", &parent];
            Process::start(&[&flags[..], &FREE_SIDECAR].concat())
        };
        let services = ["service-1", "service-2"].map(|name| service(name, &parent));
        let sidecars = ["sidecar-envoy", "sidecar-nginx"].map(sidecar);
        // It never finds an aggregator, and admits all.
        let backend = service("backend", "http://127.0.0.1:1");
        let proxies = free_addresses();
        let to = backend.address("listen");
        let configuration = [
            envoy_configuration(proxies[0], sidecars[0].address("listen"), to),
            nginx_configuration(
                proxies[1],
                sidecars[1].address("http"),
                to,
                directory.path(),
            ),
        ];
        let [of_envoy, of_nginx] =
            ["envoy.json", "nginx.conf"].map(|name| directory.path().join(name));
        fs::write(&of_envoy, &configuration[0]).unwrap();
        fs::write(&of_nginx, &configuration[1]).unwrap();
        let mut envoy = Command::new(envoy);
        envoy.args(["--use-dynamic-base-id", "--concurrency", "1"]);
        envoy.args(["--log-level", "error", "-c"]).arg(of_envoy);
        let mut nginx = Command::new(nginx);
        nginx.args(["-e", "stderr", "-c"]).arg(of_nginx);
        let behind = [
            Process::spawn_command(envoy),
            Process::spawn_command(nginx),
            backend,
        ];
        let fleet = Self {
            controller,
            _aggregator: aggregator,
            services,
            sidecars,
            _behind: behind,
            proxies,
            load: None,
            _directory: directory,
        };
        for address in fleet.addresses() {
            let path = format!("/{BUCKET}");
            until("every path to answer", || {
                let (status, _) = http(address, "GET", &path, &[]).ok()?;
                (status == 200).then_some(())
            });
        }
        fleet
    }

    /// Starts a load that all paths and all tenants share evenly.
    pub fn start_load(&mut self, rps: u32) {
        let targets = self
            .addresses()
            .map(|address| format!("http://{address}/{BUCKET}"))
            .join(",");
        let tenants = WEIGHTS.map(|(name, _)| name).join(",");
        let rps = rps.to_string();
        let flags = ["--target", &targets, "--rps", &rps, "--tenant", &tenants];
        let timing = ["--every", "500ms", "--timeout", "30s"];
        self.load = Some(Process::spawn(&[&LOAD[..], &flags, &timing].concat()));
    }

    /// Returns the answers so far, one line for each half second.
    pub fn answered(&self) -> Vec<Answered> {
        let lines = self.load.iter().flat_map(Process::output_lines);
        lines.map(|line| Answered::read(&line)).collect()
    }

    /// Returns the refusals of each path so far, from both services and both sidecars.
    pub fn refusals(&self) -> [f64; PATHS] {
        let refused = |process: &Process, port| {
            process.metric(port, "plimsoll_decisions_total", "result=\"drop\"")
        };
        let [first, second] = self.services.each_ref().map(|it| refused(it, "listen"));
        let [third, fourth] = self.sidecars.each_ref().map(|it| refused(it, "admin"));
        [first, second, third, fourth]
    }

    fn addresses(&self) -> [SocketAddr; PATHS] {
        let [first, second] = self.services.each_ref().map(|it| it.address("listen"));
        [first, second, self.proxies[0], self.proxies[1]]
    }
}

impl Answered {
    fn read(line: &Value) -> Self {
        let count = |of: &Value, name: &str| of[name].as_f64().unwrap_or_default();
        Self {
            at_s: count(line, "at_s"),
            served: count(line, "served"),
            of_tenants: WEIGHTS.map(|(name, _)| count(&line["tenants"][name], "served")),
            refused: count(line, "refused"),
            failed: count(line, "failed"),
        }
    }

    /// Returns the served requests/s from these answers to later ones, in total and of each tenant.
    pub fn rates_until(&self, later: &Self) -> (f64, [f64; 2]) {
        let seconds = later.at_s - self.at_s;
        let of_tenants = [0, 1].map(|at| (later.of_tenants[at] - self.of_tenants[at]) / seconds);
        ((later.served - self.served) / seconds, of_tenants)
    }
}

/// Returns the rates over the last `span` of these answers; `None` if they cover less.
pub fn latest_rates(answered: &[Answered], span: Duration) -> Option<(f64, [f64; 2])> {
    let last = answered.last()?;
    let from = answered
        .iter()
        .rev()
        .find(|line| last.at_s - line.at_s >= span.as_secs_f64())?;
    Some(from.rates_until(last))
}

/// Calls the sidecar for every request, with the tenant of its header, and fails open as Envoy does
/// by itself.
fn envoy_configuration(listen: SocketAddr, rls: SocketAddr, backend: SocketAddr) -> String {
    let address = |of: SocketAddr| json!({ "socket_address": { "address": of.ip().to_string(), "port_value": of.port() } });
    let cluster = |name: &str, to: SocketAddr, protocol: &str| {
        let endpoint = json!([{ "lb_endpoints": [{ "endpoint": { "address": address(to) } }] }]);
        json!({
            "name": name, "type": "STATIC", "connect_timeout": "1s",
            "load_assignment": { "cluster_name": name, "endpoints": endpoint },
            "typed_extension_protocol_options": { "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": { protocol: {} },
            } },
        })
    };
    let of_request = json!({ "actions": [
        { "generic_key": { "descriptor_key": "bucket", "descriptor_value": BUCKET } },
        { "request_headers": { "header_name": "x-tenant", "descriptor_key": "tenant", "skip_if_absent": true } },
    ] });
    let route = json!({ "match": { "prefix": "/" }, "route": { "cluster": "backend", "rate_limits": [of_request] } });
    let limit = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit",
        "domain": "mixed", "timeout": "5s",
        "rate_limit_service": {
            "transport_api_version": "V3", "grpc_service": { "envoy_grpc": { "cluster_name": "sidecar" } },
        },
    });
    let router =
        json!({ "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router" });
    let manager = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "in",
        // The first request, which waits for the path to answer, is HTTP/1.0.
        "http_protocol_options": { "accept_http_10": true },
        "route_config": { "virtual_hosts": [{ "name": "all", "domains": ["*"], "routes": [route] }] },
        "http_filters": [
            { "name": "envoy.filters.http.ratelimit", "typed_config": limit },
            { "name": "envoy.filters.http.router", "typed_config": router },
        ],
    });
    let filters = json!([{ "name": "envoy.filters.network.http_connection_manager", "typed_config": manager }]);
    let resources = json!({
        "listeners": [{ "name": "in", "address": address(listen), "filter_chains": [{ "filters": filters }] }],
        "clusters": [
            cluster("sidecar", rls, "http2_protocol_options"), cluster("backend", backend, "http_protocol_options"),
        ],
    });
    json!({ "static_resources": resources }).to_string()
}

/// Calls the sidecar for every request, and answers 429 for its 403.
fn nginx_configuration(
    listen: SocketAddr,
    http: SocketAddr,
    backend: SocketAddr,
    folder: &Path,
) -> String {
    let folder = folder.display();
    format!(
        "daemon off; master_process off; pid {folder}/nginx.pid;\n\
         events {{ worker_connections 4096; }}\n\
         http {{\n  access_log off; error_log stderr crit;\n\
         client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;\n\
         uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;\n\
         upstream sidecar {{ server {http}; keepalive 32; }}\n\
         upstream backend {{ server {backend}; keepalive 32; }}\n\
         server {{\n  listen {listen};\n  proxy_http_version 1.1;\n\
         location / {{\n  auth_request /limit; auth_request_set $retry $upstream_http_retry_after; error_page 403 = @limited;\n\
         proxy_set_header connection \"\"; proxy_pass http://backend; }}\n\
         location = /limit {{\n  internal; proxy_pass http://sidecar/nginx; proxy_pass_request_body off;\n\
         proxy_set_header content-length \"\"; proxy_set_header connection \"\";\n\
         proxy_set_header x-plimsoll-bucket {BUCKET}; proxy_set_header x-plimsoll-tenant $http_x_tenant; }}\n\
         location @limited {{ internal; add_header retry-after $retry always; return 429; }}\n}}\n}}\n"
    )
}
