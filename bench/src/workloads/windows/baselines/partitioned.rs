//! Upfront partitioning: a pipeline of operators, each called for each tuple through a pointer, and queues between them.
//!
//! As many threads produce as there are workers, and as many consume; both share the processors. A producer filters,
//! projects and partitions its blocks. Tuples go in buffers of the size of a first-level cache, which the thesis finds
//! the best (§3.2.2), and emptied buffers come back. A buffer is of one window. A producer that goes on to a later window
//! tells all consumers so. A queue keeps the order of each producer, so a consumer that has heard this of all of them has
//! all tuples of the windows before. Adding to a table is the consumer's only operator, so it is no call through a pointer.

use super::local::Table;
use super::part::Part;
use super::{Aggregation, Blocks, Rows, Windows, hash};
use crossbeam_queue::ArrayQueue;
use crossbeam_utils::Backoff;
use std::collections::VecDeque;

/// Bytes of the tuples of a buffer.
const BUFFER_BYTES: usize = 32 << 10;
/// Messages of a queue at the most.
const QUEUE_MAX: usize = 16;

/// The part of an event that goes through queues: its group, and the value that is aggregated.
type Pair<V> = (i64, V);

enum Message<V> {
    Pairs {
        window: usize,
        pairs: Vec<Pair<V>>,
    },
    /// The producer has no more of the windows before this one.
    In {
        producer: usize,
        window: usize,
    },
}

/// The queues, one for each consumer, and one for empty buffers.
struct Exchange<V> {
    queues: Vec<ArrayQueue<Message<V>>>,
    empty: ArrayQueue<Vec<Pair<V>>>,
}

impl<V> Exchange<V> {
    const PAIRS: usize = BUFFER_BYTES / size_of::<Pair<V>>();

    fn new(consumers: usize) -> Self {
        let queues = (0..consumers).map(|_| ArrayQueue::new(QUEUE_MAX)).collect();
        Exchange { queues, empty: ArrayQueue::new(2 * consumers * QUEUE_MAX) }
    }

    fn send(&self, consumer: usize, mut message: Message<V>) {
        let backoff = Backoff::new();
        while let Err(unsent) = self.queues[consumer].push(message) {
            message = unsent;
            backoff.snooze();
        }
    }

    fn receive(&self, consumer: usize) -> Message<V> {
        let backoff = Backoff::new();
        loop {
            if let Some(message) = self.queues[consumer].pop() {
                return message;
            }
            backoff.snooze();
        }
    }

    fn buffer(&self) -> Vec<Pair<V>> {
        self.empty.pop().unwrap_or_else(|| Vec::with_capacity(Self::PAIRS))
    }

    fn give_back(&self, mut buffer: Vec<Pair<V>>) {
        buffer.clear();
        // A buffer for which the queue has no room is freed.
        drop(self.empty.push(buffer));
    }
}

/// An operator of the pipeline, which hands over to the next one.
trait Operator<T> {
    fn process(&mut self, tuple: T);
    /// Ends the work after the last tuple.
    fn end(&mut self);
}

struct Filter<'a, F> {
    passes: F,
    next: Box<dyn Operator<usize> + 'a>,
}

impl<F: Fn(usize) -> bool> Operator<usize> for Filter<'_, F> {
    fn process(&mut self, event: usize) {
        if (self.passes)(event) {
            self.next.process(event);
        }
    }

    fn end(&mut self) {
        self.next.end();
    }
}

/// The part of an event that the query needs.
struct Tuple<V> {
    at: i64,
    key: i64,
    value: V,
}

struct Project<'a, F, V> {
    project: F,
    next: Box<dyn Operator<Tuple<V>> + 'a>,
}

impl<V, F: Fn(usize) -> Tuple<V>> Operator<usize> for Project<'_, F, V> {
    fn process(&mut self, event: usize) {
        self.next.process((self.project)(event));
    }

    fn end(&mut self) {
        self.next.end();
    }
}

struct Partition<'a, V> {
    producer: usize,
    windows: Windows,
    window: usize,
    end: i64,
    exchange: &'a Exchange<V>,
    /// The next buffer for each consumer.
    buffers: Vec<Vec<Pair<V>>>,
}

impl<'a, V> Partition<'a, V> {
    fn new(producer: usize, windows: Windows, exchange: &'a Exchange<V>) -> Self {
        let buffers = exchange.queues.iter().map(|_| exchange.buffer()).collect();
        Partition { producer, windows, window: 0, end: windows.end(0), exchange, buffers }
    }

    fn flush(&mut self, consumer: usize) {
        let pairs = std::mem::replace(&mut self.buffers[consumer], self.exchange.buffer());
        self.exchange.send(consumer, Message::Pairs { window: self.window, pairs });
    }

    /// Tells all consumers that it is in this window.
    fn go_on(&mut self, window: usize) {
        for consumer in 0..self.buffers.len() {
            if !self.buffers[consumer].is_empty() {
                self.flush(consumer);
            }
            self.exchange.send(consumer, Message::In { producer: self.producer, window });
        }
        (self.window, self.end) = (window, self.windows.end(window));
    }
}

impl<V> Operator<Tuple<V>> for Partition<'_, V> {
    fn process(&mut self, tuple: Tuple<V>) {
        let Tuple { at, key, value } = tuple;
        if at >= self.end {
            self.go_on(self.windows.holding(at));
        }
        let consumer = owner(key, self.buffers.len());
        self.buffers[consumer].push((key, value));
        if self.buffers[consumer].len() == Exchange::<V>::PAIRS {
            self.flush(consumer);
        }
    }

    fn end(&mut self) {
        self.go_on(self.windows.count);
    }
}

/// Returns the consumer that owns a group, by the lower half of its hash; the upper bits are its place in a table.
fn owner(key: i64, consumers: usize) -> usize {
    ((u64::from(hash(key) as u32) * consumers as u64) >> 32) as usize
}

/// Returns the rows of each consumer.
pub fn run<const COLUMNS: usize, A: Aggregation<COLUMNS>>(
    aggregation: &A,
    windows: Windows,
    workers: usize,
) -> Vec<Rows<COLUMNS>> {
    let exchange = Exchange::new(workers);
    let blocks = Blocks::new(aggregation.times().len(), workers);
    std::thread::scope(|scope| {
        for producer in 0..workers {
            let (exchange, blocks) = (&exchange, &blocks);
            scope.spawn(move || produce(aggregation, Partition::new(producer, windows, exchange), blocks));
        }
        let consume_as = |consumer| {
            let exchange = &exchange;
            scope.spawn(move || consume(aggregation, windows, exchange, consumer))
        };
        let consumers: Vec<_> = (0..workers).map(consume_as).collect();
        consumers.into_iter().map(|thread| thread.join().expect("a consumer that ends")).collect()
    })
}

fn produce<const COLUMNS: usize, A: Aggregation<COLUMNS>>(
    of: &A,
    partition: Partition<'_, <A::Part as Part>::Value>,
    blocks: &Blocks,
) {
    let project = |event| Tuple { at: of.times()[event], key: of.key(event), value: of.value(event) };
    let project = Project { project, next: Box::new(partition) };
    let mut filter: Box<dyn Operator<usize>> =
        Box::new(Filter { passes: |event| of.passes(event), next: Box::new(project) });
    for block in blocks.take() {
        block.for_each(|event| filter.process(event));
    }
    filter.end();
}

/// The windows that a consumer has open, from the first that some producer has not ended.
struct Consumer<P> {
    first: usize,
    open: VecDeque<Table<P>>,
    /// Tables that are empty again.
    empty: Vec<Table<P>>,
    /// The window that each producer is in, by producer.
    producers: Vec<usize>,
}

impl<P: Part> Consumer<P> {
    fn table(&mut self, window: usize) -> &mut Table<P> {
        while self.open.len() <= window - self.first {
            self.open.push_back(self.empty.pop().unwrap_or_else(Table::new));
        }
        &mut self.open[window - self.first]
    }

    /// Takes out the windows that all producers have ended.
    fn drain(&mut self, mut row: impl FnMut(usize, i64, P)) {
        let ended = self.producers.iter().copied().min().unwrap_or_default();
        while self.first < ended {
            if let Some(mut table) = self.open.pop_front() {
                table.drain(|key, part| row(self.first, key, part));
                self.empty.push(table);
            }
            self.first += 1;
        }
    }
}

fn consume<const COLUMNS: usize, A: Aggregation<COLUMNS>>(
    aggregation: &A,
    windows: Windows,
    exchange: &Exchange<<A::Part as Part>::Value>,
    consumer: usize,
) -> Rows<COLUMNS> {
    let mut rows = Rows::new(aggregation.names());
    let producers = vec![0; exchange.queues.len()];
    let mut windowed = Consumer::<A::Part> { first: 0, open: VecDeque::new(), empty: Vec::new(), producers };
    while windowed.first < windows.count {
        match exchange.receive(consumer) {
            Message::Pairs { window, pairs } => {
                let table = windowed.table(window);
                pairs.iter().for_each(|&(key, value)| table.group(key).add(value));
                exchange.give_back(pairs);
            }
            Message::In { producer, window } => {
                windowed.producers[producer] = window;
                windowed.drain(|window, key, part| rows.push(aggregation.row(windows.end(window), key, part)));
            }
        }
    }
    rows
}
