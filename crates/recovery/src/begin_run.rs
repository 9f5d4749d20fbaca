//! The way in which a run of rows is begun, whoever holds the state directory.

use std::sync::Arc;
use tidemill_durability::StateError;
use tidemill_durability::store::RunWriter;
use tidemill_state::RowShape;

/// Begins a run of rows of a given shape, with a filter for the given number of rows, or none.
pub type BeginRun<'a> = dyn FnMut(&Arc<RowShape>, Option<usize>) -> Result<RunWriter, StateError> + 'a;
