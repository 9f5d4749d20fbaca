//! The state that all connections share.

use super::catalog::Catalog;
use super::catalogs::{self, Seen};
use super::error::PgResult;
use super::settings::DEFAULTS;
use super::statement::{Prepared, Statement};
use super::understand;
use super::words::Words;
use crate::asks::Asks;
use crate::calls::Calls;
use crate::connections::Connections;
use crate::follow::Hubs;
use crate::held::Held;
use crate::queries::Asking;
use crate::savepoints::Savepoints;
use crate::shared::Shared;
use crate::shares::Shares;
use crate::tls::Tls;
use crate::users::{Right, Rights, UsersFile};
use parking_lot::Mutex;
use sqlparser::ast;
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;
use tidemill_durability::Planted;
use tokio::sync::Notify;

/// The most statements that are kept, and the bytes of their texts. Those that are sent often are few.
const KEPT_MAX: usize = 1_000;
const KEPT_BYTES_MAX: usize = 2_000;
/// The most declarations of types that are kept of a text.
const TYPES_MAX: usize = 16;

/// The most sets of what users see whose catalogs are kept.
const SEEN_MAX: usize = 64;

/// A text with the declared types of its parameters, and what it means.
type Kept = HashMap<String, Vec<(Vec<u32>, Arc<Prepared>)>>;

/// The limits of the server that concern clients of PostgreSQL.
#[derive(Clone, Copy, Debug)]
pub struct WireLimits {
    /// Calls and reads of all clients that are not answered yet.
    pub calls_max: usize,
    /// Reads of rows and pushes of events that are not answered yet.
    pub asks_max: usize,
    /// Rows that a read of a table returns at most.
    pub table_rows_max: usize,
    /// Readers of streams, of both protocols.
    pub readers_max: usize,
    pub connections_max: usize,
    /// Bytes of tables that responses hold, of both protocols.
    pub responses_bytes_max: usize,
    /// Bytes of statements and portals.
    pub prepared_bytes_max: usize,
    pub message_bytes_max: usize,
    /// The longest time in which a started message may stay incomplete.
    pub silence_max: Duration,
    /// The longest time that the end of the server waits for its connections to close.
    pub drain_max: Duration,
}

/// The state that all connections share.
pub struct Wire {
    pub calls: Arc<Calls>,
    pub asks: Arc<Asks>,
    pub queries: Arc<Asking>,
    pub hubs: Arc<Hubs>,
    pub savepoints: Savepoints,
    /// The users that may ask; none if everybody may.
    pub users: Option<Arc<UsersFile>>,
    /// The server's certificate; with it all connections are encrypted.
    pub tls: Option<Arc<Tls>>,
    pub limits: WireLimits,
    pub catalog: Catalog,
    /// The name of the application.
    database: String,
    /// The statements that make the catalog tables, by the set of tables and procedures that a user sees.
    catalogs: Mutex<HashMap<Seen, Arc<str>>>,
    /// A flag: whether the server is about to end.
    pub stopping: AtomicBool,
    /// Open connections.
    pub places: Arc<Connections>,
    /// The memory that statements and portals take.
    pub prepared: Shares,
    /// The rows that portals hold.
    pub held: Arc<Held>,
    kept: Mutex<Kept>,
    /// The keys with which clients cancel, by the number of the connection: its secret, and the bell that cancels.
    cancels: Mutex<HashMap<i32, (u32, Arc<Notify>)>>,
    next: AtomicI32,
    random: RandomState,
}

impl Wire {
    /// Makes the state of a server.
    pub fn of(shared: &Shared) -> Wire {
        let session = &shared.session;
        let catalog = Catalog::of(session, &shared.calls);
        Wire {
            catalogs: Mutex::default(),
            database: session.engine().program().name.clone(),
            catalog,
            calls: shared.calls.clone(),
            asks: shared.asks.clone(),
            queries: shared.queries.clone(),
            hubs: shared.hubs.clone(),
            savepoints: shared.savepoints.clone(),
            users: shared.users.clone(),
            tls: shared.tls.clone(),
            limits: shared.limits.of_wire(),
            stopping: AtomicBool::new(false),
            places: shared.postgres_places.clone(),
            prepared: Shares::bytes(shared.limits.prepared_bytes_max, Planted::default()),
            held: shared.held.clone(),
            kept: Mutex::default(),
            cancels: Mutex::default(),
            next: AtomicI32::new(1),
            random: RandomState::new(),
        }
    }

    /// Returns a number and a secret for a connection, by which another may cancel.
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

    /// Parses a text, which is one statement, and finds the types of its parameters and columns. The columns of a query
    /// for the engine are not known yet, and it is not kept.
    pub async fn prepare(self: &Arc<Self>, text: &str, types: &[u32]) -> PgResult<Arc<Prepared>> {
        let is_kept = text.len() <= KEPT_BYTES_MAX;
        if is_kept && let Some(found) = self.kept(text, types) {
            return Ok(found);
        }
        let (wire, own, declared) = (self.clone(), text.to_owned(), types.to_vec());
        let prepared = Words::of(text)?.with(move |statements| {
            let statement = understand::single(statements)?;
            understand::prepare(&wire.catalog, statement, &declared, wire.for_engine(&own))
        });
        let prepared = Arc::new(prepared.await??);
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

    /// Returns the statements of a text without parameters: each of them, or why there is none.
    pub async fn statements(self: &Arc<Self>, text: &str) -> PgResult<Vec<PgResult<Arc<Prepared>>>> {
        let (wire, text) = (self.clone(), text.to_owned());
        let prepared = Words::of(&text)?.with(move |statements| {
            let one = |statement: &ast::Statement| {
                let own = if statements.len() == 1 { text.clone() } else { statement.to_string() };
                understand::prepare(&wire.catalog, Some(statement), &[], wire.for_engine(&own)).map(Arc::new)
            };
            statements.iter().map(one).collect()
        });
        prepared.await
    }

    /// Returns the statements that make the catalogs of what a user may see.
    pub fn catalogs_for(&self, rights: &Rights) -> Arc<str> {
        let has = |right: Right, name: &str| rights.has(right, name);
        let seen = Seen {
            tables: self.catalog.tables.iter().map(|table| has(Right::Read, &table.name)).collect(),
            procedures: self.catalog.procedures.iter().map(|procedure| has(Right::Call, &procedure.name)).collect(),
        };
        let mut catalogs = self.catalogs.lock();
        if let Some(script) = catalogs.get(&seen) {
            return script.clone();
        }
        if catalogs.len() >= SEEN_MAX {
            catalogs.clear();
        }
        let script: Arc<str> = catalogs::script(&self.catalog, &seen, &self.database, &DEFAULTS).into();
        catalogs.insert(seen, script.clone());
        script
    }

    /// Returns the text of a query, if there is an engine that answers those.
    pub fn for_engine<'a>(&self, text: &'a str) -> Option<&'a str> {
        self.queries.has_engine().then_some(text)
    }

    fn kept(&self, text: &str, types: &[u32]) -> Option<Arc<Prepared>> {
        let kept = self.kept.lock();
        let found = kept.get(text)?.iter().find(|(declared, _)| declared == types);
        found.map(|(_, prepared)| prepared.clone())
    }
}
