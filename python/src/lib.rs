//! The native module of the Python package: plans in and out as JSON, rows as Arrow.
//!
//! Only `tidemill/_engine.py` and `tidemill/__main__.py` call it. What lives here is conversion at
//! the border; anything that another front end could want belongs in a crate.

mod arrow;
mod command;
mod declaration;
mod edges;
mod frame;
mod own;
mod plan;
mod queries;
mod reading;
mod recall;
mod records;
mod run;
mod server;
mod session;
mod values;

use plan::read_plan;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tidemill_plan::{Program, Stream};

/// Batches come and go with every epoch, and are freed by other threads than those that made them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Checks and types a plan: `{"program": {"streams": [...]}}`, each stream with its name, its schema and
/// the field that is its event time, if one is; or `{"errors": [...]}`.
#[pyfunction]
fn analyze(plan_json: &str) -> PyResult<String> {
    let answer = match tidemill_plan::analyze(&read_plan(plan_json)?) {
        Ok(program) => {
            let stream = |s: &Stream| {
                let event_time = s.event_time.map(|field| &s.schema.fields[field].name);
                serde_json::json!({ "name": s.name, "schema": s.schema, "event_time": event_time })
            };
            serde_json::json!({ "program": { "streams": program.streams.iter().map(stream).collect::<Vec<_>>() } })
        }
        Err(errors) => serde_json::json!({ "errors": errors }),
    };
    Ok(answer.to_string())
}

/// Returns a plan for people to read.
#[pyfunction]
fn explain(plan_json: &str) -> PyResult<String> {
    let program: Program = tidemill_plan::analyze(&read_plan(plan_json)?).map_err(|errors| {
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        PyValueError::new_err(texts.join("\n"))
    })?;
    Ok(tidemill_plan::explain(&program))
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(analyze, module)?)?;
    module.add_function(wrap_pyfunction!(explain, module)?)?;
    module.add_function(wrap_pyfunction!(values::batch_from_columns, module)?)?;
    module.add_function(wrap_pyfunction!(arrow::arrow_stream, module)?)?;
    module.add_function(wrap_pyfunction!(run::check_options, module)?)?;
    module.add_function(wrap_pyfunction!(run::run, module)?)?;
    module.add_function(wrap_pyfunction!(session::start, module)?)?;
    module.add_function(wrap_pyfunction!(command::main, module)?)?;
    module.add_function(wrap_pyfunction!(server::serve, module)?)?;
    module.add_function(wrap_pyfunction!(queries::answer_queries_with, module)?)?;
    module.add_function(wrap_pyfunction!(reading::read_state, module)?)?;
    module.add_function(wrap_pyfunction!(reading::read_stream, module)?)?;
    module.add_class::<session::Session>()?;
    module.add_class::<server::Server>()?;
    module.add_class::<server::Metrics>()?;
    module.add_class::<session::Follower>()?;
    module.add_class::<declaration::Declaration>()?;
    module.add_class::<run::Outcome>()?;
    module.add_class::<frame::Frame>()
}
