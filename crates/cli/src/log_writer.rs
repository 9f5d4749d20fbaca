//! The thread that writes the log. Who logs never waits for the one that reads it: that may be a pipe which nobody takes from.

use std::io::Write;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// The most lines that wait to be written. More are left out.
const LINES_MAX: usize = 1_000;
/// The interval at which a thread that waits for the end of the writing checks for room.
const TICK: Duration = Duration::from_millis(10);

/// Does something, and what has to be done around it.
pub type Around = Box<dyn Fn(&mut dyn FnMut()) + Send>;

/// Writes lines on a thread of its own.
pub struct LogWriter {
    said: SyncSender<Said>,
}

enum Said {
    Line(String),
    /// A request to be told when all before it is written.
    Flush(SyncSender<()>),
}

impl LogWriter {
    /// Starts the thread. It ends when this is dropped and all is written. Each write is done within `around`. Where there is no
    /// thread, nothing is written.
    pub fn start(out: Box<dyn Write + Send>, around: Around) -> LogWriter {
        let (said, lines) = sync_channel(LINES_MAX);
        let _ = thread::Builder::new().name("log".into()).spawn(move || write_all(out, &around, &lines));
        LogWriter { said }
    }

    /// Has a line written, and returns whether there was room for it.
    pub fn write(&self, line: String) -> bool {
        !matches!(self.said.try_send(Said::Line(line)), Err(TrySendError::Full(_)))
    }

    /// Waits until all lines are written, but not for longer than this.
    pub fn flush(&self, wait_max: Duration) {
        let (told, written) = sync_channel(1);
        let until = Instant::now() + wait_max;
        let mut flush = Said::Flush(told);
        while let Err(TrySendError::Full(back)) = self.said.try_send(flush) {
            if Instant::now() >= until {
                return;
            }
            flush = back;
            thread::sleep(TICK);
        }
        let _ = written.recv_timeout(until.saturating_duration_since(Instant::now()));
    }
}

fn write_all(mut out: Box<dyn Write + Send>, around: &Around, said: &Receiver<Said>) {
    for said in said {
        match said {
            // A pipe that is closed is ignored.
            Said::Line(line) => around(&mut || _ = out.write_all(line.as_bytes()).and_then(|()| out.flush())),
            // The one that waits may have gone.
            Said::Flush(told) => _ = told.try_send(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::sync::{Arc, Mutex};

    /// Keeps what is written, once it may.
    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("whole").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn writer(kept: &Kept) -> LogWriter {
        LogWriter::start(Box::new(kept.clone()), Box::new(|write| write()))
    }

    #[test]
    fn lines_are_written_in_their_order_before_a_flush_returns() {
        let kept = Kept::default();
        let writer = writer(&kept);
        for round in 0..100 {
            assert!(writer.write(format!("{round}\n")));
        }
        writer.flush(Duration::from_secs(60));
        let text = String::from_utf8(kept.0.lock().expect("whole").clone()).expect("text");
        assert_eq!(
            text.lines().map(|line| line.parse().expect("a number")).collect::<Vec<u32>>(),
            (0..100).collect::<Vec<_>>()
        );
    }

    #[test]
    fn nobody_waits_for_one_who_takes_nothing() {
        let kept = Kept::default();
        let writer = writer(&kept);
        let stuck = kept.0.lock().expect("whole");
        let written = (0..3 * LINES_MAX).filter(|line| writer.write(format!("{line}\n"))).count();
        assert!((LINES_MAX..=LINES_MAX + 1).contains(&written), "one may be on its way: {written}");
        writer.flush(Duration::ZERO);
        drop(stuck);
        writer.flush(Duration::from_secs(60));
        let text = String::from_utf8(kept.0.lock().expect("whole").clone()).expect("text");
        assert_eq!(text.lines().count(), written);
        assert!(writer.write("more\n".into()));
    }
}
