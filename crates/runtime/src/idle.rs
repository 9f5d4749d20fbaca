//! Punctuations beside records: of silent sources ([`Silence`]), and of those that a session gives.

use tidemill_recovery::LogFeed;
use tidemill_stages::gate::Gate;
use tidemill_stages::progress::Silence;

/// Raises the marks of silent sources. `has_input`: whether a source has input that the gate has not taken.
pub fn raise(
    idle: &mut Silence,
    gate: &mut Gate,
    mut feed: Option<&mut LogFeed>,
    now: u64,
    has_input: impl Fn(usize) -> bool,
) {
    for (source, time) in idle.raise(gate.progress(), now, has_input) {
        punctuate(gate, feed.as_deref_mut(), source, time);
    }
}

/// Gives a punctuation of a source to the gate and the log.
pub fn punctuate(gate: &mut Gate, feed: Option<&mut LogFeed>, source: usize, time: i64) {
    if gate.has_ended(source) {
        return;
    }
    if let Some(feed) = feed {
        feed.punctuate(source, time);
    }
    gate.punctuate(source, time);
}
