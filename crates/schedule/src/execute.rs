//! The work that is scheduled.

/// The units of an epoch, which can be run.
///
/// A unit is a transaction, or if the policy works on versions ([`Policy::on_versions`]), a unit of
/// [`tidemill_txn::Flow`].
///
/// **Law, in place.** Running transaction *t* reads and writes only the rows that its accesses name, and its effect is a
/// function of these rows and of its event. Then any order that keeps the order of transactions sharing a row gives the
/// state of the serial order (`docs/formalism.md`).
///
/// **Law, on versions.** Running a unit reads, for each operation that it uses, the version of the operation's source
/// (or the row where there is none), and writes the versions of the operations that it writes; its effect is a function
/// of the versions that it reads. Meanwhile nobody writes the versions that it reads, and nobody else those that it
/// writes; the same holds for a transaction that is judged, reverted or redone, and for all its versions.
///
/// [`Policy::on_versions`]: crate::Policy::on_versions
pub trait Execute: Sync {
    /// Runs one unit: a whole transaction (verdict, then all updates or none), or one part.
    ///
    /// Called once per unit of an epoch (under TStream's scheme once in each pass over it), by the given worker, when
    /// all units that it waits for have run and their effects can be seen. In place, no transaction that shares a row
    /// with it runs meanwhile. A panic stops the epoch on all workers.
    fn execute(&self, worker: usize, unit: u32);

    /// Hints that the worker will soon run this unit. May be called any number of times, or never, and while earlier
    /// units write the rows: it must not read them, only prefetch them.
    #[inline]
    fn prefetch(&self, _unit: u32) {}

    /// Returns the nanoseconds since a fixed instant, for [`crate::Breakdown`]. By default time stands still.
    #[inline]
    fn now(&self) -> u64 {
        0
    }

    /// Records the time that a unit took, in nanoseconds. Called for those that are timed.
    fn took(&self, _worker: usize, _unit: u32, _ns: u64) {}

    /// Returns whether a transaction runs in parts before its verdict. Called on speculation only, as are those that
    /// follow but for `judge` and `revert`.
    fn is_apart(&self, _transaction: u32) -> bool {
        false
    }

    /// Returns whether a transaction in parts aborts, given the current values of its sources. All its units have run
    /// on these values. Changes no version. Of whole transactions, TStream's scheme alone asks.
    fn judge(&self, _worker: usize, _transaction: u32) -> bool {
        unreachable!("nothing is judged where transactions are whole")
    }

    /// Leaves out a unit of a transaction that was found to abort: copies the source's value into each version that the
    /// unit writes. Only under TStream's scheme.
    fn skip(&self, _worker: usize, _unit: u32) {
        unreachable!("nothing is left out without speculation")
    }

    /// Returns whether a transaction that was left out aborts, given the current values of its sources. Changes no
    /// version.
    fn would_abort(&self, _worker: usize, _transaction: u32) -> bool {
        unreachable!("nothing is left out without speculation")
    }

    /// Copies the source's value into every version of a transaction that aborts. Calls `changed` with the slot of each
    /// version whose value is now another.
    fn revert(&self, _worker: usize, _transaction: u32, _changed: &mut dyn FnMut(u32)) {
        unreachable!("only transactions in parts are reverted")
    }

    /// Runs parts of a transaction again (a bit for each; bit 0 for a whole transaction), and judges it again if it was
    /// `judged`. Calls `changed` with the slot of each version whose value is now another. Returns whether it aborts,
    /// as far as is known.
    fn redo(
        &self,
        _worker: usize,
        _transaction: u32,
        _parts: u32,
        _judged: bool,
        _changed: &mut dyn FnMut(u32),
    ) -> bool {
        unreachable!("nothing is redone without speculation")
    }
}
