//! Encrypted connections to somebody's own PostgreSQL: what `sslmode` and `sslrootcert` of an address ask for, in libpq's
//! words, and the connector that carries it out with rustls.
//!
//! What is left out: certificates of clients, files of revoked ones, and binding a password to the channel (`SCRAM-…-PLUS`),
//! which a server takes for a client that can't.

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};

/// What an address asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wanted {
    /// No encryption.
    Plain,
    /// Encrypted where the server offers that, whoever it is.
    Prefer,
    /// Encrypted, whoever it is.
    Require,
    /// Encrypted, to a server whose certificate is of this authority.
    VerifyCa(PathBuf),
    /// The same, and the certificate names the host that was asked for.
    VerifyFull(PathBuf),
}

/// An address without what it says of encryption, and that.
///
/// # Errors
/// In words, with the mend.
pub(super) fn split(address: &str) -> Result<(String, Wanted), String> {
    let (rest, mode, root) = match address.split_once("://") {
        Some(_) => of_url(address),
        None => of_words(address),
    };
    let rooted = |root: Option<String>| {
        root.map(PathBuf::from).ok_or_else(|| {
            let mode = mode.as_deref().unwrap_or_default();
            format!("sslmode={mode} needs the authority's certificate; write sslrootcert=/path/to/ca.pem beside it")
        })
    };
    let wanted = match (mode.as_deref(), root) {
        (None, Some(_)) => {
            return Err("sslrootcert alone has nothing checked; write sslmode=verify-full beside it".to_string());
        }
        (Some(mode @ ("disable" | "allow" | "prefer")), Some(_)) => {
            return Err(format!("sslrootcert has nothing checked with sslmode={mode}; write sslmode=verify-full"));
        }
        (Some("disable"), None) => Wanted::Plain,
        // libpq's `allow` tries without encryption first; whoever says it has no objection to either.
        (None | Some("allow" | "prefer"), None) => Wanted::Prefer,
        (Some("require"), None) => Wanted::Require,
        // As in libpq: an authority that is there is asked.
        (Some("require"), Some(root)) => Wanted::VerifyCa(root.into()),
        (Some("verify-ca"), root) => Wanted::VerifyCa(rooted(root)?),
        (Some("verify-full"), root) => Wanted::VerifyFull(rooted(root)?),
        (Some(other), _) => {
            return Err(format!(
                "there is no sslmode `{other}`; write disable, prefer, require, verify-ca or verify-full"
            ));
        }
    };
    Ok((rest, wanted))
}

type Split = (String, Option<String>, Option<String>);

fn of_url(address: &str) -> Split {
    let (mut mode, mut root) = (None, None);
    let Some((before, query)) = address.split_once('?') else { return (address.to_string(), None, None) };
    let kept: Vec<&str> = query
        .split('&')
        .filter(|pair| match pair.split_once('=') {
            Some(("sslmode", value)) => {
                mode = Some(decoded(value));
                false
            }
            Some(("sslrootcert", value)) => {
                root = Some(decoded(value));
                false
            }
            _ => true,
        })
        .collect();
    let rest = if kept.is_empty() { before.to_string() } else { format!("{before}?{}", kept.join("&")) };
    (rest, mode, root)
}

/// A text with `%2F` and the like read.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, more @ ..] = rest {
        let code = || u8::from_str_radix(std::str::from_utf8(more.get(..2)?).ok()?, 16).ok();
        match code().filter(|_| *first == b'%') {
            Some(byte) => {
                bytes.push(byte);
                rest = &more[2..];
            }
            None => {
                bytes.push(*first);
                rest = more;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// `key=value` words, as libpq reads them: a value may stand in single quotes, and a backslash takes the next sign as it is.
fn of_words(address: &str) -> Split {
    let (mut mode, mut root, mut kept) = (None, None, String::new());
    let mut rest = address.trim_start();
    while !rest.is_empty() {
        let whole = rest;
        let Some(equals) = rest.find('=') else { break };
        let key = rest[..equals].trim();
        rest = rest[equals + 1..].trim_start();
        let quoted = rest.starts_with('\'');
        let (mut value, mut escaped, mut end) = (String::new(), false, rest.len());
        for (at, sign) in rest.char_indices().skip(usize::from(quoted)) {
            match sign {
                _ if escaped => {
                    value.push(sign);
                    escaped = false;
                }
                '\\' => escaped = true,
                '\'' if quoted => {
                    end = at + 1;
                    break;
                }
                sign if sign.is_whitespace() && !quoted => {
                    end = at;
                    break;
                }
                sign => value.push(sign),
            }
        }
        rest = rest[end..].trim_start();
        match key {
            "sslmode" => mode = Some(value),
            "sslrootcert" => root = Some(value),
            _ => kept.push_str(&whole[..whole.len() - rest.len()]),
        }
    }
    kept.push_str(rest);
    (kept.trim_end().to_string(), mode, root)
}

/// What connects as an address wants it.
#[derive(Debug, Clone)]
pub(super) struct Connector {
    wanted: Wanted,
    config: Arc<ClientConfig>,
}

impl Connector {
    /// For an address.
    ///
    /// # Errors
    /// In words, when the authority's file can't be read or has no certificate.
    pub(super) fn new(wanted: Wanted) -> Result<Self, String> {
        let provider = rustls::crypto::ring::default_provider();
        let builder =
            ClientConfig::builder_with_provider(Arc::new(provider.clone())).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| error.to_string())?;
        let config = match &wanted {
            Wanted::VerifyFull(root) => builder.with_root_certificates(roots(root)?).with_no_client_auth(),
            Wanted::VerifyCa(root) => {
                let inner =
                    WebPkiServerVerifier::builder_with_provider(Arc::new(roots(root)?), Arc::new(provider.clone()));
                let inner = inner.build().map_err(|error| error.to_string())?;
                let verifier = Lenient { authority: Some(inner), provider };
                builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth()
            }
            Wanted::Plain | Wanted::Prefer | Wanted::Require => {
                let verifier = Lenient { authority: None, provider };
                builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth()
            }
        };
        Ok(Self { wanted, config: Arc::new(config) })
    }

    /// The mode in the library's words.
    pub(super) fn mode(&self) -> SslMode {
        match self.wanted {
            Wanted::Plain => SslMode::Disable,
            Wanted::Prefer => SslMode::Prefer,
            Wanted::Require | Wanted::VerifyCa(_) | Wanted::VerifyFull(_) => SslMode::Require,
        }
    }

    /// Why a server was refused, with the mend; `None` where that is none of this connector's business.
    pub(super) fn refusal(&self, error: &(dyn std::error::Error + 'static)) -> Option<String> {
        let root = match &self.wanted {
            Wanted::VerifyCa(root) | Wanted::VerifyFull(root) => root.display().to_string(),
            Wanted::Plain | Wanted::Prefer | Wanted::Require => String::new(),
        };
        let causes = std::iter::successors(Some(error), |error| error.source());
        let tls = causes.filter_map(|cause| match cause.downcast_ref::<io::Error>() {
            Some(io) => io.get_ref()?.downcast_ref::<Error>(),
            None => cause.downcast_ref::<Error>(),
        });
        tls.last().map(|error| refused(error, &root))
    }
}

/// Why a certificate was refused that the authority of a file should vouch for.
pub(super) fn refused(error: &Error, root: &str) -> String {
    match error {
        // Of an authority that calls itself as the right one does, only the signature is wrong.
        Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            format!("its certificate is not of an authority in {root}; name the file of the one that signed it")
        }
        Error::InvalidCertificate(
            kind @ (CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }),
        ) => format!("{kind}; reach it by a name that its certificate has"),
        other => other.to_string(),
    }
}

/// The certificates of a file.
pub(super) fn roots(file: &Path) -> Result<RootCertStore, String> {
    let problem = |error: &dyn std::fmt::Display| {
        format!("{} is no authority's certificate: {error}; name a file in PEM", file.display())
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| problem(&error))? {
        roots.add(certificate.map_err(|error| problem(&error))?).map_err(|error| problem(&error))?;
    }
    if roots.is_empty() {
        return Err(problem(&"there is none in it"));
    }
    Ok(roots)
}

/// Checks what was asked to be checked, and always that the server has the key of the certificate that it shows.
#[derive(Debug)]
struct Lenient {
    /// By whom the certificate has to be signed; `None`: by anybody.
    authority: Option<Arc<WebPkiServerVerifier>>,
    provider: CryptoProvider,
}

impl ServerCertVerifier for Lenient {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(authority) = &self.authority else { return Ok(ServerCertVerified::assertion()) };
        // The name is looked at last: one that is wrong is all that is.
        match authority.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl<S> MakeTlsConnect<S> for Connector
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Encrypted<S>;
    type TlsConnect = ToHost;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<ToHost> {
        // Of a socket file there is no host, and no encryption either.
        let name = if host.is_empty() { "localhost" } else { host };
        let name = ServerName::try_from(name.to_string()).map_err(io::Error::other)?;
        Ok(ToHost { config: self.config.clone(), name })
    }
}

/// A connector to one host.
pub(super) struct ToHost {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl<S> TlsConnect<S> for ToHost
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Encrypted<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Encrypted<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        let connecting = tokio_rustls::TlsConnector::from(self.config).connect(self.name, stream);
        Box::pin(async { connecting.await.map(Encrypted) })
    }
}

/// A stream of records.
pub(super) struct Encrypted<S>(tokio_rustls::client::TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Encrypted<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Encrypted<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Encrypted<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_an_address_are_read_and_the_rest_is_left_as_it_is() {
        let ca = || PathBuf::from("/etc/my ca.pem");
        for (address, rest, wanted) in [
            ("host=h dbname=app", "host=h dbname=app", Wanted::Prefer),
            ("host=h sslmode=disable dbname=app", "host=h dbname=app", Wanted::Plain),
            ("host=h sslmode = require", "host=h", Wanted::Require),
            (
                "sslmode=verify-full sslrootcert='/etc/my ca.pem' password='a=b c\\' d' host=h",
                "password='a=b c\\' d' host=h",
                Wanted::VerifyFull(ca()),
            ),
            ("sslrootcert=/etc/my\\ ca.pem sslmode=require host=h", "host=h", Wanted::VerifyCa(ca())),
            ("postgres://u:p@h/app", "postgres://u:p@h/app", Wanted::Prefer),
            ("postgresql://h/app?sslmode=require", "postgresql://h/app", Wanted::Require),
            (
                "postgresql://h/app?connect_timeout=3&sslrootcert=%2Fetc%2Fmy%20ca.pem&sslmode=verify-ca",
                "postgresql://h/app?connect_timeout=3",
                Wanted::VerifyCa(ca()),
            ),
        ] {
            assert_eq!(split(address), Ok((rest.to_string(), wanted)), "{address}");
            assert!(rest.parse::<tokio_postgres::Config>().is_ok(), "{rest}");
        }
    }

    #[test]
    fn what_would_check_nothing_is_refused() {
        let says = |address: &str| split(address).expect_err("is wrong");
        assert_eq!(
            says("host=h sslmode=verify-full"),
            "sslmode=verify-full needs the authority's certificate; write sslrootcert=/path/to/ca.pem beside it"
        );
        assert!(says("host=h sslrootcert=/ca.pem").contains("sslmode=verify-full"));
        assert!(says("host=h sslrootcert=/ca.pem sslmode=prefer").contains("with sslmode=prefer"));
        assert!(says("postgres://h/app?sslmode=verify").contains("verify-ca or verify-full"));
    }

    #[test]
    fn a_file_that_is_no_certificate_is_named() {
        let none =
            Connector::new(Wanted::VerifyFull("/nonexistent/ca.pem".into())).map(drop).expect_err("is not there");
        assert!(none.starts_with("/nonexistent/ca.pem is no authority's certificate"), "{none}");
        let file = tempfile::NamedTempFile::new().unwrap();
        let empty = Connector::new(Wanted::VerifyCa(file.path().into())).map(drop).expect_err("is empty");
        assert!(empty.contains("there is none in it"), "{empty}");
    }
}
