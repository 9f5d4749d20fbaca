//! Growable columns of words that compiled code writes.

use crate::abi::NativeView;
use tidemill_model::ColumnType;

/// A column of words, lengths (for text) and null bytes, kept from epoch to epoch.
///
/// Content after what compiled code wrote is arbitrary but initialized.
pub struct NativeColumn {
    ty: ColumnType,
    words: Vec<u64>,
    lens: Vec<u64>,
    nulls: Vec<u8>,
}

impl NativeColumn {
    /// Makes an empty column of a type.
    pub fn new(ty: ColumnType) -> Self {
        NativeColumn { ty, words: Vec::new(), lens: Vec::new(), nulls: Vec::new() }
    }

    /// Returns the type of its values.
    pub fn ty(&self) -> ColumnType {
        self.ty
    }

    /// Makes room for `len` values in all. May move the buffers: take a new view.
    pub fn ensure(&mut self, len: usize) {
        if self.words.len() < len {
            let len = len.next_power_of_two();
            resize_zeroed(&mut self.words, len);
            if self.ty.ty.is_bytes() {
                resize_zeroed(&mut self.lens, len);
            }
            if self.ty.nullable {
                resize_zeroed(&mut self.nulls, len);
            }
        }
    }

    /// Returns the number of values that there is room for.
    pub fn capacity(&self) -> usize {
        self.words.len()
    }

    /// Returns its addresses, valid until the next [`NativeColumn::ensure`] or drop.
    pub fn view(&mut self) -> NativeView {
        let address = |len: usize, p: *mut u64| if len == 0 { std::ptr::null_mut() } else { p };
        NativeView {
            words: self.words.as_mut_ptr(),
            lens: address(self.lens.len(), self.lens.as_mut_ptr()),
            nulls: if self.nulls.is_empty() { std::ptr::null_mut() } else { self.nulls.as_mut_ptr() },
        }
    }

    /// Returns the words.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Returns whether value `i` is null.
    #[inline(always)]
    pub fn is_null(&self, i: usize) -> bool {
        self.nulls.get(i).is_some_and(|&n| n != 0)
    }

    /// Returns value `i` as a text.
    ///
    /// # Safety
    /// The column is of text; compiled code wrote value `i`, and the buffer that it points into lives.
    #[inline(always)]
    pub unsafe fn text<'a>(&self, i: usize) -> &'a [u8] {
        let (start, len) = (self.words[i], self.lens[i]);
        if len == 0 {
            return &[];
        }
        // SAFETY: by the caller's promise.
        unsafe { std::slice::from_raw_parts(start as *const u8, len as usize) }
    }
}

impl NativeColumn {
    /// Sets value `at`, for which there is room, to a word.
    pub fn set_word(&mut self, at: usize, word: u64) {
        debug_assert!(!self.ty.ty.is_bytes(), "a text is no word");
        self.words[at] = word;
        self.nulls.get_mut(at).into_iter().for_each(|null| *null = 0);
    }

    /// Sets value `at`, for which there is room, to a text. Only its address is kept: it must live as long as the value is
    /// read.
    pub fn set_text(&mut self, at: usize, text: &[u8]) {
        (self.words[at], self.lens[at]) = (text.as_ptr() as u64, text.len() as u64);
        self.nulls.get_mut(at).into_iter().for_each(|null| *null = 0);
    }

    /// Sets value `at`, for which there is room, to null. The column must be nullable.
    pub fn set_null(&mut self, at: usize) {
        self.nulls[at] = 1;
    }

    /// Copies value `at` of a column of the same type to place `to`, for which there is room.
    pub fn copy_value(&mut self, to: usize, from: &NativeColumn, at: usize) {
        self.words[to] = from.words[at];
        if let (Some(len), Some(given)) = (self.lens.get_mut(to), from.lens.get(at)) {
            *len = *given;
        }
        if let Some(null) = self.nulls.get_mut(to) {
            *null = from.nulls.get(at).copied().unwrap_or(0);
        }
    }
}

/// Extends a buffer to a length with zeros. Fresh memory is zero already, so it is not written to.
pub fn resize_zeroed<T: Clone + Default>(buffer: &mut Vec<T>, len: usize) {
    match buffer.capacity() == 0 {
        true => *buffer = vec![T::default(); len],
        false => buffer.resize(len, T::default()),
    }
}
