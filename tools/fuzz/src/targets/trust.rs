//! Targets for the basis of trust: certificates of peers, identities, and the files of certificates
//! and tokens.

use std::cell::LazyCell;
use std::fs;

use plimsoll_admin::access::{AdminTokens, Token};
use plimsoll_core::exchange::{PeerId, PeerRole};
use plimsoll_tls::rustls::pki_types::CertificateDer;
use plimsoll_tls::testing::{Authority, Validity};
use plimsoll_tls::{Certificates, Peer};
use tempfile::TempDir;

/// Maximum length of an error, which is logged.
const ERROR_BYTES_MAX: usize = 2_000;

/// An identity has one spelling, and a refusal is short, for any certificate.
pub(super) fn certificate(data: &[u8]) {
    match Peer::of(Some(&[CertificateDer::from(data)])) {
        Ok(peer) => assert_eq!(peer.id.to_string().parse(), Ok(peer.id)),
        Err(error) => assert!(error.to_string().len() <= ERROR_BYTES_MAX, "{error}"),
    }
}

pub(super) fn identity(data: &[u8]) {
    let Ok(uri) = std::str::from_utf8(data) else {
        return;
    };
    match uri.parse::<PeerId>() {
        Ok(id) => assert_eq!(id.to_string(), uri),
        Err(error) => assert!(error.to_string().len() <= ERROR_BYTES_MAX, "{error}"),
    }
}

thread_local! {
    static DIRECTORY: LazyCell<TempDir> = LazyCell::new(|| TempDir::new().unwrap());
}

/// A complete set, and a set with another key: made here, so that the repository contains no
/// private key.
pub(super) fn certificate_files_seeds() -> Vec<Vec<u8>> {
    let authority = Authority::new("fleet.example");
    let leaf = || authority.issue(&authority.request(PeerRole::Controller, Validity::default()));
    let (one, other) = (leaf(), leaf());
    [&one.key, &other.key]
        .map(|key| {
            [&one.certificate, key, authority.pem()]
                .join("\0")
                .into_bytes()
        })
        .into()
}

/// The three files, with a zero between them: a refusal is short and repeats no line of the key.
pub(super) fn certificate_files(data: &[u8]) {
    let mut contents = data.splitn(3, |byte| *byte == 0);
    let [certificate, key, ca] = [(); 3].map(|()| contents.next().unwrap_or_default());
    let refusal = DIRECTORY.with(|directory| {
        for (name, content) in [("tls.crt", certificate), ("tls.key", key), ("ca.crt", ca)] {
            fs::write(directory.path().join(name), content).unwrap();
        }
        Certificates::open(directory.path()).err()
    });
    let Some(refusal) = refusal.map(|error| error.to_string()) else {
        return;
    };
    assert!(refusal.len() <= ERROR_BYTES_MAX, "{refusal}");
    for line in key
        .split(|byte| *byte == b'\n')
        .filter(|line| line.len() >= 32 && !line.starts_with(b"-----"))
    {
        assert!(
            !refusal.contains(&*String::from_utf8_lossy(line)),
            "{refusal}"
        );
    }
}

/// An accepted entry is a line that means the same.
pub(super) fn tokens(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match text.parse::<AdminTokens>() {
        Ok(tokens) => {
            for token in tokens.entries() {
                assert_eq!(token.to_string().parse::<Token>().as_ref(), Ok(token));
            }
        }
        Err(error) => assert!(error.to_string().len() <= ERROR_BYTES_MAX, "{error}"),
    }
}
