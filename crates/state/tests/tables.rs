//! Tables through their public interface: slots of keys of every shape, sweeping, whole tables in and out.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use tidemill_model::arrow::{batch_of, rows};
use tidemill_model::{ColumnType, Schema, Type, Value};
use tidemill_plan::{Column, Table as Definition};
use tidemill_state::memory::bind_to_node;
use tidemill_state::{
    EXISTS, Generation, Homes, Image, KeyColumn, KeyTexts, Keys, PreloadError, RecentKeys, RowAddress, Table,
    hash_word, socket_of, virtual_node_of,
};

fn definition(key: &[Type], others: &[ColumnType]) -> Definition {
    let keys = key.iter().map(|&ty| ColumnType::required(ty));
    let columns = keys.chain(others.iter().copied()).enumerate();
    let columns = columns.map(|(i, ty)| Column::new(format!("c{i}"), ty)).collect();
    Definition {
        name: "things".into(),
        columns,
        key: (0..key.len()).collect(),
        indexes: vec![],
        groups: None,
        was: None,
        expire: None,
        is_hidden: false,
        owner: None,
    }
}

fn numbers() -> Table {
    Table::new(&definition(&[Type::Int], &[ColumnType::required(Type::Int)]))
}

fn texts() -> Table {
    Table::new(&definition(&[Type::Str], &[ColumnType::optional(Type::Str)]))
}

fn resolve(table: &Table, columns: &[KeyColumn<'_>], len: usize) -> Vec<RowAddress> {
    let mut out = vec![0; len];
    table.resolve(&Keys { columns, nulls: None, len }, &mut out);
    out
}

fn resolve_words(table: &Table, words: &[u64]) -> Vec<RowAddress> {
    resolve(table, &[KeyColumn::Words(words)], words.len())
}

fn resolve_texts(table: &Table, texts: &[String]) -> Vec<RowAddress> {
    let slices: Vec<&[u8]> = texts.iter().map(|t| t.as_bytes()).collect();
    resolve(table, &[KeyColumn::Texts(KeyTexts::new(&slices))], texts.len())
}

fn preload(table: &Table, records: &[Vec<Value>]) -> Result<(), PreloadError> {
    table.preload(&batch_of(&table.schema(), records))
}

fn contents(table: &Table) -> Vec<Vec<Value>> {
    rows(&table.to_batch().expect("all in memory"), &table.schema())
}

fn word(row: RowAddress) -> u64 {
    // SAFETY: called with slots; a header is a word.
    unsafe { (row as *const u64).read() }
}

fn sweep(table: &Table) {
    // SAFETY: the tests keep no address of a missing row after it.
    unsafe { table.sweep() }
}

fn str(text: impl Into<String>) -> Value {
    Value::Str(text.into())
}

/// Distributions of whole-number keys: in sequence, contiguous far from 0, scattered, and a mixture.
const SPREADS: [fn(u64) -> u64; 4] = [
    |key| key,
    |key| (key as i64 - 5_000_000) as u64,
    hash_word,
    |key| if key.is_multiple_of(3) { hash_word(key) } else { key },
];

#[test]
fn a_key_has_one_slot_for_ever() {
    SPREADS.into_iter().for_each(has_one_slot_for_ever);
}

fn has_one_slot_for_ever(spread: fn(u64) -> u64) {
    let table = numbers();
    let keys: Vec<u64> = (0..50_000).map(|i| spread((i * 7919) % 20_011)).collect();
    let first = resolve_words(&table, &keys);
    let mut known = HashMap::new();
    for (key, row) in keys.iter().zip(&first) {
        assert_ne!(*row, 0);
        assert_eq!(*known.entry(key).or_insert(row), row, "key {key}");
    }
    let slots: BTreeSet<_> = known.values().collect();
    assert_eq!(slots.len(), known.len(), "two keys share a slot");
    assert_eq!(table.stats().slots, known.len());
    assert_eq!(resolve_words(&table, &keys), first, "growing moves no row");
    let size = table.layout().size() as u64;
    assert!(slots.iter().all(|&&row| row % size == 0), "a small row does not straddle cache lines");
}

#[test]
fn keys_by_an_index_are_the_same_keys() {
    SPREADS.into_iter().for_each(are_the_same_by_an_index);
}

fn are_the_same_by_an_index(spread: fn(u64) -> u64) {
    let table = numbers();
    let words: Vec<u64> = (0..100).map(spread).collect();
    let index: Vec<u32> = (0..300).map(|i| i * 7 % 100).collect();
    let indexed = resolve(&table, &[KeyColumn::Indexed(&words, &index)], index.len());
    let direct: Vec<u64> = index.iter().map(|&i| words[i as usize]).collect();
    assert_eq!(indexed, resolve_words(&table, &direct));
}

/// Keys whose hashes agree in the virtual node, in the tag of the index and in the lowest bits.
#[test]
fn keys_with_like_hashes_are_told_apart() {
    let mut groups: HashMap<u64, Vec<u64>> = HashMap::new();
    // Scattered keys, because the hashes of consecutive keys agree less often than by chance.
    for key in (0..3_000_000).map(hash_word) {
        groups.entry(hash_word(key) >> 41 << 2 | hash_word(key) & 3).or_default().push(key);
    }
    let mut groups: Vec<Vec<u64>> = groups.into_values().filter(|g| g.len() >= 3).collect();
    groups.sort();
    assert!(groups.len() > 50, "{} groups", groups.len());
    let keys: Vec<u64> = groups.concat();
    let table = numbers();
    let rows = resolve_words(&table, &keys);
    assert_eq!(rows.iter().collect::<BTreeSet<_>>().len(), keys.len());
    assert_eq!(resolve_words(&table, &keys), rows);
}

/// Enough rows in one virtual node that its index overflows from bucket to bucket.
#[test]
fn a_crowded_node_finds_its_rows() {
    let keys: Vec<u64> =
        (0..3_000_000).filter(|&k| virtual_node_of(hash_word(k)) == 77 && hash_word(k) & 0xff == 5).collect();
    assert!(keys.len() > 30);
    let table = numbers();
    let rows = resolve_words(&table, &keys);
    assert_eq!(rows.iter().collect::<BTreeSet<_>>().len(), keys.len());
    assert_eq!(resolve_words(&table, &keys), rows);
    let absent = resolve_words(&table, &[u64::MAX]);
    assert!(!rows.contains(&absent[0]));
}

#[test]
fn a_null_key_has_no_slot() {
    let table = texts();
    let keys = ["a".to_owned(), String::new(), "a".to_owned(), "b".to_owned()];
    let slices: Vec<&[u8]> = keys.iter().map(|t| t.as_bytes()).collect();
    let nulls = [false, true, true, false];
    let mut out = [9; 4];
    let columns = [KeyColumn::Texts(KeyTexts::new(&slices))];
    table.resolve(&Keys { columns: &columns, nulls: Some(&nulls), len: 4 }, &mut out);
    assert_eq!([out[1], out[2]], [0, 0]);
    assert!(out[0] != 0 && out[3] != 0 && out[0] != out[3]);
    assert_eq!(table.stats().slots, 2, "not even for the empty text of a null");
}

#[test]
fn text_keys_are_their_bytes() {
    let table = texts();
    let mut keys: Vec<String> = (0..2_000).map(|i| format!("key {i} {}", "x".repeat(i % 40))).collect();
    keys.extend(["".into(), "\0".into(), "\0\0".into(), "é".into(), "e\u{301}".into()]);
    let rows = resolve_texts(&table, &keys);
    assert_eq!(rows.iter().collect::<BTreeSet<_>>().len(), keys.len());
    keys.reverse();
    let mut again = resolve_texts(&table, &keys);
    again.reverse();
    assert_eq!(again, rows);
}

#[test]
fn composite_keys_are_all_their_parts_in_order() {
    let table = Table::new(&definition(&[Type::Str, Type::Int, Type::Str], &[ColumnType::required(Type::Int)]));
    let parts = ["", "a", "ab", "b"];
    let mut keys = Vec::new();
    // Enough for the indexes to grow.
    for n in (0..400).chain([u64::MAX]) {
        for l in parts {
            keys.extend(parts.map(|r| (l, n, r)));
        }
    }
    let texts = |of: fn(&(&'static str, u64, &'static str)) -> &'static str| -> Vec<&[u8]> {
        keys.iter().map(|k| of(k).as_bytes()).collect()
    };
    let (left, right) = (texts(|k| k.0), texts(|k| k.2));
    let words: Vec<u64> = keys.iter().map(|k| k.1).collect();
    let index: Vec<u32> = (0..keys.len() as u32).collect();
    let (left, right) = (KeyColumn::Texts(KeyTexts::new(&left)), KeyColumn::Texts(KeyTexts::new(&right)));
    let rows = resolve(&table, &[left, KeyColumn::Words(&words), right], keys.len());
    assert_eq!(rows.iter().collect::<BTreeSet<_>>().len(), keys.len());
    assert_eq!(resolve(&table, &[left, KeyColumn::Indexed(&words, &index), right], keys.len()), rows);
    // A sweep rehashes the keys of the rows that stay, from the rows.
    for row in rows.iter().enumerate().filter(|(i, _)| i % 4 > 0).map(|(_, row)| *row) {
        // SAFETY: a slot of the table; no other thread has it.
        unsafe { (row as *mut u64).write(EXISTS) };
    }
    sweep(&table);
    let again = resolve(&table, &[left, KeyColumn::Words(&words), right], keys.len());
    let stay = again.iter().zip(&rows).enumerate().filter(|(i, _)| i % 4 > 0);
    assert!(stay.map(|(_, rows)| rows).all(|(again, row)| again == row), "rows that exist stay where they are");
}

#[test]
fn preload_gives_back_what_it_got_sorted_by_key() {
    let others =
        [Type::Bool, Type::Int, Type::Float, Type::Decimal { digits: 9, scale: 2 }, Type::Time, Type::Str, Type::Bytes];
    let others: Vec<ColumnType> = others.into_iter().map(ColumnType::optional).collect();
    let table = Table::new(&definition(&[Type::Str, Type::Int], &others));
    let given = |k: i64| {
        let key = [str(format!("k{}", k % 7)), Value::Int(k * 37 % 100 - 50)];
        let values = [
            Value::Bool(k % 2 == 0),
            Value::Int(i64::MIN + k),
            Value::Float(-0.0 * k as f64),
            Value::Decimal(-k),
            Value::Time(k),
            str("é".repeat(k as usize % 5)),
            Value::Bytes(vec![k as u8; k as usize % 9]),
        ];
        // Every column is null in some row, and together with every other.
        let values = values.into_iter().enumerate().map(move |(c, v)| if k >> c & 1 == 1 { Value::Null } else { v });
        key.into_iter().chain(values).collect::<Vec<Value>>()
    };
    let mut records: Vec<Vec<Value>> = (0..100).map(given).collect();
    preload(&table, &records[..50]).expect("distinct keys");
    preload(&table, &records[50..]).expect("distinct keys");
    records.sort_by_key(|r| (r[0].to_string(), r[1].word()));
    assert_eq!(format!("{:?}", contents(&table)), format!("{records:?}"));
    assert_eq!(format!("{:?}", contents(&copied(&table))), format!("{records:?}"));
}

/// Returns a copy of the table, made from a snapshot of it, filled in three shares.
fn copied(table: &Table) -> Table {
    copied_to(table, &Homes::default())
}

/// Returns a copy of the table on these sockets.
fn copied_to(table: &Table, homes: &Homes) -> Table {
    let copy = Table::with_homes(table.definition(), homes);
    // SAFETY: the tests run no transactions.
    unsafe { table.begin_snapshot(Generation::Even, true) };
    for nodes in [0..100, 100..101, 101..256] {
        let mut image = Image::new(table.shape());
        for node in nodes.clone() {
            // SAFETY: as above.
            let captured = unsafe { table.capture(node) };
            (0..captured.len()).for_each(|row| image.push_of(&captured, row));
        }
        assert_eq!(table.image_batch(&image).num_rows(), image.len());
        copy.put(copy.fill_nodes(nodes, &image));
    }
    table.end_snapshot();
    copy
}

#[test]
fn words_sort_as_signed_numbers() {
    let table = numbers();
    let keys = [5, -1, i64::MAX, 0, i64::MIN, -7];
    let record = |k: &i64| vec![Value::Int(*k), Value::Int(k.wrapping_mul(2))];
    preload(&table, &keys.iter().map(record).collect::<Vec<_>>()).expect("distinct keys");
    let mut sorted = keys;
    sorted.sort_unstable();
    assert_eq!(contents(&table), sorted.iter().map(record).collect::<Vec<_>>());
}

#[test]
fn a_table_with_many_columns_keeps_its_null_bits_apart() {
    let others = vec![ColumnType::optional(Type::Int); 150];
    let table = Table::new(&definition(&[Type::Int], &others));
    let record = |k: i64| {
        let value = |c: i64| if (c + k) % 3 == 0 { Value::Null } else { Value::Int(c * k) };
        std::iter::once(Value::Int(k)).chain((0..150).map(value)).collect::<Vec<_>>()
    };
    let records: Vec<_> = (0..10).map(record).collect();
    preload(&table, &records).expect("distinct keys");
    assert_eq!(contents(&table), records);
    assert_eq!(contents(&copied(&table)), records);
}

#[test]
fn preload_refuses_a_key_twice() {
    let table = Table::new(&definition(&[Type::Str, Type::Int], &[]));
    let row = |a: &str, b: i64| vec![str(a), Value::Int(b)];
    let error = preload(&table, &[row("a", 1), row("b", 1), row("a", 1)]).expect_err("a key twice");
    assert_eq!(error.to_string(), "table 'things' is given two rows with the key \"a\", 1");
    let table = numbers();
    preload(&table, &[vec![Value::Int(3), Value::Int(0)]]).expect("one row");
    let error = preload(&table, &[vec![Value::Int(3), Value::Int(1)]]).expect_err("a key twice");
    assert_eq!(error.to_string(), "table 'things' is given two rows with the key 3");
}

#[test]
fn preload_refuses_a_null_key_before_it_adds_anything() {
    let table = texts();
    let schema = Schema::scalars([("c0", ColumnType::optional(Type::Str)), ("c1", ColumnType::optional(Type::Str))]);
    let batch = batch_of(&schema, &[vec![str("a"), str("x")], vec![Value::Null, str("y")]]);
    let error = table.preload(&batch).expect_err("a null key");
    assert_eq!(error.to_string(), "table 'things' is given a row without a key (row 1 of its batch)");
    assert!(contents(&table).is_empty());
}

#[test]
fn touching_a_key_does_not_make_its_row_exist() {
    let table = numbers();
    let rows = resolve_words(&table, &[1, 2, 3]);
    assert!(rows.iter().all(|&row| word(row) & EXISTS == 0));
    assert!(contents(&table).is_empty());
    preload(&table, &[vec![Value::Int(2), Value::Int(20)]]).expect("the slot is free");
    assert_eq!(contents(&table), [vec![Value::Int(2), Value::Int(20)]]);
    assert_eq!(table.stats().slots, 3);
}

/// Few keys, more keys than the cache holds, so many that it is bypassed, and few again; some several times in a
/// batch.
#[test]
fn recent_keys_are_where_the_table_has_them() {
    let table = numbers();
    let mut recent = RecentKeys::default();
    let mut state = 7_u64;
    for (batch, different) in [(0, 50), (1, 50), (2, 20_000), (3, 3_000_000), (4, 50), (5, 0)] {
        for _ in 0..40 {
            let mut key = || {
                state = hash_word(state + 1);
                // Hashed, so that the array does not have them: a lookup there is as cheap as one in the cache.
                hash_word(state % (different + 1))
            };
            let words: Vec<u64> = (0..5000).map(|_| key()).collect();
            let index: Vec<u32> = (0..words.len() as u32).rev().collect();
            let is_indexed = batch % 2 == 1;
            let column = if is_indexed { KeyColumn::Indexed(&words, &index) } else { KeyColumn::Words(&words) };
            let mut rows = vec![0; words.len()];
            let columns = [column];
            recent.resolve(&table, &Keys { columns: &columns, nulls: None, len: words.len() }, &mut rows);
            if is_indexed {
                rows.reverse();
            }
            assert_eq!(rows, resolve_words(&table, &words), "batch {batch}");
        }
    }
}

#[test]
fn recent_keys_forget_what_was_swept() {
    let table = numbers();
    let mut recent = RecentKeys::default();
    let words: Vec<u64> = (0..1000).map(hash_word).collect();
    let mut look_up = || {
        let mut rows = vec![0; words.len()];
        let columns = [KeyColumn::Words(&words)];
        recent.resolve(&table, &Keys { columns: &columns, nulls: None, len: words.len() }, &mut rows);
        rows
    };
    look_up();
    sweep(&table);
    // Other keys get the slots.
    let others: Vec<u64> = (5000..6000).map(hash_word).collect();
    resolve_words(&table, &others);
    let rows = look_up();
    assert_eq!(rows, resolve_words(&table, &words));
    let others: BTreeSet<RowAddress> = resolve_words(&table, &others).into_iter().collect();
    assert!(rows.iter().all(|row| !others.contains(row)));
}

#[test]
fn a_sweep_frees_missing_rows_and_their_slots_are_used_again() {
    let table = numbers();
    let live: Vec<Vec<Value>> = (0..1_000).map(|k| vec![Value::Int(k), Value::Int(k * k)]).collect();
    preload(&table, &live).expect("distinct keys");
    let kept = resolve_words(&table, &(0..1_000).collect::<Vec<_>>());
    let missing: Vec<u64> = (1_000..80_000).collect();
    assert!(!table.wants_sweep());
    resolve_words(&table, &missing);
    assert!(table.wants_sweep(), "there are 80,000 slots");
    let before = table.stats();
    sweep(&table);
    assert!(!table.wants_sweep());
    assert_eq!(table.stats().slots, 1_000);
    assert_eq!(resolve_words(&table, &(0..1_000).collect::<Vec<_>>()), kept, "rows that exist stay where they are");
    assert_eq!(contents(&table), live);
    // Several times, as many other keys need no more memory.
    for round in 1..4 {
        let others: Vec<u64> = missing.iter().map(|k| k + round * 1_000_000).collect();
        let rows = resolve_words(&table, &others);
        assert_eq!(rows.iter().collect::<BTreeSet<_>>().len(), others.len());
        assert!(rows.iter().all(|&row| word(row) == 0), "a slot that is used again is as good as new");
        sweep(&table);
    }
    let after = table.stats();
    assert!(after.row_bytes < before.row_bytes * 5 / 4, "{before:?} became {after:?}");
    assert_eq!(contents(&table), live);
}

/// Whole numbers of every density, in order and scattered, with sweeps now and then. At any time each key that was
/// not swept keeps its slot, and the array is never more than half empty.
#[test]
fn keys_move_to_the_array_and_back() {
    let mut random = 1;
    let mut next = move |below: u64| {
        random = hash_word(random);
        random % below
    };
    for _ in 0..60 {
        let table = numbers();
        let mut slots: BTreeMap<u64, RowAddress> = BTreeMap::new();
        for _ in 0..20 {
            let (start, step) = (next(2_000), 1 + next(4));
            let mut keys: Vec<u64> = (0..1 + next(1_500)).map(|i| start + i * step).collect();
            match next(5) {
                0 => keys.iter_mut().for_each(|key| *key = hash_word(*key)),
                1 => keys.iter_mut().for_each(|key| *key = key.wrapping_neg()),
                2 => keys.sort_unstable_by_key(|&key| hash_word(key)),
                _ => {}
            }
            for (key, row) in keys.iter().zip(resolve_words(&table, &keys)) {
                assert_eq!(*slots.entry(*key).or_insert(row), row, "key {key}");
            }
            let known: Vec<u64> = slots.keys().copied().collect();
            assert_eq!(resolve_words(&table, &known), slots.values().copied().collect::<Vec<_>>());
            assert_eq!(slots.values().collect::<BTreeSet<_>>().len(), slots.len(), "two keys share a slot");
            assert_eq!(table.stats().slots, slots.len());
            if next(3) == 0 {
                let (kept, bound) = (1 + next(9), next(3_000));
                slots.retain(|key, row| {
                    let keep = *key < bound || key % 10 < kept;
                    // SAFETY: a slot; nothing else runs.
                    unsafe { (*row as *mut u64).write(if keep { EXISTS } else { 0 }) };
                    keep
                });
                sweep(&table);
                assert_eq!(contents(&table).len(), slots.len());
            }
        }
    }
}

#[test]
fn an_array_is_no_larger_than_its_keys_justify() {
    let table = numbers();
    for key in 0..100_000 {
        resolve_words(&table, &[key]);
    }
    let sequence = table.stats().index_bytes;
    assert!(sequence < 256 * 64 + 8 * 2 * 100_000, "{sequence} bytes");
    let table = numbers();
    let every_third: Vec<u64> = (0..100_000).map(|key| key * 3).collect();
    resolve_words(&table, &every_third);
    let scattered = table.stats().index_bytes;
    assert!(scattered < 30 * 100_000, "{scattered} bytes");
}

#[test]
fn a_sweep_frees_and_reuses_text() {
    let table = texts();
    let long = |k: u64| format!("{k}{}", "y".repeat(30));
    let live: Vec<Vec<Value>> = (0..50).map(|k| vec![str(long(k)), str(format!("value {k}"))]).collect();
    preload(&table, &live).expect("distinct keys");
    for round in 0..5 {
        let keys: Vec<String> = (0..2_000).map(|k| long(1_000 + round * 10_000 + k)).collect();
        let rows = resolve_texts(&table, &keys);
        assert_eq!(rows.iter().collect::<BTreeSet<_>>().len(), keys.len());
        assert_eq!(resolve_texts(&table, &keys), rows);
        sweep(&table);
        assert_eq!(table.stats().slots, 50);
    }
    let mut sorted = live.clone();
    sorted.sort_by_key(|r| r[0].to_string());
    assert_eq!(contents(&table), sorted);
    // After the sweep the key can be inserted again.
    preload(&table, &[vec![str(long(1_000)), Value::Null]]).expect("it was swept");
}

#[test]
fn what_a_sweep_empties_can_be_filled_again() {
    let table = numbers();
    for round in 0..3 {
        resolve_words(&table, &(round * 500..(round + 1) * 500).collect::<Vec<_>>());
        sweep(&table);
        assert_eq!(table.stats().slots, 0);
    }
    preload(&table, &[vec![Value::Int(1), Value::Int(2)]]).expect("an empty table");
    assert_eq!(contents(&table).len(), 1);
}

/// Resolves keys that are made from numbers in some way.
type Resolve = Box<dyn Fn(&Table, &[u64]) -> Vec<RowAddress> + Sync>;

/// Several threads resolve the same new keys at once, in different orders.
#[test]
fn threads_agree_on_slots() {
    let pairs = || Table::new(&definition(&[Type::Int, Type::Int], &[ColumnType::required(Type::Int)]));
    let spread = |spread: fn(u64) -> u64| -> Resolve {
        Box::new(move |table, keys| resolve_words(table, &keys.iter().map(|&key| spread(key)).collect::<Vec<_>>()))
    };
    let mut shapes: Vec<(Table, Resolve)> = SPREADS.into_iter().map(|of| (numbers(), spread(of))).collect();
    let named = |table: &Table, keys: &[u64]| {
        resolve_texts(table, &keys.iter().map(|key| format!("name {key}")).collect::<Vec<_>>())
    };
    shapes.push((texts(), Box::new(named)));
    let paired = |table: &Table, keys: &[u64]| {
        let parts = |part: fn(u64) -> u64| keys.iter().map(|&key| part(key)).collect::<Vec<_>>();
        let (left, right) = (parts(|key| key % 100), parts(|key| key / 100));
        resolve(table, &[KeyColumn::Words(&left), KeyColumn::Words(&right)], keys.len())
    };
    shapes.push((pairs(), Box::new(paired)));
    // Few keys at a time, of which some exist; enough keys that each thread makes slots in every shard; and small
    // tables that grow again and again.
    for (keys, of_batch) in [(10_000, 500), (60_000, 10_000)].into_iter().chain([(200, 20); 100]) {
        shapes.iter_mut().for_each(|(table, _)| *table = Table::new(table.definition()));
        shapes.iter().for_each(|(table, resolve)| agree_on_slots(table, resolve, keys, of_batch));
    }
}

/// Four threads resolve all of these keys, each in another order, and a fifth looks up existing ones.
fn agree_on_slots(table: &Table, resolve: &Resolve, keys: u64, of_batch: u64) {
    let half = of_batch / 2;
    // Each batch shares half of its keys with the next.
    let keys_of = |batch: u64, thread: usize| -> Vec<u64> {
        (0..of_batch).map(|i| (batch * half + (i * [1, 3, 7, 499][thread] + thread as u64) % of_batch) % keys).collect()
    };
    resolve(table, &[0]);
    let is_done = std::sync::atomic::AtomicBool::new(false);
    let found: Vec<BTreeMap<u64, RowAddress>> = std::thread::scope(|scope| {
        let resolve_all = |thread: usize| {
            move || {
                let mut found = BTreeMap::new();
                for keys in (0..keys / half).map(|batch| keys_of(batch, thread)) {
                    for (key, row) in keys.iter().zip(resolve(table, &keys)) {
                        assert_eq!(*found.entry(*key).or_insert(row), row, "key {key} moved");
                    }
                }
                found
            }
        };
        let first = scope.spawn(|| {
            let row = resolve(table, &[0])[0];
            while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                assert_eq!(resolve(table, &[0; 64]), [row; 64]);
            }
        });
        let threads: Vec<_> = (0..4).map(|thread| scope.spawn(resolve_all(thread))).collect();
        let found: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        is_done.store(true, std::sync::atomic::Ordering::Relaxed);
        first.join().expect("no panic");
        found.into_iter().map(|found| found.expect("no panic")).collect()
    });
    for other in &found {
        assert_eq!(other.len() as u64, keys);
        let differs = other.iter().zip(&found[0]).find(|(l, r)| l != r).map(|(l, _)| *l.0);
        assert_eq!(differs, None, "a key with two slots");
    }
    assert_eq!(found[0].values().collect::<BTreeSet<_>>().len() as u64, keys, "two keys share a slot");
    assert_eq!(table.stats().slots as u64, keys);
    let all: Vec<u64> = (0..keys).collect();
    assert_eq!(resolve(table, &all), found[0].values().copied().collect::<Vec<_>>(), "a key has gone");
}

#[test]
fn windows_that_are_none_are_refused() {
    use tidemill_plan::{Keep, Slices, Window};
    let slices = Slices { count: 2, slide: 10, time: Type::Int };
    let words = |words: &[i64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let slice = |number: i64, count: i64| words(&[number, count, 1, 0, 1, 1]);
    let both = |a: &[u8], b: &[u8]| [a, b].concat();
    let floats = |number: i64| words(&[number, 1, 1, 0, 0, 0, 0]);
    let band = |number: i64, band: i64, sum: i64, zero: i64| words(&[number, -1 - band, sum, 0, 0, zero, 0]);
    let text = |text: &[u8]| [&words(&[text.len() as i64]), text].concat();
    for (value, keep, bytes, holds) in [
        (Type::Int, Keep::Slices(slices), vec![], true),
        (Type::Int, Keep::Slices(slices), both(&slice(1, 1), &slice(2, 1)), true),
        (Type::Int, Keep::Slices(slices), both(&slice(2, 1), &slice(2, 1)), false),
        (Type::Int, Keep::Slices(slices), slice(1, 0), false),
        (Type::Int, Keep::Slices(slices), slice(1, 1)[..47].to_vec(), false),
        (Type::Int, Keep::Slices(slices), both(&both(&slice(1, 1), &slice(2, 1)), &slice(3, 1)), false),
        (Type::Int, Keep::Slices(slices), both(&words(&[1, -1, 1, 0, 0, 0]), &slice(1, 1)), false),
        (Type::Float, Keep::Slices(slices), both(&floats(1), &floats(2)), true),
        (Type::Float, Keep::Slices(slices), slice(1, 1), false),
        (Type::Float, Keep::Slices(slices), [band(1, 0, 1, 0), band(1, 24, 1, 0), floats(1), floats(2)].concat(), true),
        (Type::Float, Keep::Slices(slices), [floats(1), band(2, 3, 1, 0), floats(2)].concat(), true),
        (Type::Float, Keep::Slices(slices), [band(1, 3, 1, 0), floats(2)].concat(), false),
        (Type::Float, Keep::Slices(slices), [floats(1), band(1, 3, 1, 0), floats(1)].concat(), false),
        (Type::Float, Keep::Slices(slices), [floats(1), band(2, 3, 1, 0)].concat(), false),
        (Type::Float, Keep::Slices(slices), [band(1, 4, 1, 0), band(1, 3, 1, 0), floats(1)].concat(), false),
        (Type::Float, Keep::Slices(slices), [band(1, 11, 1, 0), floats(1)].concat(), false),
        (Type::Float, Keep::Slices(slices), [band(1, 25, 1, 0), floats(1)].concat(), false),
        (Type::Float, Keep::Slices(slices), [band(1, 3, 0, 0), floats(1)].concat(), false),
        (Type::Float, Keep::Slices(slices), [band(1, 3, 1, 1), floats(1)].concat(), false),
        (Type::Int, Keep::Distinct(slices), words(&[4, 7, 4, 8]), true),
        (Type::Int, Keep::Distinct(slices), words(&[4, 7, 3, 8]), false),
        (Type::Bytes, Keep::Latest(slices), words(&[1, 0, 2, 0]), true),
        (Type::Bytes, Keep::Latest(slices), words(&[1, 0, 1, 0]), false),
        (Type::Bytes, Keep::Latest(slices), words(&[1, 0, 2, 0, 3, 0]), false),
        (Type::Str, Keep::Last(2), both(&text(b"a"), &text(b"")), true),
        (Type::Str, Keep::Last(1), both(&text(b"a"), &text(b"")), false),
        (Type::Str, Keep::Last(2), words(&[1]), false),
        (Type::Str, Keep::Last(2), words(&[-1]), false),
        (Type::Int, Keep::Last(2), vec![0; 9], false),
    ] {
        let window = Window { value, keep };
        let column = |name: &str, ty: Type, window| Column { window, ..Column::new(name, ty) };
        let columns = vec![column("id", Type::Int, None), column("w", Type::Bytes, Some(window))];
        let table = Table::new(&Definition {
            name: "t".into(),
            columns,
            key: vec![0],
            indexes: vec![],
            groups: None,
            was: None,
            expire: None,
            is_hidden: false,
            owner: None,
        });
        let batch = batch_of(&table.schema(), &[vec![Value::Int(1), Value::Bytes(bytes.clone())]]);
        assert_eq!(table.preload(&batch).is_ok(), holds, "{keep:?} of {value}: {bytes:?}");
    }
}

/// Memory, and the socket that it was bound to.
type Bound = Arc<Mutex<Vec<(Range<usize>, usize)>>>;

/// Workers on made-up sockets that note what is bound to them.
fn sockets(of_workers: &[usize]) -> (Homes, Bound) {
    let bound = Bound::default();
    let noted = bound.clone();
    let bind = move |memory, socket| noted.lock().unwrap().push((memory, socket));
    (Homes::of(of_workers.iter().copied(), Arc::new(bind)), bound)
}

/// Whatever makes a slot: a lookup, or the filling of empty nodes.
#[test]
fn a_row_is_on_the_socket_of_its_virtual_node() {
    let keys: Vec<u64> = (0..40_000).collect();
    let (homes, bound) = sockets(&[4, 0, 4, 1]);
    let table = Table::with_homes(numbers().definition(), &homes);
    let rows = resolve_words(&table, &keys);
    let copied = copied_to(&table_of(&keys), &homes);
    for rows in [rows, resolve_words(&copied, &keys)] {
        let mut counts = BTreeMap::new();
        for (&key, &row) in keys.iter().zip(&rows) {
            let home = homes.socket_of_node(virtual_node_of(hash_word(key))).expect("there are several");
            let bound = bound.lock().unwrap();
            let of_row: Vec<usize> = bound
                .iter()
                .filter(|(memory, _)| memory.contains(&(row as usize)))
                .map(|(_, socket)| *socket)
                .collect();
            assert_eq!(of_row, [home], "key {key}");
            // SAFETY: a slot of a table on several sockets.
            assert_eq!(unsafe { socket_of(row) }, home);
            *counts.entry(home).or_insert(0) += 1;
        }
        assert!(counts.keys().eq(&[0, 1, 4]) && counts.values().all(|&count| count > keys.len() / 4), "{counts:?}");
    }
}

/// Returns a table with these rows.
fn table_of(keys: &[u64]) -> Table {
    let table = numbers();
    let records: Vec<_> = keys.iter().map(|&key| vec![Value::Int(key as i64), Value::Int(1)]).collect();
    preload(&table, &records).expect("distinct keys");
    table
}

#[test]
fn nothing_is_bound_on_one_socket() {
    let (homes, bound) = sockets(&[2, 2]);
    assert!(!homes.are_several());
    let table = Table::with_homes(numbers().definition(), &homes);
    resolve_words(&table, &(0..1_000).collect::<Vec<_>>());
    assert_eq!(*bound.lock().unwrap(), []);
}

/// The system says where it puts memory that was bound. Some forbid programs to bind any.
#[cfg(target_os = "linux")]
#[test]
fn memory_is_bound_to_a_node_of_the_machine() {
    let (homes, bound) = sockets(&[0, 1]);
    let table = Table::with_homes(numbers().definition(), &homes);
    resolve_words(&table, &[1]);
    let memory = bound.lock().unwrap()[0].0.clone();
    let is_bound = bind_to_node(memory.clone(), 1);
    let maps = std::fs::read_to_string("/proc/self/numa_maps").unwrap_or_default();
    let of_block = maps.lines().find(|line| line.starts_with(&format!("{:x}", memory.start)));
    if let Some(line) = of_block.filter(|_| is_bound) {
        assert!(line.contains("prefer:0") || line.contains("prefer=static:0"), "{line}");
    }
    assert!(!bind_to_node(0..4096, 1), "nothing is there");
}
