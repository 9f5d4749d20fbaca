//! What MorphStream's model decides for the workloads of its paper (2023, §6.2.2, §6.2.3), at the parameters of Table 5.

use crate::workloads::{Input, Knobs, Workload};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{BooleanArray, RecordBatch};
use tidemill_plan::analyze;
use tidemill_runtime::{Engine, Policy};
use tidemill_schedule::{Abort, Explore, Granularity, Load, Search, decide_as_morphstream};
use tidemill_txn::{Survey, Surveyor};

const STRUCTURED: Explore = Explore::Structured(Search::Dfs);

/// What is decided for batches of a workload.
struct Batches {
    engine: Engine,
    surveyor: Surveyor,
}

impl Batches {
    fn new(input: &Input) -> Batches {
        let engine = Engine::new(analyze(&input.plan).expect("a valid plan")).expect("a plan that compiles");
        for (table, rows) in input.tables.iter().enumerate() {
            engine.preload(table.into(), rows).expect("distinct keys");
        }
        Batches { engine, surveyor: Surveyor::default() }
    }

    fn survey(&mut self, events: &RecordBatch) -> Survey {
        let shape = self.engine.shape(events);
        self.surveyor.count(&shape.accesses, &shape.uses, &shape.parameters)
    }

    /// At the C of Table 5, 10 µs, with a share of aborts in the batches before.
    fn decide(&mut self, events: &RecordBatch, aborts: f64) -> Policy {
        let load = Load { access_ns: 10_000.0, units_ns: 10_000.0, other_ns: 0.0, aborts };
        decide_as_morphstream(&self.survey(events), &load)
    }
}

/// The four phases of §6.2.2, of four batches each: scattered deposits; skew grows; the share of transfers grows; the
/// share of those that abort grows. The paper: s-explore and c-schedule at first, then ns-explore, then f-schedule, then
/// l-abort instead of e-abort.
#[test]
fn morphstream_decides_for_its_phases_as_its_paper_says() {
    const EPOCHS: usize = 4;
    let defaults = Workload::LedgerPhases.defaults(1.0);
    let input = Workload::LedgerPhases.input(&Knobs { events: 4 * EPOCHS * defaults.epoch, ..defaults });
    let mut batches = Batches::new(&input);
    // Half way through each batch; of the last phase, the share of the batch before is known.
    let aborts = |batch: usize| 0.9 * ((batch as f64 - 0.5) / EPOCHS as f64 - 3.0).max(0.0);
    let batch = |batch: usize| input.events.slice(batch * defaults.epoch, defaults.epoch);
    let decided: Vec<Policy> = (0..4 * EPOCHS).map(|at| batches.decide(&batch(at), aborts(at))).collect();
    let phase = |phase: usize| &decided[phase * EPOCHS..(phase + 1) * EPOCHS];
    let (explore, granularity) = (|p: &Policy| p.explore, |p: &Policy| p.granularity);
    // 1: many logical and temporal dependencies, no parametric ones, degrees are uniform.
    assert!(phase(0).iter().all(|p| explore(p) == STRUCTURED && granularity(p) == Granularity::Chain), "{decided:?}");
    // 2: from s-explore to ns-explore, once.
    assert_eq!([explore(&phase(1)[0]), explore(&phase(1)[3])], [STRUCTURED, Explore::Unstructured], "{decided:?}");
    assert!(phase(1).is_sorted_by_key(|p| explore(p) != STRUCTURED), "{decided:?}");
    assert!(phase(1).iter().all(|p| granularity(p) == Granularity::Chain), "{decided:?}");
    // 3 and 4: from c-schedule to f-schedule, once.
    assert!(decided[2 * EPOCHS..].is_sorted_by_key(|p| granularity(p) == Granularity::Operation), "{decided:?}");
    assert_eq!(granularity(&phase(2)[3]), Granularity::Operation, "{decided:?}");
    assert!(decided[2 * EPOCHS..].iter().all(|p| explore(p) == Explore::Unstructured), "{decided:?}");
    // 4: from e-abort to l-abort, once.
    assert!(decided[..=3 * EPOCHS].iter().all(|p| p.abort == Abort::Eager), "{decided:?}");
    assert!(phase(3).is_sorted_by_key(|p| p.abort == Abort::Lazy), "{decided:?}");
    assert_eq!(phase(3)[3].abort, Abort::Lazy, "{decided:?}");
}

/// The two groups of roads of §6.2.3, half of 40,960 reports each: ns-explore, c-schedule and l-abort for the skewed one
/// in which many abort, s-explore, c-schedule and e-abort for the other.
#[test]
fn morphstream_decides_for_its_groups_as_its_paper_says() {
    let defaults = Workload::TollGroups.defaults(1.0);
    let input = Workload::TollGroups.input(&Knobs { theta: 0.9, abort: 0.5, events: defaults.epoch, ..defaults });
    let mut batches = Batches::new(&input);
    let region = input.events.column_by_name("region").expect("a field").as_primitive::<Int64Type>();
    let mut decide = |group: i64, aborts| {
        let own = BooleanArray::from_unary(region, |region| region == group);
        let events = filter(&input.events, &own);
        assert!((18_000..23_000).contains(&events.num_rows()));
        batches.decide(&events, aborts)
    };
    assert_eq!([decide(0, 0.5), decide(1, 0.0)].map(|policy| policy.to_string()), ["chain,lazy", "chain,dfs,eager"]);
}

/// Table 3: dependencies grow with the punctuation interval T, and with them what is decided (§6.4.1, §6.4.2).
#[test]
fn the_interval_matters() {
    let defaults = Workload::Ledger.defaults(1.0);
    let input = Workload::LedgerPhases.input(&Knobs { events: 4 * defaults.epoch, ..defaults });
    let mut batches = Batches::new(&input);
    let decided = [1_024, 5_120, 10_240].map(|interval| batches.decide(&input.events.slice(0, interval), 0.0));
    assert_eq!(decided.map(|policy| policy.to_string()), ["operation,eager", "operation,eager", "chain,dfs,eager"]);
}

fn filter(events: &RecordBatch, own: &BooleanArray) -> RecordBatch {
    arrow_select::filter::filter_record_batch(events, own).expect("as many flags as rows")
}
