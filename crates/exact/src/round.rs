//! Rounding: integers of any length to floats.

/// Returns ±(`magnitude` × 2^`unit`), rounded half to even: limbs of 64 bits, the least first.
///
/// `rest`: the number is greater in magnitude than that, by less than one unit; then it must have more bits than a
/// float has. What is below 2^-1022 must be a multiple of 2^-1074: it is not rounded twice.
pub(crate) fn nearest(negative: bool, magnitude: &[u64], unit: i32, rest: bool) -> f64 {
    let Some(high) = magnitude.iter().rposition(|&limb| limb != 0) else {
        assert!(!rest, "less than a unit is not rounded");
        return 0.0;
    };
    let zeros = magnitude[high].leading_zeros();
    let below = high.checked_sub(1).map_or(0, |at| magnitude[at]);
    // The upper 64 bits, and whether there is more. A float takes 53 of them.
    let upper = (u128::from(magnitude[high]) << 64 | u128::from(below)) << zeros;
    let more = rest || upper as u64 != 0 || magnitude[..high.saturating_sub(1)].iter().any(|&limb| limb != 0);
    let upper = (upper >> 64) as u64;
    debug_assert!(!rest || high > 0 || zeros < 9, "too few bits beside a rest");
    let float = (upper | u64::from(more)) as f64;
    let exponent = 64 * high as i32 - zeros as i32 + unit;
    let float = scaled(float, exponent);
    if negative { -float } else { float }
}

/// Returns (`magnitude` + less than 1 where there is a `rest`) × 2^`unit`, rounded once, half to even, also below
/// 2^-1022. It has at least 54 bits, or is 0.
pub(crate) fn round(magnitude: &[u64], unit: i32, rest: bool) -> f64 {
    let bit = |at: i64| magnitude[at as usize / 64] >> (at % 64) & 1;
    let Some(limb) = magnitude.iter().rposition(|&limb| limb != 0) else {
        assert!(!rest, "less than a unit is not rounded");
        return 0.0;
    };
    let high = 64 * limb as i64 + 63 - i64::from(magnitude[limb].leading_zeros());
    // A float has 53 bits, none of them below 2^-1074.
    let lowest = (high - 52).max(-1074 - i64::from(unit));
    assert!(lowest > 0, "too few bits");
    if lowest > high + 1 {
        return 0.0;
    }
    let mut float = (lowest..=high).rev().fold(0, |bits, at| bits << 1 | bit(at));
    let more = rest || (0..lowest - 1).any(|at| bit(at) == 1);
    float += u64::from(bit(lowest - 1) == 1 && (more || float % 2 == 1));
    scaled(float as f64, lowest as i32 + unit)
}

/// Returns `float` × 2^`exponent`, where the result is a float or too large for one.
fn scaled(float: f64, exponent: i32) -> f64 {
    let power = |exponent: i32| f64::from_bits(((exponent + 1023) as u64) << 52);
    // In two steps, of which the first is exact: 2^exponent alone may not be a float.
    let first = exponent.clamp(-1000, 900);
    float * power(first) * power((exponent - first).clamp(-1000, 1000))
}

/// Returns the number of limbs divided by a number that is not 0; and whether there is a rest.
pub(crate) fn divide(limbs: &mut [u64], divisor: u64) -> bool {
    let mut rest = 0;
    for limb in limbs.iter_mut().rev() {
        let whole = u128::from(rest) << 64 | u128::from(*limb);
        *limb = (whole / u128::from(divisor)) as u64;
        rest = (whole % u128::from(divisor)) as u64;
    }
    rest != 0
}

/// Returns the exact quotient of two integers, rounded once, half to even; `right` is not 0.
///
/// The mean of ints is that of their sum and their count.
#[inline]
pub fn quotient(left: i128, right: u64) -> f64 {
    /// Integers up to this are floats, and the quotient of floats is rounded once.
    const EXACT_MAX: u64 = 1 << 53;
    assert_ne!(right, 0, "a quotient by 0");
    if left.unsigned_abs() <= EXACT_MAX.into() && right <= EXACT_MAX {
        return left as f64 / right as f64;
    }
    // In units of 2^-128, of which a quotient that is not 0 has at least 2^64.
    let magnitude = left.unsigned_abs();
    let mut limbs = [0, 0, magnitude as u64, (magnitude >> 64) as u64];
    let rest = divide(&mut limbs, right);
    nearest(left < 0, &limbs, -128, rest)
}
