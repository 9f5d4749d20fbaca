//! Tables with evicted rows: which rows are evicted, which are read again, and which must not be.

use arrow_array::RecordBatch;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use tidemill_model::arrow::rows;
use tidemill_model::{ColumnType, Type, Value};
use tidemill_plan::{Column, Table as Definition};
use tidemill_state::{
    EXISTS, Earliest, EvictedError, EvictedRows, Eviction, Found, Generation, Image, KeyColumn, KeyTexts, Keys,
    NOWHERE, PinnedRows, PointRead, ReadSnapshot, Removal, RowAddress, RowShape, Table, Victims, Wrongly, blob,
};

/// The rows of a checkpoint: key to value; all of them exist.
#[derive(Default)]
struct Store {
    rows: Mutex<BTreeMap<String, u64>>,
    asked: Mutex<Vec<String>>,
    shape: Mutex<Option<Arc<RowShape>>>,
    /// The gate at which a reader of pinned rows waits, if there is one: it says that it waits, and goes on when it is
    /// told to.
    gate: Mutex<Option<Gate>>,
}

struct Gate {
    waits: Sender<()>,
    goes_on: Receiver<()>,
}

impl Store {
    /// Stores rows and deletions.
    fn put(&self, image: &Image) {
        for row in 0..image.len() {
            let key = String::from_utf8(image.text(row, 1).to_vec()).expect("UTF-8");
            match image.exists(row) {
                true => _ = self.rows.lock().insert(key, image.row(row)[2]),
                false => _ = self.rows.lock().remove(&key),
            }
        }
    }

    fn image(&self) -> Image {
        Image::new(self.shape.lock().as_ref().expect("set"))
    }
}

fn push(image: &mut Image, key: &str, value: u64) {
    image.push([EXISTS, 0, value], |_| key.as_bytes());
}

fn key_of(keys: &Image, row: usize) -> String {
    String::from_utf8(keys.text(row, 1).to_vec()).expect("UTF-8")
}

fn found(rows: &BTreeMap<String, u64>, keys: &Image, empty: &Image) -> Found {
    let mut found = Found { rows: empty.clone(), places: vec![NOWHERE; keys.len()] };
    for row in 0..keys.len() {
        let key = key_of(keys, row);
        if let Some(&value) = rows.get(&key) {
            found.places[row] = found.rows.len() as u32;
            push(&mut found.rows, &key, value);
        }
    }
    found
}

impl EvictedRows for Store {
    fn get(&self, keys: &Image) -> Found {
        self.asked.lock().extend((0..keys.len()).map(|row| key_of(keys, row)));
        found(&self.rows.lock(), keys, &self.image())
    }

    fn pin(&self) -> Arc<dyn PinnedRows> {
        let gate = Mutex::new(self.gate.lock().take());
        Arc::new(Pinned { empty: self.image(), rows: self.rows.lock().clone(), gate })
    }
}

/// The rows of a store at one instant.
struct Pinned {
    empty: Image,
    rows: BTreeMap<String, u64>,
    gate: Mutex<Option<Gate>>,
}

impl PinnedRows for Pinned {
    fn each(&self, each: &mut dyn FnMut(Image)) -> Result<(), EvictedError> {
        if let Some(gate) = self.gate.lock().take() {
            gate.waits.send(())?;
            gate.goes_on.recv_timeout(Duration::from_secs(10))?;
        }
        for (key, &value) in &self.rows {
            let mut image = self.empty.clone();
            push(&mut image, key, value);
            each(image);
        }
        Ok(())
    }

    fn get(&self, keys: &Image) -> Result<Found, EvictedError> {
        Ok(found(&self.rows, keys, &self.empty))
    }
}

struct Subject {
    table: Arc<Table>,
    store: Arc<Store>,
    generation: Generation,
    /// The expected content of the table.
    model: BTreeMap<String, u64>,
}

impl Subject {
    /// Makes a table with this many rows, all evicted.
    fn new(count: u64) -> Subject {
        let column = |name: &str, ty| Column::new(name, ColumnType::required(ty));
        let columns = vec![column("key", Type::Str), column("value", Type::Int)];
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
        let store = Arc::new(Store::default());
        *store.shape.lock() = Some(table.shape().clone());
        let model: BTreeMap<_, _> = (0..count).map(|key| (name(key), key)).collect();
        store.rows.lock().extend(model.clone());
        // SAFETY: nothing holds an address of a row.
        unsafe { table.evict_all(store.clone()) };
        Subject { table: Arc::new(table), store, generation: Generation::Even, model }
    }

    fn resolve(&self, keys: &[u64]) -> Vec<RowAddress> {
        let names: Vec<String> = keys.iter().map(|&key| name(key)).collect();
        let texts: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
        let mut slots = vec![0; keys.len()];
        let columns = [KeyColumn::Texts(KeyTexts::new(&texts))];
        self.table.resolve(&Keys { columns: &columns, nulls: None, len: keys.len() }, &mut slots);
        slots
    }

    /// An epoch that sets values, or deletes.
    fn write(&mut self, changes: &[(u64, Option<u64>)]) {
        let slots = self.resolve(&changes.iter().map(|(key, _)| *key).collect::<Vec<_>>());
        // SAFETY: slots of the table, and this is the only thread.
        unsafe {
            self.table.mark(&slots, self.generation);
            self.table.save(&slots);
            for (&slot, &(key, value)) in slots.iter().zip(changes) {
                let row = slot as *mut u64;
                let before = self.model.get(&name(key)).copied();
                assert_eq!((row.read() & EXISTS != 0).then(|| row.add(2).read()), before, "key {key}");
                row.write(if value.is_some() { EXISTS } else { 0 });
                row.add(2).write(value.unwrap_or(0));
                assert_eq!(blob::bytes(row.add(1).read()), name(key).as_bytes());
                match value {
                    Some(value) => _ = self.model.insert(name(key), value),
                    None => _ = self.model.remove(&name(key)),
                }
            }
        }
    }

    /// A checkpoint from beginning to end.
    fn checkpoint(&mut self) {
        // SAFETY: nothing runs.
        unsafe {
            self.table.begin_snapshot(self.generation, false);
            self.generation = self.generation.next();
            for node in 0..256 {
                self.store.put(&self.table.capture(node));
            }
        }
        self.table.end_snapshot();
    }

    fn evict(&self, share: f64, wrongly: Wrongly) -> usize {
        self.evict_after(share, wrongly, || ())
    }

    /// Evicts rows; `between` is called after they are chosen and before they are removed.
    fn evict_after(&self, share: f64, wrongly: Wrongly, between: impl FnOnce()) -> usize {
        let eviction = Eviction { share, keeps_all: self.table.is_in_snapshot(), wrongly };
        let (table, store) = (&self.table, &self.store);
        // Two threads, each with every second share. The shares of `remove` differ from those of `choose`.
        let choose = |first: usize| {
            let shares = (first..16).step_by(2).map(|share| share * 16..(share + 1) * 16);
            // SAFETY: nothing runs.
            shares.map(|nodes| unsafe { table.choose(nodes, eviction, &mut |rows| store.put(rows)) }).collect()
        };
        let victims: Vec<Victims> = std::thread::scope(|scope| {
            let other = scope.spawn(move || choose(1));
            let mut chosen: Vec<Victims> = choose(0);
            chosen.extend(other.join().expect("it chooses"));
            chosen
        });
        between();
        let slots = victims.iter().map(Victims::slots).sum();
        let all = |mut removals: Vec<Removal>| {
            let (some, others) = removals.split_at_mut(5);
            std::thread::scope(|scope| {
                scope.spawn(|| some.iter_mut().for_each(|removal| removal.work(table)));
                others.iter_mut().for_each(|removal| removal.work(table));
            });
            removals
        };
        // SAFETY: nothing runs, and what was handed over is in the store.
        unsafe { table.remove(victims, all) };
        slots
    }

    /// Returns whether the table has the expected content.
    fn holds(&self) -> bool {
        is_of(&self.table, &self.table.to_batch().expect("the store reads"), &self.model)
    }

    /// Begins to read the table as it is now.
    fn begin_read(&self) -> (Arc<ReadSnapshot>, BTreeMap<String, u64>) {
        // SAFETY: nothing runs, and `write` saves rows before it writes them.
        (unsafe { self.table.begin_read() }, self.model.clone())
    }

    /// Reads the rows of some keys as they are now.
    fn read_keys(&self, keys: &[u64]) -> (PointRead, BTreeMap<String, u64>) {
        let names: Vec<[Value; 1]> = keys.iter().map(|&key| [Value::Str(name(key))]).collect();
        let image = self.table.key_image(names.iter().map(|key| &key[..]));
        let of_keys = |(key, _): &(&String, &u64)| keys.iter().any(|&wanted| name(wanted) == **key);
        let model = self.model.iter().filter(of_keys).map(|(key, &value)| (key.clone(), value)).collect();
        // SAFETY: nothing runs.
        (unsafe { self.table.read_keys(&image) }, model)
    }

    /// Returns whether the rows of keys are those of the time when the read began.
    fn has_rows_of_then(&self, (read, model): &(PointRead, BTreeMap<String, u64>)) -> bool {
        let rows = read.rows().expect("the store reads");
        is_of(&self.table, &self.table.sorted(&[self.table.image_batch(&rows)]), model)
    }

    /// Returns whether a read that was begun has the content of the time when it began.
    fn is_as_then(&self, (snapshot, model): &(Arc<ReadSnapshot>, BTreeMap<String, u64>)) -> bool {
        let rows = all_rows(&self.table, snapshot);
        self.table.end_read(snapshot);
        is_of(&self.table, &rows, model)
    }
}

/// Returns whether a batch of a table has these rows.
fn is_of(table: &Table, batch: &RecordBatch, model: &BTreeMap<String, u64>) -> bool {
    let expected = model.iter().map(|(key, value)| vec![Value::Str(key.clone()), Value::Int(*value as i64)]);
    rows(batch, &table.schema()) == expected.collect::<Vec<_>>()
}

fn name(key: u64) -> String {
    format!("key {key:06}")
}

#[test]
fn rows_are_read_once_until_they_are_evicted() {
    let mut subject = Subject::new(1_000);
    assert!(subject.holds());
    let keys: Vec<u64> = (0..2_000).step_by(3).collect();
    subject.write(&keys.iter().map(|&key| (key, subject.model.get(&name(key)).copied())).collect::<Vec<_>>());
    assert_eq!(std::mem::take(&mut *subject.store.asked.lock()).len(), keys.len());
    subject.resolve(&keys);
    assert!(subject.store.asked.lock().is_empty(), "they are in memory");
    assert_eq!(subject.evict(1.0, Wrongly::Nothing), keys.len(), "also keys without a row");
    assert!(subject.holds());
    assert_eq!(subject.table.stats().slots, 0);
    subject.resolve(&keys);
    assert_eq!(subject.store.asked.lock().len(), keys.len());
}

/// Some of twenty evicted rows are in memory again, two have another value, and one is deleted; the least go one after
/// the other.
#[test]
fn the_earliest_rows_are_found_wherever_they_are() {
    let mut subject = Subject::new(20);
    subject.resolve(&[7]);
    subject.write(&[(3, Some(5)), (12, Some(5)), (0, None)]);
    let mut earliest = Earliest::new(&subject.table, 1);
    while let Some(least) = subject.model.values().copied().min() {
        let mut keys = Vec::new();
        let each = |slot| {
            // SAFETY: a slot of the table, which has a key.
            keys.push(unsafe { String::from_utf8_lossy(blob::bytes((slot as *const u64).add(1).read())).into_owned() });
        };
        let next = earliest.take_each(&subject.table, Some(least as i64), each).expect("it reads");
        keys.sort();
        let numbers: Vec<u64> = (0..20).filter(|&key| subject.model.get(&name(key)) == Some(&least)).collect();
        assert_eq!(keys, numbers.iter().map(|&key| name(key)).collect::<Vec<_>>(), "at {least}");
        subject.write(&numbers.iter().map(|&key| (key, None)).collect::<Vec<_>>());
        assert_eq!(next, subject.model.values().min().map(|&value| value as i64), "after {least}");
    }
}

#[test]
fn what_is_used_again_is_spared() {
    let subject = Subject::new(20_000);
    let keys: Vec<u64> = (0..20_000).collect();
    let (again, once) = keys.split_at(10_000);
    subject.resolve(&keys);
    subject.resolve(again);
    assert!(subject.evict(0.3, Wrongly::Nothing) >= 6_000);
    subject.store.asked.lock().clear();
    subject.resolve(again);
    // Some virtual nodes have few of the keys that were used once.
    assert!(subject.store.asked.lock().len() < 100);
    subject.resolve(once);
    assert!(subject.store.asked.lock().len() >= 5_900);
    // A row is spared once: without a use in between these are evicted as well.
    assert_eq!(subject.evict(1.0, Wrongly::Nothing), 20_000);
    assert!(subject.holds());
}

#[test]
fn memory_goes_to_the_rows_of_other_keys() {
    let subject = Subject::new(50_000);
    subject.resolve(&(0..10_000).collect::<Vec<_>>());
    let held = subject.table.memory().held;
    for round in 1..5 {
        assert!(subject.evict(0.3, Wrongly::Nothing) > 0);
        subject.evict(1.0, Wrongly::Nothing);
        assert_eq!(subject.evict(1.0, Wrongly::Nothing), 0, "nothing is left");
        subject.resolve(&(round * 10_000..(round + 1) * 10_000).collect::<Vec<_>>());
    }
    let grown = subject.table.memory().held;
    // SAFETY: nothing runs.
    unsafe { subject.table.fit_indexes(15_000) };
    let memory = subject.table.memory();
    assert!((14_000..17_000).contains(&memory.indexed), "{memory:?}");
    // The number of keys per node differs between rounds.
    assert!(grown < held * 3 / 2, "{held} bytes became {grown}");
    assert!(subject.holds());
}

/// Random epochs with checkpoints, evictions and readers in between; says what was not right.
fn history(seed: u64, wrongly: Wrongly) -> Result<(), String> {
    let random = std::cell::Cell::new(seed);
    let below = |n: u64| {
        random.set(random.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
        (random.get() >> 33) % n
    };
    let (mut subject, mut reads, mut points) = (Subject::new(300), VecDeque::new(), VecDeque::new());
    let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        for _ in 0..60 {
            let mut changes: BTreeMap<u64, Option<u64>> = BTreeMap::new();
            for _ in 0..below(40) {
                changes.insert(below(500), (below(3) > 0).then(|| below(1_000)));
            }
            subject.write(&changes.into_iter().collect::<Vec<_>>());
            if below(4) == 0 {
                reads.push_back(subject.begin_read());
            }
            if let Some(read) = reads.pop_front_if(|_| below(6) == 0)
                && !subject.is_as_then(&read)
            {
                return Err("a reader's rows have changed".to_owned());
            }
            let keys: BTreeSet<u64> = (0..below(6)).map(|_| below(500)).collect();
            points.push_back(subject.read_keys(&keys.into_iter().collect::<Vec<_>>()));
            if let Some(read) = points.pop_front_if(|_| below(2) == 0)
                && !subject.has_rows_of_then(&read)
            {
                return Err("rows that were read by their keys have changed".to_owned());
            }
            if below(3) == 0 {
                subject.checkpoint();
            }
            subject.evict([0.0, 0.3, 1.0][below(3) as usize], wrongly);
            if below(9) == 0 {
                // SAFETY: nothing runs.
                unsafe { subject.table.fit_indexes(below(1_000) as usize) };
            }
        }
        let points_hold = points.iter().all(|read| subject.has_rows_of_then(read));
        let holds = points_hold && subject.holds() && reads.iter().all(|read| subject.is_as_then(read));
        if holds { Ok(()) } else { Err("the rows are not those of the model".to_owned()) }
    }));
    ran.unwrap_or_else(|panic| Err(panic.downcast_ref::<String>().expect("a text").clone()))
}

#[test]
fn random_epochs_checkpoints_and_evictions() {
    for seed in 0..200 {
        assert_eq!(history(seed, Wrongly::Nothing), Ok(()), "seed {seed}");
    }
}

/// Returns the rows of a read snapshot, sorted.
fn all_rows(table: &Table, snapshot: &ReadSnapshot) -> RecordBatch {
    let mut pieces = Vec::new();
    table.read(snapshot, &mut |rows| pieces.push(table.image_batch(rows))).expect("the store reads");
    table.sorted(&pieces)
}

#[test]
fn epochs_run_while_a_reader_waits_for_the_medium() {
    let mut subject = Subject::new(1_000);
    subject.write(&[(1, Some(7)), (2, None)]);
    let ((waits, reader_waits), (go_on, goes_on)) = (channel(), channel());
    *subject.store.gate.lock() = Some(Gate { waits, goes_on });
    let read = subject.begin_read();
    let table = subject.table.clone();
    let reader = std::thread::spawn(move || {
        let (snapshot, model) = &read;
        let rows = all_rows(&table, snapshot);
        table.end_read(snapshot);
        is_of(&table, &rows, model)
    });
    reader_waits.recv().expect("the reader comes to the medium");
    // Rows in memory, an evicted one, and one that did not exist.
    subject.write(&[(1, Some(8)), (2, Some(9)), (3, None), (2_000, Some(1))]);
    subject.evict(1.0, Wrongly::Nothing);
    subject.write(&[(1, None), (4, Some(5))]);
    go_on.send(()).expect("it waits");
    assert!(reader.join().expect("no panic"));
    assert!(subject.holds());
}

#[test]
fn wrong_evictions_are_noticed() {
    for wrongly in [Wrongly::Dirty, Wrongly::Deletions] {
        let found = (0..20).find_map(|seed| Some((seed, history(seed, wrongly).err()?)));
        let (seed, wrong) = found.expect("a table that is not right");
        let shows = ["the rows are not those of the model", "have changed", "failed: key"];
        assert!(shows.iter().any(|symptom| wrong.contains(symptom)), "it shows otherwise at seed {seed}: {wrong}");
        assert_eq!(history(seed, Wrongly::Nothing), Ok(()), "seed {seed} is wrong without it, too");
    }
}

#[test]
fn what_a_failed_checkpoint_took_is_taken_again() {
    let mut subject = Subject::new(100);
    subject.write(&[(1, Some(7)), (2, None), (200, Some(8))]);
    // The marks are cleared, and the captured rows are dropped.
    // SAFETY: nothing runs.
    unsafe {
        subject.table.begin_snapshot(subject.generation, false);
        (0..256).for_each(|node| _ = subject.table.capture(node));
    }
    subject.table.end_snapshot();
    subject.table.mark_all(subject.generation);
    subject.checkpoint();
    subject.evict(1.0, Wrongly::Nothing);
    assert_eq!(subject.table.stats().slots, 0);
    assert!(subject.holds());
}

/// An eviction that panicked has lost rows: no checkpoint is taken without them.
#[test]
fn nothing_is_captured_behind_a_broken_eviction() {
    let mut subject = Subject::new(0);
    let rows: Vec<_> = (0..1000).map(|key| (key, Some(key))).collect();
    subject.write(&rows);
    let (table, store) = (&subject.table, &subject.store);
    let eviction = Eviction { share: 0.5, keeps_all: true, wrongly: Wrongly::Nothing };
    // SAFETY: nothing runs.
    let broken = std::panic::catch_unwind(AssertUnwindSafe(|| unsafe {
        table.begin_snapshot(subject.generation, false);
        let victims = table.choose(0..16, eviction, &mut |rows| store.put(rows));
        table.remove(vec![victims], |_| panic!("planted"))
    }));
    assert!(broken.is_err());
    // SAFETY: as above.
    let captured = std::panic::catch_unwind(AssertUnwindSafe(|| unsafe { table.capture(200) }));
    let why = captured.err().expect("a node was captured");
    assert!(why.downcast_ref::<&str>().is_some_and(|why| why.contains("broken off")));
}

/// Returns the message of the assertion that fails; none if none does.
fn asserted(run: impl FnOnce()) -> Option<String> {
    let panic = std::panic::catch_unwind(AssertUnwindSafe(run)).err()?;
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()))
}

/// An epoch that runs during an eviction: its changes would go with the slots.
#[test]
fn a_change_between_choice_and_removal_is_asserted() {
    let run = |changes: bool| {
        let mut subject = Subject::new(200);
        let keys: Vec<u64> = (0..200).collect();
        subject.write(&[(1, Some(7)), (2, None)]);
        let slots = subject.resolve(&keys);
        let (table, generation) = (&subject.table, subject.generation);
        let epoch = || {
            if changes {
                // SAFETY: slots of the table.
                unsafe { table.mark(&slots, generation) }
            }
        };
        subject.evict_after(1.0, Wrongly::Nothing, epoch);
        assert!(subject.holds());
    };
    assert_eq!(asserted(|| run(false)), None);
    let said = asserted(|| run(true)).expect("nothing is asserted");
    assert!(said.contains("no row changes between its choice and its removal"), "{said}");
}

/// A thread that holds an address across an eviction: a key without a row would get the row that it writes.
#[test]
#[cfg(debug_assertions)]
fn a_write_to_a_freed_slot_is_asserted() {
    let run = |writes: bool| {
        let subject = Subject::new(100);
        let slots = subject.resolve(&(0..100).collect::<Vec<_>>());
        subject.evict(1.0, Wrongly::Nothing);
        if writes {
            // SAFETY: the slot is in memory that the table keeps, and this is the only thread.
            unsafe { (slots[7] as *mut u64).write(EXISTS) }
        }
        subject.resolve(&(100..1_000).collect::<Vec<_>>());
        assert!(subject.holds());
    };
    assert_eq!(asserted(|| run(false)), None);
    let said = asserted(|| run(true)).expect("nothing is asserted");
    assert!(said.contains("a slot that is handed out is zero"), "{said}");
}
