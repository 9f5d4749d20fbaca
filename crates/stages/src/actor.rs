//! The actors that drive a run: each does a small piece of work at each step and never blocks.
//!
//! With threads, each actor has a thread, which steps it and waits for its [`Bell`] when there is nothing to do. A
//! simulation steps all actors on one thread, in any order. So an actor never waits for a lock or a channel: it returns
//! [`Progress::Waits`], and every event that may end the wait rings its bell. The ends of a [`mailbox`] do that.
//!
//! A wake-up is not lost: a bell that is rung while its actor steps stays rung until the actor waits.

use crate::environment::Environment;
use crossbeam_channel::{Receiver, Sender, TryRecvError, TrySendError, bounded, unbounded};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::Duration;

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The actor did some work; there may be more.
    Worked,
    /// There is nothing to do until the bell rings or the clock reaches this time.
    Waits(Option<u64>),
    /// The actor has finished for good.
    Over,
}

/// A component that is driven step by step.
pub trait Actor: Send {
    /// Does the next piece of work, if there is any. Never blocks, except in calls to sources, sinks and storage.
    fn step(&mut self) -> Progress;
}

/// Wakes an actor that waits.
#[derive(Default)]
pub struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    /// Wakes the actor, or makes its next wait end at once.
    pub fn ring(&self) {
        let mut rung = self.rung.lock();
        if !std::mem::replace(&mut *rung, true) {
            self.changed.notify_one();
        }
    }

    /// Blocks until the bell has rung since the last wait, or until the time has passed; returns whether it has rung.
    /// For [`Environment::wait`].
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

/// Steps an actor until it is over and waits when it has nothing to do: the main function of its thread.
pub fn drive(actor: &mut dyn Actor, bell: &Bell, environment: &dyn Environment) {
    loop {
        match actor.step() {
            Progress::Worked => {}
            Progress::Waits(until) => environment.wait(bell, until),
            Progress::Over => return,
        }
    }
}

/// A queue from one or more actors to one. Sending rings the receiver's bell, and so does dropping the last sender;
/// taking from a bounded queue rings the `sender`'s bell.
pub fn mailbox<T>(capacity: Option<usize>, receiver: &Arc<Bell>, sender: Option<&Arc<Bell>>) -> (Outbox<T>, Inbox<T>) {
    let (put, taken) = capacity.map_or_else(unbounded, bounded);
    (
        Outbox { put, ringing: Ringing(receiver.clone()) },
        Inbox { taken, made_room: sender.cloned(), _gone: sender.cloned().map(Ringing) },
    )
}

/// Rings the bell when it is dropped.
#[derive(Clone)]
struct Ringing(Arc<Bell>);

impl Drop for Ringing {
    fn drop(&mut self) {
        self.0.ring();
    }
}

/// The sending end.
pub struct Outbox<T> {
    // Dropped first, so that the receiver, once woken, finds the sender gone.
    put: Sender<T>,
    ringing: Ringing,
}

impl<T> Clone for Outbox<T> {
    fn clone(&self) -> Self {
        Outbox { put: self.put.clone(), ringing: self.ringing.clone() }
    }
}

impl<T> Outbox<T> {
    /// Sends a message. Returns false if the receiver is gone. Panics if the queue is full: the sender checks first.
    pub fn send(&self, message: T) -> bool {
        match self.put.try_send(message) {
            Ok(()) => self.ringing.0.ring(),
            Err(TrySendError::Disconnected(_)) => return false,
            Err(TrySendError::Full(_)) => panic!("a message without room"),
        }
        true
    }

    /// Sends a notification, unless the queue is full of notifications that have not been received.
    pub fn nudge(&self, word: T) {
        if self.put.try_send(word).is_ok() {
            self.ringing.0.ring();
        }
    }

    /// Whether the queue is full.
    pub fn is_full(&self) -> bool {
        self.put.is_full()
    }
}

/// The result of taking a message.
#[derive(Debug)]
pub enum Took<T> {
    /// A message.
    Message(T),
    /// The queue is empty.
    Nothing,
    /// The queue is empty, and all senders are gone.
    Closed,
}

/// The receiving end; messages arrive in the order in which they were sent.
pub struct Inbox<T> {
    // Goes first, so that the sender that is rung finds it gone.
    taken: Receiver<T>,
    made_room: Option<Arc<Bell>>,
    _gone: Option<Ringing>,
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

    /// Whether the queue is empty now.
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
