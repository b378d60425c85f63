//! Programs of independent parties in Python, whose packages `./test` installs.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

/// Runs a script with an input, both its packages and the input in JSON; returns its output. `None`, and a note of the
/// skipped test, if Python or a package is missing.
///
/// Blocks, so it belongs on a thread of its own.
pub(crate) fn run(script: &str, packages: &[&str], input: &Value) -> Option<Value> {
    let imports = packages
        .iter()
        .map(|package| format!("import {package}\n"))
        .collect::<String>();
    if let Err(missing) = python(&imports, "") {
        note_skipped(&format!(
            "contract::python: {missing}; ./test installs the packages with pip"
        ));
        return None;
    }
    let output = python(script, &input.to_string()).unwrap_or_else(|error| panic!("{error}"));
    Some(serde_json::from_str(&output).unwrap_or_else(|error| panic!("{error} in {output}")))
}

/// Runs a program; returns its output, or the last line of its errors.
fn python(program: &str, input: &str) -> Result<String, String> {
    let mut command = Command::new("python3");
    command
        .args(["-c", program])
        .env("PYTHONPATH", packages())
        .env("PYTHONDONTWRITEBYTECODE", "1");
    let command = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .map_err(|error| format!("python3: {error}"))?;
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .map_err(|error| error.to_string())?;
    let output = child
        .wait_with_output()
        .map_err(|error| error.to_string())?;
    let errors = String::from_utf8_lossy(&output.stderr);
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(errors.lines().last().unwrap_or("python3 failed").to_owned()),
    }
}

/// Returns the folder of packages, below the folder of this binary's build.
fn packages() -> PathBuf {
    let binary = std::env::current_exe().unwrap();
    binary
        .ancestors()
        .map(|folder| folder.join("tools/python"))
        .find(|path| path.is_dir())
        .unwrap_or_default()
}

/// Notes a skipped test for `./test`.
pub(crate) fn note_skipped(reason: &str) {
    if let Some(skipped) = std::env::var_os("PLIMSOLL_SKIPPED") {
        let mut file = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(skipped)
            .unwrap();
        writeln!(file, "{reason}").unwrap();
    }
}
