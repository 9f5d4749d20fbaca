use super::*;
use tidemill_histories::Random;
use tidemill_plan::Slices;

/// One value more, where the bytes are if that may be.
fn added(window: &Window, bytes: &mut Vec<u8>, time: i64, item: Item<'_>) -> bool {
    let mut tail = Vec::new();
    let edit = add(window, bytes, time, item, &mut tail);
    let expected = edit.pieces(bytes, &tail).concat();
    let here = add_here(window, bytes, time, item);
    if here {
        assert_eq!(*bytes, expected, "in place it is the same");
    }
    *bytes = expected;
    here
}

fn merged(window: &Window, bytes: &[u8], other: &[u8]) -> Vec<u8> {
    let mut tail = Vec::new();
    merge(window, bytes, other, &mut tail).pieces(bytes, &tail).concat()
}

fn float(random: &mut Random) -> f64 {
    let near = random.int(-1000, 1000) as f64 / 8.0;
    *random.pick(&[near, near, near, 0.0, -0.0, 1e-300, -1e300, 1e300, f64::NAN, f64::INFINITY, f64::NEG_INFINITY])
}

#[test]
fn merged_windows_have_the_bytes_of_all_values() {
    let slices = Slices { count: 1, slide: 10, time: Type::Int };
    let mut in_place = 0;
    for seed in 0..2_000 {
        let mut random = Random::new(seed);
        let keep = *random.pick(&[Keep::Slices(slices), Keep::Moments(slices)]);
        let window = Window { value: *random.pick(&[Type::Int, Type::Float]), keep };
        let slice = random.int(-2, 2) * 10;
        let mut whole = Vec::new();
        let mut parts = vec![Vec::new(); random.between(1, 4)];
        let count = parts.len();
        for part in &mut parts {
            for _ in 0..random.below(2 * count) {
                let time = slice + random.int(0, 9);
                let value = float(&mut random);
                let item = match window.value {
                    Type::Float => Item::Float(value),
                    _ => Item::Word(value as i64),
                };
                in_place += usize::from(added(&window, &mut whole, time, item));
                added(&window, part, time, item);
            }
        }
        let united = parts.iter().fold(Vec::new(), |bytes, part| merged(&window, &bytes, part));
        assert_eq!(united, whole, "seed {seed}, {window:?}");
    }
    assert!(in_place > 1_000, "{in_place} values were added in place");
}
