//! Sums of values and of their squares without error, for variances.
//!
//! > The variance of values is the exact quotient (n Σx² − (Σx)²) / (n (n − 1)), of a whole population / n², rounded once,
//! > half to even; the standard deviation is its exact root, rounded once. Fewer than two values (of a population: none)
//! > have neither. A NaN or an infinity among the values gives the one NaN.
//!
//! Both sums are integers: of floats in units of 2^-1074 and 2^-2148, of whole numbers in units of 1. Squares of floats
//! span 4,196 bits, and 2^40 of them 40 more. The integers are as long as that in memory, and short in bytes.

use crate::round::{divide, round};

/// Limbs of 64 bits: 4,480 bits hold 2^40 times the sum of 2^40 squares.
const LIMBS: usize = 70;
const _: () = assert!(64 * LIMBS > 2 * 2098 + 2 * 40);
/// Limbs of the magnitude of a sum, which has 2,138 bits.
const HALF: usize = LIMBS / 2;
/// Limbs below the units of a quotient: its divisors have less than 200 bits, so that it has at least 312.
const BELOW: usize = 8;
const NAN: f64 = f64::from_bits(0x7ff8_0000_0000_0000);

/// The kind of the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// Floats.
    Floats,
    /// Whole numbers in units of 10^-scale; the scale is at most 18.
    Words {
        /// Digits after the point.
        scale: u8,
    },
}

/// The divisor of a variance: whether the values are all there are, or a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Population {
    /// The sum of squared differences is divided by n − 1, as by `statistics.variance`.
    Sample,
    /// The sum is divided by n, as by `statistics.pvariance`.
    Whole,
}

/// The moments of at most 2^40 values of one kind: their number, their exact sum and that of their squares.
///
/// Law: moments of the same values are equal, in whatever order they were added and merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moments {
    count: u64,
    /// The number of values that are NaN or infinite; they are in neither sum.
    odd: u64,
    sum: [u64; LIMBS],
    squares: [u64; LIMBS],
}

impl Default for Moments {
    fn default() -> Moments {
        Moments { count: 0, odd: 0, sum: [0; LIMBS], squares: [0; LIMBS] }
    }
}

impl Moments {
    /// Adds a float.
    pub fn add(&mut self, value: f64) {
        self.count += 1;
        if !value.is_finite() {
            self.odd += 1;
            return;
        }
        let (significand, shift) = parts(value);
        add_at(&mut self.sum, significand.into(), shift, value.is_sign_negative());
        add_at(&mut self.squares, u128::from(significand) * u128::from(significand), 2 * shift, false);
    }

    /// Adds a whole number.
    pub fn add_word(&mut self, value: i64) {
        self.count += 1;
        let magnitude = u128::from(value.unsigned_abs());
        add_at(&mut self.sum, magnitude, 0, value < 0);
        add_at(&mut self.squares, magnitude * magnitude, 0, false);
    }

    /// Adds the values of others.
    pub fn merge(&mut self, other: &Moments) {
        self.count = self.count.wrapping_add(other.count);
        self.odd = self.odd.wrapping_add(other.odd);
        add(&mut self.sum, &other.sum);
        add(&mut self.squares, &other.squares);
    }

    /// Returns the variance; none of too few values.
    pub fn variance(&self, of: Of, population: Population) -> Option<f64> {
        self.quotient(of, population)
            .map(|quotient| quotient.map_or(NAN, |Quotient { limbs, unit, rest }| round(&limbs, unit, rest)))
    }

    /// Returns the standard deviation; none of too few values.
    pub fn deviation(&self, of: Of, population: Population) -> Option<f64> {
        self.quotient(of, population).map(|quotient| quotient.map_or(NAN, Quotient::root))
    }

    /// Returns the variance as a quotient; none of too few values; in it none where it is no number.
    fn quotient(&self, of: Of, population: Population) -> Option<Option<Quotient>> {
        let less = u64::from(population == Population::Sample);
        if self.count <= less {
            return None;
        }
        if self.odd > 0 {
            return Some(None);
        }
        let mut limbs = vec![0; BELOW];
        limbs.extend_from_slice(&self.spread());
        let mut rest = divide(&mut limbs, self.count);
        rest |= divide(&mut limbs, self.count - less);
        let unit = match of {
            Of::Floats => -2 * 1074,
            Of::Words { scale } => {
                let ten = 10_u64.pow(scale.into());
                rest |= divide(&mut limbs, ten);
                rest |= divide(&mut limbs, ten);
                0
            }
        };
        Some(Some(Quotient { limbs, unit: unit - 64 * BELOW as i32, rest }))
    }

    /// Returns n Σx² − (Σx)², which is not below 0.
    fn spread(&self) -> [u64; LIMBS] {
        let mut spread = [0; LIMBS];
        multiply(&mut spread, &self.squares, &[self.count]);
        let sum = if is_negative(&self.sum) { negated(&self.sum) } else { self.sum };
        let (sum, above) = sum.split_at(HALF);
        debug_assert!(above.iter().all(|&limb| limb == 0), "a sum of 2^40 floats has 2,138 bits");
        let mut square = [0; LIMBS];
        multiply(&mut square, sum, sum);
        add(&mut spread, &negated(&square));
        debug_assert!(!is_negative(&spread), "squares are not below 0");
        spread
    }

    /// Appends the bytes: how many values there are, how many are NaN or infinite, the sum and that of squares. A sum is
    /// how many low limbs of 64 bits are 0, how many limbs follow, and these, the least first, in two's complement: as few
    /// as there can be. Numbers have eight bytes, little-endian.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.count.to_le_bytes());
        out.extend_from_slice(&self.odd.to_le_bytes());
        write_limbs(&self.sum, out);
        write_limbs(&self.squares, out);
    }

    /// Returns the moments of such bytes; none if they are not of this shape.
    pub fn read(mut bytes: &[u8]) -> Option<Moments> {
        let (count, odd) = (word(&mut bytes)?, word(&mut bytes)?);
        let (sum, squares) = (read_limbs(&mut bytes)?, read_limbs(&mut bytes)?);
        (bytes.is_empty() && odd <= count && !is_negative(&squares)).then_some(Moments { count, odd, sum, squares })
    }
}

/// (limbs + less than 1 where there is a rest) × 2^unit.
struct Quotient {
    limbs: Vec<u64>,
    unit: i32,
    rest: bool,
}

impl Quotient {
    fn root(self) -> f64 {
        let Quotient { limbs, unit, rest } = self;
        let Some(high) = limbs.iter().rposition(|&limb| limb != 0) else { return 0.0 };
        let bits = 64 * (high + 1) - limbs[high].leading_zeros() as usize;
        assert!(bits > 128, "a quotient has hundreds of bits");
        // The upper 127 or 128 bits, in even units: the whole part of their root is that of the whole number's root.
        let below = bits - 127;
        let below = below - (unit + below as i32).unsigned_abs() as usize % 2;
        let (first, shift) = (below / 64, below % 64);
        let at = |limb: usize| u128::from(limbs.get(limb).copied().unwrap_or(0));
        let upper = (at(first) | at(first + 1) << 64) >> shift;
        let upper = if shift == 0 { upper } else { upper | at(first + 2) << (128 - shift) };
        let more = rest || limbs[..first].iter().any(|&limb| limb != 0) || at(first) as u64 & ((1 << shift) - 1) != 0;
        let root = upper.isqrt();
        round(&[root as u64], (unit + below as i32) / 2, more || root * root != upper)
    }
}

/// Returns the significand of a finite float and its exponent above 2^-1074.
fn parts(value: f64) -> (u64, usize) {
    let bits = value.to_bits();
    let biased = bits >> 52 & 0x7ff;
    (bits & ((1 << 52) - 1) | u64::from(biased > 0) << 52, biased.max(1) as usize - 1)
}

fn is_negative(limbs: &[u64; LIMBS]) -> bool {
    limbs[LIMBS - 1] >> 63 == 1
}

fn negated(limbs: &[u64; LIMBS]) -> [u64; LIMBS] {
    let mut carry = true;
    limbs.map(|limb| {
        let (sum, over) = (!limb).overflowing_add(u64::from(carry));
        carry = over;
        sum
    })
}

fn add(limbs: &mut [u64; LIMBS], other: &[u64; LIMBS]) {
    let mut carry = false;
    for (limb, other) in limbs.iter_mut().zip(other) {
        (*limb, carry) = limb.carrying_add(*other, carry);
    }
}

/// Adds ±(`magnitude` × 2^`shift`).
fn add_at(limbs: &mut [u64; LIMBS], magnitude: u128, shift: usize, negative: bool) {
    let (first, bits) = (shift / 64, shift % 64);
    let (low, high) = (magnitude << bits, if bits == 0 { 0 } else { magnitude >> (128 - bits) });
    let parts = [low as u64, (low >> 64) as u64, high as u64];
    let mut carry = false;
    for (at, limb) in limbs[first..].iter_mut().enumerate() {
        let part = parts.get(at).copied().unwrap_or(0);
        if at >= parts.len() && !carry {
            break;
        }
        (*limb, carry) = if negative { limb.borrowing_sub(part, carry) } else { limb.carrying_add(part, carry) };
    }
}

/// Computes the product of two numbers, as far as it fits.
fn multiply(out: &mut [u64; LIMBS], left: &[u64], right: &[u64]) {
    for (i, &a) in left.iter().enumerate().filter(|(_, a)| **a != 0) {
        let mut carry = 0;
        for (j, limb) in out[i..].iter_mut().enumerate() {
            let b = right.get(j).copied().unwrap_or(0);
            if j >= right.len() && carry == 0 {
                break;
            }
            let sum = u128::from(a) * u128::from(b) + u128::from(*limb) + carry;
            (*limb, carry) = (sum as u64, sum >> 64);
        }
    }
}

fn write_limbs(limbs: &[u64; LIMBS], out: &mut Vec<u8>) {
    let sign = if is_negative(limbs) { u64::MAX } else { 0 };
    let mut end = limbs.iter().rposition(|&limb| limb != sign).map_or(0, |at| at + 1);
    // The highest limb that is written has the sign.
    let has_sign = end.checked_sub(1).map_or(sign == 0, |at| (limbs[at] ^ sign) >> 63 == 0);
    end += usize::from(!has_sign);
    let low = limbs[..end].iter().position(|&limb| limb != 0).unwrap_or(0);
    out.extend_from_slice(&(low as u64).to_le_bytes());
    out.extend_from_slice(&((end - low) as u64).to_le_bytes());
    limbs[low..end].iter().for_each(|limb| out.extend_from_slice(&limb.to_le_bytes()));
}

fn read_limbs(bytes: &mut &[u8]) -> Option<[u64; LIMBS]> {
    let (low, len) = (usize::try_from(word(bytes)?).ok()?, usize::try_from(word(bytes)?).ok()?);
    let end = low.checked_add(len).filter(|&end| end <= LIMBS)?;
    let mut limbs = [0; LIMBS];
    for limb in &mut limbs[low..end] {
        *limb = word(bytes)?;
    }
    if end > 0 && len > 0 && limbs[end - 1] >> 63 == 1 {
        limbs[end..].fill(u64::MAX);
    }
    Some(limbs)
}

fn word(bytes: &mut &[u8]) -> Option<u64> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u64::from_le_bytes(*first))
}
