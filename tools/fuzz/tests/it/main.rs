//! The corpora as regression tests: every file and every generated input runs through its target.

use plimsoll_fuzz::{TARGETS, corpus, runner};

#[test]
fn corpora_pass_their_targets() {
    for target in TARGETS {
        let files = corpus::files(&target).unwrap();
        let inputs = corpus::of(&target).unwrap();
        assert!(!inputs.is_empty(), "{} has no corpus", target.name);
        for (at, input) in inputs.iter().enumerate() {
            let fault = runner::try_input(&target, input).fault();
            assert_eq!(fault, None, "{}, input {at} of {files:?}", target.name);
        }
    }
}
