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
    let mut in_place = 0;
    for seed in 0..2_000 {
        let mut random = Random::new(seed);
        let slices = Slices { count: *random.pick(&[1, 1, 2, 3]), slide: 10, time: Type::Int };
        let keep = *random.pick(&[Keep::Slices(slices), Keep::Moments(slices)]);
        let window = Window { value: *random.pick(&[Type::Int, Type::Float]), keep };
        let mut time = random.int(-20, 20);
        let mut whole = Vec::new();
        let mut parts = vec![Vec::new(); random.between(1, 4)];
        let count = parts.len();
        for part in &mut parts {
            for _ in 0..random.below(2 * count) {
                time += *random.pick(&[0, 0, 0, 0, 0, 1, 1, 6, 17]);
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

#[test]
fn shifted_windows_have_the_bytes_of_shifted_values() {
    let slices = Slices { count: 3, slide: 10, time: Type::Int };
    let window = Window { value: Type::Int, keep: Keep::Slices(slices) };
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let by = *random.pick(&[0, 1, -7, 1 << 40]);
        let [mut bytes, mut expected] = [Vec::new(), Vec::new()];
        for time in 0..random.int(0, 40) {
            let value = random.int(-1000, 1000);
            added(&window, &mut bytes, time, Item::Word(value));
            added(&window, &mut expected, time, Item::Word(value + by));
        }
        shift(&mut bytes, by);
        assert_eq!(bytes, expected, "seed {seed}");
    }
}
