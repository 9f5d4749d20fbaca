//! TLS: the certificate of a server and the authority of its clients, from files.
//!
//! No session is resumed where clients are asked for certificates: each connection has its certificate and its time checked.

use crate::certificates::{self, EndPoint};
use crate::file_version::FileVersion;
use parking_lot::Mutex;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;

/// The files of a server's certificate, in PEM. They are read again when they change.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The certificate, and those that lead from it to one that clients know.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The certificates that clients are asked for, if they are.
    pub clients: Option<ClientCertificates>,
}

/// The certificates of clients that a server asks for.
#[derive(Clone, Debug)]
pub struct ClientCertificates {
    /// The certificates of the authorities that sign them, in PEM.
    pub authority: PathBuf,
    /// The answer to a client that has none.
    pub without: WithoutCertificate,
}

/// The answer to a client that has no certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WithoutCertificate {
    /// It is asked for a password or a token, as everybody is without `clients`.
    #[default]
    IsAsked,
    /// No connection comes about.
    IsRefused,
}

/// The reason why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read, or is not in PEM.
    #[error("cannot read the {what} in '{path}': {why}")]
    File {
        /// The certificate, or the key.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The key is that of another certificate, or of a kind that is not known.
    #[error("the certificate in '{certificate}' cannot be used with the key in '{key}': {source}")]
    Pair {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// The reason.
        source: rustls::Error,
    },
    /// The certificates are no authorities.
    #[error("the certificates in '{path}' cannot be those of authorities of clients: {why}")]
    Authority {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
}

/// Reads the certificates of a file.
fn certificates_in(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let refuse = |error| refused("certificate", path, error);
    let found: Vec<_> =
        CertificateDer::pem_file_iter(path).map_err(refuse)?.collect::<Result<_, _>>().map_err(refuse)?;
    if found.is_empty() { Err(refuse(PemError::NoItemsFound)) } else { Ok(found) }
}

/// Returns why a file cannot be used.
fn refused(what: &'static str, path: &Path, error: PemError) -> TlsError {
    let why = match error {
        PemError::Io(error) => error.to_string(),
        PemError::NoItemsFound => format!("there is no {what} in it"),
        error => error.to_string(),
    };
    TlsError::File { what, path: path.to_owned(), why }
}

impl ClientCertificates {
    /// Reads the authorities, and what checks certificates by them.
    fn verifier(&self) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
        let refuse = |why: String| TlsError::Authority { path: self.authority.clone(), why };
        let mut roots = RootCertStore::empty();
        for certificate in certificates_in(&self.authority)? {
            roots.add(certificate).map_err(|error| refuse(error.to_string()))?;
        }
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::new(default_provider()));
        let builder = match self.without {
            WithoutCertificate::IsAsked => builder.allow_unauthenticated(),
            WithoutCertificate::IsRefused => builder,
        };
        builder.build().map_err(|error| refuse(error.to_string()))
    }
}

impl TlsFiles {
    /// Reads the certificate, and what accepts encrypted connections with it.
    fn read(&self) -> Result<Certificate, TlsError> {
        let chain = certificates_in(&self.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|error| refused("key", &self.key, error))?;
        let clients = self.clients.as_ref().map(ClientCertificates::verifier).transpose()?;
        let asks_clients = clients.is_some();
        let end_point = certificates::end_point(&chain[0]);
        let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .map(|builder| {
                builder.with_client_cert_verifier(clients.unwrap_or_else(WebPkiClientVerifier::no_client_auth))
            })
            .and_then(|builder| builder.with_single_cert(chain, key))
            .map_err(|source| TlsError::Pair {
                certificate: self.certificate.clone(),
                key: self.key.clone(),
                source,
            })?;
        if asks_clients {
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        Ok(Certificate { acceptor: TlsAcceptor::from(Arc::new(config)), end_point })
    }
}

/// A certificate that is in use.
#[derive(Clone)]
pub struct Certificate {
    /// The acceptor of TLS connections that uses this certificate.
    pub acceptor: TlsAcceptor,
    /// The hash of it that a client binds its password to; none where its kind has none.
    pub end_point: Option<EndPoint>,
}

/// A server's certificate, which may be renewed while the server runs.
pub struct Tls {
    files: TlsFiles,
    read: Mutex<(FileVersions, Certificate)>,
}

/// The versions of the files: the certificate's, the key's, and that of the authorities of clients, if there are any.
type FileVersions = [Option<FileVersion>; 3];

impl Tls {
    /// Reads the files for the first time.
    pub fn open(files: TlsFiles) -> Result<Tls, TlsError> {
        let versions = files.versions();
        let certificate = files.read()?;
        Ok(Tls { files, read: Mutex::new((versions, certificate)) })
    }

    /// Returns the certificate that there is now. As long as the files cannot be used, as between the writes of the two, it
    /// is the one before.
    pub fn certificate(&self) -> Certificate {
        let mut read = self.read.lock();
        let versions = self.files.versions();
        if read.0 != versions
            && let Ok(certificate) = self.files.read()
        {
            *read = (versions, certificate);
        }
        read.1.clone()
    }
}

impl TlsFiles {
    fn versions(&self) -> FileVersions {
        let authority = self.clients.as_ref().map(|clients| &clients.authority);
        [Some(&self.certificate), Some(&self.key), authority].map(|path| path.map(|path| FileVersion::of(path)))
    }
}
