//! The store against a map: rows that change, are deleted and are inserted again, over many runs and merges.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use tidemill_durability::store::{Runs, StoredRun, due};
use tidemill_durability::{
    Checkpoint, Fit, Identity, NodeRange, OpenState, Recorded, StateDirectory, StateError, TableState, replace,
};
use tidemill_histories::Random;
use tidemill_model::{Type, Value};
use tidemill_plan::build::{PlanBuilder, event, named};
use tidemill_plan::{Column, JoinBound, JoinDef, JoinHow, Keep, Plan, Slices, Table, Window, WindowsDef, analyze};
use tidemill_sim::{Fault, SimStorage};
use tidemill_state::{EXISTS, Image, NOWHERE, RowShape, virtual_node_of};

/// A header, a key of a number and a text, a number, a text.
fn shape() -> Arc<RowShape> {
    Arc::new(RowShape { words: 5, key: vec![1, 2], texts: vec![2, 4] })
}

type Key = (u64, String);
type Model = BTreeMap<Key, Option<(u64, String)>>;

fn image(rows: &Model) -> Image {
    let mut image = Image::new(&shape());
    for ((number, text), value) in rows {
        let (value, other) = value.clone().unwrap_or_default();
        let header = if rows[&(*number, text.clone())].is_some() { EXISTS } else { 0 };
        let texts = |word| if word == 2 { text.as_bytes() } else { other.as_bytes() };
        image.push([header, *number, 0, value, 0], texts);
    }
    image.newest()
}

fn rows(image: &Image) -> Model {
    let text = |row, word| String::from_utf8(image.text(row, word).to_vec()).expect("UTF-8");
    let value = |row: usize| image.exists(row).then(|| (image.row(row)[3], text(row, 4)));
    (0..image.len()).map(|row| ((image.row(row)[1], text(row, 2)), value(row))).collect()
}

fn program() -> Identity {
    Identity {
        version: 1,
        application: "a".into(),
        tables: Vec::new(),
        sources: Vec::new(),
        code: 0,
        operators: None,
        retired: vec![],
    }
}

fn directory(storage: &SimStorage) -> StateDirectory {
    let (program, storage) = (program(), Arc::new(storage.clone()));
    let path = Path::new("state");
    StateDirectory::open(OpenState { storage, path, holder: "a test", id: 7, program, recorded: None })
        .expect("it opens")
}

fn all(runs: &Runs) -> Model {
    let parts: Vec<Model> = runs.parts().map(|part| rows(&runs.read(&part).expect("it reads"))).collect();
    let model: Model = parts.iter().flatten().map(|(key, value)| (key.clone(), value.clone())).collect();
    assert_eq!(model.len(), parts.iter().map(Model::len).sum::<usize>(), "each key is in one part");
    model
}

#[test]
fn a_store_is_a_map() {
    let mut random = tidemill_histories::Random::new(5);
    let storage = SimStorage::new(1);
    let mut directory = directory(&storage);
    let mut model = Model::new();
    let mut live: Vec<StoredRun> = Vec::new();
    let mut merges = 0;
    for round in 0..60 {
        let mut changed = Model::new();
        for _ in 0..1 + random.below(3_000) {
            let key = random.below(5_000) as u64;
            let text = if key.is_multiple_of(3) { String::new() } else { format!("key {key}") };
            let value = random.chance(70).then(|| (random.bits(), "x".repeat(random.below(20))));
            changed.insert((key, text), value);
        }
        let mut writer = directory.write_run(&shape(), (!live.is_empty()).then_some(changed.len())).expect("room");
        writer.push(&image(&changed)).expect("room");
        live.push(writer.finish().expect("room").run().clone());
        model.extend(changed.clone());
        if let Some(first) = due(&live) {
            let old = live.split_off(first);
            let runs = directory.runs(&old, &shape(), "t").expect("they open");
            let into = directory.write_run(&shape(), (first > 0).then_some(runs.rows() as usize)).expect("room");
            let merged = runs.merge(into, first == 0).expect("room");
            live.push(merged.finish().expect("room").run().clone());
            if first == 0 {
                assert_eq!(live[0].deletions, 0, "the oldest run has no deletions");
            }
            merges += 1;
        }
        if round % 7 > 0 {
            continue;
        }
        let runs = directory.runs(&live, &shape(), "t").expect("they open");
        let existing = |model: Model| model.into_iter().filter(|(_, value)| value.is_some()).collect::<Model>();
        assert_eq!(existing(all(&runs)), existing(model.clone()), "round {round}");
        // Looks up some keys, half of which never existed.
        let sought: Model = (0..500)
            .map(|_| random.below(10_000) as u64)
            .map(|key| ((key, if key.is_multiple_of(3) { String::new() } else { format!("key {key}") }), None))
            .collect();
        let expected = existing(sought.keys().filter_map(|key| Some((key.clone(), model.get(key)?.clone()))).collect());
        let keys = image(&sought);
        let found = runs.get(&keys).expect("it reads");
        assert_eq!(rows(&found.rows), expected, "round {round}");
        let has_key =
            |(key, &place): (usize, &u32)| place == NOWHERE || keys.same_key(key, &found.rows, place as usize);
        assert!(found.places.iter().enumerate().all(has_key), "a row is that of its key");
        let count = found.places.iter().filter(|place| **place != NOWHERE).count();
        assert_eq!(count, expected.len(), "every row has a key");
    }
    assert!(merges > 10 && live.len() < 10, "{merges} merges, {} runs", live.len());
}

#[test]
fn damage_is_found() {
    let storage = SimStorage::new(1);
    let mut directory = directory(&storage);
    let model: Model = (0..40).map(|key| ((key, format!("k{key}")), Some((key, "text".into())))).collect();
    let mut writer = directory.write_run(&shape(), Some(model.len())).expect("room");
    writer.push(&image(&model)).expect("room");
    let run = writer.finish().expect("room").run().clone();
    let (path, bytes) = storage.files().into_iter().find(|(path, _)| path.ends_with("00000001.rows")).expect("a file");
    for byte in 0..bytes.len() {
        storage.flip(&path, byte, 1);
        let runs = directory.runs(std::slice::from_ref(&run), &shape(), "t");
        let read = runs.and_then(|runs| runs.read(&(0..256)));
        assert!(read.is_err(), "byte {byte}");
        storage.flip(&path, byte, 1);
    }
    let runs = directory.runs(&[run], &shape(), "t").expect("it opens");
    assert_eq!(all(&runs), model);
}

/// Runs of random changes: the resulting rows, and the runs as a manifest names them.
fn random_runs(random: &mut Random, directory: &mut StateDirectory) -> (Model, Vec<StoredRun>) {
    let (mut model, mut live) = (Model::new(), Vec::new());
    for _ in 0..1 + random.below(4) {
        let mut changed = Model::new();
        for _ in 0..1 + random.below(2_000) {
            let key = random.below(3_000) as u64;
            let value = random.chance(70).then(|| (random.bits(), "x".repeat(random.below(20))));
            changed.insert((key, format!("key {key}")), value);
        }
        let mut writer = directory.write_run(&shape(), (!live.is_empty()).then_some(changed.len())).expect("room");
        writer.push(&image(&changed)).expect("room");
        live.push(writer.finish().expect("room").run().clone());
        model.extend(changed);
    }
    (model, live)
}

/// Cuts all nodes into ranges at random.
fn ranges(random: &mut Random) -> Vec<NodeRange> {
    let mut cuts: BTreeSet<usize> = (0..random.below(6)).map(|_| 1 + random.below(255)).collect();
    cuts.extend([0, 256]);
    let cuts: Vec<usize> = cuts.into_iter().collect();
    cuts.windows(2).map(|cut| NodeRange::new(cut[0]..cut[1]).expect("a range")).collect()
}

/// Returns all rows of some runs, in their order, as their words and texts.
fn in_order(runs: &Runs) -> Vec<(Vec<u64>, Vec<Vec<u8>>)> {
    let mut all = Vec::new();
    for part in runs.parts() {
        let rows = runs.read(&part).expect("it reads");
        for row in 0..rows.len() {
            assert!(part.contains(&virtual_node_of(rows.hash(row))), "a row of another part");
            let words = rows.row(row).iter().enumerate().filter(|(word, _)| ![2, 4].contains(word));
            let texts = [2, 4].map(|word| rows.text(row, word).to_vec());
            all.push((words.map(|(_, word)| *word).collect(), texts.to_vec()));
        }
    }
    all
}

#[test]
fn ranges_of_nodes_make_up_the_whole() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let storage = SimStorage::new(seed);
        let mut directory = directory(&storage);
        let (model, live) = random_runs(&mut random, &mut directory);
        let whole = in_order(&directory.runs(&live, &shape(), "t").expect("they open"));
        let tables = vec![TableState { runs: live }];
        directory.begin(Checkpoint { epoch: 3, tables, ..Checkpoint::default() }).expect("room");
        let written = storage.files().len();
        let (mut union, mut rewritten) = (Vec::new(), Vec::new());
        for (number, nodes) in ranges(&mut random).into_iter().enumerate() {
            let savepoint = directory.create_savepoint_of(&format!("part-{number}"), nodes).expect("room");
            let part = directory.open_savepoint_part(&savepoint).expect("it opens");
            let runs = part.runs(&part.checkpoint().expect("it has one").tables[0].runs, &shape(), "t");
            let runs = runs.expect("they open");
            assert_eq!(runs.nodes(), nodes);
            union.extend(in_order(&runs));
            // A lookup finds only the keys of these nodes.
            let keys = image(&model);
            let found = runs.get(&keys).expect("it reads");
            for (row, place) in found.places.iter().enumerate() {
                let exists = model[&rows_key(&keys, row)].is_some();
                assert_eq!(*place != NOWHERE, exists && nodes.has_hash(keys.hash(row)), "seed {seed}, {nodes}");
            }
            // A merge of these nodes alone gives a run with the same rows.
            let into = directory.write_run(&shape(), None).expect("room").of_nodes(nodes);
            let alone = runs.merge(into, true).expect("room").finish().expect("room");
            assert_eq!(alone.run().nodes, nodes);
            rewritten.push(alone.run().clone());
        }
        assert_eq!(union, whole, "seed {seed}");
        assert!(storage.files().len() > written, "savepoints were made");
        let runs = directory.runs(&rewritten, &shape(), "t").expect("they open");
        assert_eq!(runs.nodes(), NodeRange::default());
        let existing: Vec<_> = whole.into_iter().filter(|(words, _)| words[0] & EXISTS != 0).collect();
        assert_eq!(in_order(&runs), existing, "seed {seed}");
    }
}

fn rows_key(keys: &Image, row: usize) -> Key {
    (keys.row(row)[1], String::from_utf8(keys.text(row, 2).to_vec()).expect("UTF-8"))
}

#[test]
fn no_run_goes_on_from_some_nodes() {
    let storage = SimStorage::new(1);
    let mut directory = directory(&storage);
    directory.begin(Checkpoint::default()).expect("room");
    let nodes = NodeRange::new(0..64).expect("a range");
    let savepoint = directory.create_savepoint_of("part", nodes).expect("room");
    let refused = |result: Result<(), StateError>| result.expect_err("it has some rows only").to_string();
    let part = "savepoint 'part' has the rows of virtual nodes 0 to 63 only; ";
    assert_eq!(refused(directory.open_savepoint(&savepoint).map(drop)), format!("{part}this needs those of all"));
    assert_eq!(refused(directory.restore_savepoint("part")), format!("{part}a state goes on from those of all"));
    assert!(!directory.has_log_after(&savepoint), "it keeps no log");
    let how = OpenState {
        storage: Arc::new(storage.clone()),
        path: &savepoint.path,
        holder: "a test",
        id: 7,
        program: program(),
        recorded: None,
    };
    let expected =
        "the state state/savepoint/part has the rows of virtual nodes 0 to 63 only; a run needs those of all";
    assert_eq!(refused(StateDirectory::open(how).map(drop)), expected);
}

/// A savepoint that is there stays, also one whose making failed at the last sync: a state that is opened makes durable
/// what it shows.
#[test]
fn a_savepoint_that_is_there_stays() {
    let mut stayed = 0;
    for seed in 0..20 {
        for call in 0..30 {
            let storage = SimStorage::new(seed);
            let mut state = directory(&storage);
            state.begin(Checkpoint::default()).expect("room");
            storage.fail(storage.call_count() + call, Fault::Refused(ErrorKind::Other));
            let is_made = state.create_savepoint("kept").is_ok();
            storage.heal();
            drop(state);
            storage.kill();
            let is_there = directory(&storage).savepoint("kept").is_ok();
            assert!(is_there || !is_made, "seed {seed}: it was made");
            storage.cut_power();
            let stays = directory(&storage).savepoint("kept").is_ok();
            assert_eq!(stays, is_there, "seed {seed}: call {call} failed");
            stayed += usize::from(stays && !is_made);
        }
    }
    assert!(stayed > 0, "none was there whose making failed");
}

#[test]
fn a_state_of_a_format_before_is_read() {
    let storage = SimStorage::new(1);
    let mut directory = directory(&storage);
    let (_, runs) = random_runs(&mut Random::new(1), &mut directory);
    let checkpoint = Checkpoint { epoch: 3, tables: vec![TableState { runs }], ..Checkpoint::default() };
    directory.begin(checkpoint.clone()).expect("room");
    let now = manifest_text(&storage);
    assert!(!now.contains("nodes"), "without ranges it says what version 5 says: {now}");
    drop(directory);
    for (format, is_read) in [(4, false), (5, true), (6, true), (7, true), (FORMAT, true), (FORMAT + 1, false)] {
        set_format(&storage, &now, format);
        let read = StateDirectory::open_as_it_is(Arc::new(storage.clone()), Path::new("state"), "a test");
        match read {
            Ok(directory) => {
                // The numbers that a state of before has given out are below all places.
                let passed_before = if format < FORMAT { 1 << 48 } else { 0 };
                let expected = Checkpoint { passed_before, ..checkpoint.clone() };
                assert_eq!(directory.checkpoint(), Some(&expected).filter(|_| is_read));
            }
            Err(error) => {
                assert!(!is_read, "{error}");
                let expected = format!(
                    "state has version {format} of the format; this version of tidemill reads versions 5 to {FORMAT}"
                );
                assert_eq!(error.to_string(), expected);
            }
        }
    }
}

#[test]
fn a_state_whose_windows_were_kept_otherwise_is_refused() {
    let slices = Slices { count: 2, slide: 10, time: Type::Int };
    let rounded = "whose sums and means are rounded otherwise from version 7 on";
    let ordered = "whose different values are in another order from version 10 on";
    let windows = [
        (Type::Float, Keep::Slices(slices), 7, rounded),
        (Type::Float, Keep::Last(3), 7, rounded),
        (Type::Int, Keep::Slices(slices), 7, rounded),
        (Type::Int, Keep::Distinct(slices), 10, ordered),
        (Type::Time, Keep::Distinct(slices), 10, ordered),
        (Type::Str, Keep::Distinct(slices), 5, ""),
        (Type::Time, Keep::Slices(slices), 5, ""),
        (Type::Str, Keep::Last(3), 5, ""),
    ];
    for (value, keep, read_from, why) in windows {
        let column = |name: &str, ty: Type, window| Column { window, ..Column::new(name, ty) };
        let columns = vec![column("id", Type::Int, None), column("w", Type::Bytes, Some(Window { value, keep }))];
        let table = Table {
            name: "t".into(),
            columns,
            key: vec![0],
            indexes: vec![],
            groups: None,
            was: None,
            expire: None,
            is_hidden: false,
            owner: None,
        };
        let program = Identity { tables: vec![table], ..program() };
        let storage = SimStorage::new(1);
        let how = OpenState {
            storage: Arc::new(storage.clone()),
            path: Path::new("state"),
            holder: "a test",
            id: 7,
            program,
            recorded: None,
        };
        let mut directory = StateDirectory::open(how).expect("it opens");
        directory.begin(Checkpoint { tables: vec![TableState::default()], ..Checkpoint::default() }).expect("room");
        drop(directory);
        let now = manifest_text(&storage);
        for format in 6..=FORMAT {
            set_format(&storage, &now, format);
            let read = StateDirectory::open_as_it_is(Arc::new(storage.clone()), Path::new("state"), "a test");
            let refused = read.err().map(|error| error.to_string());
            let expected = format!(
                "state has version {format} of the format and the windowed column t.w, {why}; begin a new state, or go on with the \
                 version of tidemill that wrote it"
            );
            assert_eq!(refused, Some(expected).filter(|_| format < read_from), "{value} {keep:?}");
        }
    }
}

/// Returns a window over the events of a source, by a number.
fn windows() -> Plan {
    let tumbling = WindowsDef::Tumbling { length: Value::Int(10), origin: 0 };
    PlanBuilder::new("a")
        .source("events", |s| s.event_time("at", Type::Int).field("x", Type::Int))
        .window("w", named("events"), [("x", event("x"))], tumbling, |b| b.give([("end", event("end"))]))
        .build()
}

/// Returns an outer join of the events of a source with themselves.
fn joined() -> Plan {
    let mut plan = PlanBuilder::new("a")
        .source("events", |s| s.event_time("at", Type::Int).field("x", Type::Int))
        .transaction("j", [named("events"), named("events")], |t| t.body(|b| b.give([("x", event("p.x"))])))
        .build();
    let on = vec![(event("x"), event("x"))];
    let (bound, how) = (JoinBound::Within(Value::Int(10)), JoinHow::Outer);
    plan.transactions[0].join = Some(JoinDef { left: "p".into(), right: Some("a".into()), on, bound, how });
    plan
}

/// Before version 13 a hidden table numbered the groups of each window, and before version 14 what waits in a join. It goes with
/// the opening; all else stays, and the state is the program's. Places that come are greater than all numbers. Where the program
/// is not recorded, the operator is another.
#[test]
fn numbers_of_groups_and_of_what_waits_go_from_a_state_of_a_format_before() {
    for (plan, operator, format) in [(windows(), "window w", 12), (joined(), "join j", 12), (joined(), "join j", 13)] {
        for is_recorded in [true, false] {
            numbers_go(&plan, operator, format, is_recorded);
        }
    }
}

fn numbers_go(plan: &Plan, operator: &str, format: u32, is_recorded: bool) {
    let program = Identity::of(&analyze(plan).expect("a valid plan"));
    let name = operator.split_once(' ').expect("a kind and a name").1;
    assert!(program.tables.iter().all(|table| table.name != format!("{name}.order")), "nothing numbers them");
    let int = |name: &str| Column::new(name, Type::Int);
    let columns = vec![int("one"), int("n")];
    let numbers = Table { name: format!("{name}.order"), columns, key: vec![0], ..program.tables[0].clone() };
    let tables: Vec<Table> = program.tables.iter().cloned().chain([numbers]).collect();
    let before = Identity { tables, code: program.code ^ 1, ..program.clone() };
    let recorded =
        is_recorded.then(|| Recorded { plan: plan.clone(), sources: Default::default(), sinks: Default::default() });
    let storage = SimStorage::new(1);
    let open = |program: &Identity| {
        StateDirectory::open(OpenState {
            storage: Arc::new(storage.clone()),
            path: Path::new("state"),
            holder: "a test",
            id: 7,
            program: program.clone(),
            recorded: recorded.clone(),
        })
    };
    let mut directory = open(&before).expect("it opens");
    directory.hash_runs();
    let (_, runs) = random_runs(&mut Random::new(1), &mut directory);
    let of_numbers = TableState { runs: vec![runs[0].clone()] };
    let of_tables = vec![TableState { runs }; program.tables.len()];
    let tables = of_tables.iter().cloned().chain([of_numbers]).collect();
    let proof = Some(directory.first_proof(3));
    directory.begin(Checkpoint { epoch: 3, tables, proof, ..Checkpoint::default() }).expect("room");
    assert!(directory.checkpoint().is_some_and(|c| c.proof.is_some_and(|proof| proof.root.is_some())));
    drop(directory);
    set_format(&storage, &manifest_text(&storage), format);
    let directory = open(&program).expect("it opens");
    let checkpoint = directory.checkpoint().expect("the checkpoint");
    assert_eq!(checkpoint.passed_before, 1 << 48, "{operator}: places are greater than numbers");
    match directory.fit() {
        Fit::Same => {
            assert!(is_recorded, "{operator} is another");
            assert_eq!(checkpoint.tables, of_tables);
            assert_eq!(checkpoint.proof.and_then(|proof| proof.root), checkpoint.root());
        }
        Fit::Migrates(migration) => {
            assert!(!is_recorded && migration.begins_anew(&program.tables[0].name), "{operator} is known");
            let why = format!(
                "{operator}: what it keeps of events is another: table {name}.order is in the state, not in the program"
            );
            assert_eq!(migration.lines().collect::<Vec<_>>(), [&why]);
        }
        other => panic!("{other:?}"),
    }
}

/// The version of the format that is written.
const FORMAT: u32 = 14;

/// Returns the manifest without its first line.
fn manifest_text(storage: &SimStorage) -> String {
    let bytes = storage.files().into_iter().find(|(path, _)| path.ends_with("manifest")).expect("a manifest").1;
    String::from_utf8(bytes).expect("text").split_once('\n').expect("a first line").1.to_owned()
}

/// Writes a manifest of this version as one of another.
fn set_format(storage: &SimStorage, now: &str, format: u32) {
    let this = format!("\"format\":{FORMAT}");
    assert!(now.contains(&this), "{now}");
    let other = now.replace(&this, &format!("\"format\":{format}"));
    let whole = format!("tidemill state {:016x}\n{other}", xxhash_rust::xxh3::xxh3_64(other.as_bytes()));
    replace(storage, Path::new("state/manifest"), whole.as_bytes()).expect("room");
}
