//! The program's fixed connections, numbered once: which code runs on which stream, and where its results go.

use std::ops::Range;
use tidemill_compile::{
    AccessFn, Code, DeliveryKeys, JointCode, OutputPlan, TransactionCode, feeds_code, incoming_lists,
};
use tidemill_plan::{Nesting, Origin, Program, StreamId, TransactionId, Waves};
use typed_index_collections::{TiVec, ti_vec};

tidemill_model::index_types! {
    /// A transaction on one of its inputs: the index of its [`InputWiring`].
    pub struct InputId;
    /// A [`Joint`], by its index.
    pub struct JointId;
}

/// An event of an input, which stands for one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputEvent {
    /// The input.
    pub input: InputId,
    /// The event's number among the input's events of its epoch.
    pub event: u32,
}

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
    /// The origin of the keys.
    pub keys: DeliveryKeys,
}

/// Inputs of the same events, whose transactions run on each event one after the other; most joints have one input.
pub struct Joint {
    /// The inputs.
    pub inputs: Range<InputId>,
    /// The function that runs the transactions of all inputs.
    pub run: AccessFn,
}

impl Joint {
    /// Returns the number of its inputs.
    pub fn width(&self) -> usize {
        (self.inputs.end.0 - self.inputs.start.0) as usize
    }

    /// Returns its inputs, in the order in which they run on an event.
    pub fn inputs(&self) -> impl Iterator<Item = InputId> + use<> {
        (self.inputs.start.0..self.inputs.end.0).map(InputId)
    }
}

/// Returns the joints in a range.
pub fn joints_in(range: &Range<JointId>) -> impl DoubleEndedIterator<Item = JointId> + ExactSizeIterator + use<> {
    (range.start.0..range.end.0).map(JointId)
}

/// The outlet of a transaction that feeds a root stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outlet {
    /// Its returned records or passed events.
    Committed,
    /// Its aborts.
    Aborted,
    /// Its emissions by name.
    Emitted(usize),
}

impl Outlet {
    /// Returns the plan by which its records are made, for a transaction on one of its inputs.
    pub fn plan(self, code: &TransactionCode) -> &OutputPlan {
        match self {
            Outlet::Committed => &code.committed,
            Outlet::Aborted => &code.aborted,
            Outlet::Emitted(e) => &code.emits[e],
        }
    }
}

/// The streams and inputs that the transactions of a nest fill.
pub struct NestWiring {
    /// The streams that they feed and whose events code reads.
    pub streams: Vec<StreamId>,
    /// The inputs that events of these are delivered to.
    pub inputs: Vec<InputId>,
}

impl NestWiring {
    fn of(program: &Program, root: TransactionId, deliveries: &TiVec<StreamId, Vec<InputId>>) -> Option<NestWiring> {
        let Nesting::Root(nested) = &program.transactions[root].nesting else { return None };
        let members = std::iter::once(root).chain(nested.iter().map(|nested| nested.transaction));
        let outputs = members.flat_map(|member| {
            let transaction = &program.transactions[member];
            let emitted = transaction.emits.iter().map(|emit| emit.stream);
            emitted.chain([transaction.committed.stream, transaction.aborted])
        });
        let streams: Vec<StreamId> = outputs.filter(|&stream| !deliveries[stream].is_empty()).collect();
        let inputs = streams.iter().flat_map(|&stream| deliveries[stream].iter().copied()).collect();
        Some(NestWiring { streams, inputs })
    }
}

/// The fixed connections of a program.
pub struct Wiring {
    /// All transactions on all their inputs.
    pub inputs: TiVec<InputId, InputWiring>,
    /// The inputs that an event of each root is delivered to, in order, by stream.
    pub deliveries: TiVec<StreamId, Vec<InputId>>,
    /// All inputs, joined.
    pub joints: TiVec<JointId, Joint>,
    /// The joints of each stream's deliveries, in order, by stream.
    pub joints_of: TiVec<StreamId, Range<JointId>>,
    /// A flag for each stream: whether code reads its events as they are emitted.
    pub feeds_code: TiVec<StreamId, bool>,
    /// The stream of each source, by source number.
    pub sources: Vec<StreamId>,
    /// The streams of what is due, in the order of a boundary.
    pub dues: Vec<StreamId>,
    /// The streams of late events that are inputs, in the order of their sources.
    pub lates: Vec<StreamId>,
    /// The streams whose events an epoch is given: the sources, then what is due, then late events that are inputs.
    pub given: Vec<StreamId>,
    /// The lists that come in with them, by number ([`incoming_lists`]): the number of the stream among these, and the field.
    pub lists: Vec<(usize, usize)>,
    /// A flag for each of these: whether code asks for the places of its events.
    pub asks_for_places: Vec<bool>,
    /// A flag: whether events are followed one by one: a transaction reads a key from a row, is nested, or can reach
    /// another transaction that cannot be deferred to a later wave.
    pub cascades: bool,
    /// A flag: whether what is due can run between the events of an epoch ([`Program::has_stretches`]).
    pub has_stretches: bool,
    /// The streams and inputs that nested transactions fill, by transaction, if it is the root of a nest.
    pub nests: TiVec<TransactionId, Option<NestWiring>>,
    /// If events are not followed one by one: by wave, the streams of transactions' outputs that lead to other
    /// transactions.
    pub waves: Vec<Vec<StreamId>>,
}

impl Wiring {
    /// Returns the input of the one transaction that the events of a source are calls of: the one that they are delivered to,
    /// or what filters and maps make of them, beside those of windows and joins, which answer nobody. None if there is none,
    /// or several.
    pub fn procedure(&self, program: &Program, source: StreamId) -> Option<InputId> {
        match self.called(program, source)[..] {
            [input] => Some(input),
            _ => None,
        }
    }

    /// Returns the inputs of the transactions that the events of a root reach by way of filters and maps alone, also those that read
    /// rows; without those of windows and joins.
    pub fn called(&self, program: &Program, root: StreamId) -> Vec<InputId> {
        let mut called = Vec::new();
        for &input in &self.deliveries[root] {
            let transaction = &program.transactions[self.inputs[input].transaction];
            match transaction.derives {
                true => called.extend(self.called(program, transaction.committed.stream)),
                false if transaction.is_hidden() => {}
                false => called.push(input),
            }
        }
        called
    }

    /// Returns the input of the filter or map that reads rows and whose events are those of a root, if it is of one.
    pub fn derived_by(&self, program: &Program, root: StreamId) -> Option<InputId> {
        let (of, outlet) = outlet_of(program, root)?;
        let is_it = |id: &InputId| self.inputs[*id].transaction == of;
        self.inputs.keys().find(is_it).filter(|_| outlet == Outlet::Committed && program.transactions[of].derives)
    }

    /// Numbers the connections.
    pub fn of(program: &Program, code: &Code) -> Wiring {
        let mut inputs: TiVec<InputId, InputWiring> = TiVec::new();
        let mut deliveries: TiVec<StreamId, Vec<InputId>> = ti_vec![Vec::new(); program.streams.len()];
        let mut joints: TiVec<JointId, Joint> = TiVec::new();
        let mut joints_of = TiVec::new();
        for (root, pipeline) in code.pipelines.iter_enumerated() {
            let (first_input, first_joint) = (inputs.len(), joints.len());
            for JointCode { deliveries, run } in pipeline.iter().flat_map(|p| &p.joints) {
                let inputs = (first_input + deliveries.start).into()..(first_input + deliveries.end).into();
                joints.push(Joint { inputs, run: *run });
            }
            joints_of.push(first_joint.into()..joints.next_key());
            for (delivery, node, keys) in pipeline.iter().flat_map(|p| &p.plan.deliveries) {
                deliveries[root].push(inputs.next_key());
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
        let sources: Vec<StreamId> = program.streams.keys().filter(is_source).collect();
        let (dues, lates) = (program.dues(), program.lates());
        let given: Vec<StreamId> = sources.iter().chain(&dues).chain(&lates).copied().collect();
        let number = |root| given.iter().position(|&stream| stream == root).expect("its events come in");
        let lists = incoming_lists(program).map(|(root, field)| (number(root), field)).collect();
        let asks = |id: &InputId| program.transactions[inputs[*id].transaction].asks_for_place();
        let asks_for_places = given.iter().map(|&root| deliveries[root].iter().any(asks)).collect();
        let nests = program.transactions.keys().map(|root| NestWiring::of(program, root, &deliveries)).collect();
        Wiring {
            nests,
            inputs,
            deliveries,
            joints,
            joints_of,
            feeds_code: program.streams.keys().map(|s| feeds_code(program, s)).collect(),
            given,
            lists,
            asks_for_places,
            sources,
            dues,
            lates,
            cascades: waves.is_none(),
            has_stretches: program.has_stretches(),
            waves: waves.unwrap_or_default(),
        }
    }

    /// Returns whether the events of a stream that an epoch is given, by number, have places ([`tidemill_plan::Node::Place`]).
    pub fn has_places(&self, program: &Program, number: usize) -> bool {
        program.streams[self.given[number]].origin.has_places()
    }

    /// Returns the sources whose late events are inputs, and the numbers of these among the streams that an epoch is
    /// given.
    pub fn late_sources(&self, program: &Program) -> Vec<(usize, usize)> {
        let of = |s: &usize| match program.streams[self.given[*s]].origin {
            Origin::LateRoot(source) => self.sources.iter().position(|&of| of == source).map(|source| (source, *s)),
            _ => None,
        };
        (0..self.given.len()).filter_map(|s| of(&s)).collect()
    }

    /// Returns whether the events of a stream that an epoch is given are logged, as those that transactions emit: what
    /// is due within epochs.
    pub fn is_logged_root(&self, stream: StreamId) -> bool {
        self.has_stretches && self.dues.contains(&stream)
    }

    /// Returns the joint of an input.
    pub fn joint_of(&self, id: InputId) -> JointId {
        self.joints.partition_point(|joint| joint.inputs.end <= id)
    }

    /// Returns whether the transactions on an input run in the first wave, or one by one.
    pub fn is_first(&self, id: InputId) -> bool {
        self.waves.is_empty() || self.given.contains(&self.inputs[id].root)
    }
}

/// Returns the transaction and outlet that feed a stream, if a transaction feeds it.
pub fn outlet_of(program: &Program, stream: StreamId) -> Option<(TransactionId, Outlet)> {
    match program.streams[stream].origin {
        Origin::Committed(t) => Some((t, Outlet::Committed)),
        Origin::Aborted(t) => Some((t, Outlet::Aborted)),
        Origin::Emitted(t, e) => Some((t, Outlet::Emitted(e))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_histories::adversarial;
    use tidemill_plan::analyze;

    fn joints(name: &str) -> Vec<usize> {
        let (_, history) = adversarial().into_iter().find(|(other, _)| *other == name).expect("a history");
        let program = analyze(&history.plan).expect("a right plan");
        let code = Code::compile(&program, &ti_vec![true; program.streams.len()]).expect("it can be compiled");
        Wiring::of(&program, &code).joints.iter().map(Joint::width).collect()
    }

    #[test]
    fn neighbours_on_the_same_events_are_joined() {
        assert_eq!(joints("several transactions on each event"), [3, 2, 1]);
        // The steps of a cascade run one by one.
        assert_eq!(joints("an earlier event of a cascade emits later"), [1, 1, 1, 1]);
    }
}
