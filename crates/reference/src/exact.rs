//! Sums of floats without error, as long integers: the float rule of `docs/formalism.md` in its simplest form.

use std::collections::BTreeMap;

/// Limbs of an integer: 2,432 bits, for all floats and their bands.
const LIMBS: usize = 76;
/// Integers are in units of 2 to the power of this, that of the first band.
const UNIT: i32 = -1169;
/// Exponents in a band.
const BAND: usize = 99;
/// Bands that count NaNs, infinities and negative infinities.
const COUNTED: [i64; 3] = [22, 23, 24];
const NAN: f64 = f64::from_bits(0x7ff8_0000_0000_0000);

/// An integer in two's complement, of limbs of 32 bits, the least first.
#[derive(Clone, PartialEq)]
struct Long([u32; LIMBS]);

impl Long {
    const ZERO: Long = Long([0; LIMBS]);

    /// Returns an integer × 2^`shift`.
    fn of(value: i128, shift: usize) -> Long {
        let mut long = Long::ZERO;
        for bit in (0..128).filter(|bit| value.unsigned_abs() >> bit & 1 == 1) {
            long.0[(bit + shift) / 32] |= 1 << ((bit + shift) % 32);
        }
        if value < 0 { long.negated() } else { long }
    }

    fn negated(&self) -> Long {
        Long(self.0.map(|limb| !limb)).plus(&Long::of(1, 0))
    }

    fn bit(&self, at: usize) -> bool {
        self.0[at / 32] >> (at % 32) & 1 == 1
    }

    fn plus(&self, other: &Long) -> Long {
        let mut carry = 0;
        Long(std::array::from_fn(|at| {
            carry = (carry >> 32) + u64::from(self.0[at]) + u64::from(other.0[at]);
            carry as u32
        }))
    }

    fn is_negative(&self) -> bool {
        self.bit(LIMBS * 32 - 1)
    }

    /// Returns the sum divided by a count, and rounded to a float once.
    fn mean(&self, count: i64) -> f64 {
        let count = u128::try_from(count).expect("a count is positive");
        let mut rest = 0_u128;
        let mut quotient = if self.is_negative() { self.negated() } else { self.clone() };
        for limb in quotient.0.iter_mut().rev() {
            let whole = rest << 32 | u128::from(*limb);
            *limb = (whole / count) as u32;
            rest = whole % count;
        }
        let Some(highest) = (0..LIMBS * 32).rev().find(|&at| quotient.bit(at)) else { return 0.0 };
        // A float has 53 bits, none of them below 2^-1074.
        let lowest = highest.saturating_sub(52).max((-1074 - UNIT) as usize);
        let mut float = (lowest..=highest).rev().fold(0, |bits, at| bits << 1 | u64::from(quotient.bit(at)));
        let beyond = rest > 0 || (0..lowest - 1).any(|at| quotient.bit(at));
        float += u64::from(quotient.bit(lowest - 1) && (beyond || float % 2 == 1));
        let exponent = lowest as i32 + UNIT;
        let step = if exponent > 0 { 2.0 } else { 0.5 };
        let magnitude = (0..exponent.abs()).fold(float as f64, |float, _| float * step);
        if self.is_negative() { -magnitude } else { magnitude }
    }
}

/// Returns the exact quotient of an integer and a count, rounded once.
pub fn quotient(sum: i128, count: i64) -> f64 {
    Long::of(sum, -UNIT as usize).mean(count)
}

/// The exact sum of values, by band.
#[derive(Clone, Default)]
pub struct Exact(BTreeMap<i64, Long>);

impl Exact {
    /// Returns the sum of one value.
    pub fn of(value: f64) -> Exact {
        let counted = [value.is_nan(), value == f64::INFINITY, value == f64::NEG_INFINITY];
        if let Some(at) = counted.iter().position(|&is| is) {
            return Exact(BTreeMap::from([(COUNTED[at], Long::of(1, 0))]));
        }
        if value == 0.0 {
            return Exact::default();
        }
        // value = significand × 2^(exponent - 52)
        let bits = value.abs().to_bits();
        let exponent = (bits >> 52).max(1) as i64 - 1023;
        let significand = bits % (1 << 52) + if bits >> 52 > 0 { 1 << 52 } else { 0 };
        let signed = if value < 0.0 { -i128::from(significand) } else { significand.into() };
        let shift = exponent - 52 - i64::from(UNIT);
        Exact(BTreeMap::from([((exponent + 1117).div_euclid(BAND as i64), Long::of(signed, shift as usize))]))
    }

    /// Returns the sum with the values of another.
    pub fn plus(&self, other: &Exact) -> Exact {
        let mut bands = self.0.clone();
        for (band, long) in &other.0 {
            let sum = bands.get(band).unwrap_or(&Long::ZERO).plus(long);
            bands.insert(*band, sum);
        }
        Exact(bands)
    }

    fn counts(&self, band: i64) -> bool {
        self.0.get(&band).is_some_and(|count| *count != Long::ZERO)
    }

    fn special(&self) -> Option<f64> {
        let [nans, infinities, negatives] = COUNTED.map(|band| self.counts(band));
        match (infinities, negatives) {
            _ if nans => Some(NAN),
            (true, true) => Some(NAN),
            (true, false) => Some(f64::INFINITY),
            (false, true) => Some(f64::NEG_INFINITY),
            (false, false) => None,
        }
    }

    fn all(&self) -> Long {
        self.0.values().fold(Long::ZERO, |all, long| all.plus(long))
    }

    /// Returns the sum, rounded once.
    pub fn total(&self) -> f64 {
        self.special().unwrap_or_else(|| self.all().mean(1))
    }

    /// Returns the sum divided by the count; the exact quotient, rounded once, where only the sum is too large.
    pub fn mean(&self, count: i64) -> f64 {
        let total = self.total();
        if total.is_infinite() && self.special().is_none() { self.all().mean(count) } else { total / count as f64 }
    }

    /// Returns the place where a band's integer begins.
    fn place(band: i64) -> usize {
        if COUNTED.contains(&band) { 0 } else { band as usize * BAND }
    }

    /// Returns the integer of a band: 192 bits in units of the band.
    pub fn band(&self, band: i64) -> [u8; 24] {
        let long = self.0.get(&band).unwrap_or(&Long::ZERO);
        let bit = |at: usize| u8::from(long.bit(Exact::place(band) + at));
        std::array::from_fn(|byte| (0..8).map(|at| bit(8 * byte + at) << at).sum())
    }

    /// Sets the integer of a band.
    pub fn set_band(&mut self, band: i64, bytes: &[u8]) {
        let [low, high] = [0, 8].map(|at| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes")));
        let top = i64::from_le_bytes(bytes[16..24].try_into().expect("8 bytes"));
        let at = Exact::place(band);
        let limbs = [(i128::from(low), 0), (i128::from(high), 64), (i128::from(top), 128)];
        let long = limbs.iter().fold(Long::ZERO, |long, &(limb, bits)| long.plus(&Long::of(limb, at + bits)));
        self.0.insert(band, long);
    }
}
