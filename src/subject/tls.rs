//! What a client of the harness needs for TLS: what rustls is told, and its records on a blocking socket.
//!
//! Each connection shakes hands in full: nothing of a session is kept for the next one. What is left out: certificates of
//! clients.

use super::protocol::Target;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A client's configuration that trusts this authority alone.
///
/// # Errors
/// When the file can't be read or is no certificate.
pub(super) fn config(ca: &Path) -> io::Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(ca).map_err(io::Error::other)? {
        roots.add(certificate.map_err(io::Error::other)?).map_err(io::Error::other)?;
    }
    Ok(Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth()))
}

/// Whom the certificate has to name: what the broker is found by.
///
/// # Errors
/// When that is a name that can't be one.
pub(super) fn name_of(target: &Target) -> io::Result<ServerName<'static>> {
    match &target.name {
        Some(name) => ServerName::try_from(name.clone()).map_err(io::Error::other),
        None => Ok(ServerName::IpAddress(IpAddr::V4(*target.server.ip()).into())),
    }
}

/// The records of one connection, between whoever reads and whoever writes.
#[derive(Debug)]
pub(super) struct Records {
    connection: Mutex<ClientConnection>,
}

impl Records {
    /// Of a connection that has not begun its handshake.
    ///
    /// # Errors
    /// When the file can't be read or is no certificate.
    pub fn new(ca: &Path, name: ServerName<'static>) -> io::Result<Self> {
        let connection = ClientConnection::new(config(ca)?, name).map_err(io::Error::other)?;
        Ok(Self { connection: Mutex::new(connection) })
    }

    fn lock(&self) -> MutexGuard<'_, ClientConnection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the handshake still goes on.
    pub fn shakes_hands(&self) -> bool {
        self.lock().is_handshaking()
    }

    /// What has to be put on the wire for these bytes, and for what the protocol itself has to say.
    ///
    /// # Errors
    /// When rustls takes no more.
    pub fn seal(&self, plain: &[u8]) -> io::Result<Vec<u8>> {
        let mut connection = self.lock();
        connection.writer().write_all(plain)?;
        let mut sealed = Vec::new();
        while connection.wants_write() {
            connection.write_tls(&mut sealed)?;
        }
        Ok(sealed)
    }

    /// What bytes from the wire say, as far as whole records have arrived; and whether the peer has said good-bye.
    ///
    /// # Errors
    /// What rustls objects to, such as a certificate that is not to be trusted.
    pub fn open(&self, mut wire: &[u8]) -> io::Result<(Vec<u8>, bool)> {
        let (mut connection, mut plain, mut over) = (self.lock(), Vec::new(), false);
        while !wire.is_empty() && !over {
            connection.read_tls(&mut wire)?;
            let state = connection.process_new_packets().map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
            over = state.peer_has_closed();
            let from = plain.len();
            plain.resize(from + state.plaintext_bytes_to_read(), 0);
            connection.reader().read_exact(&mut plain[from..])?;
        }
        Ok((plain, over))
    }
}
