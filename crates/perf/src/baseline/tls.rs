//! TLS 1.3 with AES-128-GCM, and raw public keys (RFC 7250) in place of certificates.

use graviola::signing::ecdsa::{P256, SigningKey};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, DigitallySignedStruct, Error, ServerConfig, ServerConnection,
    SignatureScheme, StreamOwned,
};
use std::io;
use std::net::TcpStream;
use std::sync::Arc;

fn wrong(error: Error) -> io::Error {
    io::Error::other(error)
}

/// Graviola's algorithms, and of its ciphers AES-128-GCM alone, as in the datagrams of nodes.
fn provider() -> io::Result<Arc<CryptoProvider>> {
    if !graviola::util::is_cpu_supported() {
        let what = "TLS: this processor lacks instructions that the cipher's library needs: take --beside tcp";
        return Err(io::Error::new(io::ErrorKind::Unsupported, what));
    }
    let mut provider = rustls_graviola::default_provider();
    provider.cipher_suites.retain(|suite| suite.suite() == CipherSuite::TLS13_AES_128_GCM_SHA256);
    Ok(Arc::new(provider))
}

/// The key of a server, made at its start.
#[derive(Debug)]
pub(super) struct Identity(Arc<ServerConfig>);

impl Identity {
    pub(super) fn new() -> io::Result<Identity> {
        let provider = provider()?;
        let mut bytes = [0; 256];
        let key = SigningKey::<P256>::generate().and_then(|key| Ok(key.to_pkcs8_der(&mut bytes)?.to_vec()));
        let key = key.map_err(|error| io::Error::other(format!("no key can be made: {error:?}")))?;
        let key = provider.key_provider.load_private_key(PrivateKeyDer::Pkcs8(key.into())).map_err(wrong)?;
        let public = key.public_key().ok_or_else(|| io::Error::other("the key has no public half"))?;
        let key = CertifiedKey::new(vec![CertificateDer::from(public.as_ref().to_vec())], key);
        let config = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13]).map_err(wrong)?;
        let resolver = AlwaysResolvesServerRawPublicKeys::new(Arc::new(key));
        Ok(Identity(Arc::new(config.with_no_client_auth().with_cert_resolver(Arc::new(resolver)))))
    }

    /// The server's side of a stream.
    pub(super) fn accept<'a>(&self, stream: &'a TcpStream) -> io::Result<StreamOwned<ServerConnection, &'a TcpStream>> {
        let connection = ServerConnection::new(Arc::clone(&self.0)).map_err(wrong)?;
        Ok(StreamOwned::new(connection, stream))
    }
}

pub(super) type ClientStream = StreamOwned<ClientConnection, TcpStream>;

/// The client's side of a stream.
pub(super) fn connect(stream: TcpStream) -> io::Result<ClientStream> {
    let provider = provider()?;
    let any = AnyKey(provider.signature_verification_algorithms);
    let config = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13]).map_err(wrong)?;
    let config = config.dangerous().with_custom_certificate_verifier(Arc::new(any)).with_no_client_auth();
    let name = ServerName::try_from("strandway.invalid").expect("a name");
    let connection = ClientConnection::new(Arc::new(config), name).map_err(wrong)?;
    Ok(StreamOwned::new(connection, stream))
}

/// Takes any key whose owner the server is.
#[derive(Debug)]
struct AnyKey(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for AnyKey {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("only TLS 1.3 is spoken here".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature_with_raw_key(message, &SubjectPublicKeyInfoDer::from(key.as_ref()), signed, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
