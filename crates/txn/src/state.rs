//! The states of an operation, and what leads from one to another (MorphStream §5.3, Figure 9).
//!
//! | | from | to | when |
//! |---|---|---|---|
//! | T1 | blocked | ready | all that it waits for has been executed |
//! | T2 | ready | executed | it ran |
//! | T3 | blocked | executed | it ran on speculation: its transaction has no verdict yet |
//! | T4 | any | aborted | it failed, or its transaction aborts |
//! | T5 | executed, aborted | ready | a value that it read has changed, and is final as far as is known |
//! | T6 | ready, executed, aborted | blocked | a value that it read is to be computed again |
//!
//! This is the only place that defines the transitions: [`State::after`] is the table, and the executor panics at any
//! other. The executor uses it where it speculates (eager and lazy aborts); where transactions vote first, an operation
//! runs once and has no state.
//!
//! **Readiness is counted.** Whether an operation may run is said by the counter of its unit, not by a state. *Ready*
//! is passed through when the unit has run, so no worker finds an operation ready by looking at states.
//!
//! **Which transitions occur.** A part of a transaction takes T3. A verdict operation, and a transaction that runs
//! whole, take T1 and at once T2. If the verdict is an abort, repair moves the operations that have run by T4.
//! Operations that run again take T5 and at once T2. T6 never occurs: an aborted operation leaves the value that it
//! found in its version, so whatever an operation reads again is there when its turn comes.
//!
//! **Differences to the paper.** The paper's T5 also leaves *blocked*; here an operation that has not run has read
//! nothing, and stays blocked. The paper leaves *aborted* by "either RDY or BLK" without a name; that is T5 or T6 here.

/// The state of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum State {
    /// The operation waits for others.
    Blocked,
    /// The operation may run.
    Ready,
    /// The operation has run, and its effect stands.
    Executed,
    /// The transaction is aborted: the operation has no effect.
    Aborted,
}

/// A transition of an operation (MorphStream 2023, Figure 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Event {
    /// T1
    Resolved,
    /// T2
    Processed,
    /// T3
    Speculated,
    /// T4
    Failed,
    /// T5
    Revived,
    /// T6
    RolledBack,
}

impl Event {
    /// All, in order.
    pub const ALL: [Event; 6] =
        [Event::Resolved, Event::Processed, Event::Speculated, Event::Failed, Event::Revived, Event::RolledBack];
}

impl State {
    /// All, in order.
    pub const ALL: [State; 4] = [State::Blocked, State::Ready, State::Executed, State::Aborted];

    /// Returns the state after an event; none if the event cannot happen in this state.
    pub fn after(self, event: Event) -> Option<State> {
        use State::{Aborted, Blocked, Executed, Ready};
        match (event, self) {
            (Event::Resolved, Blocked) => Some(Ready),
            (Event::Processed, Ready) => Some(Executed),
            (Event::Speculated, Blocked) => Some(Executed),
            (Event::Failed, _) => Some(Aborted),
            (Event::Revived, Executed | Aborted) => Some(Ready),
            (Event::RolledBack, Ready | Executed | Aborted) => Some(Blocked),
            _ => None,
        }
    }

    /// Returns the state that a number stands for.
    ///
    /// # Panics
    ///
    /// If it is the number of none.
    pub fn of(number: u8) -> State {
        assert!(usize::from(number) < State::ALL.len(), "{number} is no state");
        State::ALL[number as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of the head of this file, cell by cell.
    #[test]
    fn the_table_is_the_figure() {
        use State::{Aborted, Blocked, Executed, Ready};
        let none = None;
        let expected = [
            // blocked, ready, executed, aborted
            (Event::Resolved, [Some(Ready), none, none, none]),
            (Event::Processed, [none, Some(Executed), none, none]),
            (Event::Speculated, [Some(Executed), none, none, none]),
            (Event::Failed, [Some(Aborted); 4]),
            (Event::Revived, [none, none, Some(Ready), Some(Ready)]),
            (Event::RolledBack, [none, Some(Blocked), Some(Blocked), Some(Blocked)]),
        ];
        assert_eq!(expected.map(|(event, _)| event), Event::ALL);
        for (event, after) in expected {
            for (state, expected) in State::ALL.into_iter().zip(after) {
                assert_eq!(state.after(event), expected, "{event:?} in {state:?}");
                assert_eq!(State::of(state as u8), state);
            }
        }
    }

    /// An operation can end executed or aborted from every state.
    #[test]
    fn every_state_leads_to_an_end() {
        for start in State::ALL {
            let mut reached = vec![start];
            let mut at = 0;
            while at < reached.len() {
                let next: Vec<State> = Event::ALL.iter().filter_map(|&event| reached[at].after(event)).collect();
                reached.extend(next.into_iter().filter(|state| !reached.contains(state)).collect::<Vec<_>>());
                at += 1;
            }
            assert!(reached.contains(&State::Executed) && reached.contains(&State::Aborted), "from {start:?}");
        }
    }
}
