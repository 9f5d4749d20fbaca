//! Moments of values, for variances, as long whole numbers that are decoded and encoded at every step. What they mean and
//! their bytes are said in `tidemill_plan`'s `window`. A result is found by trying floats: the nearest one is where the
//! product with the divisor is nearest.

use std::cmp::Ordering;
use tidemill_model::{Type, Value};
use tidemill_plan::{Aggregate, Slices};

const NAN: f64 = f64::from_bits(0x7ff8_0000_0000_0000);
/// Floats are multiples of 2 to the power of minus this, their squares of twice that.
const UNIT: usize = 1074;

/// A whole number that is not negative: digits of 32 bits, the least first, the last not 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Whole(Vec<u32>);

impl Whole {
    fn of(value: u128) -> Whole {
        Whole((0..4).map(|at| (value >> (32 * at)) as u32).collect()).short()
    }

    fn short(mut self) -> Whole {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
        self
    }

    fn digit(&self, at: usize) -> u32 {
        self.0.get(at).copied().unwrap_or(0)
    }

    fn compare(&self, other: &Whole) -> Ordering {
        self.0.len().cmp(&other.0.len()).then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }

    fn plus(&self, other: &Whole) -> Whole {
        let mut carry = 0;
        let digits = (0..=self.0.len().max(other.0.len())).map(|at| {
            carry += u64::from(self.digit(at)) + u64::from(other.digit(at));
            let digit = carry as u32;
            carry >>= 32;
            digit
        });
        Whole(digits.collect()).short()
    }

    /// Subtracts a number that is not greater.
    fn minus(&self, other: &Whole) -> Whole {
        let mut borrow = 0;
        let digits = (0..self.0.len()).map(|at| {
            borrow += i64::from(self.digit(at)) - i64::from(other.digit(at));
            let digit = borrow as u32;
            borrow >>= 32;
            digit
        });
        Whole(digits.collect()).short()
    }

    fn times(&self, other: &Whole) -> Whole {
        let mut product = Whole::default();
        for (at, &digit) in self.0.iter().enumerate() {
            let mut part = vec![0; at];
            let mut carry = 0;
            for at in 0..=other.0.len() {
                carry += u64::from(digit) * u64::from(other.digit(at));
                part.push(carry as u32);
                carry >>= 32;
            }
            product = product.plus(&Whole(part).short());
        }
        product
    }

    /// Returns the number times 2^`bits`.
    fn raised(&self, bits: usize) -> Whole {
        let mut digits = vec![0; bits / 32];
        digits.extend(self.times(&Whole::of(1 << (bits % 32))).0);
        Whole(digits).short()
    }
}

/// A whole number and its sign; 0 is not negative.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Signed {
    negative: bool,
    whole: Whole,
}

impl Signed {
    fn of(negative: bool, whole: Whole) -> Signed {
        Signed { negative: negative && !whole.0.is_empty(), whole }
    }

    fn plus(&self, other: &Signed) -> Signed {
        if self.negative == other.negative {
            return Signed::of(self.negative, self.whole.plus(&other.whole));
        }
        match self.whole.compare(&other.whole) {
            Ordering::Less => Signed::of(other.negative, other.whole.minus(&self.whole)),
            _ => Signed::of(self.negative, self.whole.minus(&other.whole)),
        }
    }

    /// Limbs of 64 bits in two's complement, the last with the sign: as few as there can be.
    fn limbs(&self) -> Vec<u64> {
        let count = self.whole.0.len() / 2 + 2;
        let size = Whole::of(1).raised(64 * count);
        let whole = if self.negative { size.minus(&self.whole) } else { self.whole.clone() };
        let limb = |at: usize| u64::from(whole.digit(2 * at)) | u64::from(whole.digit(2 * at + 1)) << 32;
        let mut limbs: Vec<u64> = (0..count).map(limb).collect();
        let sign = |limb: u64| if limb >> 63 == 1 { u64::MAX } else { 0 };
        while let [.., below, last] = limbs[..] {
            if last != sign(below) {
                break;
            }
            limbs.pop();
        }
        if limbs == [0] { Vec::new() } else { limbs }
    }

    fn of_limbs(limbs: &[u64]) -> Signed {
        let whole = Whole(limbs.iter().flat_map(|&limb| [limb as u32, (limb >> 32) as u32]).collect()).short();
        if limbs.last().is_some_and(|last| last >> 63 == 1) {
            return Signed::of(true, Whole::of(1).raised(64 * limbs.len()).minus(&whole));
        }
        Signed::of(false, whole)
    }
}

/// The moments of values: their number, the number of those that are not finite, the sum of the others, and that of
/// their squares.
#[derive(Clone, Debug, Default)]
pub struct Moments {
    count: u64,
    odd: u64,
    sum: Signed,
    squares: Signed,
}

impl Moments {
    /// Returns the moments of one value.
    pub fn of(value: &Value) -> Moments {
        let (negative, whole) = match *value {
            Value::Float(x) if !x.is_finite() => return Moments { count: 1, odd: 1, ..Moments::default() },
            Value::Float(x) => (x < 0.0, units(x.abs().to_bits())),
            ref word => {
                let word = word.word().expect("a number");
                (word < 0, Whole::of(word.unsigned_abs().into()))
            }
        };
        let squares = Signed::of(false, whole.times(&whole));
        Moments { count: 1, odd: 0, sum: Signed::of(negative, whole), squares }
    }

    /// Returns the moments with the values of others.
    pub fn plus(&self, other: &Moments) -> Moments {
        Moments {
            count: self.count + other.count,
            odd: self.odd + other.odd,
            sum: self.sum.plus(&other.sum),
            squares: self.squares.plus(&other.squares),
        }
    }

    /// Returns a variance or standard deviation of values of a type; none of too few.
    pub fn read(&self, aggregate: Aggregate, ty: Type) -> Option<f64> {
        let is_sample = matches!(aggregate, Aggregate::Variance | Aggregate::Stddev);
        let less = u64::from(is_sample);
        if self.count <= less {
            return None;
        }
        if self.odd > 0 {
            return Some(NAN);
        }
        let of = |value: u64| Whole::of(value.into());
        let square = self.sum.whole.times(&self.sum.whole);
        let mut above = of(self.count).times(&self.squares.whole).minus(&square);
        let mut below = of(self.count).times(&of(self.count - less));
        if let Type::Decimal { scale, .. } = ty {
            below = below.times(&Whole::of(10_u128.pow(2 * u32::from(scale))));
        }
        // In units of 2^-2148, as the squares of floats are.
        if ty != Type::Float {
            above = above.raised(2 * UNIT);
        }
        let is_root = matches!(aggregate, Aggregate::Stddev | Aggregate::Pstddev);
        // A candidate is in units of 2^-1075, so that it can be between two floats.
        Some(nearest(|candidate| match is_root {
            true => candidate.times(candidate).times(&below).compare(&above.raised(2)),
            false => candidate.times(&below).raised(UNIT - 1).compare(&above),
        }))
    }

    /// Returns the bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = [self.count.to_le_bytes(), self.odd.to_le_bytes()].concat();
        for sum in [&self.sum, &self.squares] {
            let limbs = sum.limbs();
            let zeros = limbs.iter().take_while(|&&limb| limb == 0).count();
            bytes.extend((zeros as u64).to_le_bytes());
            bytes.extend(((limbs.len() - zeros) as u64).to_le_bytes());
            limbs[zeros..].iter().for_each(|limb| bytes.extend(limb.to_le_bytes()));
        }
        bytes
    }

    /// Reads moments from bytes.
    pub fn decode(bytes: &[u8]) -> Moments {
        let mut words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")));
        let mut word = || words.next().expect("a number");
        let (count, odd) = (word(), word());
        let mut sum = || {
            let (zeros, limbs) = (word() as usize, word());
            let mut all = vec![0; zeros];
            all.extend((0..limbs).map(|_| word()));
            Signed::of_limbs(&all)
        };
        let (sum, squares) = (sum(), sum());
        Moments { count, odd, sum, squares }
    }
}

/// Returns the float of such bits, which is not negative, in units of 2^-1074. Of infinity it is 2^1024.
fn units(bits: u64) -> Whole {
    let (exponent, fraction) = (bits >> 52, bits % (1 << 52));
    let significand = fraction + if exponent > 0 { 1 << 52 } else { 0 };
    Whole::of(significand.into()).raised(exponent.max(1) as usize - 1)
}

/// Returns the float nearest to a number that is not negative, of two the even one: `compare` tells on which side of
/// the number a candidate is, which is in units of 2^-1075.
fn nearest(compare: impl Fn(&Whole) -> Ordering) -> f64 {
    let (mut low, mut high) = (0, f64::INFINITY.to_bits());
    // The greatest float that is not greater, or infinity.
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if compare(&units(middle).raised(1)) == Ordering::Greater { high = middle - 1 } else { low = middle }
    }
    if low == f64::INFINITY.to_bits() {
        return f64::INFINITY;
    }
    let up = match compare(&units(low).plus(&units(low + 1))) {
        Ordering::Less => true,
        Ordering::Equal => low % 2 == 1,
        Ordering::Greater => false,
    };
    f64::from_bits(low + u64::from(up))
}

/// Returns the bytes of a window with one more value.
pub fn add(slices: Slices, bytes: &[u8], time: i64, value: &Value) -> Vec<u8> {
    let mut entries = decode(bytes);
    let now = now(slices, &entries, time);
    entries.retain(|(slice, _)| is_within(*slice, now, slices.count));
    let last = entries.pop_if(|(slice, _)| *slice == now);
    let moments = last.map_or_else(Moments::default, |(_, moments)| moments).plus(&Moments::of(value));
    entries.push((now, moments));
    let mut bytes = Vec::new();
    for (slice, moments) in entries {
        let moments = moments.encode();
        bytes.extend(slice.to_le_bytes());
        bytes.extend((moments.len() as i64).to_le_bytes());
        bytes.extend(moments);
    }
    bytes
}

/// Returns the moments of the values in the last `within` slices.
pub fn within(slices: Slices, bytes: &[u8], time: i64, within: i64) -> Moments {
    let entries = decode(bytes);
    let now = now(slices, &entries, time);
    let recent = entries.iter().filter(|(slice, _)| is_within(*slice, now, within));
    recent.fold(Moments::default(), |whole, (_, moments)| whole.plus(moments))
}

fn now(slices: Slices, entries: &[(i64, Moments)], time: i64) -> i64 {
    let slice = time.div_euclid(slices.slide);
    entries.last().map_or(slice, |(newest, _)| slice.max(*newest))
}

fn is_within(slice: i64, now: i64, count: i64) -> bool {
    i128::from(slice) > i128::from(now) - i128::from(count)
}

fn decode(mut bytes: &[u8]) -> Vec<(i64, Moments)> {
    let mut entries = Vec::new();
    while !bytes.is_empty() {
        let word = |at: usize| i64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let end = 16 + word(8) as usize;
        entries.push((word(0), Moments::decode(&bytes[16..end])));
        bytes = &bytes[end..];
    }
    entries
}
