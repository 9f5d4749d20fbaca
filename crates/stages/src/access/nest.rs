//! Nested transactions: runs a root with all that is nested in it, and undoes all of them where one aborts.
//!
//! **Invariant.** Between two nests nothing can be undone any more. When a nest is over, either all of its transactions
//! have committed and everything that they emitted is logged, or its root has aborted and nothing else of it is left: no
//! write, no event in a log, a pipeline or an input, no transaction in the order.
//!
//! **How.** The code of these transactions keeps what it overwrites ([`tidemill_compile::UndoMark`]). Logs, pipelines and
//! inputs only grow, so their lengths at the beginning are enough to cut them back. An event that also reaches
//! transactions outside of the nest arrives there together with the others, since filters and maps run once on it, and is
//! followed when the nest has committed.
//!
//! **Given up.** A list of lengths for each event of a root.

use crate::access::cascade::{Cascade, Emitted, Given};
use crate::access::indexes;
use crate::epoch::{Epoch, JointRun};
use crate::machine::InputContext;
use crate::stream_state::PipelineMark;
use crate::wiring::{InputEvent, NestWiring};
use tidemill_compile::UndoMark;
use tidemill_compile::abi::Verdict;
use tidemill_plan::{ReasonId, StreamId, TransactionId};

/// The transaction of a nest that aborted, and its reason.
type Abort = (TransactionId, ReasonId);

/// The state of an epoch and of a worker's context before a nest, to which an abort returns.
struct Before {
    undo: UndoMark,
    logs: Vec<usize>,
    pipelines: Vec<PipelineMark>,
    inputs: Vec<usize>,
    order: Vec<JointRun>,
    order_len: usize,
}

impl Cascade<'_> {
    /// Runs a root on an event, with all that is nested in it; appends the events that are to be followed.
    pub fn nest(&mut self, at: InputEvent, emitted: &mut Vec<Given>) {
        let InputContext { wiring, transaction, .. } = self.machine.input(at.input);
        let nest = self.machine.wiring.nests[wiring.transaction].as_ref().expect("a root has a nest");
        let before = self.before(nest);
        let own = self.run_alone(at);
        let mut outside = Vec::new();
        if !self.verdict(at).is_committed() {
            outside.extend(own.into_iter().map(|(stream, place)| Given::Emitted(stream, place)));
        } else if let Err((aborted, reason)) = self.follow_nested(own, &mut outside) {
            self.undo(nest, &before);
            indexes::note_again(self.machine, self.scratch);
            let reason = transaction.reason_of(aborted, reason);
            outside = self.refuse(at, reason);
        }
        self.scratch.context.keep();
        emitted.append(&mut outside);
    }

    /// Follows events of a nest, each with all that follows from it before the next, as far as transactions of the nest
    /// go. Their other deliveries are appended to `outside`, in the order in which they arrived.
    fn follow_nested(&mut self, events: Vec<Emitted>, outside: &mut Vec<Given>) -> Result<(), Abort> {
        for (stream, place) in events {
            let is_nested = |at: &InputEvent| self.machine.input(at.input).transaction.is_nested();
            let (nested, others): (Vec<_>, Vec<_>) = self.arrive(stream, place).into_iter().partition(is_nested);
            if !others.is_empty() {
                outside.push(Given::Arrived(others));
            }
            let mut emitted = Vec::new();
            for at in nested {
                emitted.append(&mut self.run_alone(at));
                if let Some(reason) = self.verdict(at).reason() {
                    return Err((self.machine.wiring.inputs[at.input].transaction, reason));
                }
            }
            self.follow_nested(emitted, outside)?;
        }
        Ok(())
    }

    /// Aborts a root whose nest was undone.
    fn refuse(&mut self, at: InputEvent, reason: ReasonId) -> Vec<Given> {
        let Cascade { machine, scratch, epoch, .. } = self;
        Epoch::ran(&mut epoch.work.order, machine.wiring.joint_of(at.input), 1);
        let input = &mut epoch.work.inputs[at.input];
        input.verdicts[at.event as usize] = Verdict::aborted(reason);
        let view = input.view(&scratch.identity);
        let refuse = machine.input(at.input).code.refuse.expect("a root can be refused");
        #[allow(unsafe_code)]
        // SAFETY: as for the transaction itself (`run_one`), which ran on this view; the code reads rows and writes the
        // event's places only.
        unsafe {
            refuse(&mut *scratch.context, &view, u64::from(at.event), 1);
        }
        assert_eq!(self.verdict(at), Verdict::aborted(reason), "a refusal keeps its reason");
        let mut emitted = Vec::new();
        self.give_outcome(at, &mut emitted);
        emitted.into_iter().map(|(stream, place)| Given::Emitted(stream, place)).collect()
    }

    fn verdict(&self, at: InputEvent) -> Verdict {
        self.epoch.work.inputs[at.input].verdicts[at.event as usize]
    }

    fn before(&self, nest: &NestWiring) -> Before {
        let work = &self.epoch.work;
        let log_len = |&stream: &StreamId| work.logs[stream].as_ref().map_or(0, |log| log.len);
        Before {
            undo: self.scratch.context.mark(),
            logs: nest.streams.iter().map(log_len).collect(),
            pipelines: nest.streams.iter().map(|&stream| work.pipelines[stream].mark()).collect(),
            inputs: nest.inputs.iter().map(|&id| work.inputs[id].len).collect(),
            order: work.order.last().copied().into_iter().collect(),
            order_len: work.order.len(),
        }
    }

    /// Undoes what the transactions of a nest did.
    fn undo(&mut self, nest: &NestWiring, before: &Before) {
        #[allow(unsafe_code)]
        // SAFETY: rows do not move during access, and one worker runs all transactions of the epoch.
        unsafe {
            self.scratch.context.undo_to(&before.undo);
        }
        let work = &mut self.epoch.work;
        for ((&stream, &len), mark) in nest.streams.iter().zip(&before.logs).zip(&before.pipelines) {
            if let Some(log) = &mut work.logs[stream] {
                log.cut(len);
            }
            work.pipelines[stream].cut(mark);
        }
        for (&id, &len) in nest.inputs.iter().zip(&before.inputs) {
            work.inputs[id].cut(len);
        }
        work.order.truncate(before.order_len.saturating_sub(1));
        work.order.extend_from_slice(&before.order);
    }
}
