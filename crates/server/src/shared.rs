//! What all requests share.

use crate::asks::Asks;
use crate::calls::Calls;
use crate::console::refused::Tails;
use crate::follow::Hubs;
use crate::limits::Limits;
use crate::queries::Asking;
use crate::slots::Slots;
use crate::tls::Tls;
use crate::users::UsersFile;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tidemill_runtime::Session;

/// What all requests share.
pub struct Shared {
    pub session: Arc<Session>,
    pub calls: Arc<Calls>,
    pub asks: Arc<Asks>,
    pub queries: Arc<Asking>,
    pub hubs: Arc<Hubs>,
    /// The last events that were refused, for the console.
    pub tails: Tails,
    /// Who makes a savepoint or reads the log: one at a time.
    pub recalls: Slots,
    pub limits: Limits,
    /// Whether only this machine reaches the server.
    pub only_loopback: bool,
    /// Who may ask; none if everybody may.
    pub users: Option<Arc<UsersFile>>,
    /// With it all connections are encrypted.
    pub tls: Option<Arc<Tls>>,
    /// Whether the server is about to end.
    pub stopping: AtomicBool,
    pub connections: Arc<AtomicUsize>,
    pub postgres_connections: Arc<AtomicUsize>,
}

impl Shared {
    /// Takes no more.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.hubs.stop();
        self.tails.stop();
    }
}
