//! The program's fixed connections, numbered once: which code runs on what, and what goes where.

use tidemill_compile::{Code, DeliveryKeys, feeds_code};
use tidemill_plan::{Origin, Program, StreamId, TransactionId, Waves};

/// Index into [`Wiring::inputs`]: a transaction on one of its inputs.
pub type InputId = usize;

/// A transaction on one of its inputs.
pub struct InputWiring {
    /// The transaction.
    pub transaction: TransactionId,
    /// Index into the transaction's inputs.
    pub input: usize,
    /// The root of the input's stream.
    pub root: StreamId,
    /// The node of the root's pipeline that is the input's stream.
    pub node: usize,
    /// Where the keys come from.
    pub keys: DeliveryKeys,
}

/// What is known of a root stream that a transaction feeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outlet {
    /// Its returned records or passed events.
    Committed,
    /// Its aborts.
    Aborted,
    /// Its emissions by name.
    Emitted(usize),
}

/// The fixed connections of a program.
pub struct Wiring {
    /// All transactions on all their inputs.
    pub inputs: Vec<InputWiring>,
    /// By stream: the inputs that an event of this root is delivered to, in order.
    pub deliveries: Vec<Vec<InputId>>,
    /// By stream: whether code reads its events as they are emitted.
    pub feeds_code: Vec<bool>,
    /// By source number: its stream.
    pub sources: Vec<StreamId>,
    /// Whether events are followed one by one: a transaction reads a key from a row, or can reach another that it may
    /// not leave behind.
    pub cascades: bool,
    /// Where they are not: the streams of what transactions give that lead to others, by wave.
    pub waves: Vec<Vec<StreamId>>,
}

impl Wiring {
    /// Numbers the connections.
    pub fn of(program: &Program, code: &Code) -> Wiring {
        let mut inputs = Vec::new();
        let mut deliveries = vec![Vec::new(); program.streams.len()];
        for (root, pipeline) in code.pipelines.iter().enumerate() {
            for (delivery, node, keys) in pipeline.iter().flat_map(|p| &p.plan.deliveries) {
                deliveries[root].push(inputs.len());
                inputs.push(InputWiring {
                    transaction: delivery.transaction,
                    input: delivery.input,
                    root,
                    node: *node,
                    keys: keys.clone(),
                });
            }
        }
        let waves = Waves::of(program).map(|waves| waves.streams);
        let is_source = |s: &StreamId| matches!(program.streams[*s].origin, Origin::Source { .. });
        Wiring {
            inputs,
            deliveries,
            feeds_code: (0..program.streams.len()).map(|s| feeds_code(program, s)).collect(),
            sources: (0..program.streams.len()).filter(is_source).collect(),
            cascades: waves.is_none(),
            waves: waves.unwrap_or_default(),
        }
    }

    /// Whether the transactions on an input run in the first wave, or one by one.
    pub fn is_first(&self, id: InputId) -> bool {
        self.waves.is_empty() || self.sources.contains(&self.inputs[id].root)
    }
}

/// The transaction and outlet behind a stream, if it is one that a transaction feeds.
pub fn outlet_of(program: &Program, stream: StreamId) -> Option<(TransactionId, Outlet)> {
    match program.streams[stream].origin {
        Origin::Committed(t) => Some((t, Outlet::Committed)),
        Origin::Aborted(t) => Some((t, Outlet::Aborted)),
        Origin::Emitted(t, e) => Some((t, Outlet::Emitted(e))),
        _ => None,
    }
}
