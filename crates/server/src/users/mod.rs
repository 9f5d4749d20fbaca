//! Who may ask, and what: users with their rights, from a file that is written by `tidemill user`.
//!
//! # Invariant
//!
//! The file has no password and no token: of each secret it has what PostgreSQL would keep (a verifier of
//! SCRAM-SHA-256), and a hash. Secrets are made here, of 160 random bits, so that neither can be guessed from the file.
//! A server reads the file again when it has changed; while it cannot be read, nobody is let in.

mod rights;
mod scram;

use crate::file_version::FileVersion;
use parking_lot::Mutex;
pub use rights::{Right, Rights};
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
pub use scram::{Exchange, Verifier, base64_decoded};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The bytes of a secret.
const SECRET_BYTES: usize = 20;
/// The longest name.
const NAME_BYTES_MAX: usize = 63;

/// A user, as the file has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct User {
    /// Unique in the file.
    pub name: String,
    /// The verifier of the secret, as PostgreSQL writes it.
    scram: String,
    /// The SHA-256 of the secret, in hexadecimal.
    token: String,
    /// What the user may do.
    #[serde(flatten)]
    pub rights: Rights,
}

/// All users of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Users {
    /// In the order in which they were added.
    pub users: Vec<User>,
}

/// Why users cannot be read or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UsersError {
    /// The file cannot be read.
    #[error("cannot read the users in {path}: {source}; 'tidemill user add {path} NAME' makes the file")]
    Read {
        /// The file.
        path: String,
        /// The reason.
        source: io::Error,
    },
    /// The file cannot be written.
    #[error("cannot write the users in {path}: {source}")]
    Write {
        /// The file.
        path: String,
        /// The reason.
        source: io::Error,
    },
    /// The file is no file of users.
    #[error("{path} is no file of users: {reason}")]
    Wrong {
        /// The file.
        path: String,
        /// The reason.
        reason: String,
    },
    /// There is a user of this name.
    #[error("there is a user '{0}' already; remove it first")]
    There(String),
    /// There is no user of this name.
    #[error("there is no user '{0}'; users: {1}")]
    Unknown(String, String),
    /// It is no name.
    #[error("'{0}' is no name of a user; give up to 63 letters, digits, and any of _ - . @")]
    Name(String),
}

impl Users {
    /// Those of a file.
    pub fn load(path: &Path) -> Result<Users, UsersError> {
        let shown = || path.display().to_string();
        let text = fs::read(path).map_err(|source| UsersError::Read { path: shown(), source })?;
        let wrong = |reason: String| UsersError::Wrong { path: shown(), reason };
        let users: Users = serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
        match users.users.iter().find(|user| Verifier::parse(&user.scram).is_none()) {
            None => Ok(users),
            Some(user) => Err(wrong(format!("the verifier of '{}' is none of SCRAM-SHA-256", user.name))),
        }
    }

    /// Writes them to a file that its owner alone can read. It is there as a whole, or as before.
    pub fn save(&self, path: &Path) -> Result<(), UsersError> {
        let mut text = serde_json::to_vec_pretty(self).expect("users are plain data");
        text.push(b'\n');
        let part = path.with_extension("part");
        let write = || {
            let mut options = fs::OpenOptions::new();
            options.write(true).create(true).truncate(true);
            #[cfg(unix)]
            std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
            let mut file = options.open(&part)?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&part, path)
        };
        write().map_err(|source| UsersError::Write { path: path.display().to_string(), source })
    }

    /// Adds a user; the secret, which is nowhere else.
    pub fn add(&mut self, name: &str, rights: Rights) -> Result<String, UsersError> {
        let is_sign = |c: char| c.is_ascii_alphanumeric() || "_-.@".contains(c);
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(is_sign) {
            return Err(UsersError::Name(name.to_owned()));
        }
        if self.find(name).is_some() {
            return Err(UsersError::There(name.to_owned()));
        }
        let secret = hex(&random::<SECRET_BYTES>());
        let (scram, token) = (Verifier::of(&secret).to_string(), hash(&secret));
        self.users.push(User { name: name.to_owned(), scram, token, rights });
        Ok(secret)
    }

    /// Removes a user.
    pub fn remove(&mut self, name: &str) -> Result<(), UsersError> {
        if self.find(name).is_none() {
            let names: Vec<&str> = self.users.iter().map(|user| &*user.name).collect();
            let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            return Err(UsersError::Unknown(name.to_owned(), names));
        }
        self.users.retain(|user| user.name != name);
        Ok(())
    }

    /// The user of a name.
    pub fn find(&self, name: &str) -> Option<&User> {
        self.users.iter().find(|user| user.name == name)
    }

    /// The user whose secret it is.
    pub fn of_token(&self, secret: &str) -> Option<&User> {
        let hash = hash(secret);
        self.users.iter().find(|user| user.token == hash)
    }
}

impl User {
    /// The text of what its secret is checked by: another secret has another.
    pub fn scram(&self) -> &str {
        &self.scram
    }

    /// What its secret is checked by.
    pub fn verifier(&self) -> Verifier {
        Verifier::parse(&self.scram).expect("it was checked when the file was read")
    }
}

/// A secret of a server, which nobody is told.
pub fn secret() -> [u8; 32] {
    random()
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).expect("the system has random numbers");
    bytes
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A secret has so many random bits that a plain hash of it cannot be searched.
fn hash(secret: &str) -> String {
    hex(digest(&SHA256, secret.as_bytes()).as_ref())
}

/// How long what stays open goes by what a user might do before.
pub const RIGHTS_MAX: Duration = Duration::from_secs(1);

/// The users of a server.
pub struct UsersFile {
    path: PathBuf,
    read: Mutex<(FileVersion, Arc<Users>)>,
}

impl UsersFile {
    /// Reads them for the first time.
    pub fn open(path: &Path) -> Result<UsersFile, UsersError> {
        let version = FileVersion::of(path);
        let users = Arc::new(Users::load(path)?);
        Ok(UsersFile { path: path.to_owned(), read: Mutex::new((version, users)) })
    }

    /// What a user may do now who was let in with this verifier; none if it is a user no more. A file that cannot be read
    /// says nothing about who is known: then as before.
    pub fn rights_of(&self, name: &str, scram: &str, before: &Rights) -> Option<Rights> {
        let Ok(users) = self.current() else { return Some(before.clone()) };
        users.find(name).filter(|user| user.scram() == scram).map(|user| user.rights.clone())
    }

    /// Those that there are now.
    pub fn current(&self) -> Result<Arc<Users>, UsersError> {
        let mut read = self.read.lock();
        let version = FileVersion::of(&self.path);
        if read.0 != version {
            *read = (version, Arc::new(Users::load(&self.path)?));
        }
        Ok(read.1.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_kept_without_their_secrets() {
        let folder = std::env::temp_dir().join(format!("tidemill-users-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("users.json");
        let mut users = Users::default();
        let secret = users.add("ada", Rights::all()).expect("a new one");
        let other = users.add("bob", Rights::default()).expect("a new one");
        assert!(secret.len() == 2 * SECRET_BYTES && secret != other);
        users.save(&path).expect("it is written");
        let text = fs::read_to_string(&path).expect("it is there");
        assert!(!text.contains(&secret) && text.contains("SCRAM-SHA-256$4096:"));
        let file = UsersFile::open(&path).expect("it is there");
        let read = file.current().expect("it is there");
        assert_eq!(*read, users);
        assert_eq!(read.of_token(&other).map(|user| &*user.name), Some("bob"));
        assert!(read.of_token("").is_none() && read.of_token(&text).is_none());
        users.remove("bob").expect("it is there");
        assert!(matches!(users.remove("bob"), Err(UsersError::Unknown(..))));
        assert!(matches!(users.add("ada", Rights::default()), Err(UsersError::There(_))));
        assert!(matches!(users.add("a b", Rights::default()), Err(UsersError::Name(_))));
        users.save(&path).expect("it is written");
        assert!(file.current().expect("it is there").of_token(&other).is_none());
        fs::write(&path, "{\"users\": [{}]}").expect("it is written");
        assert!(file.current().is_err());
        fs::remove_dir_all(&folder).expect("it goes");
    }
}
