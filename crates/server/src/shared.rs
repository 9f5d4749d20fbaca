//! The state that all requests share.

use crate::asks::Asks;
use crate::calls::Calls;
use crate::connections::Connections;
use crate::console::refused::Tails;
use crate::follow::Hubs;
use crate::held::Held;
use crate::limits::Limits;
use crate::queries::Asking;
use crate::savepoints::Savepoints;
use crate::slots::Slots;
use crate::tls::Tls;
use crate::users::UsersFile;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tidemill_runtime::Session;

/// The state that all requests share.
pub struct Shared {
    pub session: Arc<Session>,
    pub calls: Arc<Calls>,
    pub asks: Arc<Asks>,
    pub queries: Arc<Asking>,
    pub hubs: Arc<Hubs>,
    /// The last events that were refused, for the console.
    pub tails: Tails,
    /// The place of the request that makes a savepoint or reads the log: one at a time.
    pub recalls: Slots,
    pub savepoints: Savepoints,
    pub limits: Limits,
    /// A flag: whether only this machine reaches the server.
    pub only_loopback: bool,
    /// The users that may ask; none if everybody may.
    pub users: Option<Arc<UsersFile>>,
    /// The server's certificate; with it all connections are encrypted.
    pub tls: Option<Arc<Tls>>,
    /// A flag: whether the server is about to end.
    pub stopping: AtomicBool,
    pub places: Arc<Connections>,
    pub postgres_places: Arc<Connections>,
    /// The rows that responses hold, of both protocols.
    pub held: Arc<Held>,
}

impl Shared {
    /// Takes no more.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.hubs.stop();
        self.tails.stop();
    }
}
