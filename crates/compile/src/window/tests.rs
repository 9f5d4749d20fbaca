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

/// Returns the entries: slices and values.
fn entries_of(bytes: &[u8]) -> Vec<(i64, i64)> {
    bytes.chunks_exact(16).map(|entry| (word(entry), word(&entry[8..]))).collect()
}

#[test]
fn distinct_words_are_kept_once_and_in_runs() {
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let slices = Slices { count: *random.pick(&[1, 2, 5, 300]), slide: 10, time: Type::Int };
        let window = Window { value: Type::Int, keep: Keep::Distinct(slices) };
        let (values, steps) = (*random.pick(&[3, 40, 1_000, 1_000_000]), *random.pick(&[0, 1, 7]));
        let (mut bytes, mut time) = (Vec::new(), random.int(-50, 50));
        let mut last_slices = std::collections::BTreeMap::new();
        for _ in 0..3_000 {
            if random.chance(steps) {
                time += random.int(0, 30);
            }
            let value = random.int(-values, values);
            // An earlier time counts for the newest slice.
            let before = time - random.int(0, 3);
            let newest = last_slices.values().copied().max().unwrap_or(i64::MIN);
            let now = before.div_euclid(10).max(newest);
            added(&window, &mut bytes, before, Item::Word(value));
            last_slices.insert(value, now);
            last_slices.retain(|_, slice| *slice > now - slices.count);
        }
        let entries = entries_of(&bytes);
        let mut expected: Vec<(i64, i64)> = last_slices.iter().map(|(&value, &slice)| (slice, value)).collect();
        let mut sorted = entries.clone();
        sorted.sort_unstable();
        expected.sort_unstable();
        assert_eq!(sorted, expected, "seed {seed}, {slices:?}");
        assert!(entries.is_sorted_by_key(|entry| entry.0), "seed {seed}: slices in order");
        let of_slices: Vec<_> = entries.chunk_by(|one, next| one.0 == next.0).collect();
        let (newest, before) = of_slices.split_last().expect("there are values");
        assert!(before.iter().all(|of_slice| of_slice.is_sorted()), "seed {seed}: a slice is one run");
        let mut rest = *newest;
        while let Some(size) = rest.len().checked_ilog2().map(|bit| 1 << bit) {
            let (run, others) = rest.split_at(size);
            assert!(run.is_sorted(), "seed {seed}: runs of the sizes of bits");
            rest = others;
        }
        for within in [1, 2, slices.count] {
            let now = newest[0].0;
            let count = last_slices.values().filter(|&&slice| slice > now - within).count();
            let answer = read(&window, &bytes, now * 10, within, Aggregate::Distinct);
            assert_eq!(answer, Answer::Word(count as i64), "seed {seed}, of {within}");
        }
    }
}
