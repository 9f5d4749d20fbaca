//! The loops against the reference, and the engine against the loops, on inputs where much meets and aborts.

use super::*;
use crate::session::{Seen, Session, run_engine, run_plain};
use crate::workloads::{Input, PARTITIONS, state_digest};
use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use std::collections::{BTreeMap, BTreeSet};
use tidemill_model::Value;
use tidemill_model::arrow::rows;
use tidemill_plan::{Program, TableId, analyze};
use tidemill_reference::Reference;
use tidemill_runtime::Engine;

fn small(workload: Workload) -> Vec<Knobs> {
    let knobs = Knobs { rows: 60, theta: 0.6, abort: 0.2, work: 2, epoch: 64, events: 1_000, ..workload.defaults(1.0) };
    match workload {
        Workload::GrepSum => {
            let shapes = [(1, 1), (1, 3), (4, 1), (3, 2)];
            let mut all = shapes.map(|(length, accesses)| Knobs { length, accesses, ..knobs }).to_vec();
            all.push(Knobs { length: 2, accesses: 2, multiple: 0.4, reads: 0.2, ..knobs });
            all.push(Knobs { accesses: 2, acyclic: true, multiple: 0.0, ..knobs });
            all.push(Knobs { length: 4, accesses: 1, mixed: true, ..knobs });
            all.push(Knobs { length: 3, accesses: 2, mixed: true, reads: 0.3, ..knobs });
            all.push(Knobs { length: 2, accesses: 1, mixed: true, reads: 1.0, ..knobs });
            all.push(Knobs { length: 4, accesses: 1, across: 0.5, partitions: 3, rows: 600, ..knobs });
            all
        }
        Workload::Bidding => [1, 5].map(|length| Knobs { length, ..knobs }).into(),
        _ => vec![knobs, Knobs { rows: 3, work: 0, ..knobs }],
    }
}

/// Returns the rows that a table begins with; its windows, which are its last columns, are empty.
fn first_rows(program: &Program, table: TableId, batch: &RecordBatch) -> Vec<Vec<Value>> {
    let (plain, windows): (Vec<_>, Vec<_>) = program.tables[table].columns.iter().partition(|c| c.window.is_none());
    let schema = tidemill_model::Schema::scalars(plain.iter().map(|c| (c.name.as_str(), c.ty)));
    let mut rows = rows(batch, &schema);
    rows.iter_mut().for_each(|row| row.extend(windows.iter().map(|_| Value::Bytes(Vec::new()))));
    rows
}

/// Runs the reference on an input. Returns digests of what the loop gives out.
fn run_reference(input: &Input, expected: &Seen) -> Seen {
    let program = analyze(&input.plan).expect("a valid plan");
    let mut reference = Reference::new(&program);
    for (table, batch) in input.tables.iter().enumerate() {
        reference.preload(table.into(), first_rows(&program, table.into(), batch));
    }
    let source = program.streams.iter().find(|s| matches!(s.origin, tidemill_plan::Origin::Source { .. }));
    reference.run(&[rows(&input.events, &source.expect("a source").schema)]);
    let outputs = expected.outputs.iter().zip(&program.sinks).map(|(loops, sink)| {
        let schema = &program.streams[sink.stream].schema;
        loops.of_batches(&[tidemill_model::arrow::batch_of(schema, reference.output(sink.stream))])
    });
    let outputs = outputs.collect();
    let ints = |rows: Vec<Vec<Value>>| rows.iter().map(|row| row.iter().filter_map(Value::word).collect()).collect();
    let tables = state_digest(program.tables.keys().map(|table| ints(reference.table(table))));
    Seen { outputs, tables }
}

#[test]
fn the_loops_and_the_engine_agree_with_the_reference() {
    for (name, workload) in WORKLOADS {
        for knobs in small(workload) {
            let input = workload.input(&knobs);
            let (_, expected) = run_plain(&input);
            assert!(run_reference(&input, &expected) == expected, "{name}: the loop is wrong at {knobs:?}");
            let mut engine = Engine::new(analyze(&input.plan).expect("a valid plan")).expect("a plan that compiles");
            let policies = Policy::all().into_iter().map(Scheduling::Fixed);
            let by_group = "chain+operation,lazy".parse().expect("a policy for each group");
            let policies = policies.chain([Scheduling::Auto, Scheduling::MorphStream, by_group]);
            for scheduling in policies.chain(Scheme::ALL.map(Scheduling::Baseline)) {
                let seen;
                let epoch = EpochSize::Events(knobs.epoch);
                let options = Options { workers: 2, scheduling, epoch, ..Options::default() };
                let arrival = Arrival::WhenThereIsRoom { size: knobs.epoch };
                (engine, _, seen) = run_engine(engine, &input, options, arrival, &expected);
                let keeps_order = !matches!(scheduling, Scheduling::Baseline(scheme) if !scheme.keeps_order());
                let is_right = seen == expected || !keeps_order;
                assert!(is_right, "{name}: {scheduling:?} differs from the loop at {knobs:?}");
            }
        }
    }
}

/// PAT's turns are those of the engine's partitions, which the workloads draw their keys from.
#[test]
fn transactions_are_on_as_many_partitions_as_was_asked_for() {
    for workload in [Workload::GrepSum, Workload::Ledger, Workload::Bidding] {
        let length = if workload == Workload::Ledger { 1 } else { 10 };
        for (across, partitions, share) in [(0.0, 4, 0.0), (0.5, 4, 0.5), (1.0, 6, 1.0), (0.5, 1, 0.0)] {
            let knobs = Knobs { rows: 10_000, length, accesses: 1, across, partitions, ..workload.defaults(1.0) };
            let input = workload.input(&Knobs { events: 4_000, epoch: 4_000, ..knobs });
            let engine = Engine::new(analyze(&input.plan).expect("a valid plan")).expect("a plan that compiles");
            let shape = engine.shape(&input.events);
            let mut counts = BTreeMap::new();
            for slots in shape.accesses.accesses().op_start().windows(2) {
                let of = shape.key_hashes[slots[0] as usize..slots[1] as usize].iter().map(|hash| hash % PARTITIONS);
                let of: BTreeSet<u64> = of.collect();
                *counts.entry((slots[1] - slots[0], of.len())).or_insert(0) += 1;
            }
            for rows in counts.keys().map(|(rows, _)| *rows).filter(|rows| *rows > 1).collect::<BTreeSet<u32>>() {
                let all: u32 = counts.iter().filter(|((of, _), _)| *of == rows).map(|(_, count)| count).sum();
                let several = partitions.min(rows as usize);
                let on = |partitions: usize| f64::from(*counts.get(&(rows, partitions)).unwrap_or(&0)) / f64::from(all);
                let what = format!("{workload:?}, {rows} rows, {across} on {partitions}: {counts:?}");
                assert!((on(1) - (1.0 - share)).abs() < 0.05, "{what}");
                assert!(several == 1 || (on(several) - share).abs() < 0.05, "{what}");
                assert!(several == 1 || (on(1) + on(several) - 1.0).abs() < 1e-9, "{what}");
            }
        }
    }
}

/// TStream redoes an epoch for each transaction that aborts, also where it has one operation.
#[test]
fn tstream_pays_for_aborts_of_transactions_of_one_operation() {
    let paid = |abort: f64| {
        let knobs =
            Knobs { rows: 1_000, abort, work: 100, epoch: 500, events: 4_000, ..Workload::GrepSum.defaults(1.0) };
        let mut session = Session::new(Workload::GrepSum, Knobs { accesses: 1, length: 1, ..knobs });
        session.run_loop();
        let ran = session.run_recorded(Way { scheduling: Scheduling::Baseline(Scheme::TStream), workers: 2 }).0;
        ran.summary.access_seconds.abort
    };
    assert_eq!(paid(0.0), 0.0);
    assert!(paid(0.5) > 0.0);
}

#[test]
fn inputs_have_aborts_of_the_share_that_was_asked_for() {
    for (name, workload) in WORKLOADS {
        for abort in [0.0, 0.5] {
            let knobs = Knobs { abort, events: 4_000, rows: 1_000, work: 0, ..workload.defaults(1.0) };
            let outputs = (workload.input(&knobs).plain)().run(&workload.input(&knobs).events);
            let rejected = outputs.last().expect("all have the aborts last")[0].1.len() as f64 / 4_000.0;
            // The events that can abort are a part of all: half the writes and transfers, six bids of eight, all
            // reports.
            let expected = match workload {
                Workload::GrepSum | Workload::Ledger => 0.5 * abort,
                Workload::Bidding => 0.75 * abort,
                Workload::Toll | Workload::TollWindows => abort,
                // Half of the reports are of a group in which none do.
                Workload::TollGroups => 0.5 * abort,
                // Not by the knob: from none to 90 % in the last quarter.
                Workload::LedgerPhases => 0.25 * 0.45,
            };
            assert!((rejected - expected).abs() < 0.03, "{name}: {rejected} of all events abort, not {expected}");
        }
    }
}

/// Each of a transfer's two requirements decides about the other three of its writes; a deposit requires nothing. Nearly
/// all rows were written before in the same epoch.
#[test]
fn a_transfer_has_six_parametric_dependencies_in_the_records_of_epochs() {
    let knobs =
        Knobs { rows: 200, theta: 0.0, work: 100, epoch: 4_096, events: 16_384, ..Workload::Ledger.defaults(1.0) };
    let mut session = Session::new(Workload::Ledger, knobs);
    session.run_loop();
    let (_, records) = session.run_recorded(Way { scheduling: Scheduling::MorphStream, workers: 2 });
    let edges = records.iter().flat_map(|batch| {
        let column = batch.column_by_name("parametric_edges").expect("a column of records");
        column.as_primitive::<Float64Type>().iter().flatten().collect::<Vec<_>>()
    });
    let edges: Vec<f64> = edges.collect();
    assert!(!edges.is_empty(), "no epoch was surveyed");
    assert!(edges.iter().all(|edges| (2.5..3.2).contains(edges)), "half of the events are transfers: {edges:?}");
}

mod morphstream;

#[test]
fn a_small_grid_runs() {
    let grid = [
        "grid",
        "--workloads",
        "gs,sl",
        "--events",
        "500",
        "--epoch",
        "100,200",
        "--policies",
        "auto chain,eager",
        "--schemes",
        "all",
    ];
    Grid::parse_from(grid).report();
}
