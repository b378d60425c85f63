//! Addresses that are accepted and refused, and what is never printed.

use super::*;

#[test]
fn address_has_endpoints_and_prefix() {
    for (text, is_encrypted, endpoints, prefix) in [
        ("etcd://a:2379/p", false, "a:2379", "p"),
        (
            "etcds://A.b:1,[FD00::1]:2,10.0.0.1:3/x/Y-z_0.1",
            true,
            "a.b:1 [fd00::1]:2 10.0.0.1:3",
            "x/Y-z_0.1",
        ),
    ] {
        let address: StoreAddress = text.parse().unwrap();
        let found: Vec<String> = address.endpoints.iter().map(ToString::to_string).collect();
        assert_eq!(found.join(" "), endpoints);
        assert_eq!(
            (address.is_encrypted, &*address.prefix),
            (is_encrypted, prefix)
        );
        assert_eq!(
            address.to_string().parse::<StoreAddress>().unwrap(),
            address
        );
    }
}

#[test]
fn malformed_address_is_explained() {
    let endpoints: Vec<String> = (0..=ENDPOINTS_MAX).map(|i| format!("h{i}:1")).collect();
    let many = format!("etcd://{}/p", endpoints.join(","));
    let long = format!("etcd://a:1/{}", "p".repeat(PREFIX_BYTES_MAX + 1));
    for (text, expected) in [
        ("", "another scheme than etcd:// and etcds://"),
        ("http://a:1/p", "another scheme"),
        ("etcd://", "no endpoint: write it as etcd://HOST:PORT"),
        ("etcd:///p", "no endpoint"),
        ("etcd://a:1", "no prefix: end it with the folder"),
        ("etcd://a:1/", "no prefix"),
        ("etcd://a/p", "`a` of the store address is not HOST:PORT"),
        ("etcd://a:1,/p", "`` of the store"),
        ("etcd://a:0/p", "`a:0`"),
        ("etcd://a:65536/p", "`a:65536`"),
        ("etcd://fd00::1:2/p", "`fd00::1:2`"),
        ("etcd://[a]:2/p", "`[a]:2`"),
        ("etcd://:2/p", "`:2`"),
        ("etcd://a b:2/p", "`a b:2`"),
        ("etcd://a:1,A:1/p", "`A:1` is twice"),
        (&many, "17 endpoints, maximum 16"),
        (&long, "at most 128 letters"),
        ("etcd://a:1/p/", "`p/`"),
        ("etcd://a:1/p//q", "`p//q`"),
        ("etcd://a:1//p", "`/p`"),
        ("etcd://a:1/p?q=1", "`p?q=1`"),
        ("etcd://user:secret@a:1/p", "credentials before `@`"),
    ] {
        let error = text.parse::<StoreAddress>().unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
        assert!(!error.contains("secret"));
    }
}

#[tokio::test]
async fn scheme_fits_certificates() {
    let connect = |address: &str, tls| {
        let address = address.parse().unwrap();
        let options = Options {
            tls,
            ..Options::default()
        };
        crate::Client::connect(&address, options).map(|_| ())
    };
    let ca = "/nonexistent/ca.crt".into();
    let files = TlsFiles { ca, client: None };
    let error = connect("etcds://a:1/p", None).unwrap_err().to_string();
    assert!(error.contains("needs certificates"), "{error}");
    let error = connect("etcd://a:1/p", Some(files.clone()))
        .unwrap_err()
        .to_string();
    assert!(error.contains("write etcds://"), "{error}");
    assert_eq!(connect("etcds://a:1/p", Some(files.clone())), Ok(()));
    let error = files.check().unwrap_err().to_string();
    assert_eq!(
        error,
        "/nonexistent/ca.crt: No such file or directory (os error 2)"
    );
}

#[test]
fn debug_hides_password() {
    let (user, password) = ("app".to_owned(), "secret".to_owned());
    let options = Options {
        credentials: Some(Credentials { user, password }),
        ..Options::default()
    };
    let shown = format!("{options:?}");
    assert!(
        shown.contains("app") && !shown.contains("secret"),
        "{shown}"
    );
}
