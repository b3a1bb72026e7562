//! QUIC by quinn: one stream, AES-128-GCM, its defaults except for windows large enough not to limit it.

use crate::goodput::Meter;
use crate::network::{Role, UDP_HEADERS};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{
    ClientConfig, Endpoint, EndpointConfig, MtuDiscoveryConfig, ServerConfig, TokioRuntime, TransportConfig, VarInt,
};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use std::future::Future;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

const MESSAGE: usize = 1 << 20;
const WINDOW: u32 = 16 << 20;
const PORT: u16 = 47_803;
/// The most bytes of one send.
const BATCH: u32 = 65_000;
pub(crate) const NAME: &str = "wire.bench";

/// The receiver's certificate and key, by which the sender recognises it.
pub(crate) struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivatePkcs8KeyDer<'static>,
}

impl Identity {
    pub(crate) fn new() -> Result<Identity, String> {
        let made = rcgen::generate_simple_self_signed([NAME.to_string()]).map_err(|error| error.to_string())?;
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        Ok(Identity { certificate: made.cert.der().clone(), key })
    }

    /// TLS 1.3 of the sender, which trusts this certificate only.
    pub(crate) fn of_sender(&self) -> Result<rustls::ClientConfig, String> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.certificate.clone()).map_err(text)?;
        let builder = rustls::ClientConfig::builder_with_provider(provider());
        let builder = builder.with_protocol_versions(&[&rustls::version::TLS13]).map_err(text)?;
        Ok(builder.with_root_certificates(roots).with_no_client_auth())
    }

    /// TLS 1.3 of the receiver.
    pub(crate) fn of_receiver(&self) -> Result<rustls::ServerConfig, String> {
        let key = PrivateKeyDer::Pkcs8(self.key.clone_key());
        let builder = rustls::ServerConfig::builder_with_provider(provider());
        let builder = builder.with_protocol_versions(&[&rustls::version::TLS13]).map_err(text)?;
        builder.with_no_client_auth().with_single_cert(vec![self.certificate.clone()], key).map_err(text)
    }
}

/// The text of an error.
fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The provider with the cipher of our nodes, by the fastest library of it here (`bench/cipher`).
fn provider() -> Arc<CryptoProvider> {
    let cipher_suites = vec![aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256];
    Arc::new(CryptoProvider { cipher_suites, ..aws_lc_rs::default_provider() })
}

/// The largest datagrams of quinn and noq at an MTU. Both join ten of them to one send of the kernel, which refuses more
/// than 64 KiB, and both take that refusal for success: larger datagrams are lost ten at a time.
pub(crate) fn datagram(mtu: u32) -> u16 {
    (mtu - UDP_HEADERS).min(BATCH / 10) as u16
}

fn transport(mtu: u32) -> Arc<TransportConfig> {
    let mut discovery = MtuDiscoveryConfig::default();
    discovery.upper_bound(datagram(mtu));
    let mut transport = TransportConfig::default();
    transport
        .stream_receive_window(VarInt::from_u32(WINDOW))
        .receive_window(VarInt::from_u32(WINDOW))
        .send_window(u64::from(WINDOW))
        .mtu_discovery_config(Some(discovery));
    Arc::new(transport)
}

fn endpoint(server: Option<ServerConfig>, at: SocketAddr, mtu: u32) -> Result<Endpoint, String> {
    let mut config = EndpointConfig::default();
    // The peer sends no larger datagrams; the default is 1,472.
    config.max_udp_payload_size(datagram(mtu)).map_err(text)?;
    Endpoint::new(config, server, UdpSocket::bind(at).map_err(text)?, Arc::new(TokioRuntime)).map_err(text)
}

/// Runs on this thread until the work is done; `None` if the measurement ended first.
pub(crate) fn run<T>(meter: &Meter, work: impl Future<Output = Result<T, String>>) -> Result<Option<T>, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(text)?;
    let over = async {
        while !meter.is_over() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    runtime.block_on(async {
        tokio::select! {
            outcome = work => if meter.is_over() { Ok(outcome.ok()) } else { outcome.map(Some) },
            () = over => Ok(None),
        }
    })
}

/// Writes a mebibyte at a time.
pub(crate) fn send(meter: &Meter, identity: &Identity, mtu: u32) -> Result<(), String> {
    let tls = identity.of_sender()?;
    let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).map_err(text)?));
    config.transport_config(transport(mtu));
    let work = async {
        let endpoint = endpoint(None, Role::Sender.plain_address(0, 0), mtu)?;
        let to = Role::Receiver.plain_address(0, PORT);
        let connecting = endpoint.connect_with(config, to, NAME).map_err(text)?;
        let connection = connecting.await.map_err(text)?;
        let mut stream = connection.open_uni().await.map_err(text)?;
        let message = vec![0x5a; MESSAGE];
        loop {
            stream.write_all(&message).await.map_err(text)?;
        }
    };
    run::<()>(meter, work).map(drop)
}

/// Reads it into one buffer.
pub(crate) fn receive(meter: &Meter, identity: &Identity, mtu: u32) -> Result<(), String> {
    let tls = identity.of_receiver()?;
    let mut config = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls).map_err(text)?));
    config.transport_config(transport(mtu));
    let work = async {
        let endpoint = endpoint(Some(config), Role::Receiver.plain_address(0, PORT), mtu)?;
        let incoming = endpoint.accept().await.ok_or("the endpoint closed")?;
        let connection = incoming.await.map_err(text)?;
        let mut stream = connection.accept_uni().await.map_err(text)?;
        let mut place = vec![0; MESSAGE];
        while let Some(bytes) = stream.read(&mut place).await.map_err(text)? {
            meter.add(bytes as u64);
        }
        Ok(())
    };
    run(meter, work).map(drop)
}
