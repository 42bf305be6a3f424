//! The certificates of a run: an authority of its own, and one for its brokers that names every address at which they are
//! found.
//!
//! They live as long as the run's private directory. The authority's key is never written down; the brokers' is readable
//! by its owner alone. The certificate is valid from 1975 to 4096 (what rcgen takes by itself), so that no clock decides.
//! What is left out: certificates of clients, and revocation.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The files of a run's certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificates {
    /// The authority's certificate, by which clients check the broker's.
    pub ca: PathBuf,
    /// The brokers' certificate.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

impl Certificates {
    /// Makes them in a new directory below `dir`, for brokers that are found at these addresses or below this name.
    ///
    /// # Errors
    /// When they can't be made or written.
    pub fn make(dir: &Path, addresses: &[Ipv4Addr], below: &str) -> io::Result<Self> {
        let dir = dir.join("tls");
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
        let files = Self { ca: dir.join("ca.pem"), certificate: dir.join("broker.pem"), key: dir.join("broker.key") };
        let made = make(addresses, below).map_err(io::Error::other)?;
        for (path, text) in [(&files.ca, made.ca), (&files.certificate, made.certificate), (&files.key, made.key)] {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
            file.write_all(text.as_bytes())?;
        }
        Ok(files)
    }
}

impl Certificates {
    /// Copies of the brokers' files in a directory that a broker reads as a user of its own, and that is closed to others
    /// further up; as they are called where the broker finds that directory.
    ///
    /// # Errors
    /// When they can't be written.
    pub(super) fn lay_into(&self, dir: &Path, inside: &Path) -> io::Result<Self> {
        let lay = |file: &PathBuf| {
            let name = file.file_name().unwrap_or_default();
            fs::copy(file, dir.join(name))?;
            fs::set_permissions(dir.join(name), fs::Permissions::from_mode(0o644))?;
            Ok::<_, io::Error>(inside.join(name))
        };
        Ok(Self { ca: lay(&self.ca)?, certificate: lay(&self.certificate)?, key: lay(&self.key)? })
    }
}

/// Three PEM texts.
struct Made {
    ca: String,
    certificate: String,
    key: String,
}

fn make(addresses: &[Ipv4Addr], below: &str) -> Result<Made, rcgen::Error> {
    let mut authority = CertificateParams::new(Vec::new())?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.distinguished_name.push(DnType::CommonName, "halfopen, one run");
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let ca_key = KeyPair::generate()?;
    let ca = authority.self_signed(&ca_key)?;
    let issuer = Issuer::new(authority, ca_key);
    let names = addresses.iter().map(Ipv4Addr::to_string).chain([format!("*.{below}")]);
    let mut broker = CertificateParams::new(names.collect::<Vec<_>>())?;
    broker.distinguished_name.push(DnType::CommonName, "a broker of halfopen");
    broker.use_authority_key_identifier_extension = true;
    broker.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    broker.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate()?;
    let certificate = broker.signed_by(&key, &issuer)?;
    Ok(Made { ca: ca.pem(), certificate: certificate.pem(), key: key.serialize_pem() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::client::WebPkiServerVerifier;
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn a_client_accepts_it_at_each_address_and_at_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let here = [Ipv4Addr::new(10, 128, 128, 1), Ipv4Addr::new(10, 129, 128, 1)];
        let files = Certificates::make(dir.path(), &here, "halfopen.test").unwrap();
        for path in [&files.ca, &files.certificate, &files.key] {
            assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600, "{}", path.display());
        }
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&files.ca).unwrap()).unwrap();
        let verifier = WebPkiServerVerifier::builder(Arc::new(roots)).build().unwrap();
        let certificate = CertificateDer::from_pem_file(&files.certificate).unwrap();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_000));
        let accepted = |name: &'static str| {
            use rustls::client::danger::ServerCertVerifier;
            let name = ServerName::try_from(name).unwrap();
            verifier.verify_server_cert(&certificate, &[], &name, &[], now).is_ok()
        };
        assert!(accepted("10.128.128.1") && accepted("10.129.128.1") && accepted("broker-7.halfopen.test"));
        assert!(!accepted("10.128.128.2") && !accepted("broker-7.example.org"));
        assert!(Certificates::make(dir.path(), &here, "halfopen.test").is_err(), "nothing is written over");
    }

    #[test]
    fn as_many_addresses_as_a_certificate_may_have_fit_into_a_handshake_message() {
        let all: Vec<Ipv4Addr> =
            (0..crate::scenario::MAX_TLS_TRIALS).map(|n| Ipv4Addr::from_bits(0x0A80_8001 + n)).collect();
        let made = make(&all, "halfopen.test").unwrap();
        let certificate = CertificateDer::from_pem_slice(made.certificate.as_bytes()).unwrap();
        assert!(certificate.len() < 60_000, "{}", certificate.len());
    }
}
