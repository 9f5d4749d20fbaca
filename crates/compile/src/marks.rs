//! Undoing transactions that have committed: marks in the undo log.
//!
//! Code that is made for it ([`crate::Undo::ToMarks`]) logs every write, and a commit leaves the entries where they are. A
//! [`UndoMark`] is a place in the log; undoing to it puts back every word and every text that was written after it,
//! newest first, and forgets what was emitted. So several transactions, each of which may abort by itself, can be undone
//! as one.
//!
//! **Invariant.** Entries `..kept_entries` and all of `kept_texts` belong to transactions that have committed; those of
//! the running one follow. A text in `kept_texts` is owned by the log: no cell holds it, and it is not yet garbage.
//!
//! **Given up.** Such code logs where other code knows that nothing can fail any more, and never edits a window in
//! place. Code that is not made for it keeps nothing and pays nothing.

use crate::abi::UndoEntry;
use crate::context::{AccessContext, restore_texts, restore_words};

/// A place in a context's undo log, between two transactions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndoMark {
    entries: usize,
    texts: usize,
    /// The number of events emitted before, by emission number.
    emissions: Vec<usize>,
    order: usize,
}

impl AccessContext {
    /// Returns a place that all transactions from now on can be undone to.
    pub fn mark(&self) -> UndoMark {
        assert!(self.text_log.is_empty(), "marked within a transaction");
        UndoMark {
            entries: self.kept_entries,
            texts: self.kept_texts.len(),
            emissions: self.produced.emissions.iter().map(|e| e.committed).collect(),
            order: self.order_committed,
        }
    }

    /// Undoes all transactions since a mark, which stays. Marks made after it mean nothing any more. What the undone
    /// transactions captured is not to be read.
    ///
    /// # Safety
    /// The rows that these transactions wrote are where they were, and this worker may write them now.
    pub unsafe fn undo_to(&mut self, mark: &UndoMark) {
        assert!(self.text_log.is_empty(), "undone within a transaction");
        let is_before = mark.entries <= self.kept_entries && mark.texts <= self.kept_texts.len();
        assert!(is_before && mark.order <= self.order_committed, "what the mark stands in was kept or undone");
        // SAFETY: by the caller; committed transactions made these entries, and no other worker wrote these rows since.
        unsafe {
            restore_words(self.entries(mark.entries..self.kept_entries));
            restore_texts(&mut self.kept_texts, mark.texts, &mut self.produced.garbage);
        }
        self.kept_entries = mark.entries;
        self.point_undo();
        for (emissions, &before) in self.produced.emissions.iter_mut().zip(&mark.emissions) {
            emissions.owners.truncate(before);
            emissions.committed = before;
        }
        self.order.truncate(mark.order);
        self.order_committed = mark.order;
    }

    /// Keeps all that was done: nothing can be undone any more.
    pub fn keep(&mut self) {
        self.kept_texts.drain(..).for_each(|text| self.produced.garbage.push(text.table, text.old));
        self.kept_entries = 0;
        self.point_undo();
    }

    /// Commits the running transaction, whose entries end at `top`, and which can still be undone.
    pub(crate) fn commit_undoable(&mut self, top: *mut UndoEntry) {
        self.kept_entries = self.entries_before(top);
        self.kept_texts.append(&mut self.text_log);
        self.commit_emissions();
        if top < self.undo_end { self.undo_top = top } else { self.double_undo() }
    }
}
