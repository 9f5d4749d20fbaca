//! Splits that join: at the gate, among the inputs, and where silence is watched, which all count them alike.

use crate::inputs::Inputs;
use tidemill_io::IoFailure;
use tidemill_stages::gate::Gate;
use tidemill_stages::progress::Silence;

/// A split that joins.
pub struct Known {
    /// The number of its source.
    pub source: usize,
    /// Its number there.
    pub split: u32,
    /// The name by which its source knows it.
    pub name: String,
    /// The mark with which it begins.
    pub mark: Option<i64>,
}

/// Lets a split join; the first one of a source is there from the start, and gets its name. Returns its number among
/// all splits.
pub fn join(
    known: Known,
    gate: &mut Gate,
    inputs: &mut Inputs,
    idle: &mut Silence,
    now: u64,
) -> Result<usize, IoFailure> {
    let Known { source, split, name, mark } = known;
    assert_eq!(split as usize, inputs.names(source).len(), "splits join in the order of their numbers");
    let number = inputs.join(source, name)?;
    gate.order_aside(source);
    if split > 0 {
        assert_eq!(gate.join(source, mark), number, "gate and inputs count splits alike");
        idle.join(source, now);
    }
    Ok(number)
}
