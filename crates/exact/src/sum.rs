//! The accumulator. The bands, and why they are enough, are said in the crate's documentation.

use crate::int192::Int192;
use crate::round::{divide, nearest};

/// Exponents in a band: 53 + 98 bits of a value, 40 of the count and one of the sign are 192.
const WIDTH: u64 = 99;
/// The number that is added to a float's biased exponent so that the bands begin at multiples of [`WIDTH`].
const OFFSET: u64 = 94;
/// Bands of finite values.
const FINITE: usize = (2046 + OFFSET) as usize / WIDTH as usize + 1;
const NANS: usize = FINITE;
const INFINITIES: usize = FINITE + 1;
const NEGATIVE_INFINITIES: usize = FINITE + 2;

/// Number of bands, with those that count NaNs, infinities and negative infinities, in this order, at the end.
pub const BANDS: usize = FINITE + 3;
/// The band of 2^-28 <= |x| < 2^71, in units of 2^-80.
pub const HOME: usize = 11;

/// The unit of the first band is 2 to the power of this. The unit of each is 2^[`WIDTH`] times that of the one before.
const UNIT: i32 = -(OFFSET as i32) - 1075;
const HOME_UNIT: i32 = UNIT + (HOME * WIDTH as usize) as i32;
const _: () = assert!(HOME_UNIT == -80, "the unit of the home band");
/// The least biased exponent of the home band.
const HOME_LEAST: u64 = HOME as u64 * WIDTH - OFFSET;
const _: () = assert!(HOME_LEAST == 1023 - 28, "the home band begins at 2^-28");
/// Limbs of 64 bits for all bands together.
const LIMBS: usize = (FINITE * WIDTH as usize + 192) / 64 + 1;

const FRACTION: u64 = (1 << 52) - 1;
const NAN: f64 = f64::from_bits(0x7ff8_0000_0000_0000);

/// An exact sum of floats: of at most 2^40 values, counted without those that were subtracted again.
///
/// Sums of the same values are equal. Law: whatever is done with sums by [`Sum::add`], [`Sum::subtract`],
/// [`Sum::merge`] and [`Sum::take_out`], the result is the sum of the values that are in it in the end.
#[derive(Clone, Debug, Default)]
pub struct Sum {
    home: Int192,
    /// The sum of each band, by band; that of the home band stays 0. None, or of zeros alone, where no value is outside
    /// of the home band.
    others: Option<Box<[Int192; BANDS]>>,
}

impl Sum {
    /// The sum of no values.
    pub const ZERO: Sum = Sum { home: Int192::ZERO, others: None };

    /// Returns whether a value changes no band but the home band.
    #[inline]
    pub fn is_home(value: f64) -> bool {
        (value.to_bits() >> 52 & 0x7ff).wrapping_sub(HOME_LEAST) < WIDTH || value == 0.0
    }

    /// Adds a value.
    #[inline]
    pub fn add(&mut self, value: f64) {
        if !self.add_at_home(value, value.is_sign_negative()) {
            self.add_outside(value);
        }
    }

    /// Takes a value out that was added, here or in a sum that was merged.
    #[inline]
    pub fn subtract(&mut self, value: f64) {
        if !self.add_at_home(value, value.is_sign_positive()) {
            let (band, units) = outside(value);
            self.add_to_band(band, Int192::ZERO.minus(units));
        }
    }

    /// Adds the values of another sum.
    #[inline]
    pub fn merge(&mut self, other: &Sum) {
        self.home = self.home.plus(other.home);
        if let Some(others) = &other.others {
            others.iter().enumerate().for_each(|(band, &units)| self.add_to_band(band, units));
        }
    }

    /// Takes the values of another sum out, all of which are in this one.
    #[inline]
    pub fn take_out(&mut self, other: &Sum) {
        self.home = self.home.minus(other.home);
        if let Some(others) = &other.others {
            others.iter().enumerate().for_each(|(band, &units)| self.add_to_band(band, Int192::ZERO.minus(units)));
        }
    }

    /// Adds the magnitude of a value with that sign, if it belongs to the home band or is a zero; whether it does.
    #[inline]
    fn add_at_home(&mut self, value: f64, negative: bool) -> bool {
        let bits = value.to_bits();
        let above = (bits >> 52 & 0x7ff).wrapping_sub(HOME_LEAST);
        if above >= WIDTH {
            return value == 0.0;
        }
        self.home = self.home.plus_shifted(bits & FRACTION | 1 << 52, above as u32, negative);
        true
    }

    #[cold]
    #[inline(never)]
    fn add_outside(&mut self, value: f64) {
        let (band, units) = outside(value);
        self.add_to_band(band, units);
    }

    /// Adds to the integer of a band: units of values that were added elsewhere ([`Sum::outside_home`]).
    #[inline]
    pub fn add_to_band(&mut self, band: usize, units: Int192) {
        assert!(band < BANDS, "there is no band {band}");
        if band == HOME {
            self.home = self.home.plus(units);
        } else if units != Int192::ZERO {
            let others = self.others.get_or_insert_with(|| Box::new([Int192::ZERO; BANDS]));
            others[band] = others[band].plus(units);
        }
    }

    /// Returns the integer of the home band.
    #[inline]
    pub fn home(&self) -> Int192 {
        self.home
    }

    /// Returns the integers of the other bands that are not 0, by band.
    pub fn outside_home(&self) -> impl Iterator<Item = (usize, Int192)> {
        let others = self.others.iter().flat_map(|others| others.iter().copied().enumerate());
        others.filter(|(_, units)| *units != Int192::ZERO)
    }

    fn counted(&self, band: usize) -> bool {
        self.others.as_ref().is_some_and(|others| others[band] != Int192::ZERO)
    }

    /// Returns the sum if NaNs or infinities in it decide it.
    fn special(&self) -> Option<f64> {
        match (self.counted(NANS), self.counted(INFINITIES), self.counted(NEGATIVE_INFINITIES)) {
            (true, ..) | (_, true, true) => Some(NAN),
            (_, true, _) => Some(f64::INFINITY),
            (.., true) => Some(f64::NEG_INFINITY),
            _ => None,
        }
    }

    /// Returns the sum of the values, rounded once, half to even; 0 of no values.
    #[inline]
    pub fn total(&self) -> f64 {
        if self.others.is_some() {
            return self.total_of_all();
        }
        let Int192(magnitude) = if self.home.is_negative() { Int192::ZERO.minus(self.home) } else { self.home };
        nearest(self.home.is_negative(), &magnitude, HOME_UNIT, false)
    }

    #[cold]
    fn total_of_all(&self) -> f64 {
        self.special().unwrap_or_else(|| {
            let (negative, magnitude) = self.magnitude();
            nearest(negative, &magnitude, UNIT, false)
        })
    }

    /// Returns the total divided by the number of values, rounded; where only the total is too large for a float, the
    /// exact quotient, rounded once. `count` is not 0.
    #[inline]
    pub fn mean(&self, count: u64) -> f64 {
        assert_ne!(count, 0, "no values have no mean");
        let total = self.total();
        if total.is_finite() || self.special().is_some() {
            return total / count as f64;
        }
        let (negative, mut magnitude) = self.magnitude();
        let rest = divide(&mut magnitude, count);
        nearest(negative, &magnitude, UNIT, rest)
    }

    /// Returns all finite values in units of the first band.
    fn magnitude(&self) -> (bool, [u64; LIMBS]) {
        let mut limbs = [0; LIMBS];
        add_at(&mut limbs, self.home, HOME * WIDTH as usize);
        for (band, units) in self.outside_home().filter(|(band, _)| *band < FINITE) {
            add_at(&mut limbs, units, band * WIDTH as usize);
        }
        let negative = limbs[LIMBS - 1] >> 63 == 1;
        if negative {
            let mut carry = true;
            for limb in &mut limbs {
                (*limb, carry) = (!*limb).carrying_add(0, carry);
            }
        }
        (negative, limbs)
    }

    /// Appends the bytes of the sum, which are those of every sum of the same values: the integer of the home band, 24
    /// bytes, then for each other band whose integer is not 0 the number of the band, a byte, and its integer.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.home.to_le_bytes());
        for (band, units) in self.outside_home() {
            out.push(band as u8);
            out.extend_from_slice(&units.to_le_bytes());
        }
    }

    /// Returns the sum of such bytes; none if they are not those of a sum.
    pub fn read(bytes: &[u8]) -> Option<Sum> {
        let (home, mut rest) = bytes.split_first_chunk()?;
        let mut sum = Sum { home: Int192::from_le_bytes(*home), others: None };
        let mut least = 0;
        while let Some((&band, more)) = rest.split_first() {
            let (units, more) = more.split_first_chunk()?;
            let (band, units) = (usize::from(band), Int192::from_le_bytes(*units));
            if band < least || band == HOME || band >= BANDS || units == Int192::ZERO {
                return None;
            }
            sum.add_to_band(band, units);
            (least, rest) = (band + 1, more);
        }
        Some(sum)
    }
}

impl PartialEq for Sum {
    fn eq(&self, other: &Sum) -> bool {
        self.home == other.home && self.outside_home().eq(other.outside_home())
    }
}

impl Eq for Sum {}

impl FromIterator<f64> for Sum {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Sum {
        let mut sum = Sum::ZERO;
        values.into_iter().for_each(|value| sum.add(value));
        sum
    }
}

/// Returns a value outside of the home band: its band, and the value in units of it.
fn outside(value: f64) -> (usize, Int192) {
    let one = Int192([1, 0, 0]);
    if value.is_nan() {
        return (NANS, one);
    }
    if value.is_infinite() {
        return (if value > 0.0 { INFINITIES } else { NEGATIVE_INFINITIES }, one);
    }
    let bits = value.to_bits();
    let biased = bits >> 52 & 0x7ff;
    let significand = bits & FRACTION | u64::from(biased > 0) << 52;
    // Subnormals have the exponent 1 without a leading bit.
    let exponent = biased.max(1) + OFFSET;
    let (band, above) = (exponent / WIDTH, exponent % WIDTH);
    (band as usize, Int192::ZERO.plus_shifted(significand, above as u32, value.is_sign_negative()))
}

/// Adds an integer, shifted by a number of bits, to a longer one.
fn add_at(limbs: &mut [u64; LIMBS], units: Int192, bits: usize) {
    let (first, shift) = (bits / 64, bits as u32 % 64);
    let sign = if units.is_negative() { u64::MAX } else { 0 };
    let mut carry = false;
    // The bits that a shift moves over the edge of a limb.
    let mut before = 0;
    for (at, sum) in limbs[first..].iter_mut().enumerate() {
        let limb = units.0.get(at).copied().unwrap_or(sign);
        let shifted = (u128::from(limb) << 64 | u128::from(before)) << shift >> 64;
        (*sum, carry) = sum.carrying_add(shifted as u64, carry);
        before = limb;
    }
}
