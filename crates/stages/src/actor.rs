//! The actors that drive a run: each does a small piece of work at each step, and waits for no other actor in it.
//!
//! With threads, each actor has a thread, which steps it and waits for its [`Bell`] when there is nothing to do. A
//! simulation steps all actors on one thread, in any order. So an actor never waits for a message: it returns
//! [`Progress::Waits`], and every event that may end the wait rings its bell. The ends of a [`mailbox`] do that.
//!
//! A wake-up is not lost: a bell that is rung while its actor steps stays rung until the actor waits.

use crate::environment::Environment;
use crate::sync::{Condvar, Mutex};
use std::collections::VecDeque;
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

/// Returns a queue from one or more actors to one. Sending rings the receiver's bell, and so does dropping the last
/// sender; taking from a bounded queue rings the `sender`'s bell, and so does dropping the receiver.
pub fn mailbox<T>(capacity: Option<usize>, receiver: &Arc<Bell>, sender: Option<&Arc<Bell>>) -> (Outbox<T>, Inbox<T>) {
    let queue = Queue { messages: VecDeque::new(), capacity, senders: 1, has_receiver: true };
    let queue = Arc::new(Mutex::new(queue));
    (Outbox { queue: queue.clone(), receiver: receiver.clone() }, Inbox { queue, sender: sender.cloned() })
}

struct Queue<T> {
    messages: VecDeque<T>,
    capacity: Option<usize>,
    senders: usize,
    has_receiver: bool,
}

impl<T> Queue<T> {
    fn is_full(&self) -> bool {
        self.capacity.is_some_and(|capacity| self.messages.len() >= capacity)
    }
}

/// The sending end.
pub struct Outbox<T> {
    queue: Arc<Mutex<Queue<T>>>,
    receiver: Arc<Bell>,
}

impl<T> Clone for Outbox<T> {
    fn clone(&self) -> Self {
        self.queue.lock().senders += 1;
        Outbox { queue: self.queue.clone(), receiver: self.receiver.clone() }
    }
}

impl<T> Drop for Outbox<T> {
    fn drop(&mut self) {
        let mut queue = self.queue.lock();
        queue.senders -= 1;
        let is_last = queue.senders == 0;
        drop(queue);
        if is_last {
            self.receiver.ring();
        }
    }
}

impl<T> Outbox<T> {
    /// Sends a message. Returns false if the receiver is gone. Panics if the queue is full: the sender checks first.
    pub fn send(&self, message: T) -> bool {
        let mut queue = self.queue.lock();
        if !queue.has_receiver {
            return false;
        }
        assert!(!queue.is_full(), "a message without room");
        queue.messages.push_back(message);
        drop(queue);
        self.receiver.ring();
        true
    }

    /// Sends a notification, unless the queue is full of notifications that have not been received.
    pub fn nudge(&self, word: T) {
        let mut queue = self.queue.lock();
        if queue.has_receiver && !queue.is_full() {
            queue.messages.push_back(word);
            drop(queue);
            self.receiver.ring();
        }
    }

    /// Returns whether the queue is full.
    pub fn is_full(&self) -> bool {
        self.queue.lock().is_full()
    }

    /// Returns whether there is a receiver.
    pub fn has_receiver(&self) -> bool {
        self.queue.lock().has_receiver
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
    queue: Arc<Mutex<Queue<T>>>,
    /// The bell of a sender that waits for room.
    sender: Option<Arc<Bell>>,
}

impl<T> Inbox<T> {
    /// Takes the next message.
    pub fn take(&self) -> Took<T> {
        let mut queue = self.queue.lock();
        let Some(message) = queue.messages.pop_front() else {
            return if queue.senders == 0 { Took::Closed } else { Took::Nothing };
        };
        drop(queue);
        self.sender.iter().for_each(|bell| bell.ring());
        Took::Message(message)
    }

    /// Returns whether the queue is empty now.
    pub fn is_empty(&self) -> bool {
        self.queue.lock().messages.is_empty()
    }

    /// Receives nothing more; returns the messages that were sent and not taken. Taking them one by one instead would
    /// make room for more.
    pub fn close(self) -> VecDeque<T> {
        self.leave()
    }

    fn leave(&self) -> VecDeque<T> {
        let mut queue = self.queue.lock();
        queue.has_receiver = false;
        std::mem::take(&mut queue.messages)
    }
}

impl<T> Drop for Inbox<T> {
    fn drop(&mut self) {
        drop(self.leave());
        self.sender.iter().for_each(|bell| bell.ring());
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
        assert!(!bell.wait(Some(Duration::from_millis(1))), "a sender is left");
        assert!(matches!(inbox.take(), Took::Nothing));
        drop(other);
        bell.wait(None);
        assert!(matches!(inbox.take(), Took::Closed));
    }

    #[test]
    fn a_closed_inbox_gives_what_was_sent_and_makes_no_room() {
        let [receiver, sender] = [(); 2].map(|()| Arc::new(Bell::default()));
        let (outbox, inbox) = mailbox(Some(2), &receiver, Some(&sender));
        assert!(outbox.send(1) && outbox.send(2));
        assert_eq!(inbox.close(), [1, 2]);
        assert!(!outbox.send(3), "there is no receiver");
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
