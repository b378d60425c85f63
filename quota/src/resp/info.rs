//! The figures of the server, as `INFO` gives them.

use std::fmt::Write;

use super::Port;
use super::reply::Reply;
use super::session::REDIS_VERSION;

/// Answers `INFO` with these sections; with all if none is named.
pub(super) fn of(port: &Port, sections: &[String]) -> Reply {
    let is_asked = |section: &str| {
        sections.is_empty()
            || sections
                .iter()
                .any(|asked| matches!(asked.as_str(), "all" | "default" | "everything") || asked == section)
    };
    let mut text = String::new();
    let mut section = |name: &str, title: &str, fields: &dyn Fn() -> Vec<(&'static str, String)>| {
        if !is_asked(name) {
            return;
        }
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        // A text takes whatever is written to it.
        let _ = write!(text, "# {title}\r\n");
        for (field, value) in fields() {
            let _ = write!(text, "{field}:{value}\r\n");
        }
    };
    section("server", "Server", &|| server(port));
    section("clients", "Clients", &|| clients(port));
    section("stats", "Stats", &|| stats(port));
    section("replication", "Replication", &|| vec![("role", "master".to_owned())]);
    section("keyspace", "Keyspace", &|| keyspace(port));
    Reply::bulk(text)
}

fn server(port: &Port) -> Vec<(&'static str, String)> {
    let uptime_s = port.started.elapsed().as_secs();
    vec![
        ("redis_version", REDIS_VERSION.to_owned()),
        ("redis_mode", "standalone".to_owned()),
        ("server_name", "plimsoll".to_owned()),
        ("plimsoll_version", env!("CARGO_PKG_VERSION").to_owned()),
        ("arch_bits", usize::BITS.to_string()),
        ("process_id", std::process::id().to_string()),
        ("tcp_port", port.address.port().to_string()),
        ("uptime_in_seconds", uptime_s.to_string()),
        ("uptime_in_days", (uptime_s / 86_400).to_string()),
        // Clients wait until this is 0: the port is not open before the store is.
        ("loading", "0".to_owned()),
    ]
}

fn clients(port: &Port) -> Vec<(&'static str, String)> {
    vec![
        ("connected_clients", port.counters.open().to_string()),
        ("maxclients", port.connections_max.to_string()),
    ]
}

fn stats(port: &Port) -> Vec<(&'static str, String)> {
    let mut fields = vec![
        ("total_connections_received", port.counters.connections().to_string()),
        ("total_commands_processed", port.counters.commands().to_string()),
        ("rejected_connections", port.connections.counts().refused.to_string()),
        ("slow_connections", port.counters.slow().to_string()),
    ];
    for (result, field) in [
        ("granted", "operations_granted"),
        ("refused", "operations_refused"),
        ("unavailable", "operations_unavailable"),
        ("busy", "operations_busy"),
        ("error", "commands_with_errors"),
    ] {
        let of_result = port
            .counters
            .operations()
            .filter(|(command, of, _)| *of == result && (result == "error" || *command != "other"));
        fields.push((field, of_result.map(|(_, _, count)| count).sum::<u64>().to_string()));
    }
    fields
}

fn keyspace(port: &Port) -> Vec<(&'static str, String)> {
    // The buckets in memory: those on disk are not counted anywhere.
    let stats = port.engine.stats();
    vec![("db0", format!("keys={},expires=0,avg_ttl=0", stats.buckets))]
}
