//! The configuration of both ends of a connection, for one set of authorities.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use plimsoll_core::exchange::{PeerId, PeerRole};
use rustls::client::Resumption;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ProducesTickets, WebPkiClientVerifier};
use rustls::sign::SingleCertAndKey;
use rustls::version::TLS13;
use rustls::{ClientConfig, Error, RootCertStore, ServerConfig};

use crate::error::{CertificatesError, Fault};
use crate::files::Pem;
use crate::peer::Tier;
use crate::verifier::{Accepted, OfClients, OfServers};

/// Maximum number of sessions that a child keeps; rustls keeps 8 for each address.
const SESSIONS_MAX: usize = 256;

/// Returns the configuration of an operator's command. The authorities of this file verify the
/// server, which must be of this tier, so that no other process gets the operator's token.
///
/// # Errors
/// If the file cannot be used.
pub fn operator_client(ca: &Path, tier: Tier) -> Result<ClientConfig, CertificatesError> {
    let ca = Pem::read(ca.to_owned())?;
    let trust = Trust::new(&ca)?;
    let builder = ClientConfig::builder_with_provider(trust.provider.clone())
        .with_protocol_versions(&[&TLS13])
        .map_err(|error| ca.fault(Fault::Authority(error)))?;
    let verifier = Arc::new(trust.of_servers(Accepted::Tier(tier)));
    let mut config = builder
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// The authorities of one `ca.crt`, and the verifiers and configurations that follow from them.
pub(crate) struct Trust {
    provider: Arc<CryptoProvider>,
    roots: Arc<RootCertStore>,
    clients: Arc<dyn ClientCertVerifier>,
}

impl Trust {
    pub(crate) fn new(ca: &Pem) -> Result<Self, CertificatesError> {
        let provider = Arc::new(ring::default_provider());
        let roots = Arc::new(ca.authorities()?);
        let clients = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone())
            // A process has one certificate, so a list to choose by would be useless.
            .clear_root_hint_subjects()
            .build()
            .map_err(|error| ca.fault(Fault::Authority(Error::General(error.to_string()))))?;
        Ok(Self {
            provider,
            roots,
            clients,
        })
    }

    pub(crate) fn provider(&self) -> &CryptoProvider {
        &self.provider
    }

    /// Verifies the chain of this process as its peers will, at the ends of connections that its
    /// role has.
    pub(crate) fn verify_own(
        &self,
        id: &PeerId,
        chain: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        let (leaf, intermediates) = chain.split_first().ok_or(Error::NoCertificatesPresented)?;
        let accepted = || Accepted::TrustDomain(id.trust_domain().to_owned());
        if !matches!(id.role(), PeerRole::Service { .. }) {
            let no_host = ServerName::from(IpAddr::from([0, 0, 0, 0]));
            let verifier = self.of_servers(accepted());
            verifier.verify_server_cert(leaf, intermediates, &no_host, &[], now)?;
        }
        if !matches!(id.role(), PeerRole::Controller | PeerRole::Quota) {
            self.of_clients(accepted())
                .verify_client_cert(leaf, intermediates, now)?;
        }
        Ok(())
    }

    /// Returns the configuration of a parent's port, which asks for certificates of this trust
    /// domain.
    pub(crate) fn mutual_server(
        &self,
        own: Arc<SingleCertAndKey>,
        trust_domain: &str,
        ticketer: Arc<dyn ProducesTickets>,
    ) -> Result<ServerConfig, Error> {
        let verifier = self.of_clients(Accepted::TrustDomain(trust_domain.to_owned()));
        let mut config = ServerConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(Arc::new(verifier))
            .with_cert_resolver(own);
        config.alpn_protocols = vec![b"h2".to_vec()];
        config.ticketer = ticketer;
        // A child opens one connection at a time, and each gives it another ticket.
        config.send_tls13_tickets = 1;
        Ok(config)
    }

    /// Returns the configuration of an admin port, which asks for no certificate. It must not share
    /// tickets with a port that does: a session without a certificate could be resumed there.
    pub(crate) fn admin_server(&self, own: Arc<SingleCertAndKey>) -> Result<ServerConfig, Error> {
        let mut config = ServerConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(&[&TLS13])?
            .with_no_client_auth()
            .with_cert_resolver(own);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.send_tls13_tickets = 0;
        Ok(config)
    }

    /// Returns the configuration of a child, which verifies its parent by this trust domain.
    pub(crate) fn child(
        &self,
        own: Arc<SingleCertAndKey>,
        trust_domain: &str,
    ) -> Result<ClientConfig, Error> {
        let verifier = self.of_servers(Accepted::TrustDomain(trust_domain.to_owned()));
        let mut config = ClientConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_cert_resolver(own);
        config.alpn_protocols = vec![b"h2".to_vec()];
        config.resumption = Resumption::in_memory_sessions(SESSIONS_MAX);
        Ok(config)
    }

    fn of_clients(&self, accepted: Accepted) -> OfClients {
        OfClients {
            chain: self.clients.clone(),
            accepted,
        }
    }

    fn of_servers(&self, accepted: Accepted) -> OfServers {
        let algorithms = self.provider.signature_verification_algorithms;
        OfServers {
            roots: self.roots.clone(),
            algorithms,
            accepted,
        }
    }
}
