//! The meaning of an error of a store for the operator who has configured its address.

use crate::limiter::quota::config::StoreKind;

pub(super) fn hint(kind: StoreKind, error: &str) -> Option<&'static str> {
    let error = error.to_ascii_lowercase();
    let has = |text: &str| error.contains(text);
    Some(match kind {
        StoreKind::Server if has("unknown command") => {
            "the address is that of a Redis: write redis:// in place of plimsoll://"
        }
        _ if has("unknown command") => {
            "the address is that of a quota server: write plimsoll:// in place of redis://"
        }
        _ if has("cluster support disabled") => {
            "the address is that of a single Redis: write redis:// in place of redis+cluster://"
        }
        _ if has("parse error") => {
            "the port speaks another protocol: give that of the quota server (9049) or of Redis, not an admin port"
        }
        _ if has("invalidcontenttype") => {
            "the port speaks no TLS: leave out the `s` of plimsolls:// or rediss://, or give the store a certificate"
        }
        StoreKind::Redis if has("moved") => {
            "the address is that of a Redis Cluster: write redis+cluster:// in place of redis://"
        }
        _ if has("noauth") || has("authentication required") => {
            "the store asks for a password: give the file with it"
        }
        _ if has("unknownissuer") || has("badsignature") => {
            "the certificate of the store is not signed by the authorities that are trusted here"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_store_error_suggests_the_address() {
        for (kind, error, meant) in [
            (
                StoreKind::Server,
                "\"ERR\": unknown command 'QUOTA.TAKE', with args",
                Some("redis:// in place"),
            ),
            (
                StoreKind::Redis,
                "\"ERR\": unknown command 'EVALSHA', with args",
                Some("plimsoll:// in place"),
            ),
            (
                StoreKind::Cluster,
                "This instance has cluster support disabled",
                Some("redis:// in place"),
            ),
            (
                StoreKind::Server,
                "Incompatible type - Parse error at 1",
                Some("not an admin port"),
            ),
            (
                StoreKind::Server,
                "received corrupt message of type InvalidContentType",
                Some("no TLS"),
            ),
            (
                StoreKind::Redis,
                "\"MOVED\": 12182 127.0.0.1:7002",
                Some("redis+cluster:// in place"),
            ),
            (
                StoreKind::Redis,
                "\"NOAUTH\": Authentication required.",
                Some("asks for a password"),
            ),
            (
                StoreKind::Redis,
                "invalid peer certificate: UnknownIssuer",
                Some("not signed by"),
            ),
            (
                StoreKind::Server,
                "invalid peer certificate: BadSignature",
                Some("not signed by"),
            ),
            (StoreKind::Server, "Connection refused (os error 111)", None),
        ] {
            let hint = hint(kind, error);
            assert_eq!(hint.is_some(), meant.is_some(), "{error}");
            assert!(
                hint.unwrap_or_default().contains(meant.unwrap_or_default()),
                "{error}: {hint:?}"
            );
        }
    }
}
