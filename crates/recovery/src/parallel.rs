//! Runs shares of work on all processors while the caller waits.

use parking_lot::Mutex;
use std::sync::Arc;
use tidemill_stages::environment::Environment;

/// Returns the results of the shares, in order. The calling thread takes shares, too. An error is the message of a
/// panic.
pub fn in_parallel<T: Send + 'static, R: Send + 'static>(
    environment: &dyn Environment,
    shares: Vec<T>,
    work: impl Fn(T) -> R + Send + Sync + 'static,
) -> Result<Vec<R>, String> {
    let count = shares.len();
    let results = Arc::new(Mutex::new((0..count).map(|_| None).collect::<Vec<Option<R>>>()));
    let left = Arc::new(Mutex::new(shares.into_iter().enumerate()));
    let done = results.clone();
    let body = Arc::new(move || {
        loop {
            let Some((at, share)) = left.lock().next() else { return };
            let result = work(share);
            done.lock()[at] = Some(result);
        }
    });
    let others = environment.parallelism().min(count).saturating_sub(1);
    let spawn = |_| {
        let body = body.clone();
        environment.spawn("share", Box::new(move || body()))
    };
    let threads: Vec<_> = (0..others).map(spawn).collect();
    body();
    threads.into_iter().try_for_each(|thread| thread.join())?;
    let results = std::mem::take(&mut *results.lock());
    Ok(results.into_iter().map(|result| result.expect("every share was taken")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread::JoinHandle;
    use tidemill_stages::environment::Joined;

    struct Threads;
    struct Thread(JoinHandle<()>);

    impl Joined for Thread {
        fn join(self: Box<Self>) -> Result<(), String> {
            self.0.join().map_err(|_| "a panic".into())
        }
    }

    impl Environment for Threads {
        fn now(&self) -> u64 {
            0
        }
        fn spawn(&self, _: &str, body: Box<dyn FnOnce() + Send>) -> Box<dyn Joined> {
            Box::new(Thread(std::thread::spawn(body)))
        }
        fn parallelism(&self) -> usize {
            3
        }
    }

    #[test]
    fn results_come_in_the_order_of_their_shares() {
        for count in [0, 1, 2, 100] {
            let shares: Vec<u64> = (0..count).collect();
            let squares: Vec<u64> = shares.iter().map(|share| share * share).collect();
            assert_eq!(in_parallel(&Threads, shares, |share| share * share), Ok(squares));
        }
    }

    #[test]
    fn a_panic_is_an_error() {
        let here = std::thread::current().id();
        let is_there = Arc::new(AtomicBool::new(false));
        let panics = move |_| {
            if std::thread::current().id() != here {
                is_there.store(true, Ordering::Release);
                panic!("in another thread");
            }
            // Until another thread has had a share.
            while !is_there.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
        };
        assert_eq!(in_parallel(&Threads, vec![(); 30], panics), Err("a panic".into()));
    }
}
