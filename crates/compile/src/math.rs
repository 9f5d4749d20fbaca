//! Functions of floats. What they are is said in `tidemill_plan`'s [`MathOp`].

use tidemill_plan::MathOp;

/// The functions of math, by the number that compiled code has for them.
pub const MATH: [MathOp; 12] = [
    MathOp::Sqrt,
    MathOp::Fmod,
    MathOp::Exp,
    MathOp::Log,
    MathOp::Log2,
    MathOp::Log10,
    MathOp::Pow,
    MathOp::Sin,
    MathOp::Cos,
    MathOp::Tan,
    MathOp::Atan2,
    MathOp::Hypot,
];

/// The value of a function, of which one of one argument takes no notice of `right`; none where the arguments have none.
pub fn value(op: MathOp, left: f64, right: f64) -> Option<f64> {
    let value = match op {
        MathOp::Sqrt => left.sqrt(),
        MathOp::Fmod => left % right,
        MathOp::Exp => libm::exp(left),
        MathOp::Log => libm::log(left),
        MathOp::Log2 => libm::log2(left),
        MathOp::Log10 => libm::log10(left),
        MathOp::Pow => libm::pow(left, right),
        MathOp::Sin => libm::sin(left),
        MathOp::Cos => libm::cos(left),
        MathOp::Tan => libm::tan(left),
        MathOp::Atan2 => libm::atan2(left, right),
        MathOp::Hypot => return Some(libm::hypot(left, right)),
    };
    // The second argument of a function of one is 0, which is finite.
    let is_lost = match value.is_nan() {
        true => !left.is_nan() && !right.is_nan(),
        false => value.is_infinite() && left.is_finite() && right.is_finite(),
    };
    (!is_lost).then_some(value)
}
