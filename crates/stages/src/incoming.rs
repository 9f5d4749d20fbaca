//! The lists that come in with an epoch's events. A list is not copied where transactions pass it on: each event that has it names it by a
//! word ([`PassedList`]).

use arrow_array::ArrayRef;
use arrow_array::cast::AsArray;
use std::ops::Range;
use tidemill_compile::abi::ColumnView;
use tidemill_compile::{NativeColumn, PassedList};
use tidemill_model::Schema;

/// The lists that came in with an epoch's events, by their number ([`tidemill_compile::incoming_lists`]).
pub struct IncomingLists {
    lists: Vec<Incoming>,
    /// The addresses of the views of each, as compiled code finds them.
    addresses: Vec<*const ColumnView>,
}

#[derive(Clone, Default)]
struct Incoming {
    /// The lists of all events; none in an epoch without events of their stream.
    array: Option<ArrayRef>,
    /// The views of their offsets and of their children.
    views: Vec<ColumnView>,
}

#[allow(unsafe_code)]
// SAFETY: the addresses are those of the same value's views, and the views' of its arrays.
unsafe impl Send for IncomingLists {}
#[allow(unsafe_code)]
// SAFETY: as above; workers share it for reading only.
unsafe impl Sync for IncomingLists {}

impl IncomingLists {
    /// Makes room for so many lists.
    pub fn new(count: usize) -> IncomingLists {
        IncomingLists { lists: vec![Incoming::default(); count], addresses: vec![std::ptr::null(); count] }
    }

    /// Sets a list of the epoch's events, with the views of its offsets and of its children.
    pub fn set(&mut self, number: usize, array: &ArrayRef, views: &[ColumnView]) {
        let list = &mut self.lists[number];
        list.array = Some(array.clone());
        list.views.clear();
        list.views.extend_from_slice(views);
        self.addresses[number] = list.views.as_ptr();
    }

    /// Forgets the lists.
    pub fn clear(&mut self) {
        self.lists.iter_mut().for_each(|list| list.array = None);
        self.addresses.fill(std::ptr::null());
    }

    /// Returns the addresses of the views of each list.
    pub fn addresses(&self) -> *const *const ColumnView {
        self.addresses.as_ptr()
    }

    /// Returns the list that a word names: an array of lists, and the row.
    pub fn of(&self, word: u64) -> (&ArrayRef, usize) {
        let PassedList { number, row } = PassedList::of_word(word);
        (self.lists[number].array.as_ref().expect("a list of the epoch's events"), row)
    }

    /// Returns the places of its elements among those of the array.
    pub fn elements(&self, word: u64) -> Range<u32> {
        let (array, row) = self.of(word);
        let offsets = array.as_list::<i32>().value_offsets();
        offsets[row] as u32..offsets[row + 1] as u32
    }

    /// Returns the number of elements of all lists that some events of a schema name.
    pub fn count(&self, schema: &Schema, columns: &[NativeColumn], events: Range<usize>) -> usize {
        let lists = columns.iter().zip(&schema.fields).filter(|(_, field)| field.scalar_type().is_none());
        lists.flat_map(|(column, _)| &column.words()[events.clone()]).map(|&word| self.elements(word).len()).sum()
    }
}
