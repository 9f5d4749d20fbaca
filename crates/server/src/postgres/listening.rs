//! `LISTEN stream`: the events of a stream as notifications, as they are released.
//!
//! They are sent between the answers of a connection, also in a block. A client that takes them too slowly loses its
//! connection, and is told so: nothing is left out unnoticed, and nobody waits for it.

use super::backend;
use super::catalog::listed;
use super::connection::Connection;
use super::error::{PgError, PgResult, code};
use crate::follow::{Heard, NotRead};
use crate::users::Right;

impl Connection {
    /// Listens to a stream from now on.
    pub fn listen(&mut self, name: &str) -> PgResult<()> {
        self.may(Right::Subscribe, name)?;
        if self.listeners.contains_key(name) {
            return Ok(());
        }
        let streams = &self.wire.catalog.streams;
        let none = || {
            let there = listed(streams.iter().map(|(name, _)| &**name));
            PgError::new(code::NO_STREAM, format!("there is no stream '{name}'; streams: {there}"))
                .hint("a name with a dot is quoted: LISTEN \"deposit.committed\"")
        };
        let (_, stream) = streams.iter().find(|(other, _)| other == name).ok_or_else(none)?;
        let listener = self.wire.hubs.listen(*stream).map_err(|why| match why {
            NotRead::Busy => {
                let message = format!("{} readers of streams are there; try again", self.wire.limits.readers_max);
                PgError::new(code::OVER_LIMIT, message)
            }
            NotRead::Refused(error) => PgError::fatal(code::RUN_OVER, error.to_string()),
        })?;
        self.listeners.insert(name.to_owned(), listener);
        Ok(())
    }

    /// Listens to a stream no more, or to none.
    pub fn unlisten(&mut self, name: Option<&str>) {
        match name {
            None => self.listeners.clear(),
            Some(name) => _ = self.listeners.remove(name),
        }
    }

    /// Sends what was heard.
    pub fn heard(&mut self, channel: &str, heard: &Heard) -> PgResult<()> {
        match heard {
            Heard::Lines(lines) => {
                let out = self.queue.out();
                for line in lines.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
                    backend::notification(out, channel, line);
                }
                self.queue.is_due = true;
                Ok(())
            }
            Heard::Missed => {
                let message = format!("the listener to '{channel}' does not keep up, and has missed events");
                Err(PgError::fatal(code::OVER_LIMIT, message)
                    .hint("connect and listen again; over HTTP a reader goes on after a place, if events are kept"))
            }
            Heard::Over => {
                self.listeners.remove(channel);
                Ok(())
            }
        }
    }
}
