//! Point reads: the rows of single keys as they are at the end of an epoch.
//!
//! The rows in memory are copied at once ([`Table::read_keys`]), which costs a lookup for each key. The others are read
//! from the medium later, by the reader ([`PointRead::rows`]): under the lock of the lookup the rows on the medium are
//! pinned, and those of keys without a slot do not change there. So neither the epochs wait for the medium nor is the
//! table copied.

use crate::evicted_rows::{EvictedError, NOWHERE, PinnedRows};
use crate::image::{Image, KeyPart};
use crate::nodes::Nodes;
use crate::rows::RowAddress;
use crate::table::Table;
use std::sync::Arc;
use tidemill_model::Value;

/// Rows of some keys as they were at the end of an epoch.
pub struct PointRead {
    /// The rows that were in memory and exist.
    found: Image,
    /// The keys that had no slot.
    missing: Image,
    /// The rows on the medium, if rows may be evicted and a key had no slot.
    evicted: Option<Arc<dyn PinnedRows>>,
}

impl PointRead {
    /// Returns the rows that exist, in no order. Fails if evicted rows cannot be read.
    pub fn rows(&self) -> Result<Image, EvictedError> {
        let mut rows = Image::new(self.found.shape());
        rows.append(&self.found);
        if let Some(evicted) = &self.evicted {
            let found = evicted.get(&self.missing)?;
            assert_eq!(found.places.len(), self.missing.len(), "each key that was looked for has a row or none");
            let places = found.places.iter().filter(|&&place| place != NOWHERE);
            places.for_each(|&place| rows.push_of(&found.rows, place as usize));
        }
        Ok(rows.existing())
    }
}

impl Table {
    /// Makes an image of keys to be read, given the value of each key column. Panics where a value is of another type.
    pub fn key_image<'a>(&self, keys: impl IntoIterator<Item = &'a [Value]>) -> Image {
        let mut image = Image::new(self.shape());
        for key in keys {
            assert_eq!(key.len(), self.shape().key.len(), "a key of {} has another arity", self.definition().name);
            image.push_key(|part| match &key[part] {
                Value::Str(text) => KeyPart::Text(text.as_bytes()),
                Value::Bytes(bytes) => KeyPart::Text(bytes),
                Value::Bool(value) => KeyPart::Word(u64::from(*value)),
                Value::Int(word) | Value::Time(word) | Value::Decimal(word) => KeyPart::Word(*word as u64),
                other => panic!("{other} is no part of a key that can be read"),
            });
        }
        image
    }

    /// Reads the rows of these keys as they are now.
    ///
    /// # Safety
    /// No transaction runs now.
    pub unsafe fn read_keys(&self, keys: &Image) -> PointRead {
        let nodes = self.nodes().read();
        let (mut found, mut missing) = (Image::new(self.shape()), Image::new(self.shape()));
        for key in 0..keys.len() {
            let slot = match self.direct_slot(&nodes, keys, key) {
                Some(slot) => Some(slot).filter(|&slot| slot != 0),
                None => self.find_slot(&nodes, keys, key),
            };
            match slot {
                None => missing.push_of(keys, key),
                // SAFETY: a slot of this table, which its maker left with the lock that the lookup took; no
                // transaction writes it, by the caller.
                Some(slot) => unsafe { self.copy_marked(slot, true, &mut found) },
            }
        }
        let evicted = nodes.evicted.as_ref().filter(|_| !missing.is_empty()).map(|evicted| evicted.pin());
        PointRead { found, missing, evicted }
    }

    /// Returns the slot of a key that the array of one-word keys covers, 0 if it has none; none if the array does not
    /// cover it.
    fn direct_slot(&self, nodes: &Nodes, keys: &Image, key: usize) -> Option<RowAddress> {
        let &[word] = self.shape().key.as_slice() else { return None };
        let word = keys.row(key)[word];
        (word < nodes.direct.len() as u64).then(|| nodes.direct.get(word))
    }
}
