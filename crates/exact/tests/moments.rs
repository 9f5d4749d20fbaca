//! Variances of whole numbers and floats, and the bytes of moments.

use tidemill_exact::{Moments, Of, Population};
use tidemill_random::Random;

fn of(values: &[f64]) -> Moments {
    let mut moments = Moments::default();
    values.iter().for_each(|&value| moments.add(value));
    moments
}

fn words(values: &[i64]) -> Moments {
    let mut moments = Moments::default();
    values.iter().for_each(|&value| moments.add_word(value));
    moments
}

fn bytes(moments: &Moments) -> Vec<u8> {
    let mut bytes = vec![];
    moments.write(&mut bytes);
    bytes
}

/// Sample variance and deviation, as Python's `statistics` has them.
#[test]
fn they_are_as_python_has_them() {
    let cases: &[(&[f64], f64, f64)] = &[
        (&[1e200, 1e200], 0.0, 0.0),
        (&[1e200, -1e200], f64::INFINITY, 1.414213562373095e200),
        (&[0.1, 0.2, 0.3], 0.009999999999999998, 0.09999999999999999),
        (&[1e16, 1e16 + 2.0, 1e16 + 4.0], 4.0, 2.0),
        (&[5e-324, 0.0], 0.0, 5e-324),
        (&[1e-160, 3e-160, 8e-160], 1.3e-319, 3.6055512754639896e-160),
        (&[2.5, 3.25, 5.5, 11.25, 11.75], 19.26875, 4.389618434442793),
    ];
    for &(values, variance, deviation) in cases {
        let moments = of(values);
        assert_eq!(moments.variance(Of::Floats, Population::Sample), Some(variance), "{values:?}");
        assert_eq!(moments.deviation(Of::Floats, Population::Sample), Some(deviation), "{values:?}");
    }
    let (int, cents) = (Of::Words { scale: 0 }, Of::Words { scale: 2 });
    assert_eq!(words(&[i64::MIN, i64::MAX]).variance(int, Population::Whole), Some(8.507059173023462e37));
    assert_eq!(words(&[1, 2, 3, 4]).variance(int, Population::Sample), Some(5.0 / 3.0));
    assert_eq!(words(&[100, 250, 275]).variance(cents, Population::Sample), Some(0.8958333333333334));
    assert_eq!(words(&[1, 2]).deviation(int, Population::Whole), Some(0.5));
}

#[test]
fn too_few_values_have_none() {
    assert_eq!(of(&[]).variance(Of::Floats, Population::Whole), None);
    assert_eq!(of(&[1.0]).variance(Of::Floats, Population::Sample), None);
    assert_eq!(of(&[1.0]).deviation(Of::Floats, Population::Whole), Some(0.0));
    assert_eq!(of(&[f64::NAN]).variance(Of::Floats, Population::Sample), None);
    assert!(of(&[f64::NEG_INFINITY, 1.0]).variance(Of::Floats, Population::Sample).is_some_and(f64::is_nan));
}

#[test]
fn neither_order_nor_grouping_can_be_seen() {
    for seed in 0..2_000 {
        let mut random = Random::new(seed);
        let mut values: Vec<f64> = (0..random.below(12)).map(|_| f64::from_bits(random.bits())).collect();
        let whole = of(&values);
        assert_eq!(Moments::read(&bytes(&whole)).as_ref(), Some(&whole), "{values:?}");
        let middle = random.below(values.len() as u64 + 1) as usize;
        let mut merged = of(&values[middle..]);
        merged.merge(&of(&values[..middle]));
        assert_eq!(bytes(&merged), bytes(&whole), "{values:?}");
        values.reverse();
        assert_eq!(of(&values), whole);
        let ints: Vec<i64> = (0..random.below(6)).map(|_| random.bits() as i64 >> random.below(64)).collect();
        let whole = words(&ints);
        assert_eq!(Moments::read(&bytes(&whole)).as_ref(), Some(&whole), "{ints:?}");
    }
}

/// Whole numbers are floats too; both ways to the variance meet.
#[test]
fn words_and_floats_agree() {
    for seed in 0..2_000 {
        let mut random = Random::new(seed);
        let ints: Vec<i64> = (0..random.below(9)).map(|_| random.bits() as i64 >> (11 + random.below(53))).collect();
        let floats: Vec<f64> = ints.iter().map(|&int| int as f64).collect();
        for population in [Population::Sample, Population::Whole] {
            let (a, b) = (words(&ints), of(&floats));
            assert_eq!(a.variance(Of::Words { scale: 0 }, population), b.variance(Of::Floats, population), "{ints:?}");
            assert_eq!(
                a.deviation(Of::Words { scale: 0 }, population),
                b.deviation(Of::Floats, population),
                "{ints:?}"
            );
        }
    }
}

#[test]
fn bytes_that_are_cut_short_are_none() {
    let whole = bytes(&of(&[1.5, -2e300, 3e-300]));
    assert!((0..whole.len()).all(|len| Moments::read(&whole[..len]).is_none()));
}
