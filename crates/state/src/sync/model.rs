//! The model checker's types, with the interface of the types that they replace.
//!
//! Memory that is not made of the checker's objects has shadows: one of the checker's atomic words for each atomic
//! word in the head of a block, and two of its cells for each row. The shadows are dropped with the block.

use crate::marks::MAPS;
use crate::memory::{BLOCK_BYTES, head_of};
use crate::rows::RowAddress;
use loom::cell::UnsafeCell;
pub use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
pub use loom::sync::{MutexGuard, RwLockReadGuard};
use loom::sync::{RwLockWriteGuard, TryLockResult};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::{Deref, Range};
use std::rc::Rc;
use std::sync::{Arc, PoisonError};

/// A lock without poison, like `parking_lot`'s.
#[derive(Debug, Default)]
pub struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub fn new(value: T) -> Self {
        Mutex(loom::sync::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lock without poison, like `parking_lot`'s.
pub struct RwLock<T>(loom::sync::RwLock<T>);

impl<T> RwLock<T> {
    pub fn new(value: T) -> Self {
        RwLock(loom::sync::RwLock::new(value))
    }

    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        without_poison(self.0.try_read())
    }

    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        without_poison(self.0.try_write())
    }

    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

fn without_poison<G>(result: TryLockResult<G>) -> Option<G> {
    result.ok()
}

#[derive(Default)]
struct Shadows {
    words: HashMap<usize, Arc<AtomicU64>>,
    /// The cells of each row, by its address: one for its key, and one for its other cells.
    rows: HashMap<usize, Rc<[UnsafeCell<()>; 2]>>,
}

thread_local! {
    /// All threads of a model run on one thread of the system.
    static SHADOWS: RefCell<Shadows> = RefCell::default();
}

fn shadow<T>(get: impl FnOnce(&mut Shadows) -> T) -> T {
    SHADOWS.with_borrow_mut(get)
}

/// Makes the shadows of the words that hold the marks of a run. The run was just cut, under the lock of its arena, so
/// every later use of these words is ordered after this.
pub fn make_words(cut: Range<usize>, head: usize) {
    let map = head / MAPS;
    for address in cut.step_by(BLOCK_BYTES / map.max(1) * 8).filter(|_| head > 0) {
        let (block, inside) = (address / BLOCK_BYTES * BLOCK_BYTES, address % BLOCK_BYTES);
        // The bytes that one word has marks of.
        let word = inside / (BLOCK_BYTES / map * 8) * 8;
        let all = (0..MAPS).map(|number| block + head_of(block) + number * map + word);
        shadow(|shadows| {
            all.for_each(|word| _ = shadows.words.entry(word).or_insert_with(|| Arc::new(AtomicU64::new(0))))
        });
    }
}

/// Returns the shadow of the word at an address.
///
/// # Safety
/// The word holds marks of memory that was cut.
pub unsafe fn word_at(address: *const AtomicU64) -> impl Deref<Target = AtomicU64> {
    shadow(|shadows| shadows.words[&address.addr()].clone())
}

/// Writes consecutive words: those that were ever used, since all others are taken to be 0.
///
/// # Safety
/// None here.
pub unsafe fn fill(first: *const AtomicU64, count: usize, value: u64) {
    assert_eq!(value, 0, "the model has no words but those that were used");
    let range = first as usize..first as usize + 8 * count;
    let mut words: Vec<(usize, Arc<AtomicU64>)> = shadow(|shadows| {
        let inside = shadows.words.iter().filter(|(address, _)| range.contains(address));
        inside.map(|(&address, word)| (address, word.clone())).collect()
    });
    // The checker requires each execution to repeat the one before up to a point, so the order is fixed.
    words.sort_unstable_by_key(|(address, _)| *address);
    words.iter().for_each(|(_, word)| word.store(value, Ordering::Relaxed));
}

/// Drops the shadows of memory that is returned to the system.
pub fn forget(range: Range<usize>) {
    let gone = shadow(|shadows| {
        let words = shadows.words.extract_if(|address, _| range.contains(address)).collect::<Vec<_>>();
        let rows = shadows.rows.extract_if(|address, _| range.contains(address)).collect::<Vec<_>>();
        (words, rows)
    });
    drop(gone);
}

pub fn value_of(word: &mut AtomicU64) -> u64 {
    word.with_mut(|word| *word)
}

pub fn zeroed(len: usize) -> Vec<AtomicU64> {
    (0..len).map(|_| AtomicU64::new(0)).collect()
}

fn cells(row: RowAddress) -> Rc<[UnsafeCell<()>; 2]> {
    let new = || Rc::new([UnsafeCell::new(()), UnsafeCell::new(())]);
    shadow(|shadows| shadows.rows.entry(row as usize).or_insert_with(new).clone())
}

/// Tells the checker that the key cells of a row are read.
pub fn reads_key(row: RowAddress) {
    cells(row)[0].with(|_| ());
}

/// Tells the checker that the key cells of a row are written.
pub fn writes_key(row: RowAddress) {
    cells(row)[0].with_mut(|_| ());
}

/// Tells the checker that the header or other cells of a row are read.
pub fn reads_row(row: RowAddress) {
    cells(row)[1].with(|_| ());
}

/// Tells the checker that the header or other cells of a row are written.
pub fn writes_row(row: RowAddress) {
    cells(row)[1].with_mut(|_| ());
}
