//! The facts that a parallel method needs about an epoch's transactions before any of them runs: their rows,
//! partitioned by row, and the layout of versions. The first phase of constructing a task precedence graph (MorphStream
//! 2023, §5.2); in the second, all workers of access link the partitions.
//!
//! **When.** At the end of prepare, by any worker, beside the access of earlier epochs: for the method that is
//! expected of the epoch. Access uses that if the epoch runs as a whole under a method that wants the same. Otherwise
//! it lists anew what it runs.
//!
//! **Invariant.** A listing follows from the program and from what prepare leaves in the epoch: its order and the
//! addresses of its rows. Nothing changes these before the first of its transactions runs, and no cell of a row is
//! read. So it does not matter which of the epochs before it have run. Transactions whose rows are found late are not
//! listed: their epochs follow events one by one.
//!
//! **Cost.** The listing of an epoch whose policy turns out to be another one is in vain. Each epoch that is under
//! way has versions of its own.

use crate::access::grouping::Selection;
use crate::access::part::may_redo;
use crate::access::serial::Located;
use crate::access::versions::Versions;
use crate::epoch::Epoch;
use crate::machine::Machine;
use tidemill_schedule::Method;
use tidemill_txn::{Partitioning, SortedAccesses};

/// The facts that a method needs beside the rows of each transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wants {
    /// A flag: whether the accesses are to be partitioned by row.
    is_partitioned: bool,
    /// The facts that it needs about the effect of each access.
    layout: Layout,
}

/// The facts that a method needs about the effects of accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// Nothing.
    None,
    /// A flag for each access: whether it writes.
    Uses,
    /// The place of the version that each of them writes.
    Whole,
    /// The place of the version that each of them writes, and the part of its transaction that each belongs to.
    Apart,
}

impl Wants {
    /// Returns the facts that a method needs; none if it is serial.
    pub fn of(machine: &Machine, method: Method) -> Option<Wants> {
        let is_policy = matches!(method, Method::Policy(_));
        let layout = match method {
            method if method.is_serial() => return None,
            Method::Policy(policy) if policy.takes_apart() => Layout::Apart,
            Method::Scheme(scheme) if scheme.speculates() && may_redo(machine) => Layout::Apart,
            method if method.on_versions() => Layout::Whole,
            Method::Policy(_) => Layout::None,
            Method::Scheme(_) => Layout::Uses,
        };
        Some(Wants { is_partitioned: is_policy, layout })
    }
}

/// The accesses of some transactions of an epoch. Reused from epoch to epoch.
pub struct Listing {
    /// The transactions and their rows.
    pub located: Located,
    /// If they are partitioned: the accesses in one slice, which the executor exchanges for that of an earlier epoch.
    pub runs: Vec<SortedAccesses>,
    /// The uses, and the versions that are laid out.
    pub versions: Versions,
    /// If it is of all transactions of an epoch that was prepared and did not begin to run: what is listed.
    ahead: Option<Wants>,
    /// The time it took to make the listing, nanoseconds; 0 if it was made when access began.
    pub took: u64,
}

impl Listing {
    /// Makes a listing of no epoch.
    pub fn new(machine: &Machine) -> Self {
        let (located, versions) = (Located::default(), Versions::new(machine));
        Listing { located, runs: Vec::new(), versions, ahead: None, took: 0 }
    }

    /// Lists the selected transactions.
    pub fn fill(&mut self, machine: &Machine, epoch: &Epoch, selection: &Selection, wants: Wants) {
        self.forget();
        let Listing { located, runs, versions, .. } = self;
        located.fill(machine, epoch, selection, usize::MAX);
        if wants.is_partitioned {
            // Runs that are reused hold the content of an earlier epoch.
            runs.resize_with(1, SortedAccesses::new);
            runs[0].partition(Partitioning::for_accesses(located.accesses().rows().len()), located.accesses());
        }
        match wants.layout {
            Layout::None => {}
            Layout::Uses => versions.fill_uses(machine, epoch, located),
            Layout::Whole => versions.fill(machine, epoch, located, false),
            Layout::Apart => versions.fill(machine, epoch, located, true),
        }
    }

    /// Lists all transactions of an epoch that was prepared.
    pub fn fill_ahead(&mut self, machine: &Machine, epoch: &Epoch, wants: Wants) {
        self.fill(machine, epoch, &Selection::all(0..epoch.transactions()), wants);
        self.ahead = Some(wants);
    }

    /// Returns whether the listing is what is wanted of the selected transactions of this epoch.
    pub fn has(&self, machine: &Machine, epoch: &Epoch, selection: &Selection, wants: Wants) -> bool {
        let has = self.ahead == Some(wants) && selection.is_all(epoch.transactions());
        debug_assert!(!has || self.is_of(machine, epoch, selection), "what was listed ahead is not true any more");
        has
    }

    /// Returns whether the listed transactions and rows are those selected now.
    fn is_of(&self, machine: &Machine, epoch: &Epoch, selection: &Selection) -> bool {
        let mut now = Located::default();
        now.fill(machine, epoch, selection, usize::MAX);
        now == self.located
    }

    /// Forgets the epoch that it is of.
    pub fn forget(&mut self) {
        (self.ahead, self.took) = (None, 0);
    }
}

/// The listings of epochs that were prepared and not accessed yet.
#[derive(Default)]
pub struct Listings {
    /// The listings that were made ahead, with the numbers of their epochs.
    ahead: Vec<(u64, Listing)>,
    /// Listings that can be filled again.
    spare: Vec<Listing>,
}

impl Listings {
    /// Returns a listing to fill again, if there is any.
    pub fn spare(&mut self) -> Option<Listing> {
        self.spare.pop()
    }

    /// Puts in that of an epoch.
    pub fn put(&mut self, epoch: u64, listing: Listing) {
        self.ahead.push((epoch, listing));
    }

    /// Takes that of an epoch, which is accessed now.
    pub fn take(&mut self, epoch: u64) -> Option<Listing> {
        let at = self.ahead.iter().position(|(number, _)| *number == epoch)?;
        Some(self.ahead.swap_remove(at).1)
    }

    /// Takes back what was taken.
    pub fn give_back(&mut self, listing: Option<Listing>) {
        self.spare.extend(listing);
    }
}
