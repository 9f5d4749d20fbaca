//! The float rule once more, on naive integers: all values in units of 2^-1074, rounded by the standard library's parser
//! of decimals, which rounds once.

use std::cmp::Ordering;

/// Limbs of 32 bits, the least first; no zeros at the end.
type Natural = Vec<u32>;

fn trim(mut number: Natural) -> Natural {
    while number.last() == Some(&0) {
        number.pop();
    }
    number
}

fn add(number: &mut Natural, other: &Natural) {
    let mut carry = 0;
    for at in 0..number.len().max(other.len()) + 1 {
        number.resize(number.len().max(at + 1), 0);
        carry += u64::from(number[at]) + u64::from(other.get(at).copied().unwrap_or(0));
        number[at] = carry as u32;
        carry >>= 32;
    }
}

/// Returns the difference of two numbers of which the first is not less.
fn difference(left: &Natural, right: &Natural) -> Natural {
    let mut borrow = 0;
    let digit = |at: usize| {
        let digit = i64::from(left[at]) - i64::from(right.get(at).copied().unwrap_or(0)) - borrow;
        borrow = i64::from(digit < 0);
        digit as u32
    };
    trim((0..left.len()).map(digit).collect())
}

fn multiply(number: &mut Natural, factor: u32) {
    let mut carry = 0;
    for limb in number.iter_mut() {
        carry += u64::from(*limb) * u64::from(factor);
        *limb = carry as u32;
        carry >>= 32;
    }
    number.push(carry as u32);
}

fn divide(number: &Natural, divisor: u64) -> (Natural, u64) {
    let mut rest = 0;
    let mut quotient = number.clone();
    for limb in quotient.iter_mut().rev() {
        let whole = u128::from(rest) << 32 | u128::from(*limb);
        *limb = (whole / u128::from(divisor)) as u32;
        rest = (whole % u128::from(divisor)) as u64;
    }
    (trim(quotient), rest)
}

/// Number × 2^-1074 / divisor, rounded: as 40 decimal places more than it needs, and a digit for a rest.
fn rounded(mut number: Natural, divisor: u64) -> f64 {
    (0..1074).for_each(|_| multiply(&mut number, 5));
    (0..40).for_each(|_| multiply(&mut number, 10));
    let (mut number, rest) = divide(&trim(number), divisor);
    let mut digits = vec![];
    while !number.is_empty() {
        let (quotient, digit) = divide(&number, 1_000_000_000);
        digits.push(format!("{digit:09}"));
        number = quotient;
    }
    digits.reverse();
    format!("0{}{}e-1115", digits.concat(), u8::from(rest > 0)).parse().expect("a number")
}

/// Returns the exact sum of finite values: its sign, and its magnitude in units of 2^-1074.
fn exact(values: &[f64]) -> (bool, Natural) {
    let mut sums = [vec![], vec![]];
    for value in values {
        let bits = value.to_bits();
        let biased = (bits >> 52 & 0x7ff) as u32;
        let significand = bits & ((1 << 52) - 1) | u64::from(biased > 0) << 52;
        let mut number = vec![0; (biased.max(1) - 1) as usize / 32];
        number.extend([significand as u32, (significand >> 32) as u32]);
        multiply(&mut number, 1 << ((biased.max(1) - 1) % 32));
        add(&mut sums[usize::from(value.is_sign_negative())], &number);
    }
    let [positive, negative] = sums.map(trim);
    let order = positive.len().cmp(&negative.len()).then_with(|| positive.iter().rev().cmp(negative.iter().rev()));
    match order {
        Ordering::Less => (true, difference(&negative, &positive)),
        _ => (false, difference(&positive, &negative)),
    }
}

/// Sum and mean of values.
pub fn sum_and_mean(values: &[f64]) -> (f64, f64) {
    let count = values.len() as u64;
    let has = |wanted: fn(f64) -> bool| values.iter().any(|&value| wanted(value));
    let special = match (has(|x| x == f64::INFINITY), has(|x| x == f64::NEG_INFINITY), has(f64::is_nan)) {
        (.., true) | (true, true, _) => Some(f64::from_bits(0x7ff8_0000_0000_0000)),
        (true, ..) => Some(f64::INFINITY),
        (_, true, _) => Some(f64::NEG_INFINITY),
        _ => None,
    };
    if let Some(special) = special {
        return (special, special);
    }
    let (negative, magnitude) = exact(values);
    let signed = |x: f64| if negative { -x } else { x };
    let total = signed(rounded(magnitude.clone(), 1));
    let mean = if total.is_infinite() { signed(rounded(magnitude, count)) } else { total / count as f64 };
    (total, mean)
}

/// Returns the exact quotient, rounded.
pub fn quotient(left: i128, right: u64) -> f64 {
    let bits = left.unsigned_abs();
    let mut number = vec![0; 33];
    number.extend((0..4).map(|limb| (bits >> (32 * limb)) as u32));
    // From 2^(33 * 32) to 2^1074.
    multiply(&mut number, 1 << 18);
    let rounded = rounded(trim(number), right);
    if left < 0 { -rounded } else { rounded }
}
