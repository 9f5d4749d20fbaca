//! TLS: the certificate of a server, from files.

use crate::certificates::{self, EndPoint};
use crate::file_version::FileVersion;
use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
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
}

impl TlsFiles {
    /// Reads the certificate, and what accepts encrypted connections with it.
    fn read(&self) -> Result<Certificate, TlsError> {
        let refuse = |what, path: &Path, error: PemError| {
            let why = match error {
                PemError::Io(error) => error.to_string(),
                PemError::NoItemsFound => format!("there is no {what} in it"),
                error => error.to_string(),
            };
            TlsError::File { what, path: path.to_owned(), why }
        };
        let certificates = |error| refuse("certificate", &self.certificate, error);
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(&self.certificate)
            .map_err(certificates)?
            .collect::<Result<_, _>>()
            .map_err(certificates)?;
        if chain.is_empty() {
            return Err(certificates(PemError::NoItemsFound));
        }
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|error| refuse("key", &self.key, error))?;
        let end_point = certificates::end_point(&chain[0]);
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
            .map_err(|source| TlsError::Pair {
                certificate: self.certificate.clone(),
                key: self.key.clone(),
                source,
            })?;
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

/// The versions of the certificate's file and of the key's.
type FileVersions = [FileVersion; 2];

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
        [&self.certificate, &self.key].map(|path| FileVersion::of(path))
    }
}
