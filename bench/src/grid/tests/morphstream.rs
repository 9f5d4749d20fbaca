//! The decisions of MorphStream's model for the workloads of its paper (2023, §6.2.2, §6.2.3), at the parameters of
//! Table 5.

use crate::workloads::{Input, Knobs, Workload, event_schema};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, BooleanArray, Int64Array, ListArray, RecordBatch, StructArray};
use arrow_buffer::OffsetBuffer;
use arrow_schema::DataType;
use std::sync::Arc;
use tidemill_model::arrow::arrow_schema;
use tidemill_model::{Type, Value};
use tidemill_plan::build::{Block, PlanBuilder, TableBuilder, cell, element, event, literal, local, named};
use tidemill_plan::{Plan, analyze};
use tidemill_runtime::{Engine, Policy};
use tidemill_schedule::{Abort, Explore, Granularity, Load, Search, decide_as_morphstream};
use tidemill_txn::{Survey, Surveyor};

const STRUCTURED: Explore = Explore::Structured(Search::Dfs);

/// Decides for batches of a workload.
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

/// Returns the parameters of each transaction that has any: the place that is read, and the place that is written.
fn parameters(plan: &Plan, events: &RecordBatch) -> Vec<Vec<(u32, u32)>> {
    let engine = Engine::new(analyze(plan).expect("a valid plan")).expect("a plan that compiles");
    let shape = engine.shape(events);
    let of = |slots: &[u32]| {
        let own = shape.parameters.iter().filter(|p| (slots[0]..slots[1]).contains(&p.written));
        let mut own: Vec<_> = own.map(|p| (p.read - slots[0], p.written - slots[0])).collect();
        own.sort_unstable();
        own
    };
    shape.accesses.accesses().op_start().windows(2).map(of).filter(|own| !own.is_empty()).collect()
}

fn parameters_of(workload: Workload, knobs: Knobs) -> Vec<Vec<(u32, u32)>> {
    let input = workload.input(&Knobs { events: 200, ..knobs });
    let mut all = parameters(&input.plan, &input.events);
    all.sort();
    all.dedup();
    all
}

/// Definition 5, on the texts of transactions.
#[test]
fn writes_need_what_their_values_and_requirements_read() {
    let knobs = |workload: Workload| workload.defaults(1.0);
    // Each write needs the other row of its operation; a requirement reads the first row.
    let gs = Knobs { length: 2, accesses: 2, ..knobs(Workload::GrepSum) };
    assert_eq!(parameters_of(Workload::GrepSum, gs), [[(0, 2), (1, 0), (3, 2)]]);
    // A transfer, which requires enough of an account and an asset.
    let transfer = [(0, 1), (0, 2), (0, 3), (1, 0), (1, 2), (1, 3)];
    assert_eq!(parameters_of(Workload::Ledger, knobs(Workload::Ledger)), [transfer]);
    // The fact that a vehicle was seen decides about the count, and nothing about what was seen.
    assert_eq!(parameters_of(Workload::Toll, knobs(Workload::Toll)), [[(1, 0)]]);
    // Twenty rows that are written each for itself.
    assert_eq!(parameters_of(Workload::Bidding, knobs(Workload::Bidding)), [[(0, 0); 0]; 0]);
}

/// Returns a list of two lines, each of which names an item and another one, beside a total.
fn over_lines(body: impl FnOnce(&mut Block)) -> Vec<(u32, u32)> {
    let table =
        |name: &'static str| move |t: TableBuilder| t.key("id", Type::Int).column_or(name, Type::Int, Value::Int(0));
    let plan = PlanBuilder::new("lines")
        .table("items", table("price"))
        .table("others", table("price"))
        .table("totals", table("sum"))
        .source("events", |s| {
            s.field("total", Type::Int).nested("lines", [("item", Type::Int.into()), ("other", Type::Int.into())])
        })
        .transaction("alter", [named("events")], |t| {
            t.row("item", "items", [element("lines", "item")])
                .over("lines")
                .read("other", "others", [element("lines", "other")])
                .over("lines")
                .read("total", "totals", [event("total")])
                .body(body)
        })
        .build();
    let schema = arrow_schema(&event_schema(&plan));
    let DataType::List(item) = schema.field(1).data_type() else { panic!("a list") };
    let DataType::Struct(fields) = item.data_type() else { panic!("a list of structs") };
    let columns = [[1, 2], [3, 4]].map(|column| Arc::new(Int64Array::from(column.to_vec())) as ArrayRef);
    let lines = StructArray::new(fields.clone(), columns.into(), None);
    let lines = ListArray::new(item.clone(), OffsetBuffer::from_lengths([2]), Arc::new(lines), None);
    let total = Arc::new(Int64Array::from(vec![9])) as ArrayRef;
    let events = RecordBatch::try_new(schema, vec![total, Arc::new(lines)]).expect("columns of the schema");
    parameters(&plan, &events).into_iter().next().unwrap_or_default()
}

/// Items are in places 0 and 1, others in 2 and 3, the total in 4.
#[test]
fn writes_of_elements_need_their_own_rows_if_elements_are_apart() {
    let apart = over_lines(|b| {
        b.for_each("line", "lines", |b| {
            b.set("item", "price", cell("item", "price") + cell("other", "price") + cell("total", "sum"));
        });
    });
    assert_eq!(apart, [(2, 0), (3, 1), (4, 0), (4, 1)]);
    // A sum over all elements so far.
    let together = over_lines(|b| {
        b.assign("sum", literal(0));
        b.for_each("line", "lines", |b| {
            b.assign("sum", local("sum") + cell("item", "price"));
            b.set("item", "price", local("sum"));
        });
    });
    assert_eq!(together, [(0, 1), (1, 0)]);
    // A requirement on each element decides about all of them.
    let required = over_lines(|b| {
        b.for_each("line", "lines", |b| {
            b.require(cell("other", "price").ge(0), "negative");
            b.set("item", "price", cell("item", "price") + 1);
        });
    });
    assert_eq!(required, [(2, 0), (2, 1), (3, 0), (3, 1)]);
}

fn filter(events: &RecordBatch, own: &BooleanArray) -> RecordBatch {
    arrow_select::filter::filter_record_batch(events, own).expect("as many flags as rows")
}
