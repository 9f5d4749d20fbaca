//! A transaction's prepared events of one epoch: their rows of the root, the rows of tables that they touch, and space
//! for their results.

use crate::folded::Folded;
use crate::wiring::Outlet;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use tidemill_compile::abi::{ColumnView, InputView, NativeView, Verdict};
use tidemill_compile::{NativeColumn, TransactionCode, resize_zeroed};
use tidemill_state::RowAddress;

/// 0, 1, 2, …: the index of an input that takes every event. Shared; grows on demand.
#[derive(Clone, Default)]
pub struct Identity(Arc<Vec<u32>>);

impl Identity {
    /// Grows the index to at least `len` entries.
    pub fn ensure(&mut self, len: usize) {
        if self.0.len() < len {
            self.0 = Arc::new((0..len.next_power_of_two() as u32).collect());
        }
    }

    /// Returns the entries.
    pub fn entries(&self) -> &[u32] {
        &self.0
    }
}

/// The prepared events of one transaction on one input. Buffers are kept from epoch to epoch.
pub struct Input {
    /// Number of events.
    pub len: usize,
    /// Event → row of the root; none: the identity.
    pub index: Option<Vec<u32>>,
    /// The row addresses of each role, by event or by element.
    pub rows: Vec<Vec<RowAddress>>,
    /// The start of each event's rows, by role over a list (one entry more than events).
    pub starts: Vec<Vec<u32>>,
    /// The committed record's captured columns.
    pub captures: Vec<NativeColumn>,
    /// The abort's captured columns.
    pub seen: Vec<NativeColumn>,
    /// The verdict of each event.
    pub verdicts: Vec<Verdict>,
    /// The captured parts of each role's dependent key, or the captured values of a selection, by role.
    pub keys: Vec<Vec<NativeColumn>>,
    /// The events that were folded and are not among the others; the rows are those of their groups.
    pub folded: Option<Box<Folded>>,
    /// The number of its events that have run, in a cascade.
    ran: u32,
    /// The number of events that ran before each event, by event.
    ranks: Vec<u32>,
    views: Views,
}

/// The addresses that compiled code reads, in memory that does not move during a call.
#[derive(Default)]
struct Views {
    columns: Vec<ColumnView>,
    places: Option<NonNull<u64>>,
    rows: Vec<*const RowAddress>,
    starts: Vec<*const u32>,
    captures: Vec<NativeView>,
    seen: Vec<NativeView>,
}

// The addresses in `Views` point into the fields of the same input, the epoch's batches and shared
// identities, all of which move between threads together with it.
#[allow(unsafe_code)]
// SAFETY: see above; only compiled code dereferences them, during a call.
unsafe impl Send for Views {}
#[allow(unsafe_code)]
// SAFETY: see above; workers of one chain run write disjoint events.
unsafe impl Sync for Views {}

impl Input {
    /// Makes an empty input for a transaction with this number of roles.
    pub fn new(code: &TransactionCode, roles: usize) -> Self {
        let columns = |types: &[_]| types.iter().map(|&t| NativeColumn::new(t)).collect();
        Input {
            len: 0,
            index: None,
            rows: vec![Vec::new(); roles],
            starts: vec![vec![0]; roles],
            captures: columns(&code.committed.captured),
            seen: columns(&code.aborted.captured),
            verdicts: Vec::new(),
            keys: code.keys.iter().map(|key| key.as_ref().map_or_else(Vec::new, |key| columns(&key.types))).collect(),
            folded: None,
            ran: 0,
            ranks: Vec::new(),
            views: Views::default(),
        }
    }

    /// Empties the input for the next epoch. Rows remain until they are overwritten: zeroing them costs as much as
    /// looking some of them up.
    pub fn clear(&mut self) {
        (self.len, self.ran) = (0, 0);
        self.folded.iter_mut().for_each(|folded| folded.clear());
        self.ranks.clear();
        for starts in &mut self.starts {
            starts.clear();
            starts.push(0);
        }
        if let Some(index) = &mut self.index {
            index.clear();
        }
    }

    /// Returns the number of events that were folded.
    pub fn folded(&self) -> usize {
        self.folded.as_ref().map_or(0, |folded| folded.events)
    }

    /// Notes that an event runs now. What waits for the end of a nest may run after what arrived later.
    pub fn runs(&mut self, event: u32) {
        if event != self.ran && self.ranks.is_empty() {
            self.ranks.extend(0..self.ran);
        }
        if event != self.ran || !self.ranks.is_empty() {
            self.ranks.resize(self.ranks.len().max(event as usize + 1), u32::MAX);
            self.ranks[event as usize] = self.ran;
        }
        self.ran += 1;
    }

    /// Notes that these events run now, in their order.
    pub fn run_together(&mut self, events: Range<usize>) {
        assert!(
            self.ran as usize == events.start && self.ranks.is_empty(),
            "they run in the order in which they arrived"
        );
        self.ran = events.end as u32;
    }

    /// Returns the number of its events that have run.
    pub fn ran(&self) -> usize {
        self.ran as usize
    }

    /// Returns the place of an event in the order in which they ran.
    pub fn rank(&self, event: u32) -> u32 {
        if self.ranks.is_empty() { event } else { self.ranks[event as usize] }
    }

    /// Returns whether the events ran in their order.
    pub fn ran_in_order(&self) -> bool {
        self.ranks.is_empty()
    }

    /// Forgets all events but the first `len`. Those that have run have run in their order, or stay.
    pub fn cut(&mut self, len: usize) {
        assert!(len <= self.len, "{len} events of {}", self.len);
        assert!(self.ran <= len as u32 || self.ranks.is_empty(), "what ran out of order is outside of nests");
        self.len = len;
        self.ran = self.ran.min(len as u32);
        if let Some(index) = &mut self.index {
            index.truncate(len);
        }
        for (rows, starts) in self.rows.iter_mut().zip(&mut self.starts) {
            let by_element = starts.len() > 1;
            starts.truncate(len + 1);
            rows.truncate(if by_element { starts[len] as usize } else { len });
        }
    }

    /// Returns the row of the root of event `i`.
    #[inline(always)]
    pub fn row(&self, i: usize) -> usize {
        self.index.as_ref().map_or(i, |index| index[i] as usize)
    }

    /// Returns the captured columns of the events that are on `committed`, or of those that aborted.
    pub fn given(&self, outlet: Outlet) -> &[NativeColumn] {
        match outlet {
            Outlet::Committed => &self.captures,
            Outlet::Aborted => &self.seen,
            Outlet::Emitted(_) => unreachable!("emissions are in the contexts of workers"),
        }
    }

    /// Makes space for the results of `len` events.
    pub fn ensure_results(&mut self, len: usize) {
        self.captures
            .iter_mut()
            .chain(&mut self.seen)
            .chain(self.keys.iter_mut().flatten())
            .for_each(|c| c.ensure(len));
        if self.verdicts.len() < len {
            resize_zeroed(&mut self.verdicts, len.next_power_of_two());
        }
    }

    /// Records the addresses of all buffers, given the root's columns, the places of its events, if code asks for them, and the
    /// stream's computed columns.
    pub fn point(&mut self, root: &[ColumnView], places: &[u64], computed: &[ColumnView]) {
        let views = &mut self.views;
        views.columns.clear();
        views.columns.extend_from_slice(root);
        views.columns.extend_from_slice(computed);
        views.places = NonNull::new(places.as_ptr().cast_mut()).filter(|_| !places.is_empty());
        views.rows.clear();
        views.rows.extend(self.rows.iter().map(|r| r.as_ptr()));
        views.starts.clear();
        views.starts.extend(self.starts.iter().map(|s| s.as_ptr()));
        views.captures.clear();
        views.captures.extend(self.captures.iter_mut().map(NativeColumn::view));
        views.seen.clear();
        views.seen.extend(self.seen.iter_mut().map(NativeColumn::view));
    }

    /// Returns the view that compiled code reads. Valid until the input changes; call [`Input::point`] first.
    pub fn view(&self, identity: &Identity) -> InputView {
        let index = self.index.as_ref().map_or(identity.entries().as_ptr(), |index| index.as_ptr());
        InputView {
            columns: self.views.columns.as_ptr(),
            index,
            places: self.views.places.map_or(std::ptr::null(), |places| places.as_ptr().cast_const()),
            rows: self.views.rows.as_ptr(),
            starts: self.views.starts.as_ptr(),
            captures: self.views.captures.as_ptr(),
            seen: self.views.seen.as_ptr(),
            verdicts: self.verdicts.as_ptr().cast_mut(),
        }
    }

    /// Returns the rows that event `i` touches in a role.
    #[inline(always)]
    pub fn rows_of(&self, role: usize, i: usize, over_list: bool) -> &[RowAddress] {
        if over_list {
            &self.rows[role][self.starts[role][i] as usize..self.starts[role][i + 1] as usize]
        } else {
            &self.rows[role][i..=i]
        }
    }
}
