//! The loops against the reference, and the engine against the loops, on inputs with few groups and with many windows.

use super::*;
use tidemill_model::Schema;
use tidemill_model::arrow::{batch_of, rows};
use tidemill_reference::Reference;

fn small() -> Vec<Shape> {
    // Many events of one instant; gaps between events that sessions end in; windows longer than the input.
    let shape = Shape { events: 2_000, groups: 7, theta: 0.5, rate: 100, length: 5, late: 0.0 };
    let many = Shape { groups: 400, theta: 1.5, rate: 3_000, length: 1, events: 6_000, ..shape };
    let sparse = Shape { groups: 30, theta: 0.0, rate: 1, length: 5, events: 300, ..shape };
    vec![shape, many, sparse, Shape { length: 10_000, ..shape }, Shape { late: 0.2, ..shape }]
}

#[test]
fn the_loops_and_the_engine_agree_with_the_reference() {
    for workload in WINDOW_WORKLOADS {
        let name = workload.name;
        let mut results = 0;
        // Linear Road has accidents only after many reports of the same cars.
        let long = Shape { events: 24_000, groups: 10, theta: 0.0, rate: 100, length: 20, late: 0.0 };
        for shape in small().into_iter().chain((name == "lrb").then_some(long)) {
            let query = punctual_query(workload, &shape);
            let expected = OutputDigest::of(&(query.by_map)(&query.events));
            if let Some(by_array) = &query.by_array {
                assert!(
                    OutputDigest::of(&by_array(&query.events)) == expected,
                    "{name}: the loops differ at {shape:?}"
                );
            }
            let program = analyze(&query.plan).expect("a valid plan");
            let mut reference = Reference::new(&program);
            for (table, batch) in &query.tables {
                let number = program.tables.keys().find(|&number| program.tables[number].name == *table);
                let number = number.expect("a table of the plan");
                let columns = program.tables[number].columns.iter().map(|column| (column.name.as_str(), column.ty));
                reference.preload(number, rows(batch, &Schema::scalars(columns)));
            }
            let source = program.streams.iter().find(|s| matches!(s.origin, tidemill_plan::Origin::Source { .. }));
            reference.run(&[rows(&query.events, &source.expect("a source").schema)]);
            reference.end();
            let sink = program.sinks[0].stream;
            let output = batch_of(&program.streams[sink].schema, reference.output(sink));
            results += output.num_rows();
            assert!(expected.of_batches(&[output]) == expected, "{name}: the loop is wrong at {shape:?}");
            let options = Windows::parse_from(["windows", "--workers", "1,2,3", "--epoch", "100"]);
            let mut bench = Bench::new(&options, query);
            (0..3).for_each(|way| {
                bench.run_baselines(way, workload, &shape);
                bench.run(way, workload, &shape);
            });
        }
        assert!(results > 0, "{name} gives something");
    }
}

#[test]
fn the_baselines_agree_with_the_loop_on_few_and_many_workers() {
    // Windows of many blocks and many windows of a block; few groups that all workers share, and many.
    let shape = Shape { events: 20_000, groups: 5, theta: 0.0, rate: 3_000, length: 10, late: 0.0 };
    let short = Shape { rate: 100, length: 1, ..shape };
    let many = Shape { groups: 10_000, theta: 0.5, late: 0.1, ..shape };
    for workload in WINDOW_WORKLOADS.iter().filter(|workload| workload.parallel.is_some()) {
        for shape in [shape, short, many] {
            let options = Windows::parse_from(["windows", "--workers", "1,2,3,8"]);
            let mut bench = Bench::new(&options, punctual_query(workload, &shape));
            (0..4).for_each(|way| bench.run_baselines(way, workload, &shape));
            assert!(bench.runs.iter().all(|runs| runs.baselines.iter().all(|seconds| seconds.len() == 1)));
        }
    }
}

#[test]
fn a_window_or_no_event_is_enough_for_the_baselines() {
    let options = Windows::parse_from(["windows", "--workers", "1,3"]);
    for events in [0, 1, 2] {
        let shape = Shape { events, groups: 1, theta: 0.0, rate: 1, length: 1, late: 0.0 };
        let ysb = workload("ysb").expect("a workload");
        let mut bench = Bench::new(&options, punctual_query(ysb, &shape));
        (0..2).for_each(|way| bench.run_baselines(way, ysb, &shape));
    }
}

#[test]
fn a_small_report_runs() {
    let small = ["windows", "--events", "3000", "--groups", "5,50", "--theta", "0,1.2", "--length", "2", "--runs", "1"];
    let small = || small.into_iter().chain(["--rate", "500"]);
    Windows::parse_from(small()).report();
    Windows::parse_from(small().chain(["--csv"])).report();
    let folder = std::env::temp_dir().join(format!("tidemill-bench-states-{}", std::process::id()));
    let state = folder.to_str().expect("UTF-8");
    let more = ["--workloads", "ysb,q11,ro", "--state", state, "--open-loop", "0.5"];
    Windows::parse_from(small().chain(more)).report();
    std::fs::remove_dir_all(&folder).expect("our own folder");
}

#[test]
fn only_what_a_workload_knows_is_varied() {
    let varied = ["windows", "--groups", "5,50", "--theta", "0,1", "--length", "2,3", "--rate", "7"];
    let points = |name| Windows::parse_from(varied).points(workload(name).expect("a workload"));
    assert_eq!(points("ysb").len(), 8);
    assert!(points("ysb").iter().all(|shape| shape.rate == 7));
    assert_eq!(points("q8").iter().map(|shape| shape.length).collect::<Vec<_>>(), [2, 3, 2, 3], "hot keys are its own");
    assert_eq!(points("q0").iter().map(|shape| shape.groups).collect::<Vec<_>>(), [5, 50], "it has no windows");
    let own = Windows::parse_from(["windows"]).points(workload("lrb").expect("a workload"));
    assert_eq!((own[0].groups, own[0].length, own[0].rate), (2_000, 60, 5_000));
}

#[test]
fn what_is_saved_is_the_input_and_the_results() {
    let folder = std::env::temp_dir().join(format!("tidemill-bench-windows-{}", std::process::id()));
    let path = folder.to_str().expect("UTF-8");
    let options = Windows::parse_from(["windows", "--workloads", "ysb-join", "--events", "3000", "--save", path]);
    options.report();
    let rows = |name: &str| -> usize {
        let file = std::fs::File::open(folder.join("ysb-join").join(name)).expect("it was written");
        let batches = arrow_ipc::reader::FileReader::try_new(file, None).expect("a file of Arrow IPC");
        batches.map(|batch| batch.expect("a batch").num_rows()).sum()
    };
    assert_eq!((rows("events.arrow"), rows("ads.arrow")), (3_000, 100_000));
    assert!((1..=1_000).contains(&rows("results.arrow")), "a third of the events are views");
    std::fs::remove_dir_all(&folder).expect("our own folder");
}

#[test]
fn what_makes_no_sense_is_refused() {
    for wrong in [
        ["--workloads", "q99"],
        ["--theta", "-1"],
        ["--groups", "0"],
        ["--length", "0"],
        ["--rate", "0"],
        ["--late", "2"],
        ["--baselines", "early"],
    ] {
        assert!(Windows::try_parse_from(["windows"].into_iter().chain(wrong)).is_err(), "{wrong:?}");
    }
}
