//! Who may ask, and what: users with their rights, from a file that is written by `tidemill user`.
//!
//! # Invariant
//!
//! The file has no password and no token: of each secret it has what PostgreSQL would keep (a verifier of
//! SCRAM-SHA-256), and a hash. Secrets are made here, of 160 random bits, so that neither can be guessed from the file.
//! So others may read it, but one that others may write is refused: they could let anybody in.
//! A server reads the file again when it has changed; while it cannot be read, nobody is let in.

mod claims;
mod jwks;
mod rights;
mod scram;
mod tokens;

use crate::file_version::FileVersion;
pub use claims::Refused;
use parking_lot::Mutex;
pub use rights::{Right, Rights};
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
pub use scram::{Binding, Exchange, Verifier, base64_decoded};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
pub use tokens::{JwtError, JwtOptions, Tokens};

/// The bytes of a secret.
const SECRET_BYTES: usize = 20;
/// The permissions by which a group or others write a file.
const WRITTEN_BY_OTHERS: u32 = 0o022;
/// The longest name.
const NAME_BYTES_MAX: usize = 63;

/// A user, as it stands in the users file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct User {
    /// Unique in the file.
    pub name: String,
    /// The SCRAM verifier of the user's secret, in the format of PostgreSQL; none of one that a certificate or a JWT names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scram: Option<String>,
    /// The SHA-256 of the secret, in hexadecimal, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    /// The rights of the user.
    #[serde(flatten)]
    pub rights: Rights,
}

/// All users of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Users {
    /// The users, in the order in which they were added.
    pub users: Vec<User>,
    /// A secret of the file, in hexadecimal, by which names without a user have a salt as users have one. A file of an
    /// earlier version has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    salts: String,
}

/// The reason why users cannot be read or changed.
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
    /// Others may write the file.
    #[error(
        "others may write {path} (mode {mode:03o}), and so let anybody in; take the right from them with 'chmod go-w {path}' \
         and look at who is in it"
    )]
    Loose {
        /// The file.
        path: String,
        /// Its permissions.
        mode: u32,
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
    /// The text cannot be the name of a user.
    #[error("'{0}' is no name of a user; give up to 63 letters, digits, and any of _ - . @")]
    Name(String),
}

impl Users {
    /// Reads the users of a file.
    pub fn load(path: &Path) -> Result<Users, UsersError> {
        let shown = || path.display().to_string();
        let (mode, text) =
            read_with_mode(path, u64::MAX).map_err(|source| UsersError::Read { path: shown(), source })?;
        if mode & WRITTEN_BY_OTHERS != 0 {
            return Err(UsersError::Loose { path: shown(), mode });
        }
        let wrong = |reason: String| UsersError::Wrong { path: shown(), reason };
        let users: Users = serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
        let is_wrong = |user: &&User| match &user.scram {
            Some(scram) => Verifier::parse(scram).is_none(),
            None => user.token.is_some(),
        };
        match users.users.iter().find(is_wrong) {
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
        self.check_new(name)?;
        let secret = hex(&random::<SECRET_BYTES>());
        self.push(name, Some(&secret), rights);
        Ok(secret)
    }

    /// Adds a user that has no secret: a certificate or a JWT says who it is.
    pub fn add_without_secret(&mut self, name: &str, rights: Rights) -> Result<(), UsersError> {
        self.check_new(name)?;
        self.push(name, None, rights);
        Ok(())
    }

    /// Checks that a user of this name may be added.
    fn check_new(&self, name: &str) -> Result<(), UsersError> {
        let is_sign = |c: char| c.is_ascii_alphanumeric() || "_-.@".contains(c);
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(is_sign) {
            return Err(UsersError::Name(name.to_owned()));
        }
        if self.find(name).is_some() {
            return Err(UsersError::There(name.to_owned()));
        }
        Ok(())
    }

    fn push(&mut self, name: &str, secret: Option<&str>, rights: Rights) {
        if self.salts.is_empty() {
            self.salts = hex(&random::<SECRET_BYTES>());
        }
        let (scram, token) = (secret.map(|secret| Verifier::of(secret).to_string()), secret.map(hash));
        self.users.push(User { name: name.to_owned(), scram, token, rights });
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

    /// Returns the user of a name.
    pub fn find(&self, name: &str) -> Option<&User> {
        self.users.iter().find(|user| user.name == name)
    }

    /// Returns the secret that the salts of names without a user are made of: the same for each server of the file. In
    /// a file of an earlier version it is made of the first user's verifier, which nobody outside knows either.
    pub fn salts(&self) -> [u8; 32] {
        let first = self.users.iter().find_map(|user| user.scram.as_deref()).unwrap_or_default();
        let of = if self.salts.is_empty() { first } else { &self.salts };
        let whole = digest(&SHA256, format!("salts of names without a user\n{of}").as_bytes());
        whole.as_ref().try_into().expect("it has 32 bytes")
    }

    /// Returns whether one of this name is asked for a JWT where these can be given: a user without a secret is. A name without a
    /// user is or is not, for ever, so that the question does not say which names have users.
    pub fn is_asked_for_token(&self, name: &str) -> bool {
        match self.find(name) {
            Some(user) => user.scram.is_none(),
            None => digest(&SHA256, &[&self.salts(), name.as_bytes()].concat()).as_ref()[0] & 1 == 0,
        }
    }

    /// Returns the user that has this secret.
    pub fn of_token(&self, secret: &str) -> Option<&User> {
        let hash = hash(secret);
        self.users.iter().find(|user| user.token.as_ref() == Some(&hash))
    }
}

impl User {
    /// Returns the evidence that one who has given its secret is this user.
    pub fn by_secret(&self) -> Evidence {
        Evidence::Secret(self.scram.clone())
    }

    /// Returns the verifier that its secret is checked with, if it has one.
    pub fn verifier(&self) -> Option<Verifier> {
        self.scram.as_deref().map(|scram| Verifier::parse(scram).expect("it was checked when the file was read"))
    }
}

/// The reason for which a client is taken for a user, for as long as it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// The client has given the secret: it holds while the user has this SCRAM verifier.
    Secret(Option<String>),
    /// The client has a certificate that names the user.
    Certificate,
    /// The client has given a JWT, which holds until this second since 1970.
    Token {
        /// The second.
        until: u64,
    },
}

/// Returns the present second since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// Reads a file up to this number of bytes; its permissions come with them.
fn read_with_mode(path: &Path, bytes_max: u64) -> io::Result<(u32, Vec<u8>)> {
    let file = fs::File::open(path)?;
    let (mode, mut text) = (mode(&file.metadata()?), Vec::new());
    file.take(bytes_max).read_to_end(&mut text)?;
    Ok((mode, text))
}

/// Returns the permissions of a file; none where files have no such permissions.
fn mode(found: &fs::Metadata) -> u32 {
    #[cfg(unix)]
    let mode = std::os::unix::fs::PermissionsExt::mode(&found.permissions()) & 0o777;
    #[cfg(not(unix))]
    let mode = {
        let _ = found;
        0
    };
    mode
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).expect("the system has random numbers");
    bytes
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Hashes a secret, which has so many random bits that a plain hash of it cannot be searched.
fn hash(secret: &str) -> String {
    hex(digest(&SHA256, secret.as_bytes()).as_ref())
}

/// The longest time for which open connections and subscriptions keep rights that the file of users has taken away.
pub const RIGHTS_MAX: Duration = Duration::from_secs(1);

/// The users of a server.
pub struct UsersFile {
    path: PathBuf,
    read: Mutex<(FileVersion, Arc<Users>)>,
    /// The JWTs that name users, if they are taken.
    pub tokens: Option<Tokens>,
}

impl UsersFile {
    /// Reads the users file for the first time. With `tokens`, JWTs may name its users.
    pub fn open(path: &Path, tokens: Option<Tokens>) -> Result<UsersFile, UsersError> {
        let version = FileVersion::of(path);
        let users = Arc::new(Users::load(path)?);
        Ok(UsersFile { path: path.to_owned(), read: Mutex::new((version, users)), tokens })
    }

    /// Returns the present rights of a user who was let in on this evidence, or why it is not let in any more. While the
    /// file cannot be read, the rights are as before: such a file says nothing about who is known.
    pub fn rights_of(&self, name: &str, evidence: &Evidence, before: &Rights) -> Result<Rights, String> {
        if let Evidence::Token { until } = evidence
            && *until <= now()
        {
            return Err(format!("the token of user '{name}' has expired"));
        }
        let Ok(users) = self.current() else { return Ok(before.clone()) };
        let still = |user: &&User| match evidence {
            Evidence::Secret(scram) => user.scram == *scram,
            Evidence::Certificate | Evidence::Token { .. } => true,
        };
        let user = users.find(name).filter(still).ok_or_else(|| format!("user '{name}' was removed"))?;
        Ok(user.rights.clone())
    }

    /// Returns the present users.
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
        let file = UsersFile::open(&path, None).expect("it is there");
        let read = file.current().expect("it is there");
        assert_eq!(*read, users);
        assert_eq!(read.of_token(&other).map(|user| &*user.name), Some("bob"));
        assert!(read.of_token("").is_none() && read.of_token(&text).is_none());
        let salts = users.salts();
        assert_eq!(read.salts(), salts);
        users.remove("bob").expect("it is there");
        assert_eq!(users.salts(), salts);
        assert!(matches!(users.remove("bob"), Err(UsersError::Unknown(..))));
        assert!(matches!(users.add("ada", Rights::default()), Err(UsersError::There(_))));
        assert!(matches!(users.add("a b", Rights::default()), Err(UsersError::Name(_))));
        users.save(&path).expect("it is written");
        assert!(file.current().expect("it is there").of_token(&other).is_none());
        fs::write(&path, "{\"users\": [{}]}").expect("it is written");
        assert!(file.current().is_err());
        fs::remove_dir_all(&folder).expect("it goes");
    }

    #[test]
    fn a_user_may_have_no_secret() {
        let path = std::env::temp_dir().join(format!("tidemill-named-{}.json", std::process::id()));
        let mut users = Users::default();
        users.add_without_secret("till", Rights::default()).expect("a new one");
        assert!(matches!(users.add("till", Rights::default()), Err(UsersError::There(_))));
        let secret = users.add("ada", Rights::all()).expect("a new one");
        users.save(&path).expect("it is written");
        let read = Users::load(&path).expect("it is there");
        assert_eq!(read, users);
        assert!(read.find("till").is_some_and(|user| user.verifier().is_none()));
        assert!(read.of_token("").is_none());
        assert_eq!(read.of_token(&secret).map(|user| &*user.name), Some("ada"));
        // Those who are not there are asked for either, and always for the same.
        assert!(read.is_asked_for_token("till") && !read.is_asked_for_token("ada"));
        let asked: Vec<bool> = (0..64).map(|number| read.is_asked_for_token(&format!("nobody{number}"))).collect();
        assert!(asked.contains(&true) && asked.contains(&false));
        let again: Vec<bool> = (0..64).map(|number| read.is_asked_for_token(&format!("nobody{number}"))).collect();
        assert_eq!(asked, again);
        let text = fs::read_to_string(&path).expect("it is there");
        let half = text.replacen("\"name\": \"till\"", "\"name\": \"till\", \"token\": \"00\"", 1);
        assert_ne!(half, text);
        fs::write(&path, half).expect("it is written");
        assert!(matches!(Users::load(&path), Err(UsersError::Wrong { .. })));
        fs::remove_file(&path).expect("it goes");
    }

    #[test]
    fn a_user_is_let_in_for_as_long_as_the_evidence_holds() {
        let path = std::env::temp_dir().join(format!("tidemill-evidence-{}.json", std::process::id()));
        let mut users = Users::default();
        users.add("ada", Rights::default()).expect("a new one");
        let secret = users.find("ada").expect("she is there").by_secret();
        users.save(&path).expect("it is written");
        let file = UsersFile::open(&path, None).expect("it is there");
        let token = |until| Evidence::Token { until };
        let now_of = |evidence: &Evidence| file.rights_of("ada", evidence, &Rights::default());
        for evidence in [&secret, &Evidence::Certificate, &token(u64::MAX)] {
            assert_eq!(now_of(evidence), Ok(Rights::default()), "{evidence:?}");
        }
        assert_eq!(now_of(&token(1)), Err("the token of user 'ada' has expired".into()));
        // With another secret and more rights.
        users.remove("ada").expect("she is there");
        users.add("ada", Rights::all()).expect("a new one");
        users.save(&path).expect("it is written");
        assert_eq!(now_of(&secret), Err("user 'ada' was removed".into()));
        assert_eq!(now_of(&Evidence::Certificate), Ok(Rights::all()));
        users.remove("ada").expect("she is there");
        users.save(&path).expect("it is written");
        for evidence in [Evidence::Certificate, token(u64::MAX)] {
            assert_eq!(now_of(&evidence), Err("user 'ada' was removed".into()));
        }
        fs::remove_file(&path).expect("it goes");
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_others_may_write_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let path = std::env::temp_dir().join(format!("tidemill-loose-{}.json", std::process::id()));
        let mut users = Users::default();
        users.add("ada", Rights::all()).expect("a new one");
        users.save(&path).expect("it is written");
        let file = UsersFile::open(&path, None).expect("its owner alone writes it");
        for (mode, is_refused) in
            [(0o644, false), (0o664, true), (0o602, true), (0o620, true), (0o666, true), (0o440, false), (0o600, false)]
        {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("it is ours");
            let loaded = Users::load(&path);
            assert_eq!(matches!(loaded, Err(UsersError::Loose { mode: told, .. }) if told == mode), is_refused);
            assert_eq!(file.current().is_err(), is_refused, "{mode:o}");
        }
        fs::remove_file(&path).expect("it goes");
    }
}
