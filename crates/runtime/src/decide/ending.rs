//! The end of operators: what they have open closes, although more events may come. Another program goes on after it, in
//! which they are others. No source is read for that, and the events that are held stay held.
//!
//! Everything that was due at times that have been shown runs first, as it would in any run. Then what is open closes as at
//! the end of time: at its own boundaries, one after the other, and what closes at one boundary in the order of its places.

use super::Decision;
use crate::entrance::Entrance;
use tidemill_stages::due::DueCut;

/// Decides what closes next of the operators that end; nothing after the last.
pub fn close_open(at: &mut Entrance) -> Decision {
    if at.on.control.stops() {
        return Decision::Over;
    }
    let complete = at.gate.complete();
    let mut boundary = at.agenda.boundaries.next(at.gate.times()).filter(|&boundary| complete >= Some(boundary));
    if boundary.is_none() {
        let ends = at.ends().to_vec();
        at.agenda.only(&at.on.machine, &ends);
        boundary = at.agenda.last_boundary(&at.on.machine, &mut at.gate);
    }
    boundary.map_or(Decision::Over, |boundary| Decision::Due(DueCut { due: 0, boundary }))
}
