//! What drives a run: actors, each of which does a little at each step and never blocks.
//!
//! On threads an actor has one of its own, which steps it and waits for its [`Bell`] when there is nothing to do. A
//! simulation steps all actors on one thread, in any order. So what an actor waits for is never a lock or a channel:
//! it says so ([`Progress::Waits`]), and whatever may end the wait rings its bell. The ends of a [`mailbox`] do that.
//!
//! A wake-up is not lost: a bell that is rung while its actor steps stays rung until the actor waits.

use crate::environment::Environment;
use crossbeam_channel::{Receiver, Sender, TryRecvError, TrySendError, bounded, unbounded};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::Duration;

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Something was done; there may be more.
    Worked,
    /// There is nothing to do until the bell rings, or this time of the clock has come.
    Waits(Option<u64>),
    /// There will never be anything to do again.
    Over,
}

/// Something that is driven step by step.
pub trait Actor: Send {
    /// Does the next piece of work, if there is any. Never blocks, but in calls to sources, sinks and storage.
    fn step(&mut self) -> Progress;
}

/// Wakes an actor that waits.
#[derive(Default)]
pub struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    /// Wakes the actor, or has its next wait end at once.
    pub fn ring(&self) {
        let mut rung = self.rung.lock();
        if !std::mem::replace(&mut *rung, true) {
            self.changed.notify_one();
        }
    }

    /// Blocks until it has rung since the last wait, or for a time; whether it has rung. For [`Environment::wait`].
    pub fn wait(&self, time: Option<Duration>) -> bool {
        let mut rung = self.rung.lock();
        if !*rung {
            match time {
                Some(time) => _ = self.changed.wait_for(&mut rung, time),
                None => self.changed.wait(&mut rung),
            }
        }
        std::mem::take(&mut *rung)
    }
}

/// Steps an actor until it is over, waiting in between: the life of a thread.
pub fn drive(actor: &mut dyn Actor, bell: &Bell, environment: &dyn Environment) {
    loop {
        match actor.step() {
            Progress::Worked => {}
            Progress::Waits(until) => environment.wait(bell, until),
            Progress::Over => return,
        }
    }
}

/// A queue from some actors to one. What is put in rings the receiver's bell, and so does the going of the last sender;
/// what is taken from a bounded one rings `sender`'s.
pub fn mailbox<T>(capacity: Option<usize>, receiver: &Arc<Bell>, sender: Option<&Arc<Bell>>) -> (Outbox<T>, Inbox<T>) {
    let (put, taken) = capacity.map_or_else(unbounded, bounded);
    (Outbox { put, _gone: Ringing(receiver.clone()) }, Inbox { taken, made_room: sender.cloned() })
}

/// Rings when it goes.
#[derive(Clone)]
struct Ringing(Arc<Bell>);

impl Drop for Ringing {
    fn drop(&mut self) {
        self.0.ring();
    }
}

/// Where messages are put in.
pub struct Outbox<T> {
    // Goes first, so that the receiver that is rung finds it gone.
    put: Sender<T>,
    _gone: Ringing,
}

impl<T> Clone for Outbox<T> {
    fn clone(&self) -> Self {
        Outbox { put: self.put.clone(), _gone: self._gone.clone() }
    }
}

impl<T> Outbox<T> {
    /// Puts a message in. False where the receiver has gone. Panics where there is no room: who sends looks first.
    pub fn send(&self, message: T) -> bool {
        match self.put.try_send(message) {
            Ok(()) => self._gone.0.ring(),
            Err(TrySendError::Disconnected(_)) => return false,
            Err(TrySendError::Full(_)) => panic!("a message without room"),
        }
        true
    }

    /// Puts a word in, unless one is there that was not heard yet.
    pub fn nudge(&self, word: T) {
        if self.put.try_send(word).is_ok() {
            self._gone.0.ring();
        }
    }

    /// Whether a message has no room.
    pub fn is_full(&self) -> bool {
        self.put.is_full()
    }
}

/// What taking a message came to.
#[derive(Debug)]
pub enum Took<T> {
    /// A message.
    Message(T),
    /// There is none yet.
    Nothing,
    /// There is none, and all senders have gone.
    Closed,
}

/// Where messages are taken out, in their order.
pub struct Inbox<T> {
    taken: Receiver<T>,
    made_room: Option<Arc<Bell>>,
}

impl<T> Inbox<T> {
    /// Takes the next message.
    pub fn take(&self) -> Took<T> {
        match self.taken.try_recv() {
            Ok(message) => {
                self.made_room.iter().for_each(|bell| bell.ring());
                Took::Message(message)
            }
            Err(TryRecvError::Empty) => Took::Nothing,
            Err(TryRecvError::Disconnected) => Took::Closed,
        }
    }

    /// Whether there is no message right now.
    pub fn is_empty(&self) -> bool {
        self.taken.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bell_rung_before_the_wait_ends_it() {
        let bell = Bell::default();
        bell.ring();
        bell.ring();
        assert!(bell.wait(None));
        assert!(!bell.wait(Some(Duration::from_millis(1))));
    }

    #[test]
    fn the_going_of_the_last_sender_is_heard() {
        let bell = Arc::new(Bell::default());
        let (outbox, inbox) = mailbox::<u8>(None, &bell, None);
        let other = outbox.clone();
        drop(outbox);
        bell.wait(None);
        assert!(matches!(inbox.take(), Took::Nothing));
        drop(other);
        bell.wait(None);
        assert!(matches!(inbox.take(), Took::Closed));
    }

    #[test]
    fn room_is_told() {
        let [receiver, sender] = [(); 2].map(|()| Arc::new(Bell::default()));
        let (outbox, inbox) = mailbox(Some(1), &receiver, Some(&sender));
        assert!(outbox.send(1));
        assert!(outbox.is_full());
        outbox.nudge(2);
        assert!(matches!(inbox.take(), Took::Message(1)));
        sender.wait(None);
        assert!(!outbox.is_full());
    }
}
