//! The console in a real browser, on a fleet under load, with tokens of all roles; and the committed page against its sources.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use plimsoll_testing::etcd::{self, EtcdServer};
use plimsoll_testing::fleet;
use plimsoll_testing::process::{Process, add_token};
use plimsoll_testing::proxy::{Link, Proxy};
use plimsoll_testing::skipped;
use plimsoll_testing::turns::{BROWSER, turn};
use tempfile::TempDir;

use crate::house::root;

const TENANTS: &str =
    "tenants: { default: { weight: 1 }, acme: { weight: 5 }, free-tier: { weight: 1 } }\n";
/// Requests/s of each bucket, and of a surge of the first one.
const OFFERED: [(&str, u32); 4] = [
    ("checkout", 60),
    ("login", 30),
    ("orders", 50),
    ("search", 20),
];
const SURGE: u32 = 200;

fn policy(limit: u32) -> String {
    format!(
        "buckets:\n  checkout: {{ limit: {limit}, mode: enforce }}\n  login: {{ limit: 80, mode: enforce }}\n  \
         orders: {{ limit: 40, mode: shadow }}\n  search: {{ limit: 50, mode: shadow }}\n"
    )
}

/// Returns the folder of the page, if node and its packages are here.
fn console(test: &str) -> Option<PathBuf> {
    let folder = root().join("controller/console");
    let has_node = Command::new("node").arg("--version").output().is_ok();
    if has_node && folder.join("node_modules/esbuild").exists() {
        return Some(folder);
    }
    skipped(&format!(
        "{test}: node or its packages are missing: `npm ci --ignore-scripts` in controller/console"
    ));
    None
}

fn start_load(services: &[Process], (bucket, rps): (&str, u32)) -> Process {
    let targets = services
        .iter()
        .map(|it| format!("http://{}/{bucket}", it.address("listen")));
    let targets = targets.collect::<Vec<_>>().join(",");
    let rps = rps.to_string();
    let flags = ["--target", &targets, "--rps", &rps];
    let tenants = ["--tenant", "acme,corner-shop,free-tier"];
    Process::spawn(&[&fleet::LOAD[..], &flags, &tenants].concat())
}

/// Returns a token of each role, from the file `tokens`.
fn tokens(folder: &Path) -> BTreeMap<&'static str, String> {
    let token = |role| {
        let file = add_token(folder, role, role);
        (role, fs::read_to_string(file).unwrap().trim().to_owned())
    };
    ["viewer", "operator", "admin"].map(token).into()
}

/// Starts two controllers of an empty fleet, one of which stands by.
fn members(store: &EtcdServer) -> [(TempDir, Process); 2] {
    let store = format!("etcd://{}/plimsoll", store.address);
    [(); 2].map(|()| {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("policy.yaml"), "buckets: {}\n").unwrap();
        fs::write(folder.path().join("tenants.yaml"), TENANTS).unwrap();
        let started = fleet::controller_on(&folder, &["--store", &store]);
        (folder, started)
    })
}

#[test]
fn browser_operates_a_fleet() {
    let Some(console) = console("browser_operates_a_fleet") else {
        return;
    };
    let Some(chromium) = ["/usr/bin/chromium", "/usr/bin/chromium-browser"]
        .into_iter()
        .find(|path| Path::new(path).exists())
    else {
        return skipped("browser_operates_a_fleet: chromium is missing");
    };
    let _turn = turn(BROWSER + SURGE + OFFERED.map(|(_, rps)| rps).iter().sum::<u32>());
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("policy.yaml");
    fs::write(&path, policy(100)).unwrap();
    fs::write(directory.path().join("tenants.yaml"), TENANTS).unwrap();
    let tokens = tokens(directory.path());
    let file = directory.path().join("tokens").display().to_string();
    let controller = fleet::controller_on(&directory, &["--tokens", &file]);
    let aggregator = fleet::start_aggregator("zone-a", controller.address("listen"));
    let services = [(); 2].map(|()| {
        let parent = aggregator.address("listen");
        fleet::service("zone-a", parent, &["--buckets", "login,orders,search"])
    });
    let mut load: Vec<Process> = OFFERED
        .into_iter()
        .map(|it| start_load(&services, it))
        .collect();
    let admin = controller.address("admin");
    let proxy = Proxy::start("127.0.0.1:0".parse().unwrap(), admin);

    let store = etcd::start("browser_operates_a_fleet", &[]);
    let members = store.iter().flat_map(members);
    let members: Vec<(TempDir, Process)> = members.collect();

    let mut script = Command::new("node");
    script.arg(console.join("test/page.mjs"));
    script.args([
        format!("http://{}/", proxy.address),
        format!("http://{admin}"),
    ]);
    script.args(
        members
            .iter()
            .map(|(_, it)| format!("http://{}/", it.address("admin"))),
    );
    script.env("TOKENS", serde_json::to_string(&tokens).unwrap());
    script.env("CHROMIUM", chromium);
    if std::env::var_os("UPDATE_IMAGES").is_some() {
        script.env("IMAGES", root().join("docs/images"));
    }
    let mut script = script
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut answers = script.stdin.take().unwrap();
    for line in BufReader::new(script.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        eprintln!("{line}");
        match line.strip_prefix("change ") {
            Some("surge") => load.push(start_load(&services, (OFFERED[0].0, SURGE))),
            Some("tighten") => fs::write(&path, policy(30)).unwrap(),
            Some("withdraw") => {
                let kept = fs::read_to_string(&file).unwrap();
                let kept = kept.lines().filter(|line| !line.contains("admin"));
                fs::write(
                    &file,
                    kept.map(|line| format!("{line}\n")).collect::<String>(),
                )
                .unwrap();
            }
            Some("cut") => proxy.set(Link::Refused),
            Some("restore") => proxy.set(Link::Open),
            Some(other) => panic!("no change {other}"),
            None => continue,
        }
        answers.write_all(b"done\n").unwrap();
    }
    assert!(script.wait().unwrap().success());
    let log = controller.log().join("\n");
    let leaked = tokens.values().any(|token| log.contains(token));
    assert!(!leaked, "a token is in the log");
    assert!(log.contains("a test in a browser"), "{log}");
}

#[test]
fn committed_page_is_built_from_its_sources() {
    let Some(console) = console("committed_page_is_built_from_its_sources") else {
        return;
    };
    let out = tempfile::tempdir().unwrap();
    let node = |args: &[&str]| {
        let ended = Command::new("node")
            .args(args)
            .current_dir(&console)
            .output();
        let ended = ended.unwrap();
        let text = [ended.stdout, ended.stderr].concat();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&text));
    };
    node(&["node_modules/typescript/bin/tsc", "--noEmit"]);
    node(&["build.mjs", out.path().to_str().unwrap()]);
    let files = |folder: &Path| -> BTreeMap<String, Vec<u8>> {
        let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
        entries
            .map(|it| {
                (
                    it.file_name().into_string().unwrap(),
                    fs::read(it.path()).unwrap(),
                )
            })
            .collect()
    };
    assert!(
        files(out.path()) == files(&console.join("dist")),
        "dist/ is not what src/ builds: run `npm run build` in controller/console, and commit dist/"
    );
}
