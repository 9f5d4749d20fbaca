//! Sums beside the oracle's; the same values in any order and grouping, and with others added and subtracted again.

mod oracle;

use oracle::sum_and_mean;
use tidemill_exact::{HOME, Int192, Sum, quotient};
use tidemill_random::Random;

fn bytes(sum: &Sum) -> Vec<u8> {
    let mut bytes = vec![];
    sum.write(&mut bytes);
    bytes
}

fn hold(values: &[f64]) {
    let sum: Sum = values.iter().copied().collect();
    let (total, mean) = sum_and_mean(values);
    assert_eq!(sum.total().to_bits(), total.to_bits(), "the sum {} of {values:?}, not {total}", sum.total());
    if !values.is_empty() {
        let said = sum.mean(values.len() as u64);
        assert_eq!(said.to_bits(), mean.to_bits(), "the mean {said} of {values:?}, not {mean}");
    }
    assert_eq!(Sum::read(&bytes(&sum)).as_ref(), Some(&sum), "what is written is read: {values:?}");
}

/// The kind of a trial's values.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Plain,
    Bits,
    Edges,
    Cancelling,
    Subnormal,
    Halves,
    Large,
    Special,
}

const KINDS: [Kind; 8] = {
    use Kind::*;
    [Plain, Bits, Edges, Cancelling, Subnormal, Halves, Large, Special]
};

fn power(exponent: i32) -> f64 {
    2f64.powi(exponent / 2) * 2f64.powi(exponent - exponent / 2)
}

fn value(random: &mut Random, kind: Kind, before: &[f64]) -> f64 {
    let sign = if random.below(2) == 0 { 1.0 } else { -1.0 };
    let below = |random: &mut Random, bound: i32| random.below(bound as u64) as i32;
    let finite = |random: &mut Random| loop {
        let float = f64::from_bits(random.bits());
        if float.is_finite() {
            return float;
        }
    };
    sign * match kind {
        Kind::Plain => (random.unit() * 1e6).round() / 100.0,
        Kind::Bits => finite(random),
        // Edges of the home band half of the time, and otherwise of all bands.
        Kind::Edges if random.below(2) == 0 => {
            let edge = [power(-28), power(71), power(-80), 0.0][random.below(4) as usize];
            f64::from_bits((edge.to_bits() + random.below(3)).saturating_sub(1))
        }
        Kind::Edges => {
            let biased = (1 + 99 * random.below(21) + 4 + random.below(3)).min(2046);
            f64::from_bits(biased << 52 | [0, 1, (1 << 52) - 1][random.below(3) as usize])
        }
        Kind::Cancelling if before.is_empty() || random.below(3) == 0 => finite(random),
        Kind::Cancelling => before[random.below(before.len() as u64) as usize],
        Kind::Subnormal => f64::from_bits(random.below(1 << 53)),
        Kind::Halves => power([0, 53, 54, 106, -53, -54][random.below(6) as usize] + below(random, 2)),
        Kind::Large => f64::MAX / [1.0, 2.0, 3.0, 1e16, 1e17][random.below(5) as usize],
        Kind::Special => [1.0, -0.0, f64::MAX, f64::INFINITY, f64::NAN][random.below(5) as usize],
    }
}

fn values(random: &mut Random) -> Vec<f64> {
    let mut values = vec![];
    let [one, other] = [(); 2].map(|_| KINDS[random.below(8) as usize]);
    for _ in 0..random.below(12) {
        let kind = if random.below(4) == 0 { other } else { one };
        values.push(value(random, kind, &values));
    }
    values
}

fn shuffle(random: &mut Random, values: &mut [f64]) {
    (1..values.len()).for_each(|at| values.swap(at, random.below(at as u64 + 1) as usize));
}

#[test]
fn random_sums_are_those_of_the_oracle() {
    let mut random = Random::new(20);
    (0..8_000).for_each(|_| hold(&values(&mut random)));
}

#[test]
fn neither_order_nor_groups_nor_what_was_taken_out_can_be_seen() {
    let mut random = Random::new(21);
    for _ in 0..4_000 {
        let mut kept = values(&mut random);
        let sum: Sum = kept.iter().copied().collect();
        shuffle(&mut random, &mut kept);
        let (mut whole, mut group, gone) = (Sum::ZERO, Sum::ZERO, values(&mut random));
        for (at, &value) in kept.iter().enumerate() {
            group.add(value);
            gone.get(at).into_iter().for_each(|&value| group.add(value));
            if random.below(3) == 0 {
                whole.merge(&std::mem::take(&mut group));
            }
        }
        group.merge(&whole);
        let part = random.below(1 + kept.len().min(gone.len()) as u64) as usize;
        let added = &gone[..kept.len().min(gone.len())];
        group.take_out(&added[part..].iter().copied().collect());
        added[..part].iter().for_each(|&value| group.subtract(value));
        assert_eq!(group, sum, "{kept:?} without {added:?}");
        assert_eq!(bytes(&group), bytes(&sum), "{kept:?} without {added:?}");
        assert_eq!(group.total().to_bits(), sum.total().to_bits());
    }
}

#[test]
fn known_sums() {
    let total = |values: &[f64]| values.iter().copied().collect::<Sum>().total();
    let mean = |values: &[f64]| values.iter().copied().collect::<Sum>().mean(values.len() as u64);
    assert_eq!(total(&[]).to_bits(), 0);
    assert_eq!(total(&[-0.0, -0.0]).to_bits(), 0);
    assert_eq!(total(&[1e-320, -1e-320]).to_bits(), 0);
    assert_eq!(total(&[0.1; 10]), 1.0);
    assert_eq!(total(&[1e308, 1e308, -1e308]), 1e308);
    assert_eq!(total(&[1e16, 1.0, -1e16]), 1.0);
    assert_eq!(total(&[1e300, 1.0, 1e-300, -1e300, -1.0]), 1e-300);
    assert_eq!(total(&[1e308, 1e308]), f64::INFINITY);
    assert_eq!(mean(&[1e308, 1e308, 1e308]), 1e308);
    assert_eq!(mean(&[-f64::MAX, -f64::MAX]), -f64::MAX);
    assert_eq!(mean(&[f64::INFINITY, f64::MAX, f64::MAX]), f64::INFINITY);
    assert_eq!(total(&[f64::NEG_INFINITY, f64::MAX]), f64::NEG_INFINITY);
    assert!(mean(&[f64::INFINITY, f64::NEG_INFINITY]).is_nan());
    let negative_nan = f64::from_bits(0xfff0_0000_0000_0001);
    assert_eq!(total(&[negative_nan, 1.0]).to_bits(), 0x7ff8_0000_0000_0000);
    // Halves to even, and what lies just beside them.
    assert_eq!(total(&[9007199254740992.0, 1.0]), 9007199254740992.0);
    assert_eq!(total(&[9007199254740994.0, 1.0]), 9007199254740996.0);
    assert_eq!(total(&[9007199254740992.0, 1.0, 5e-324]), 9007199254740994.0);
    assert_eq!(total(&[-9007199254740994.0, -1.0, 5e-324]), -9007199254740994.0);
    // The greatest float and half of its last bit is even more; a little less is not.
    assert_eq!(total(&[f64::MAX, power(970)]), f64::INFINITY);
    assert_eq!(total(&[f64::MAX, power(970), -5e-324]), f64::MAX);
}

#[test]
fn sums_hold_2_to_the_40_values() {
    for value in [power(71) - power(18), -(power(71) - power(18)), power(-28), f64::MAX, -f64::MAX, 5e-324] {
        let mut sum: Sum = [value].into_iter().collect();
        for doubled in 1..=40 {
            let same = sum.clone();
            sum.merge(&same);
            assert_eq!(sum.total(), value * power(doubled), "2^{doubled} times {value}");
            assert_eq!(sum.mean(1 << doubled), value, "2^{doubled} times {value}");
        }
    }
}

#[test]
fn common_sums_are_short() {
    let sum: Sum = [0.0, -1.5, 3.8e-9, 2.3e21, -0.0, 60.0].into_iter().collect();
    assert_eq!(bytes(&sum).len(), Int192::BYTES);
    let mut sum: Sum = [1e-12].into_iter().collect();
    assert_eq!(bytes(&sum).len(), Int192::BYTES + 25);
    sum.subtract(1e-12);
    assert_eq!(bytes(&sum), [0; 24]);
}

#[test]
fn bytes_of_no_sum_are_refused() {
    let mut whole = bytes(&[1.0, 1e-12, f64::NAN].into_iter().collect());
    assert_eq!(whole.len(), 24 + 25 + 25);
    for len in (0..whole.len()).filter(|len| ![24, 49].contains(len)) {
        assert_eq!(Sum::read(&whole[..len]), None, "{len} bytes");
    }
    whole[24] = HOME as u8;
    assert_eq!(Sum::read(&whole), None, "the home band twice");
    whole[24] = 24;
    assert_eq!(Sum::read(&whole), None, "bands out of order");
    let zero = [vec![0; 24], vec![3], vec![0; 24]].concat();
    assert_eq!(Sum::read(&zero), None, "a zero in place of nothing");
    let beyond = [vec![0; 24], vec![25], vec![1; 24]].concat();
    assert_eq!(Sum::read(&beyond), None, "a band beyond the last");
}

#[test]
fn quotients_are_rounded_once() {
    let mut random = Random::new(22);
    for _ in 0..4_000 {
        let shift = random.below(127);
        let left = ((i128::from(random.bits() as i64) << 64) | i128::from(random.bits())) >> shift;
        let right = (random.bits() >> random.below(64)).max(1);
        let said = quotient(left, right);
        assert_eq!(said.to_bits(), (oracle::quotient(left, right) + 0.0).to_bits(), "{left} / {right}");
    }
    // 1 / r = (h + 1 / r) / 2^116, where h has 54 bits: more than a half by less than 2^-177.
    let (h, r) = (14596183908992537_u64, 5691676006176836055_u64);
    assert_eq!(u128::from(h) * u128::from(r), (1 << 116) - 1);
    assert_eq!(quotient(1, r), (h + 1) as f64 / power(116));
    assert_eq!(quotient(1, r), oracle::quotient(1, r));
    assert_eq!(quotient(-0, 3).to_bits(), 0);
    assert_eq!(quotient(9007199254740993 * 3, 3), 9007199254740992.0);
}
