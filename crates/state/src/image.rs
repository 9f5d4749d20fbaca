//! Copies of rows as they were at one instant, with the texts that they own. Checkpoints are made from them while the
//! rows themselves go on changing.

use crate::blob;
use crate::hash::{hash_bytes, hash_parts, hash_word};
use crate::layout::{EXISTS, RowLayout};
use crate::rows::RowAddress;
use crate::shape::RowShape;
use crate::sync;
use crate::table::{Table, read};
use arrow_array::types::{Decimal128Type, Float64Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{ArrayRef, BinaryArray, BooleanArray, PrimitiveArray, RecordBatch, RecordBatchOptions, StringArray};
use arrow_buffer::{NullBuffer, ScalarBuffer};
use std::cmp::Ordering;
use std::sync::Arc;
use tidemill_model::Type;
use tidemill_model::arrow::{arrow_schema, data_type};

/// Copied rows of one table, and deletions: a deletion is a key whose row's header does not say that it exists.
#[derive(Clone)]
pub struct Image {
    shape: Arc<RowShape>,
    /// Row by row. The word of a text is 0 if the text is empty, else 1 + the offset of its length in `texts`.
    words: Vec<u64>,
    /// For each text, its length as eight bytes, then its bytes.
    texts: Vec<u8>,
}

/// A part of a key.
pub(crate) enum KeyPart<'a> {
    Word(u64),
    Text(&'a [u8]),
}

impl Image {
    /// An image without rows.
    pub fn new(shape: &Arc<RowShape>) -> Image {
        Image { shape: shape.clone(), words: Vec::new(), texts: Vec::new() }
    }

    /// An image without rows, with room for this many bytes of them.
    pub fn with_capacity(shape: &Arc<RowShape>, bytes: usize) -> Image {
        Image { shape: shape.clone(), words: Vec::with_capacity(bytes / 8), texts: Vec::new() }
    }

    /// Removes all rows; keeps their memory.
    pub fn clear(&mut self) {
        self.words.clear();
        self.texts.clear();
    }

    /// The shape of its rows.
    #[inline]
    pub fn shape(&self) -> &Arc<RowShape> {
        &self.shape
    }

    /// Number of rows.
    #[inline]
    pub fn len(&self) -> usize {
        self.words.len() / self.shape.words
    }

    /// Whether it has no rows.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Bytes of rows and texts.
    #[inline]
    pub fn bytes(&self) -> usize {
        8 * self.words.len() + self.texts.len()
    }

    /// The words of a row. The word of a text only says whether the text is empty ([`Image::text`]).
    #[inline]
    pub fn row(&self, row: usize) -> &[u64] {
        &self.words[row * self.shape.words..(row + 1) * self.shape.words]
    }

    /// Whether a row exists; if not, it is a deletion.
    #[inline]
    pub fn exists(&self, row: usize) -> bool {
        self.row(row)[0] & EXISTS != 0
    }

    /// The text that a word of a row stands for.
    #[inline]
    pub fn text(&self, row: usize, word: usize) -> &[u8] {
        debug_assert!(self.shape.is_text(word));
        let Some(at) = self.row(row)[word].checked_sub(1).map(|at| at as usize) else { return &[] };
        let length = u64::from_le_bytes(self.texts[at..at + 8].try_into().expect("eight bytes"));
        &self.texts[at + 8..at + 8 + length as usize]
    }

    /// The hash of a row's key, by which its slot is found.
    #[inline]
    pub fn hash(&self, row: usize) -> u64 {
        let part = |&word: &usize| match self.shape.is_text(word) {
            true => hash_bytes(self.text(row, word)),
            false => hash_word(self.row(row)[word]),
        };
        hash_parts(self.shape.key.iter().map(part))
    }

    /// Whether two rows have the same key.
    #[inline]
    pub fn same_key(&self, row: usize, other: &Image, other_row: usize) -> bool {
        self.shape.key.iter().all(|&word| match self.shape.is_text(word) {
            true => self.text(row, word) == other.text(other_row, word),
            false => self.row(row)[word] == other.row(other_row)[word],
        })
    }

    /// The order of two rows by their keys: words as whole numbers, texts by their bytes.
    pub(crate) fn compare_keys(&self, a: usize, b: usize) -> Ordering {
        let part = |&word: &usize| match self.shape.is_text(word) {
            true => self.text(a, word).cmp(self.text(b, word)),
            false => (self.row(a)[word] as i64).cmp(&(self.row(b)[word] as i64)),
        };
        self.shape.key.iter().map(part).fold(Ordering::Equal, Ordering::then)
    }

    /// Adds a row, given its words and the texts of its text words.
    #[inline]
    pub fn push<'a>(&mut self, words: impl IntoIterator<Item = u64>, text: impl Fn(usize) -> &'a [u8]) {
        let start = self.words.len();
        self.words.extend(words);
        debug_assert_eq!(self.words.len() - start, self.shape.words);
        for &word in &self.shape.texts {
            let text = text(word);
            self.words[start + word] = 0;
            if !text.is_empty() {
                self.words[start + word] = self.texts.len() as u64 + 1;
                self.texts.extend_from_slice(&(text.len() as u64).to_le_bytes());
                self.texts.extend_from_slice(text);
            }
        }
    }

    /// Adds a deletion, given the parts of its key by number.
    pub(crate) fn push_key<'a>(&mut self, part: impl Fn(usize) -> KeyPart<'a>) {
        let start = self.words.len();
        self.words.resize(start + self.shape.words, 0);
        for (p, &word) in self.shape.key.iter().enumerate() {
            match part(p) {
                KeyPart::Word(value) => self.words[start + word] = value,
                KeyPart::Text([]) => {}
                KeyPart::Text(text) => {
                    self.words[start + word] = self.texts.len() as u64 + 1;
                    self.texts.extend_from_slice(&(text.len() as u64).to_le_bytes());
                    self.texts.extend_from_slice(text);
                }
            }
        }
    }

    /// Adds a row of another image of the same shape.
    #[inline]
    pub fn push_of(&mut self, other: &Image, row: usize) {
        match self.shape.texts.is_empty() {
            true => self.words.extend_from_slice(other.row(row)),
            false => self.push(other.row(row).iter().copied(), |word| other.text(row, word)),
        }
    }

    /// Adds the rows of another image of the same shape.
    pub fn append(&mut self, other: &Image) {
        match self.shape.texts.is_empty() {
            true => self.words.extend_from_slice(&other.words),
            false => (0..other.len()).for_each(|row| self.push_of(other, row)),
        }
    }

    /// The rows in the order of their keys' hashes. Of several rows with one key, the last that was added.
    pub fn newest(&self) -> Image {
        let mut order: Vec<(u64, u32)> = (0..self.len()).map(|row| (self.hash(row), row as u32)).collect();
        order.sort_unstable();
        let mut sorted = Image::new(&self.shape);
        sorted.words.reserve(self.words.len());
        for (at, &(hash, row)) in order.iter().enumerate() {
            let mut later = order[at + 1..].iter().take_while(|(other, _)| *other == hash);
            if !later.any(|&(_, other)| self.same_key(row as usize, self, other as usize)) {
                sorted.push_of(self, row as usize);
            }
        }
        sorted
    }

    /// The image without its deletions.
    pub fn existing(self) -> Image {
        if (0..self.len()).all(|row| self.exists(row)) {
            return self;
        }
        let mut existing = Image::new(&self.shape);
        (0..self.len()).filter(|&row| self.exists(row)).for_each(|row| existing.push_of(&self, row));
        existing
    }
}

impl Table {
    /// Adds a copy of a row; if the row does not exist, only its key.
    ///
    /// # Safety
    /// `row` is a slot of this table, and no thread writes it meanwhile.
    pub unsafe fn copy_row(&self, row: RowAddress, image: &mut Image) {
        let shape = self.shape();
        sync::reads_key(row);
        sync::reads_row(row);
        // SAFETY: by the caller; the words lie inside the row.
        let word = |word: usize| unsafe { read(row, 8 * word) };
        // SAFETY: a text cell holds a live blob or 0 (crate invariant 4).
        let text = |at: usize| unsafe { blob::bytes(word(at)) };
        if word(0) & EXISTS != 0 {
            image.push((0..shape.words).map(word), text);
        } else {
            let is_key = |at: &usize| shape.key.contains(at);
            let key = |at: usize| if is_key(&at) { word(at) } else { 0 };
            image.push((0..shape.words).map(key), |at| if is_key(&at) { text(at) } else { &[] });
        }
    }

    /// Copied rows, none of them a deletion, as a batch of [`Table::schema`].
    pub fn image_batch(&self, image: &Image) -> RecordBatch {
        let schema = self.schema();
        let columns = (0..schema.fields.len()).map(|column| self.image_column(image, column)).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(image.len()));
        RecordBatch::try_new_with_options(arrow_schema(&schema), columns, &options).expect("columns of the schema")
    }

    fn image_column(&self, image: &Image, column: usize) -> ArrayRef {
        let ty = self.definition().columns[column].ty;
        let layout: &RowLayout = self.layout();
        let (header, bit) = layout.null_bit(column);
        let rows = || image.words.chunks_exact(image.shape.words);
        let is_null = |row: &[u64]| row[header / 8] & bit != 0;
        let nulls =
            (ty.nullable && rows().any(is_null)).then(|| rows().map(|row| !is_null(row)).collect::<NullBuffer>());
        let at = layout.cell(column) / 8;
        let words = || rows().map(|row| row[at]);
        let texts = || rows().enumerate().map(|(i, row)| (!is_null(row)).then(|| image.text(i, at)));
        match ty.ty {
            Type::Int => {
                let values: ScalarBuffer<i64> = words().map(|word| word as i64).collect();
                Arc::new(PrimitiveArray::<Int64Type>::new(values, nulls))
            }
            Type::Time => {
                let values: ScalarBuffer<i64> = words().map(|word| word as i64).collect();
                Arc::new(PrimitiveArray::<TimestampMicrosecondType>::new(values, nulls).with_timezone("UTC"))
            }
            Type::Float => {
                let values: ScalarBuffer<f64> = words().map(f64::from_bits).collect();
                Arc::new(PrimitiveArray::<Float64Type>::new(values, nulls))
            }
            Type::Decimal { .. } => {
                let values: ScalarBuffer<i128> = words().map(|word| word as i64 as i128).collect();
                Arc::new(PrimitiveArray::<Decimal128Type>::new(values, nulls).with_data_type(data_type(ty.ty)))
            }
            Type::Bool => Arc::new(BooleanArray::new(words().map(|word| word != 0).collect(), nulls)),
            Type::Str => {
                let text = |bytes| str::from_utf8(bytes).expect("a str is UTF-8");
                Arc::new(texts().map(|bytes| bytes.map(text)).collect::<StringArray>())
            }
            Type::Bytes => Arc::new(texts().collect::<BinaryArray>()),
            Type::Duration | Type::Null => unreachable!("{} is no column type", ty.ty),
        }
    }
}
