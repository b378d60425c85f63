//! Generates `src/wire.rs` from the description of etcd's API, and fails when the file is out of
//! date.
//!
//! Only this test depends on the generator: a build needs nothing that is not in the tree.

use std::fs;
use std::path::Path;

const UPDATE: &str = "UPDATE_WIRE=1 cargo test -p plimsoll-etcd --test it generated";

fn opening() -> String {
    format!(
        "\
//! The generated messages of `proto/etcd.proto`.
//!
//! `{UPDATE}` writes this file anew.
#![allow(missing_docs, unreachable_pub, dead_code, clippy::all, clippy::pedantic, clippy::unwrap_used, clippy::expect_used)]

"
    )
}

/// Compiles with protox, so that no protoc is needed.
fn generate() -> String {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    let descriptors = protox::compile(["etcd.proto"], [package.join("proto")]).unwrap();
    tonic_prost_build::configure()
        .out_dir(folder.path())
        .emit_rerun_if_changed(false)
        .build_server(false)
        .build_client(false)
        .bytes(".etcdserverpb")
        // The password and the token must not reach a log.
        .skip_debug([
            ".etcdserverpb.AuthenticateRequest",
            ".etcdserverpb.AuthenticateResponse",
        ])
        .compile_fds(descriptors)
        .unwrap();
    opening() + &fs::read_to_string(folder.path().join("etcdserverpb.rs")).unwrap()
}

#[test]
fn generated_code_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/wire.rs");
    let generated = generate();
    if std::env::var_os("UPDATE_WIRE").is_some() {
        fs::write(&path, &generated).unwrap();
    }
    let current = fs::read_to_string(&path).unwrap();
    assert!(
        current == generated,
        "src/wire.rs is out of date: {UPDATE} writes it anew"
    );
}
