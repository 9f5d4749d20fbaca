//! The end of operators that are others in the program: the program that the state has recorded closes what they have open (`--end`).

use crate::job::{JobError, Watch};
use crate::state::{AsItWas, run_as_it_was};
use crate::text::count;
use std::path::Path;
use tidemill_audit::recorded_program;
use tidemill_connect::open_state_as_it_is;
use tidemill_durability::{Fit, Migration, StateDirectory, StateError};
use tidemill_io::Registry;
use tidemill_plan::Definition;
use tidemill_runtime::{RunError, open_rows, open_text};

fn refused(text: String) -> JobError {
    JobError::Run(RunError::State(StateError::Refused(text)))
}

/// Checks that operators of these names can be ended in a state. Touches nothing.
pub(crate) fn check_ends(directory: &StateDirectory, names: &[String]) -> Result<(), JobError> {
    let path = directory.path().display();
    let none = Migration::default();
    let migration = if let Fit::Migrates(migration) = directory.fit() { migration } else { &none };
    let can_end = migration.changed.iter().map(|changed| &changed.operator).chain(&migration.gone);
    let can_end: Vec<&Definition> = can_end.collect();
    for name in names {
        if !can_end.iter().any(|operator| operator.name == *name) {
            let others: Vec<&str> = can_end.iter().map(|operator| operator.name.as_str()).collect();
            let others =
                if others.is_empty() { "there is none".into() } else { format!("these are: {}", others.join(", ")) };
            return Err(refused(format!(
                "--end {name}: {path} has no window, join or other operator {name} that the program changes or drops; {others}"
            )));
        }
    }
    let program = recorded_program(directory)?;
    program.check_ended(names).map_err(|why| refused(format!("{} cannot be ended: {why}", names.join(", "))))
}

/// Has the program that a state has recorded close what operators have open; says what was done.
pub(crate) fn end_operators(
    path: &Path,
    connectors: &Registry,
    names: &[String],
    interrupted: Watch,
) -> Result<Vec<String>, JobError> {
    let directory = open_state_as_it_is(path)?;
    let operators = directory.manifest().and_then(|manifest| manifest.program.operators.clone()).unwrap_or_default();
    let operators: Vec<Definition> = operators.into_iter().filter(|operator| names.contains(&operator.name)).collect();
    let mut said = Vec::new();
    for operator in &operators {
        let text = open_text(operator, open_rows(&directory, operator)?);
        said.push(format!("{}: {text}; the program as it was has closed them", operator.shown()));
    }
    let summary = run_as_it_was(directory, connectors, AsItWas::Ends(names), interrupted)?;
    if summary.durability.is_none_or(|durability| durability.is_behind) {
        return Err(refused(format!(
            "{} has no room for a checkpoint: nothing was brought to the program",
            path.display()
        )));
    }
    let directory = open_state_as_it_is(path)?;
    for operator in &operators {
        let open = open_rows(&directory, operator)?;
        if open > 0 {
            return Err(refused(format!("{}: {} still", operator.shown(), count(open))));
        }
    }
    Ok(said)
}
