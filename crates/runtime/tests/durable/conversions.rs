//! Migrations that convert columns by functions, against the interpreter: it runs each function on each old value.

use super::run_to_end;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use tidemill_durability::{Fit, Identity, OpenState, StateDirectory, conversion_of, taken_over};
use tidemill_histories::{DataShape, History, conversion_plans, random_data, same_rows};
use tidemill_model::arrow::rows;
use tidemill_model::{Schema, Value};
use tidemill_plan::{Conversion, Program, analyze};
use tidemill_reference::Reference;
use tidemill_runtime::{Engine, state_rows};
use tidemill_sim::SimStorage;

type Row = Vec<Value>;

/// Returns the result of a function for each value, or the reason why it fails.
fn results(conversion: &Conversion, values: &[Value]) -> Vec<Result<Value, String>> {
    let program = &conversion.program;
    let records = values.iter().zip(0..).map(|(value, number)| vec![Value::Int(number), value.clone()]).collect();
    let mut reference = Reference::new(program);
    reference.run(&[records]);
    let mut results = vec![Err("it is not there".to_owned()); values.len()];
    let number = |event: &Row| match event[0] {
        Value::Int(number) => number as usize,
        ref other => panic!("{other} is no number"),
    };
    for event in reference.output(program.sinks[0].stream) {
        results[number(event)] = Ok(event[1].clone());
    }
    for event in reference.output(program.sinks[1].stream) {
        let Some(Value::Str(reason)) = event.last() else { panic!("{event:?} has no reason") };
        results[number(event)] = Err(reason.clone());
    }
    results
}

/// Returns the rows after the migration; or, of the first column that fails, the reasons of all rows that do.
fn expected(old: &Program, new: &Program, rows: &[Row]) -> Result<Vec<Row>, Vec<String>> {
    let (before, after) = (&old.tables.raw[0], &new.tables.raw[0]);
    let mut columns: Vec<Vec<Value>> = Vec::new();
    for (column, from) in after.columns.iter().zip(taken_over(before, after)) {
        let Some(from) = from else {
            columns.push(vec![column.default.clone().expect("a new column has a default"); rows.len()]);
            continue;
        };
        let mut values: Vec<Value> = rows.iter().map(|row| row[from].clone()).collect();
        if let Some(conversion) = conversion_of(&before.columns[from], column) {
            let given: Vec<_> =
                values.iter().filter(|v| conversion.from.nullable || **v != Value::Null).cloned().collect();
            let results = results(conversion, &given);
            let reasons: Vec<String> = results.iter().filter_map(|result| result.clone().err()).collect();
            if !reasons.is_empty() {
                return Err(reasons);
            }
            let mut results = results.into_iter().map(|result| result.expect("none failed"));
            let is_given = |value: &&mut Value| conversion.from.nullable || **value != Value::Null;
            values.iter_mut().filter(is_given).for_each(|value| *value = results.next().expect("one for each"));
        }
        columns.push(values);
    }
    Ok((0..rows.len()).map(|row| columns.iter().map(|column| column[row].clone()).collect()).collect())
}

fn open(machine: &SimStorage, program: &Program) -> StateDirectory {
    let how = OpenState {
        storage: Arc::new(machine.clone()),
        path: Path::new("state"),
        holder: "a test",
        id: 77,
        program: Identity::of(program),
        recorded: None,
    };
    StateDirectory::open(how).expect("no fault")
}

/// Returns the rows of a state by their keys.
fn found(directory: &StateDirectory, program: &Program) -> Vec<Row> {
    let batch = state_rows(directory, program).expect("it reads").raw.remove(0);
    let columns = program.tables.raw[0].columns.iter().map(|column| (column.name.as_str(), column.ty));
    sorted(rows(&batch, &Schema::scalars(columns)), program)
}

fn sorted(mut rows: Vec<Row>, program: &Program) -> Vec<Row> {
    let keys = program.tables.raw[0].key.len();
    rows.sort_by_cached_key(|row| format!("{:?}", &row[..keys]));
    rows
}

/// Returns whether the rows of a seed were converted; none if there are no rows.
fn convert(seed: u64) -> Option<bool> {
    let (old, new) = conversion_plans(seed);
    let programs = [&old, &new].map(|plan| analyze(plan).unwrap_or_else(|errors| panic!("seed {seed}: {errors:#?}")));
    let (preload, _) = random_data(&programs[0], seed, DataShape::random(seed));
    let before = preload[0].1.clone();
    let machine = SimStorage::new(seed);
    run_to_end(History { plan: old, preload, sources: vec![Vec::new()] }, &machine);
    let mut directory = open(&machine, &programs[1]);
    let before = sorted(before, &programs[0]);
    assert!(same_rows(&found(&directory, &programs[0]), &before), "seed {seed}");
    let fit = directory.fit().clone();
    assert!(matches!(fit, Fit::Migrates(_)), "seed {seed}: {fit:?}");
    let migrated = Engine::new(programs[1].clone()).expect("it compiles").migrate(&mut directory, &programs[0]);
    drop(directory);
    match (expected(&programs[0], &programs[1], &before), migrated) {
        (Ok(after), Ok(())) => {
            let directory = open(&machine, &programs[1]);
            assert_eq!(directory.fit(), &Fit::Same, "seed {seed}");
            let found = found(&directory, &programs[1]);
            let after = sorted(after, &programs[1]);
            assert!(same_rows(&found, &after), "seed {seed}: {found:?} for {after:?}");
        }
        (Err(reasons), Err(error)) => {
            let text = error.to_string();
            assert!(text.contains("table things cannot be migrated: c"), "seed {seed}: {text}");
            assert!(
                reasons.iter().any(|reason| text.contains(&format!(": {reason}"))),
                "seed {seed}: {text}, {reasons:?}"
            );
            let others = match reasons.len() - 1 {
                0 => String::new(),
                1 => "; another row fails too".into(),
                others => format!("; {others} other rows fail too"),
            };
            assert!(text.ends_with(&others), "seed {seed}: {text}, {reasons:?}");
            let directory = open(&machine, &programs[0]);
            assert!(matches!(directory.fit(), Fit::Same | Fit::Changed(_)), "seed {seed}");
            assert!(same_rows(&found(&directory, &programs[0]), &before), "seed {seed}");
        }
        (expected, migrated) => panic!("seed {seed}: {migrated:?} for {expected:?}"),
    }
    (!before.is_empty()).then_some(expected(&programs[0], &programs[1], &before).is_ok())
}

#[test]
fn random_conversions() {
    let (first, total) = (crate::number("TIDEMILL_SEED", 1), crate::number("TIDEMILL_HISTORIES", 20_000) / 50);
    let start = Instant::now();
    let seeds = (first..first + total.max(1)).take_while(|_| crate::has_time_for_part(start));
    let results: Vec<bool> = seeds.filter_map(convert).collect();
    let converted = results.iter().filter(|converted| **converted).count();
    println!("{converted} of {} migrations went through", results.len());
    assert!(results.len() < 100 || (converted > results.len() / 4 && converted < results.len()), "both come about");
}
