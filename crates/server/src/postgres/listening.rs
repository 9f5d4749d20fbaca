//! `LISTEN stream`: the events of a stream as notifications, as they are released. `LISTEN "stream after 7.12@00c0ffee00c0ffee"`:
//! those after a position, each with the position after it.
//!
//! They are sent between the answers of a connection, also in a block. A client that takes them too slowly loses its
//! connection, and is told so: nothing is left out unnoticed, and nobody waits for it.

use super::backend;
use super::catalog::listed;
use super::connection::Connection;
use super::error::{PgError, PgResult, code};
use crate::follow::{Heard, NotRead};
use crate::users::Right;
use tidemill_runtime::{NoPlace, Position, SessionError};

/// The separator, in the name of a channel, of a stream's name and the position to begin at.
const AFTER: &str = " after ";

fn position_of(text: &str) -> PgResult<Position> {
    text.trim().parse().map_err(|error: NoPlace| PgError::new(code::BAD_VALUE_OF_SETTING, error.to_string()))
}

impl Connection {
    /// Listens to a stream: from now on, or after a position that the channel names.
    pub fn listen(&mut self, channel: &str) -> PgResult<()> {
        let (name, after) = match channel.split_once(AFTER) {
            None => (channel, None),
            Some((name, place)) => (name, Some(position_of(place)?)),
        };
        self.may(Right::Subscribe, name)?;
        if self.listeners.contains_key(channel) {
            return Ok(());
        }
        let streams = &self.wire.catalog.streams;
        let none = || {
            let there = listed(streams.iter().map(|(name, _)| &**name));
            PgError::new(code::NO_STREAM, format!("there is no stream '{name}'; streams: {there}"))
                .hint("a name with a dot is quoted: LISTEN \"deposit.committed\"")
        };
        let (_, stream) = streams.iter().find(|(other, _)| other == name).ok_or_else(none)?;
        let listener = self.wire.hubs.listen(&self.turn.client, *stream, after).map_err(|why| match why {
            NotRead::Busy => PgError::busy(format!("{} readers of streams are there", self.wire.limits.readers_max)),
            NotRead::Refused(SessionError::Over) => PgError::fatal(code::RUN_OVER, SessionError::Over.to_string()),
            NotRead::Refused(error) => PgError::new(code::BAD_VALUE_OF_SETTING, error.to_string()),
        })?;
        self.listeners.insert(channel.to_owned(), listener);
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
                    .hint("connect and listen again, after the last place that you have seen if events are kept"))
            }
            Heard::Over => {
                self.listeners.remove(channel);
                Ok(())
            }
        }
    }
}
