//! The input and the results of a workload as files, for other programs that run the same query.

use super::Bench;
use crate::run::Arrival;
use crate::workloads::windows::{Shape, WindowWorkload};
use arrow_array::RecordBatch;
use arrow_ipc::writer::FileWriter;
use std::fs::File;
use std::path::Path;

impl Bench<'_> {
    /// Writes `events.arrow`, `results.arrow` and a file for each table that has rows before the first event. What the engine
    /// gives is what the loop gives.
    pub fn save(&mut self, folder: &Path, workload: &WindowWorkload, shape: &Shape) {
        std::fs::create_dir_all(folder).unwrap_or_else(|error| panic!("{} cannot be made: {error}", folder.display()));
        let arrival = Arrival::WhenThereIsRoom { size: shape.events };
        let (_, results, ..) = self.run_engine(1, workload, shape, arrival, None);
        write(&folder.join("results.arrow"), &results);
        write(&folder.join("events.arrow"), std::slice::from_ref(&self.query.events));
        for (name, rows) in &self.query.tables {
            write(&folder.join(format!("{name}.arrow")), std::slice::from_ref(rows));
        }
    }
}

fn write(path: &Path, batches: &[RecordBatch]) {
    let Some(first) = batches.first() else { panic!("nothing to write to {}: give more events", path.display()) };
    let written = (|| {
        let mut writer = FileWriter::try_new(File::create(path)?, &first.schema())?;
        batches.iter().try_for_each(|batch| writer.write(batch))?;
        writer.finish()
    })();
    written.unwrap_or_else(|error| panic!("{} cannot be written: {error}", path.display()));
}
