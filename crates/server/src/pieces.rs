//! Rows as the body of a response, which is written piece by piece on other threads than that of the connections.
//!
//! # Invariant
//!
//! The thread of all connections writes no rows: it waits for pieces. Of a body one piece is sent while the next one is
//! written, and no more are written before the client takes them. A client that takes nothing holds no thread, and what
//! rows it holds is counted ([`Held`]).

use crate::answer::Body as Whole;
use crate::held::{Held, Holding};
use crate::shares::Client;
use arrow_array::RecordBatch;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::Schema as ArrowSchema;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes, Frame};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tidemill_connect::JsonRows;
use tidemill_model::Schema;
use tokio::task::{JoinHandle, spawn_blocking};

/// The bytes after which a piece is at its end.
const PIECE_BYTES: usize = 1 << 18;
/// The rows of a batch of an Arrow stream.
const BATCH_ROWS: usize = 1 << 14;

/// Rows that are not all written.
pub struct Rows {
    rest: VecDeque<RecordBatch>,
    form: Form,
}

/// The form in which rows are written.
enum Form {
    /// A JSON object a line.
    Lines(JsonRows),
    /// Batches of an Arrow stream; the writer has what is not sent yet.
    Arrow(Box<StreamWriter<Vec<u8>>>),
}

impl Rows {
    /// Writes rows as JSON lines. Panics if the batches are not in the schema's canonical form.
    pub fn lines(schema: &Schema, rows: impl IntoIterator<Item = RecordBatch>) -> Rows {
        Rows { rest: rows.into_iter().collect(), form: Form::Lines(JsonRows::new(schema)) }
    }

    /// Writes rows as an Arrow stream.
    pub fn arrow(schema: &ArrowSchema, rows: impl IntoIterator<Item = RecordBatch>) -> Rows {
        let writer = StreamWriter::try_new(Vec::new(), schema).expect("memory takes everything");
        Rows { rest: rows.into_iter().collect(), form: Form::Arrow(Box::new(writer)) }
    }

    /// Writes the next piece.
    fn write(&mut self) -> Vec<u8> {
        let mut out = match &mut self.form {
            Form::Lines(_) => Vec::new(),
            Form::Arrow(writer) => std::mem::take(writer.get_mut()),
        };
        while out.len() < PIECE_BYTES
            && let Some(batch) = self.rest.pop_front()
        {
            let written = self.form.write(&mut out, &batch);
            if written < batch.num_rows() {
                self.rest.push_front(batch.slice(written, batch.num_rows() - written));
            }
        }
        if let Form::Arrow(writer) = &mut self.form
            && self.rest.is_empty()
        {
            writer.finish().expect("memory takes everything");
            out.append(writer.get_mut());
        }
        out
    }
}

impl Form {
    /// Appends rows of a batch, up to the end of a piece; the number of them.
    fn write(&mut self, out: &mut Vec<u8>, batch: &RecordBatch) -> usize {
        match self {
            Form::Lines(lines) => {
                let rows = lines.of(batch);
                let mut written = 0;
                while written < batch.num_rows() && out.len() < PIECE_BYTES {
                    rows.write(out, written);
                    out.push(b'\n');
                    written += 1;
                }
                written
            }
            Form::Arrow(writer) => {
                let count = batch.num_rows().min(BATCH_ROWS);
                writer.write(&batch.slice(0, count)).expect("memory takes everything");
                out.append(writer.get_mut());
                count
            }
        }
    }
}

/// The reason why there is no body.
#[derive(Debug)]
pub enum NoBody<E> {
    /// Responses hold too many rows already.
    Busy,
    /// There are no rows.
    Failed(E),
}

/// Returns the body that rows make, once its first piece is written; or why there is none. `begin` is called on another
/// thread.
pub async fn body<E: Send + 'static>(
    (held, client): (&Held, &Client),
    begin: impl FnOnce() -> Result<Rows, E> + Send + 'static,
) -> Result<Whole, NoBody<E>> {
    let begun = spawn_blocking(move || {
        let mut rows = begin()?;
        let first = rows.write();
        Ok((rows, first))
    });
    let begun = begun.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
    let (rows, first) = begun.map_err(NoBody::Failed)?;
    if rows.rest.is_empty() {
        return Ok(Full::new(first.into()).boxed_unsync());
    }
    let holding = held.hold(client, &rows.rest).ok_or(NoBody::Busy)?;
    Ok(Pieces { ready: Some(first.into()), next: Some(next(rows)), _holding: holding }.boxed_unsync())
}

type Writing = JoinHandle<(Rows, Vec<u8>)>;

fn next(mut rows: Rows) -> Writing {
    spawn_blocking(move || {
        let piece = rows.write();
        (rows, piece)
    })
}

/// A body of several pieces.
struct Pieces {
    /// A piece that can be sent.
    ready: Option<Bytes>,
    /// The one that is written; none after the last one.
    next: Option<Writing>,
    _holding: Holding,
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(piece) = self.ready.take() {
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        let Some(writing) = &mut self.next else { return Poll::Ready(None) };
        // A body that ends early is no end: a panic ends the connection.
        let (rows, piece) =
            ready!(Pin::new(writing).poll(cx)).unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
        self.next = (!rows.rest.is_empty()).then(|| next(rows));
        Poll::Ready(Some(Ok(Frame::data(piece.into()))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shares::{Shares, Who};
    use arrow_array::{Int64Array, StringArray};
    use arrow_ipc::reader::StreamReader;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tidemill_durability::Planted;
    use tidemill_model::Type;
    use tidemill_model::arrow::arrow_schema;

    const ROWS: usize = 40_000;

    fn schema() -> Schema {
        Schema::scalars([("id", Type::Int.into()), ("text", Type::Str.into())])
    }

    fn batch(rows: std::ops::Range<usize>) -> RecordBatch {
        let ids: Int64Array = rows.clone().map(|row| row as i64).collect();
        let texts: StringArray = rows.map(|row| Some(format!("the text of row {row}"))).collect();
        let columns: [arrow_array::ArrayRef; 2] = [Arc::new(ids), Arc::new(texts)];
        RecordBatch::try_new(arrow_schema(&schema()), columns.into()).expect("it fits")
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
    }

    fn asked() -> (Held, Client) {
        let address = std::net::IpAddr::from([127, 0, 0, 1]);
        (Held::new(Shares::bytes(1 << 30, Planted::default())), Client::http(Who::at(address)))
    }

    async fn body_of(begin: impl FnOnce() -> Rows + Send + 'static) -> Whole {
        let (held, client) = asked();
        body((&held, &client), move || Ok::<_, Infallible>(begin())).await.expect("there are rows")
    }

    async fn pieces(begin: impl FnOnce() -> Rows + Send + 'static) -> Vec<Bytes> {
        let mut body = body_of(begin).await;
        let mut pieces = Vec::new();
        while let Some(Ok(frame)) = body.frame().await {
            pieces.push(frame.into_data().expect("data alone"));
        }
        pieces
    }

    #[test]
    fn lines_come_in_pieces_and_in_order() {
        let pieces = run(pieces(|| Rows::lines(&schema(), [batch(0..ROWS / 2), batch(ROWS / 2..ROWS)])));
        assert!(pieces.len() > 4 && pieces.iter().all(|piece| piece.len() < PIECE_BYTES + 100), "{}", pieces.len());
        let text = String::from_utf8(pieces.concat()).expect("text");
        assert_eq!(text.lines().count(), ROWS);
        for (row, line) in text.lines().enumerate() {
            assert_eq!(line, format!("{{\"id\":{row},\"text\":\"the text of row {row}\"}}"));
        }
    }

    #[test]
    fn an_arrow_stream_comes_in_pieces() {
        let pieces = run(pieces(|| Rows::arrow(&arrow_schema(&schema()), [batch(0..ROWS)])));
        assert!(pieces.len() > 1, "{}", pieces.len());
        let stream = pieces.concat();
        let read: Vec<RecordBatch> =
            StreamReader::try_new(&stream[..], None).expect("a stream").map(|batch| batch.expect("a batch")).collect();
        let whole = arrow_select::concat::concat_batches(&read[0].schema(), &read).expect("one schema");
        assert_eq!(whole, batch(0..ROWS));
    }

    #[test]
    fn a_few_rows_are_one_whole_body() {
        for count in [0, 1, 10] {
            let lines = run(body_of(move || Rows::lines(&schema(), [batch(0..count)])));
            assert!(lines.size_hint().exact().is_some());
            let arrow = run(pieces(move || Rows::arrow(&arrow_schema(&schema()), [batch(0..count)])));
            assert_eq!(arrow.len(), 1);
            let read = StreamReader::try_new(&arrow[0][..], None).expect("a stream");
            assert_eq!(read.map(|batch| batch.expect("a batch").num_rows()).sum::<usize>(), count);
        }
    }

    #[test]
    fn what_is_not_taken_is_held_and_too_much_is_refused() {
        let (_, client) = asked();
        let held = Held::new(Shares::bytes(1 << 20, Planted::default()));
        let rows = || Ok::<_, Infallible>(Rows::lines(&schema(), [batch(0..ROWS)]));
        let first = run(async { body((&held, &client), rows).await.expect("it is the first") });
        assert!(held.taken() > 1 << 20);
        let second = run(async { body((&held, &client), rows).await.map(drop) });
        assert!(matches!(second, Err(NoBody::Busy)));
        drop(first);
        assert_eq!(held.taken(), 0);
    }

    #[test]
    fn others_go_on_while_a_piece_is_written() {
        let (turns, seen) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (counted, noted) = (turns.clone(), seen.clone());
        run(async move {
            let counting = counted.clone();
            let others = tokio::spawn(async move {
                loop {
                    counting.fetch_add(1, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                }
            });
            // The rows begin only once another task has run meanwhile: on the thread of the connections none would.
            let begin = move || {
                let before = counted.load(Ordering::Relaxed);
                let has_run = || counted.load(Ordering::Relaxed) >= before + 10;
                let is_seen = (0..10_000_000).any(|_| {
                    std::thread::yield_now();
                    has_run()
                });
                noted.store(usize::from(is_seen), Ordering::Relaxed);
                Rows::lines(&schema(), [batch(0..ROWS)])
            };
            pieces(begin).await;
            others.abort();
        });
        assert_eq!(seen.load(Ordering::Relaxed), 1);
    }
}
