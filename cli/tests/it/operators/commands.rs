//! The credentials of operators with the real binary: tokens files, and commands with a token and a
//! CA at a controller over plain HTTP and over TLS.

use std::fs;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use plimsoll_admin::access::{AdminTokens, TokenHash};
use plimsoll_testing::fleet::{controller_in, policy};
use plimsoll_testing::process::{FREE_PORT, Process, command, outcome_of};
use tempfile::TempDir;

struct Operator(TempDir);

impl Operator {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str, mode: u32) {
        fs::write(self.path(name), text).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    fn mode(&self, name: &str) -> u32 {
        fs::metadata(self.path(name)).unwrap().permissions().mode() & 0o777
    }

    /// Runs a command with these variables, and returns its exit code with both outputs.
    fn run_with(&self, variables: &[(&str, &str)], line: &str) -> (i32, String) {
        let args: Vec<&str> = line.split(' ').collect();
        let mut command = command("plimsoll", &args);
        command.envs(variables.iter().copied());
        outcome_of(command.current_dir(self.0.path()))
    }

    fn run(&self, line: &str) -> (i32, String) {
        self.run_with(&[], line)
    }

    fn succeed(&self, line: &str) -> String {
        let (code, text) = self.run(line);
        assert_eq!(code, 0, "{line}: {text}");
        text
    }

    fn fail(&self, code: i32, line: &str, parts: &[&str]) {
        let (actual, text) = self.run(line);
        assert_eq!(actual, code, "{line}: {text}");
        parts
            .iter()
            .for_each(|part| assert!(text.contains(part), "{line}: no {part:?} in: {text}"));
    }

    fn controller(&self, admin: &str, args: &[&str]) -> Process {
        // Each has a state of its own.
        let folder = tempfile::tempdir_in(self.0.path()).unwrap().keep();
        let text = policy(100, "enforce", false);
        fs::write(folder.join("policy.yaml"), text).unwrap();
        let tokens = self.path("tokens").display().to_string();
        controller_in(
            &folder,
            FREE_PORT,
            admin,
            &[&["--tokens", &tokens], args].concat(),
        )
    }
}

#[test]
fn tokens_are_added_and_comments_stay() {
    let operator = Operator::new();
    let text = operator.succeed("tokens add ann --role viewer --file tokens --out ann.token");
    assert_eq!(
        [operator.mode("tokens"), operator.mode("ann.token")],
        [0o600, 0o600]
    );
    let ann = operator.read("ann.token");
    assert!(!text.contains(ann.trim()), "{text}");
    let line = format!("ann viewer {}\n", TokenHash::of(ann.trim()));
    assert_eq!(operator.read("tokens"), line);

    // The tier may run as another user, in a group that reads the file.
    operator.write("tokens", &format!("# team\n\n{}", line.trim_end()), 0o640);
    let ben = operator.succeed("tokens add ben --role admin --file tokens --out -");
    assert_eq!(ben.lines().count(), 1, "{ben}");
    assert_eq!(
        operator.read("tokens"),
        format!("# team\n\n{line}ben admin {}\n", TokenHash::of(ben.trim()))
    );
    assert_eq!(operator.mode("tokens"), 0o640);
    assert_eq!(
        operator
            .read("tokens")
            .parse::<AdminTokens>()
            .unwrap()
            .entries()
            .len(),
        2
    );

    std::os::unix::fs::symlink("tokens", operator.path("link")).unwrap();
    operator.succeed("tokens add cleo --role viewer --file link --out cleo.token");
    assert!(operator.path("link").is_symlink() && operator.read("tokens").contains("cleo viewer"));
}

#[test]
fn wrong_token_arguments_change_nothing() {
    let operator = Operator::new();
    operator.succeed("tokens add ann --role viewer --file tokens --out ann.token");
    let (tokens, token) = (operator.read("tokens"), operator.read("ann.token"));
    operator.write("broken", &format!("{tokens}ben viewer\n"), 0o600);
    operator.write("plain", &format!("ann viewer {token}"), 0o600);
    operator.write("comments", "# none yet\n", 0o600);
    for (line, expected) in [
        (
            "tokens add ann --role admin --file tokens --out new",
            "line 2: the name `ann` is in line 1 already",
        ),
        (
            "tokens add a*b --role admin --file tokens --out new",
            "a name consists of letters",
        ),
        (
            "tokens add loopback --role admin --file tokens --out new",
            "reserved",
        ),
        (
            "tokens add ben --role root --file tokens --out new",
            "[possible values: viewer, operator, admin]",
        ),
        (
            "tokens add ben --role admin --file broken --out new",
            "line 2: write it as NAME ROLE sha256:HEX",
        ),
        (
            "tokens add ben --role admin --file plain --out new",
            "takes only its hash",
        ),
        (
            "tokens add ben --role admin --file . --out new",
            "a directory, not a regular file",
        ),
        (
            "tokens add ben --role admin --file tokens --out ann.token",
            "ann.token exists and is not overwritten",
        ),
        (
            "tokens add ben --role admin --file tokens",
            "--out <TOKEN_FILE>",
        ),
    ] {
        let (code, text) = operator.run(line);
        assert_eq!(code, 2, "{line}: {text}");
        assert!(
            text.contains(expected) && !text.contains(token.trim()),
            "{line}: {text}"
        );
        assert_eq!(
            (operator.read("tokens"), operator.read("ann.token")),
            (tokens.clone(), token.clone()),
            "{line}"
        );
        assert!(!operator.path("new").exists(), "{line} left a token");
    }
    operator.fail(
        1,
        "tokens add ben --role admin --file no/tokens --out new",
        &["cannot write the tokens file"],
    );
    assert!(
        !operator.path("new").exists(),
        "a token whose hash is in no file is left"
    );
    operator.succeed("tokens add ben --role admin --file comments --out new");
}

#[test]
fn commands_send_flag_or_environment_tokens() {
    let operator = Operator::new();
    for role in ["viewer", "operator", "admin"] {
        operator.succeed(&format!(
            "tokens add {role} --role {role} --file tokens --out {role}.token"
        ));
    }
    operator.succeed("tokens add other --role admin --file elsewhere --out other.token");
    let controller = operator.controller(FREE_PORT, &[]);
    let admin = controller.url("admin");
    let status = format!("rollout status --controller {admin}");
    let kill = format!("kill on --reason test --controller {admin}");

    operator.fail(
        1,
        &status,
        &[
            "give the file with your token by --token-file FILE (PLIMSOLL_TOKEN_FILE)",
            &admin,
        ],
    );
    operator.succeed(&format!("{status} --token-file viewer.token"));
    let role = [
        "operator",
        "viewer",
        "use a token of that role in place of viewer.token",
    ];
    operator.fail(1, &format!("{kill} --token-file viewer.token"), &role);
    operator.succeed(&format!("{kill} --token-file operator.token"));
    let unknown = [
        "the token of other.token is not in the tokens file of this tier",
        "`plimsoll tokens add`",
    ];
    operator.fail(1, &format!("{status} --token-file other.token"), &unknown);
    operator.fail(
        1,
        &format!("history export --controller {admin}"),
        &["--token-file FILE"],
    );
    assert!(
        operator
            .succeed(&format!(
                "history export --controller {admin} --token-file viewer.token"
            ))
            .contains("time_utc")
    );

    operator.write(
        "week.csv",
        "time_utc,bucket,offered_rps\n2026-01-05T00:00:00Z,checkout,10\n",
        0o644,
    );
    let import = format!("history import week.csv --controller {admin}");
    operator.fail(
        1,
        &format!("{import} --token-file operator.token"),
        &["admin", "in place of operator.token"],
    );
    operator.succeed(&format!("{import} --token-file admin.token"));

    // A flag wins over the environment.
    let variables = [
        ("PLIMSOLL_TOKEN_FILE", "viewer.token"),
        ("PLIMSOLL_CONTROLLER_ADMIN", &*admin),
    ];
    let (code, text) = operator.run_with(&variables, "rollout status");
    assert_eq!(code, 0, "{text}");
    let (code, text) = operator.run_with(&variables, "rollout status --token-file other.token");
    assert_eq!(code, 1, "{text}");
}

#[test]
fn wrong_credentials_are_never_sent() {
    let operator = Operator::new();
    operator.succeed("tokens add ann --role admin --file tokens --out ann.token");
    let token = operator.read("ann.token");
    operator.write("open.token", &token, 0o644);
    operator.write("hash.token", &operator.read("tokens"), 0o600);
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    // Listens on every address of the machine, so it is not a loopback address.
    let far = format!("http://0.0.0.0:{}", listener.local_addr().unwrap().port());
    let near = far.replace("0.0.0.0", "127.0.0.1");
    let tls = near.replace("http", "https");
    for (line, expected) in [
        (
            format!("rollout status --controller {far} --token-file ann.token"),
            "a token is never sent over plain HTTP",
        ),
        (
            format!("kill on --reason x --aggregator {far} --token-file ann.token"),
            "never sent over plain HTTP",
        ),
        (
            format!("history export --controller {far} --token-file ann.token"),
            "never sent over plain HTTP",
        ),
        (
            format!("rollout status --controller {near} --token-file open.token"),
            "(mode 0644): run `chmod 600 open.token`",
        ),
        (
            format!("rollout status --controller {near} --token-file hash.token"),
            "hash.token holds no token",
        ),
        (
            format!("rollout status --controller {near} --token-file missing"),
            "cannot read the token file missing",
        ),
        (
            format!("rollout status --controller {tls} --token-file ann.token"),
            "--ca FILE (PLIMSOLL_CA)",
        ),
        (
            format!("rollout status --controller {tls} --ca missing"),
            "cannot read the CA missing: No such file or directory",
        ),
        (
            format!("rollout status --controller {tls} --ca tokens"),
            "tokens: has no whole certificate",
        ),
        (
            "rollout status --controller ftp://127.0.0.1".to_owned(),
            "write it as http://127.0.0.1:7401, or as https://",
        ),
    ] {
        let (code, text) = operator.run(&line);
        assert_eq!(code, 2, "{line}: {text}");
        assert!(
            text.contains(expected) && !text.contains(token.trim()),
            "{line}: {text}"
        );
    }
    assert_eq!(
        listener.accept().unwrap_err().kind(),
        ErrorKind::WouldBlock,
        "a command connected"
    );
}

#[test]
fn commands_verify_the_server_and_its_scheme() {
    let operator = Operator::new();
    operator.succeed("certs init --dir ca");
    operator.succeed("certs init --dir foreign");
    operator.succeed("certs issue controller --ca ca --out certs");
    operator.succeed("tokens add ann --role admin --file tokens --out ann.token");
    let certs = operator.path("certs").display().to_string();
    let controller = operator.controller("0.0.0.0:0", &["--certs", &certs]);
    let port = controller.address("admin").port();
    let tls = format!("https://127.0.0.1:{port}");

    operator.succeed(&format!(
        "rollout status --controller {tls} --ca ca/ca.crt --token-file ann.token"
    ));
    operator.succeed(&format!(
        "kill on --reason test --controller https://localhost:{port} --ca ca/ca.crt --token-file ann.token"
    ));
    let variables = [
        ("PLIMSOLL_CA", "ca/ca.crt"),
        ("PLIMSOLL_CONTROLLER_ADMIN", &tls),
    ];
    let (code, text) = operator.run_with(&variables, "rollout status --token-file ann.token");
    assert_eq!(code, 0, "{text}");

    operator.succeed("certs issue aggregator --zone a --ca ca --out aggregator");
    let certs = operator.path("aggregator").display().to_string();
    let tokens = operator.path("tokens").display().to_string();
    let parent = format!("https://{}", controller.address("listen"));
    let place = ["--zone", "a", "--name", "one", "--controller", &parent];
    let ports = ["--listen", FREE_PORT, "--admin", "0.0.0.0:0"];
    let trust = ["--certs", &certs, "--tokens", &tokens];
    let aggregator = Process::start(&[&["aggregator"], &place[..], &ports, &trust].concat());
    let zone = format!("https://127.0.0.1:{}", aggregator.address("admin").port());
    operator.succeed(&format!(
        "kill on --reason test --aggregator {zone} --ca ca/ca.crt --token-file ann.token"
    ));
    operator.fail(
        1,
        &format!("kill status --aggregator {zone} --ca ca/ca.crt"),
        &["--token-file FILE"],
    );
    for (line, text) in [
        (
            format!("rollout status --controller {zone}"),
            "is no controller: check the address",
        ),
        (
            format!("kill status --aggregator {tls}"),
            "is no aggregator: check the address",
        ),
    ] {
        operator.fail(
            1,
            &format!("{line} --ca ca/ca.crt --token-file ann.token"),
            &[text],
        );
    }

    operator.fail(
        1,
        &format!("rollout status --controller {parent} --ca ca/ca.crt --token-file ann.token"),
        &["is no admin port", "7401"],
    );

    let foreign =
        format!("rollout status --controller {tls} --ca foreign/ca.crt --token-file ann.token");
    operator.fail(
        1,
        &foreign,
        &["is not signed by a CA in foreign/ca.crt", "give the file"],
    );
    let plain = format!("http://127.0.0.1:{port}");
    let with_token = format!("rollout status --controller {plain} --token-file ann.token");
    operator.fail(
        1,
        &with_token,
        &["speaks no plain HTTP", &format!("write {tls}"), "--ca"],
    );

    let controller = operator.controller(FREE_PORT, &[]);
    let port = controller.address("admin").port();
    let line = format!(
        "rollout status --controller https://127.0.0.1:{port} --ca ca/ca.crt --token-file ann.token"
    );
    operator.fail(
        1,
        &line,
        &["speaks no TLS", &format!("write http://127.0.0.1:{port}")],
    );
}
