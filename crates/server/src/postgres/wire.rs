//! What all connections share.

use super::catalog::Catalog;
use super::catalogs;
use super::error::PgResult;
use super::settings::DEFAULTS;
use super::statement::{Prepared, Statement};
use super::understand;
use crate::asks::Asks;
use crate::calls::Calls;
use crate::follow::Hubs;
use crate::queries::Asking;
use crate::shared::Shared;
use crate::tls::Tls;
use crate::users::{UsersFile, secret};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// The most statements that are kept, and the bytes of their texts. Those that are sent often are few.
const KEPT_MAX: usize = 1_000;
const KEPT_BYTES_MAX: usize = 2_000;
/// The most declarations of types that are kept of a text.
const TYPES_MAX: usize = 16;

/// A text with the declared types of its parameters, and what it means.
type Kept = HashMap<String, Vec<(Vec<u32>, Arc<Prepared>)>>;

/// How much there may be at once: those of the server that are about clients of PostgreSQL.
#[derive(Clone, Copy, Debug)]
pub struct WireLimits {
    /// Calls and reads of all clients that are not answered yet.
    pub calls_max: usize,
    /// See there.
    pub asks_max: usize,
    /// Rows of a table that a read gives.
    pub table_rows_max: usize,
    /// Readers of streams, of both protocols.
    pub readers_max: usize,
    pub connections_max: usize,
    pub message_bytes_max: usize,
    /// How long a message may take.
    pub silence_max: Duration,
    /// How long the end waits.
    pub drain_max: Duration,
}

/// What all connections share.
pub struct Wire {
    pub calls: Arc<Calls>,
    pub asks: Arc<Asks>,
    pub queries: Arc<Asking>,
    pub hubs: Arc<Hubs>,
    /// Who may ask; none if everybody may.
    pub users: Option<Arc<UsersFile>>,
    /// With it all connections are encrypted.
    pub tls: Option<Arc<Tls>>,
    /// A secret of this server.
    pub own: [u8; 32],
    pub limits: WireLimits,
    pub catalog: Catalog,
    /// Statements that make the catalogs for a query that names them.
    pub catalogs: Arc<str>,
    /// Whether the server is about to end.
    pub stopping: AtomicBool,
    /// Open connections.
    pub connections: Arc<AtomicUsize>,
    kept: Mutex<Kept>,
    /// By the number of a connection: its secret, and the bell that cancels.
    cancels: Mutex<HashMap<i32, (u32, Arc<Notify>)>>,
    next: AtomicI32,
    random: RandomState,
}

impl Wire {
    /// That of a server.
    pub fn of(shared: &Shared) -> Wire {
        let session = &shared.session;
        let catalog = Catalog::of(session, &shared.calls);
        let database = &session.engine().program().name;
        Wire {
            catalogs: catalogs::script(&catalog, database, &DEFAULTS).into(),
            catalog,
            calls: shared.calls.clone(),
            asks: shared.asks.clone(),
            queries: shared.queries.clone(),
            hubs: shared.hubs.clone(),
            users: shared.users.clone(),
            tls: shared.tls.clone(),
            own: secret(),
            limits: shared.limits.of_wire(),
            stopping: AtomicBool::new(false),
            connections: shared.postgres_connections.clone(),
            kept: Mutex::default(),
            cancels: Mutex::default(),
            next: AtomicI32::new(1),
            random: RandomState::new(),
        }
    }

    /// A number and a secret for a connection, by which another may cancel.
    pub fn enter(&self, bell: Arc<Notify>) -> (i32, u32) {
        let process = self.next.fetch_add(1, Ordering::Relaxed) & i32::MAX;
        let secret = self.random.hash_one(process) as u32;
        self.cancels.lock().insert(process, (secret, bell));
        (process, secret)
    }

    pub fn leave(&self, process: i32) {
        self.cancels.lock().remove(&process);
    }

    /// Rings the bell of a connection, if the secret is its own.
    pub fn cancel(&self, process: i32, secret: &[u8]) {
        if let Some((known, bell)) = self.cancels.lock().get(&process)
            && secret == known.to_be_bytes()
        {
            bell.notify_one();
        }
    }

    /// The one statement of a text. The columns of a query for the engine are not known yet, and it is not kept.
    pub fn prepare(&self, text: &str, types: &[u32]) -> PgResult<Arc<Prepared>> {
        let is_kept = text.len() <= KEPT_BYTES_MAX;
        if is_kept && let Some(found) = self.kept(text, types) {
            return Ok(found);
        }
        let statements = understand::parse(text)?;
        let statement = understand::single(&statements)?;
        let prepared = Arc::new(understand::prepare(&self.catalog, statement, types, self.for_engine(text))?);
        if is_kept && !matches!(prepared.statement, Statement::Query(_)) {
            let mut kept = self.kept.lock();
            if kept.len() >= KEPT_MAX {
                kept.clear();
            }
            let of_text = kept.entry(text.to_owned()).or_default();
            of_text.truncate(TYPES_MAX - 1);
            of_text.push((types.to_vec(), prepared.clone()));
        }
        Ok(prepared)
    }

    /// The text of a query, if there is an engine that answers those.
    pub fn for_engine<'a>(&self, text: &'a str) -> Option<&'a str> {
        self.queries.has_engine().then_some(text)
    }

    fn kept(&self, text: &str, types: &[u32]) -> Option<Arc<Prepared>> {
        let kept = self.kept.lock();
        let found = kept.get(text)?.iter().find(|(declared, _)| declared == types);
        found.map(|(_, prepared)| prepared.clone())
    }
}
