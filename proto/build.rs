//! Compiles the protocol description with protox, so that a build needs no protoc.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(["plimsoll/exchange/v1/exchange.proto"], ["proto"])?;
    tonic_prost_build::configure()
        // The message holds a secret: `convert/coherence.rs` implements a `Debug` that redacts it.
        .skip_debug([".plimsoll.exchange.v1.Coherence"])
        .server_mod_attribute("plimsoll.exchange.v1", "#[cfg(feature = \"server\")]")
        .compile_fds(descriptors)?;
    Ok(())
}
