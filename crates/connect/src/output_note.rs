//! The note beside an output: the last epoch that was released into it, for the case that an older copy of the state is put back.
//!
//! Such a copy knows of less than the output has, and would cut off what was released after it was made. The note of an output
//! `x` is the file `.x.tidemill-note`, written after the record of the state's sinks is on disk, so it is never ahead of that
//! record. It is not synced: a power cut may lose it, and the safety net with it, nothing else.
//!
//! The note names the file that it is about, since both may be copied together with a state that goes on meanwhile: then the
//! copy of the note may be ahead of the copy of the state, and is about another file.

use crate::output_lock::beside;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidemill_durability::{File, Open, Storage, read_all};
use xxhash_rust::xxh3::xxh3_64;

/// The note of an output.
pub(crate) struct OutputNote {
    storage: Arc<dyn Storage>,
    path: PathBuf,
    /// The open note, once something was written.
    file: Option<Box<dyn File>>,
}

impl OutputNote {
    /// Returns the note of the output at `path`.
    pub fn of(storage: Arc<dyn Storage>, path: &Path) -> OutputNote {
        OutputNote { storage, path: beside(path, "note"), file: None }
    }

    /// Returns the path of the note.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the last epoch of this owner that was released into a file, if the note says so.
    pub fn epoch(&self, owner: &str, output: &dyn File) -> io::Result<Option<u64>> {
        let Some(identity) = output.identity()? else { return Ok(None) };
        let Ok(bytes) = read_all(&*self.storage, &self.path) else { return Ok(None) };
        let text = String::from_utf8_lossy(&bytes);
        let epoch = text.split(' ').next().and_then(|epoch| epoch.parse().ok());
        Ok(epoch.filter(|&epoch| text == line(epoch, identity, owner)))
    }

    /// Notes that an epoch was released into a file. A note that cannot be written is none.
    pub fn write(&mut self, owner: &str, epoch: u64, output: &dyn File) {
        if let Ok(Some(identity)) = output.identity() {
            let _ = self.replace(&line(epoch, identity, owner));
        }
    }

    fn replace(&mut self, line: &str) -> io::Result<()> {
        let file = match self.file.take() {
            Some(file) => file,
            None => self.storage.open(&self.path, Open::AppendOrCreate)?,
        };
        file.truncate(0)?;
        file.append(line.as_bytes())?;
        self.file = Some(file);
        Ok(())
    }
}

fn line(epoch: u64, (device, inode): (u64, u64), owner: &str) -> String {
    let text = format!("{epoch} {device}:{inode} {owner}");
    format!("{text} {:016x}\n", xxh3_64(text.as_bytes()))
}
