//! The store against a map: rows that change, are deleted and come again, over many runs and merges.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use tidemill_durability::store::{Run, Runs, due};
use tidemill_durability::{Identity, OpenState, StateDirectory};
use tidemill_sim::SimStorage;
use tidemill_state::{EXISTS, Image, NOWHERE, RowShape};

/// A header, a key of a number and a text, a number, a text.
fn shape() -> Arc<RowShape> {
    Arc::new(RowShape { words: 5, key: vec![1, 2], texts: vec![2, 4] })
}

type Key = (u64, String);
type Model = BTreeMap<Key, Option<(u64, String)>>;

fn image(rows: &Model) -> Image {
    let mut image = Image::new(&shape());
    for ((number, text), value) in rows {
        let (value, other) = value.clone().unwrap_or_default();
        let header = if rows[&(*number, text.clone())].is_some() { EXISTS } else { 0 };
        let texts = |word| if word == 2 { text.as_bytes() } else { other.as_bytes() };
        image.push([header, *number, 0, value, 0], texts);
    }
    image.newest()
}

fn rows(image: &Image) -> Model {
    let text = |row, word| String::from_utf8(image.text(row, word).to_vec()).expect("UTF-8");
    let value = |row: usize| image.exists(row).then(|| (image.row(row)[3], text(row, 4)));
    (0..image.len()).map(|row| ((image.row(row)[1], text(row, 2)), value(row))).collect()
}

fn directory(storage: &SimStorage) -> StateDirectory {
    let program = Identity { version: 1, application: "a".into(), tables: Vec::new(), sources: Vec::new(), code: 0 };
    let storage = Arc::new(storage.clone());
    let path = Path::new("state");
    StateDirectory::open(OpenState { storage, path, holder: "a test", id: 7, program, recorded: None })
        .expect("it opens")
}

fn all(runs: &Runs) -> Model {
    let parts: Vec<Model> = runs.parts().map(|part| rows(&runs.read(&part).expect("it reads"))).collect();
    let model: Model = parts.iter().flatten().map(|(key, value)| (key.clone(), value.clone())).collect();
    assert_eq!(model.len(), parts.iter().map(Model::len).sum::<usize>(), "each key is in one part");
    model
}

#[test]
fn a_store_is_a_map() {
    let mut random = tidemill_histories::Random::new(5);
    let storage = SimStorage::new(1);
    let mut directory = directory(&storage);
    let mut model = Model::new();
    let mut live: Vec<Run> = Vec::new();
    let mut merges = 0;
    for round in 0..60 {
        let mut changed = Model::new();
        for _ in 0..1 + random.below(3_000) {
            let key = random.below(5_000) as u64;
            let text = if key.is_multiple_of(3) { String::new() } else { format!("key {key}") };
            let value = random.chance(70).then(|| (random.bits(), "x".repeat(random.below(20))));
            changed.insert((key, text), value);
        }
        let mut writer = directory.write_run(&shape(), (!live.is_empty()).then_some(changed.len())).expect("room");
        writer.push(&image(&changed)).expect("room");
        live.push(writer.finish().expect("room").run().clone());
        model.extend(changed.clone());
        if let Some(first) = due(&live) {
            let old = live.split_off(first);
            let runs = directory.runs(&old, &shape(), "t").expect("they open");
            let into = directory.write_run(&shape(), (first > 0).then_some(runs.rows() as usize)).expect("room");
            let merged = runs.merge(into, first == 0).expect("room");
            live.push(merged.finish().expect("room").run().clone());
            if first == 0 {
                assert_eq!(live[0].deletions, 0, "the oldest run has no deletions");
            }
            merges += 1;
        }
        if round % 7 > 0 {
            continue;
        }
        let runs = directory.runs(&live, &shape(), "t").expect("they open");
        let existing = |model: Model| model.into_iter().filter(|(_, value)| value.is_some()).collect::<Model>();
        assert_eq!(existing(all(&runs)), existing(model.clone()), "round {round}");
        // A lookup of some keys, half of which were never there.
        let sought: Model = (0..500)
            .map(|_| random.below(10_000) as u64)
            .map(|key| ((key, if key.is_multiple_of(3) { String::new() } else { format!("key {key}") }), None))
            .collect();
        let expected = existing(sought.keys().filter_map(|key| Some((key.clone(), model.get(key)?.clone()))).collect());
        let keys = image(&sought);
        let found = runs.get(&keys).expect("it reads");
        assert_eq!(rows(&found.rows), expected, "round {round}");
        let has_key =
            |(key, &place): (usize, &u32)| place == NOWHERE || keys.same_key(key, &found.rows, place as usize);
        assert!(found.places.iter().enumerate().all(has_key), "a row is that of its key");
        let count = found.places.iter().filter(|place| **place != NOWHERE).count();
        assert_eq!(count, expected.len(), "every row has a key");
    }
    assert!(merges > 10 && live.len() < 10, "{merges} merges, {} runs", live.len());
}

#[test]
fn damage_is_found() {
    let storage = SimStorage::new(1);
    let mut directory = directory(&storage);
    let model: Model = (0..40).map(|key| ((key, format!("k{key}")), Some((key, "text".into())))).collect();
    let mut writer = directory.write_run(&shape(), Some(model.len())).expect("room");
    writer.push(&image(&model)).expect("room");
    let run = writer.finish().expect("room").run().clone();
    let (path, bytes) = storage.files().into_iter().find(|(path, _)| path.ends_with("00000001.rows")).expect("a file");
    for byte in 0..bytes.len() {
        storage.flip(&path, byte, 1);
        let runs = directory.runs(std::slice::from_ref(&run), &shape(), "t");
        let read = runs.and_then(|runs| runs.read(&(0..256)));
        assert!(read.is_err(), "byte {byte}");
        storage.flip(&path, byte, 1);
    }
    let runs = directory.runs(&[run], &shape(), "t").expect("it opens");
    assert_eq!(all(&runs), model);
}
