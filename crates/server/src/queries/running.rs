//! Places to run at, which those who wait for one get in turns.
//!
//! # Invariant
//!
//! As long as somebody waits, all places are taken. One who asks gets its next place before another one gets two.

use crate::shares::Who;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::oneshot;

/// The places.
#[derive(Clone)]
pub struct Running(Arc<Mutex<State>>);

struct State {
    free: usize,
    /// The clients that wait, the next one first. Each has something in its line.
    lines: VecDeque<Line>,
}

/// The queries of one who asks that wait, in their order.
struct Line {
    who: Who,
    waiting: VecDeque<oneshot::Sender<Run>>,
}

/// A place, until it is dropped. None where it is another one's now.
pub struct Run(Option<Arc<Mutex<State>>>);

impl Running {
    /// Makes this number of places in which queries run.
    pub fn new(count: usize) -> Running {
        Running(Arc::new(Mutex::new(State { free: count, lines: VecDeque::new() })))
    }

    /// Returns true if both are the same places.
    pub fn is_same(&self, other: &Running) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Waits for a place.
    pub async fn take(&self, who: &Who) -> Run {
        let given = {
            let mut state = self.0.lock();
            if state.free > 0 {
                state.free -= 1;
                return Run::of(&self.0);
            }
            let (give, given) = oneshot::channel();
            match state.lines.iter_mut().find(|line| line.who == *who) {
                Some(line) => line.waiting.push_back(give),
                None => state.lines.push_back(Line { who: who.clone(), waiting: VecDeque::from([give]) }),
            }
            given
        };
        given.await.expect("whoever waits gets a place")
    }
}

impl State {
    /// Returns the query that has waited for longest, of the client whose turn it is.
    fn next(&mut self) -> Option<oneshot::Sender<Run>> {
        let mut line = self.lines.pop_front()?;
        let next = line.waiting.pop_front();
        if !line.waiting.is_empty() {
            self.lines.push_back(line);
        }
        next
    }
}

impl Run {
    fn of(state: &Arc<Mutex<State>>) -> Run {
        Run(Some(state.clone()))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let Some(of) = self.0.take() else { return };
        let mut state = of.lock();
        while let Some(next) = state.next() {
            match next.send(Run::of(&of)) {
                Ok(()) => return,
                // It waits no more. Its place is still this one, which goes to the next.
                Err(mut unwanted) => unwanted.0 = None,
            }
        }
        state.free += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    fn user(name: &str) -> Who {
        Who::User(name.into())
    }

    type Taking<'a> = Pin<Box<dyn Future<Output = Run> + 'a>>;

    fn poll(taking: &mut Taking<'_>) -> Option<Run> {
        match taking.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(run) => Some(run),
            Poll::Pending => None,
        }
    }

    #[test]
    fn places_are_given_in_turns() {
        let (running, ada, bob) = (Running::new(1), user("ada"), user("bob"));
        let mut first = poll(&mut (Box::pin(running.take(&ada)) as Taking)).expect("there is a place");
        let mut waiting: Vec<(&str, Taking)> = Vec::new();
        for (name, who) in [("ada 1", &ada), ("ada 2", &ada), ("ada 3", &ada), ("bob 1", &bob), ("bob 2", &bob)] {
            let mut taking: Taking = Box::pin(running.take(who));
            assert!(poll(&mut taking).is_none());
            waiting.push((name, taking));
        }
        let mut order = Vec::new();
        while !waiting.is_empty() {
            drop(first);
            let given = waiting.iter_mut().enumerate().find_map(|(place, (_, taking))| Some((place, poll(taking)?)));
            let (place, run) = given.expect("somebody gets it");
            order.push(waiting.remove(place).0);
            first = run;
        }
        assert_eq!(order, ["ada 1", "bob 1", "ada 2", "bob 2", "ada 3"]);
    }

    #[test]
    fn one_who_waits_no_more_is_passed_over() {
        let (running, ada) = (Running::new(1), user("ada"));
        for gets_it_first in [false, true] {
            let first = poll(&mut (Box::pin(running.take(&ada)) as Taking)).expect("there is a place");
            let (mut gone, mut other): (Taking, Taking) = (Box::pin(running.take(&ada)), Box::pin(running.take(&ada)));
            assert!(poll(&mut gone).is_none() && poll(&mut other).is_none());
            if gets_it_first {
                drop(first);
                // It has the place, and has not looked.
                drop(gone);
            } else {
                drop(gone);
                drop(first);
            }
            assert!(poll(&mut other).is_some());
            assert!(running.0.lock().lines.is_empty() && running.0.lock().free == 1);
        }
    }

    #[test]
    fn no_more_run_than_there_are_places() {
        let (running, ada) = (Running::new(2), user("ada"));
        let mut one = pin!(running.take(&ada));
        let Poll::Ready(_one) = one.as_mut().poll(&mut Context::from_waker(Waker::noop())) else { panic!("a place") };
        let _two = poll(&mut (Box::pin(running.take(&ada)) as Taking)).expect("there is a place");
        assert!(poll(&mut (Box::pin(running.take(&user("bob"))) as Taking)).is_none());
    }
}
