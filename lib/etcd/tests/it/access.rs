//! Users, certificates and a full database.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use plimsoll_etcd::{
    ClientFiles, Credentials, Error, Operation, Options, TlsFiles, Transaction, VALUE_BYTES_MAX,
};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    date_time_ymd,
};
use tokio::time::sleep;

use plimsoll_testing::etcd::start;

use crate::server::{client, connect, ready};

fn put(key: &'static str) -> Transaction {
    Transaction::default().then(Operation::put(key, "value", None))
}

fn user(user: &str, password: &str) -> Options {
    let (user, password) = (user.to_owned(), password.to_owned());
    let credentials = Some(Credentials { user, password });
    Options {
        credentials,
        ..Options::default()
    }
}

fn denied(error: Error) -> String {
    match error {
        Error::Denied { cause } => cause,
        error => panic!("{error}"),
    }
}

#[tokio::test]
async fn token_is_renewed() {
    let Some(mut server) = start("token_is_renewed", &["--bcrypt-cost", "4"]) else {
        return;
    };
    client(&server).await;
    // Users may be prepared before the store asks for them.
    let early = connect(&[server.address], user("app", "secret"));
    early.transact(put("key")).await.unwrap();
    // The role may use keys below `plimsoll/`.
    let permission = r#"{"name": "app", "perm": {"permType": "READWRITE", "key": "cGxpbXNvbGwv", "range_end": "cGxpbXNvbGww"}}"#;
    for (path, body) in [
        ("role/add", r#"{"name": "root"}"#),
        ("role/add", r#"{"name": "app"}"#),
        ("role/grant", permission),
        ("user/add", r#"{"name": "root", "password": "root"}"#),
        ("user/add", r#"{"name": "app", "password": "secret"}"#),
        ("user/add", r#"{"name": "guest", "password": "guest"}"#),
        ("user/grant", r#"{"user": "root", "role": "root"}"#),
        ("user/grant", r#"{"user": "app", "role": "app"}"#),
        ("enable", "{}"),
    ] {
        server.post(&format!("/v3/auth/{path}"), body);
    }
    early.transact(put("key")).await.unwrap();

    let asked = connect(&[server.address], Options::default())
        .get("key")
        .await;
    assert_eq!(
        denied(asked.unwrap_err()),
        "it asks for a user and a password"
    );
    let wrong = connect(&[server.address], user("app", "wrong"));
    let cause = denied(wrong.transact(put("key")).await.unwrap_err());
    assert_eq!(cause, "the user or the password is wrong");
    let guest = connect(&[server.address], user("guest", "guest"));
    let lacking = "the user's roles lack permission for the prefix of the store's address";
    assert_eq!(denied(guest.get("key").await.unwrap_err()), lacking);
    assert_eq!(
        denied(guest.transact(put("key")).await.unwrap_err()),
        lacking
    );

    // A restarted server knows no token.
    let client = connect(&[server.address], user("app", "secret"));
    client.transact(put("key")).await.unwrap();
    let lease = client.grant(60).await.unwrap();
    server.stop();
    server.start();
    ready(&connect(&[server.address], user("root", "root"))).await;
    // A change is sent again, because the refused one was not applied.
    assert!(client.transact(put("key")).await.unwrap().succeeded);
    client.keep_alive(lease.id).await.unwrap();
    client.revoke(lease.id).await.unwrap();
}

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Issues a certificate and writes it with its key.
    fn issue(&self, folder: &Path, name: &str, host: &str, is_expired: bool) -> ClientFiles {
        let mut params = CertificateParams::new([host.to_owned()]).unwrap();
        if is_expired {
            params.not_after = date_time_ymd(2020, 1, 1);
        }
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let key = KeyPair::generate().unwrap();
        let leaf = params.signed_by(&key, &self.0).unwrap();
        ClientFiles {
            certificate: write(folder, &format!("{name}.crt"), &leaf.pem()),
            key: write(folder, &format!("{name}.key"), &key.serialize_pem()),
        }
    }
}

fn write(folder: &Path, name: &str, content: &str) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, content).unwrap();
    path
}

#[tokio::test]
async fn certificates_are_verified_at_both_ends() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (authority, other) = (Authority::new(), Authority::new());
    let ca = write(folder, "ca.crt", &authority.0.pem());
    let other_ca = write(folder, "other.crt", &other.0.pem());
    let server = |name: &str, host: &str, is_expired| {
        let ClientFiles { certificate, key } = authority.issue(folder, name, host, is_expired);
        let files = [certificate, key, ca.clone()].map(|path| path.display().to_string());
        start(
            "certificates_are_verified_at_both_ends",
            &[
                "--cert-file",
                &files[0],
                "--key-file",
                &files[1],
                "--trusted-ca-file",
                &files[2],
                "--client-cert-auth",
            ],
        )
    };
    let Some(valid) = server("valid", "127.0.0.1", false) else {
        return;
    };
    let options = |ca: &PathBuf, client| Options {
        tls: Some(TlsFiles {
            ca: ca.clone(),
            client,
        }),
        ..Options::default()
    };
    let own = authority.issue(folder, "client", "client", false);
    let own_options = options(&ca, Some(own.clone()));
    own_options.tls.as_ref().unwrap().check().unwrap();
    let client = connect(&[valid.address], own_options.clone());
    ready(&client).await;
    client.transact(put("key")).await.unwrap();

    let expired = server("expired", "127.0.0.1", true).unwrap();
    let misnamed = server("misnamed", "127.0.0.2", false).unwrap();
    for server in [&expired, &misnamed] {
        server.process().wait_for(|line| {
            line["msg"]
                .as_str()
                .is_some_and(|text| text.contains("serving client traffic"))
        });
    }
    let expired_client = authority.issue(folder, "old", "client", true);
    let cases = [
        (&expired, own_options.clone(), "it expired"),
        (&misnamed, own_options.clone(), "not valid for name"),
        (
            &valid,
            options(&other_ca, Some(own.clone())),
            "not signed by an authority",
        ),
        (
            &valid,
            options(&ca, None),
            "refused the certificate of this process",
        ),
        (
            &valid,
            options(&ca, Some(expired_client)),
            "refused the certificate of this process",
        ),
    ];
    for (server, options, expected) in cases {
        let client = connect(&[server.address], options);
        let mut error = client.get("key").await.unwrap_err();
        // On a busy machine a refusal may be later than the client waits for it.
        for _ in 0..20 {
            if !error.to_string().contains(expected) {
                error = client.get("key").await.unwrap_err();
            }
        }
        assert!(matches!(error, Error::Unreachable { .. }), "{error}");
        assert!(error.to_string().contains(expected), "{expected}: {error}");
    }

    // The files are read for each connection: a renewed certificate needs no new client.
    fs::write(&own.key, "-").unwrap();
    let error = TlsFiles {
        ca,
        client: Some(own.clone()),
    }
    .check()
    .unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with(&own.key.display().to_string()),
        "{error}"
    );
    let client = connect(&[valid.address], own_options);
    let error = client.get("key").await.unwrap_err();
    assert!(error.to_string().contains("client.key"), "{error}");
    authority.issue(folder, "client", "client", false);
    client.get("key").await.unwrap();
}

#[tokio::test]
async fn full_database_is_an_error() {
    let Some(server) = start(
        "full_database_is_an_error",
        &["--quota-backend-bytes", "4000000"],
    ) else {
        return;
    };
    let client = client(&server).await;
    let large = || Operation::put("large", vec![7; VALUE_BYTES_MAX], None);
    let mut outcome = Ok(());
    // The server compares the size of its file, which it writes every 100 ms.
    for _ in 0..100 {
        sleep(Duration::from_millis(20)).await;
        let transaction = Transaction::default().then(large());
        outcome = client.transact(transaction).await.map(|_| ());
        if outcome.is_err() {
            break;
        }
    }
    assert_eq!(outcome, Err(Error::NoSpace));
    assert!(Error::NoSpace.to_string().contains("etcdctl alarm disarm"));
    assert!(client.get("large").await.unwrap().is_some());
    assert_eq!(client.grant(60).await, Err(Error::NoSpace));
    let delete = Transaction::default().then(Operation::delete("large"));
    client.transact(delete).await.unwrap();
    let member = client.status().await.remove(0).member.unwrap();
    assert!(
        member.problems.iter().any(|text| text.contains("NOSPACE")),
        "{member:?}"
    );
}
