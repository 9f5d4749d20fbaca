//! The store of rows alone, as an embedded store would be measured: rows of 24 bytes written at once, a tenth of
//! them changed, all of them loaded, some looked up.

use crate::zipf::Random;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use tidemill_connect::Disk;
use tidemill_durability::store::{Runs, StoredRun};
use tidemill_durability::{Identity, OpenState, StateDirectory};
use tidemill_state::{EXISTS, Image, RowShape};

const LOOKUPS: u64 = 100_000;
/// Keys that are looked up together.
const BATCH: u64 = 1_000;

fn image(shape: &Arc<RowShape>, keys: impl Iterator<Item = u64>, round: u64) -> Image {
    let mut image = Image::new(shape);
    keys.for_each(|key| image.push([EXISTS, key, 1_000_000_000 + 7 * round + key % 1_000], |_| &[]));
    image.newest()
}

fn timed<T>(what: &str, body: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = body();
    println!("  {what}: {:.2} s", start.elapsed().as_secs_f64());
    result
}

/// Measures this number of rows in a new directory.
pub fn measure(rows: u64, path: &Path) {
    println!("store of {rows} rows:");
    let shape = Arc::new(RowShape { words: 3, key: vec![1], texts: Vec::new() });
    let program = Identity {
        version: 1,
        application: "store".into(),
        tables: Vec::new(),
        sources: Vec::new(),
        code: 0,
        operators: None,
        retired: Vec::new(),
    };
    let how = OpenState { storage: Arc::new(Disk), path, holder: "a benchmark", id: 1, recorded: None, program };
    let mut directory = StateDirectory::open(how).expect("a state");
    let mut random = Random::new(5);
    let all = image(&shape, 0..rows, 0);
    let some = image(&shape, (0..rows / 10).map(|_| random.below(rows)), 1);
    let mut write = |image: &Image, filter: Option<usize>| -> StoredRun {
        let mut writer = directory.write_run(&shape, filter).expect("room");
        writer.push(image).expect("room");
        writer.finish().expect("room").run().clone()
    };
    let first = timed("write all", || write(&all, None));
    let second = timed("write a tenth", || write(&some, Some(some.len())));
    let bytes = [&first, &second].map(|run| run.index.offset + run.index.length);
    println!("  {:.1} and {:.1} MB", bytes[0] as f64 / 1e6, bytes[1] as f64 / 1e6);
    let open = || directory.runs(&[first.clone(), second.clone()], &shape, "t").expect("it opens");
    let runs: Runs = timed("open", open);
    let loaded: usize =
        timed("load all, one thread", || runs.parts().map(|part| runs.read(&part).expect("it reads").len()).sum());
    assert_eq!(loaded as u64, rows, "every row once");
    let found: usize = timed("look up 100,000 keys, a thousand at once", || {
        let keys = |_| image(&shape, (0..BATCH).map(|_| random.below(rows)), 0);
        (0..LOOKUPS / BATCH).map(keys).map(|keys| runs.get(&keys).expect("it reads").rows.len()).sum()
    });
    assert!(found > 0, "keys are there");
}
