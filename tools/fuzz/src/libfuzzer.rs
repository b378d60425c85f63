//! The target that FUZZ_TARGET names, for cargo-fuzz.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    plimsoll_fuzz::run(&std::env::var("FUZZ_TARGET").unwrap_or_default(), data);
});
