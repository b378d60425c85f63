//! Compiles the wire description with protox, so that a build needs no protoc.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(["plimsoll/exchange/v1/exchange.proto"], ["proto"])?;
    // What is secret is shown by nobody: `coherence.rs` says what of it may be seen.
    tonic_prost_build::configure()
        .skip_debug([".plimsoll.exchange.v1.Coherence"])
        .compile_fds(descriptors)?;
    Ok(())
}
