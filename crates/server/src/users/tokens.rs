//! The JWTs of a server: whose are taken, and the file of the keys, which is read again when it changes.

use super::claims::{Named, Refused, Wanted, check};
use super::jwks::Keys;
use super::{WRITTEN_BY_OTHERS, now, read_with_mode};
use crate::file_version::FileVersion;
use parking_lot::Mutex;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The most bytes of a file of keys.
const KEYS_BYTES_MAX: u64 = 1 << 20;

/// The JWTs that are taken.
#[derive(Clone, Debug)]
pub struct JwtOptions {
    /// A file with the public keys that sign them, a JWKS.
    pub keys: PathBuf,
    /// Their `iss`.
    pub issuer: String,
    /// Their `aud`, or one of it.
    pub audience: String,
}

/// The reason why the keys of JWTs cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JwtError {
    /// The file cannot be read.
    #[error("cannot read the keys of JWTs in {path}: {source}")]
    Read {
        /// The file.
        path: String,
        /// The reason.
        source: io::Error,
    },
    /// Others may write the file.
    #[error(
        "others may write {path} (mode {mode:03o}), and so let anybody in; take the right from them with 'chmod go-w {path}'"
    )]
    Loose {
        /// The file.
        path: String,
        /// Its permissions.
        mode: u32,
    },
    /// It is no set of keys, or has none that can be used.
    #[error("{path} is no set of keys (JWKS) that JWTs can be checked with: {reason}")]
    Wrong {
        /// The file.
        path: String,
        /// The reason.
        reason: String,
    },
}

/// The JWTs that a server takes.
pub struct Tokens {
    path: PathBuf,
    wanted: Wanted,
    read: Mutex<(FileVersion, Arc<Keys>)>,
}

impl Tokens {
    /// Reads the keys for the first time.
    pub fn open(options: JwtOptions) -> Result<Tokens, JwtError> {
        let JwtOptions { keys: path, issuer, audience } = options;
        let version = FileVersion::of(&path);
        let keys = Arc::new(load(&path)?);
        Ok(Tokens { path, wanted: Wanted { issuer, audience }, read: Mutex::new((version, keys)) })
    }

    /// Returns the user that a token names now.
    pub fn check(&self, token: &str) -> Result<Named, Refused> {
        let keys = self.current().map_err(|error| Refused::NoKeys(error.to_string()))?;
        check(token, &keys, &self.wanted, now())
    }

    /// Returns the present keys. While the file cannot be used there are none: a key that was taken away opens nothing.
    fn current(&self) -> Result<Arc<Keys>, JwtError> {
        let mut read = self.read.lock();
        let version = FileVersion::of(&self.path);
        if read.0 != version {
            *read = (version, Arc::new(load(&self.path)?));
        }
        Ok(read.1.clone())
    }
}

fn load(path: &Path) -> Result<Keys, JwtError> {
    let shown = || path.display().to_string();
    let read = read_with_mode(path, KEYS_BYTES_MAX + 1);
    let (mode, text) = read.map_err(|source| JwtError::Read { path: shown(), source })?;
    if mode & WRITTEN_BY_OTHERS != 0 {
        return Err(JwtError::Loose { path: shown(), mode });
    }
    let wrong = |reason| JwtError::Wrong { path: shown(), reason };
    if text.len() as u64 > KEYS_BYTES_MAX {
        return Err(wrong(format!("it is larger than {KEYS_BYTES_MAX} bytes")));
    }
    Keys::parse(&text).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_file_of_keys_is_read_again() {
        let path = std::env::temp_dir().join(format!("tidemill-keys-{}.json", std::process::id()));
        let one = |id: &str| format!(r#"{{"kty": "OKP", "crv": "Ed25519", "kid": "{id}", "x": "{}"}}"#, "A".repeat(43));
        let write = |text: &str| fs::write(&path, text).expect("it is written");
        let options = || JwtOptions { keys: path.clone(), issuer: "i".into(), audience: "a".into() };
        assert!(matches!(Tokens::open(options()), Err(JwtError::Read { .. })));
        write("{\"keys\": []}");
        assert!(matches!(Tokens::open(options()), Err(JwtError::Wrong { .. })));
        write(&format!("{{\"keys\": [{}]}}", one("a")));
        let tokens = Tokens::open(options()).expect("it has a key");
        assert_eq!(tokens.check("a.b.c"), Err(Refused::Unknown));
        write("no keys");
        assert!(matches!(tokens.check("a.b.c"), Err(Refused::NoKeys(why)) if why.contains("is no set of keys")));
        write(&format!("{{\"keys\": [{}, {}]}}", one("a"), one("b")));
        assert_eq!(tokens.check("a.b.c"), Err(Refused::Unknown));
        write(&" ".repeat(KEYS_BYTES_MAX as usize + 1));
        assert!(matches!(tokens.check("a.b.c"), Err(Refused::NoKeys(why)) if why.contains("it is larger than")));
        #[cfg(unix)]
        {
            write(&format!("{{\"keys\": [{}]}}", one("a")));
            fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o622)).expect("it is ours");
            assert!(matches!(Tokens::open(options()), Err(JwtError::Loose { mode: 0o622, .. })));
        }
        fs::remove_file(&path).expect("it goes");
    }
}
