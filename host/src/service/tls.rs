//! Certificates, read again when their files change.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// A certificate with its key, from files.
pub(crate) struct Tls {
    cert: PathBuf,
    key: PathBuf,
    config: RwLock<Arc<ServerConfig>>,
    /// The files that were looked at last, whatever came of it.
    seen: Mutex<[Stamp; 2]>,
}

/// What tells a file from what it was before: inode, length, time of change. `None`: it cannot be looked at.
type Stamp = Option<(u64, u64, i64, i64)>;

fn stamp(path: &Path) -> Stamp {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec()))
}

impl Tls {
    /// Reads both files, which are PEM: the certificate with what leads up to its authority behind it, and its key.
    pub(crate) fn read(cert: PathBuf, key: PathBuf) -> Result<Self, String> {
        // Looked at before they are read: a change in between is seen.
        let seen = Mutex::new([stamp(&cert), stamp(&key)]);
        let config = RwLock::new(config(&cert, &key)?);
        Ok(Self { cert, key, config, seen })
    }

    /// What the next connection is accepted by.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner)).into()
    }

    /// Reads the files again if they have changed, or if `is_asked`. Files that do not fit change nothing, and are told
    /// once; so are two of which one is replaced a moment after the other. Blocks.
    pub(super) fn reload(&self, is_asked: bool) {
        let now = [stamp(&self.cert), stamp(&self.key)];
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if *seen == now && !is_asked {
            return;
        }
        *seen = now;
        drop(seen);
        match config(&self.cert, &self.key) {
            Ok(config) => {
                *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
                tracing::info!("the certificate was read again");
            }
            Err(error) => tracing::error!(error, "the certificate was not taken; the former one stays"),
        }
    }
}

fn config(cert: &Path, key: &Path) -> Result<Arc<ServerConfig>, String> {
    let wrong = |path: &Path, error: &dyn std::fmt::Display| format!("the file {}: {error}", path.display());
    let read = |path: &Path| fs::read(path).map_err(|error| wrong(path, &error));
    let chain = CertificateDer::pem_slice_iter(&read(cert)?)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| wrong(cert, &error))?;
    if chain.is_empty() {
        return Err(wrong(cert, &"there is no certificate in it; give PEM"));
    }
    let key_der = PrivateKeyDer::from_pem_slice(&read(key)?).map_err(|error| wrong(key, &error))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(cert, &error))?
        .with_no_client_auth()
        .with_single_cert(chain, key_der)
        .map_err(|error| format!("{} and {} do not go together: {error}", cert.display(), key.display()))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
