//! The owners of rows: a row belongs to the same worker, or socket, in each epoch (TStream 2020, §IV-E).
//!
//! **What.** A row belongs to a part of the workers: a socket, or one worker. Where rows are placed, the part is on
//! the row's own socket (TStream 2019, §4.4), as long as there is one. Among several parts there, or elsewhere among
//! all, it follows from a hash of where the row is. So it is the same in each epoch. A unit belongs to the owner of
//! the first row that it touches.
//! **Cost.** A pass over the accesses, and 4 bytes for each; where rows are placed, a line of each block is read.

use tidemill_txn::{Accesses, RowId};

/// Gives the socket that a row is on.
pub type SocketOf = fn(RowId) -> usize;

/// The owners of an epoch's rows. Reused from epoch to epoch.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    /// The socket of each row, if rows are placed on sockets.
    socket_of: Option<SocketOf>,
    /// The owner of each row, by slot.
    of_slot: Vec<u32>,
}

impl Owners {
    /// Says where rows are.
    pub fn place(&mut self, socket_of: SocketOf) {
        self.socket_of = Some(socket_of);
    }

    /// Finds the owners of these rows among parts on these sockets.
    pub fn find(&mut self, accesses: Accesses<'_>, sockets: &[usize]) {
        let Owners { socket_of, of_slot } = self;
        of_slot.clear();
        let rows = accesses.rows().iter();
        let among = |row: &RowId, count: usize| row.hashed() as u32 % count as u32;
        let Some(socket_of) = socket_of else {
            of_slot.extend(rows.map(|row| among(row, sockets.len())));
            return;
        };
        let parts = parts_by_socket(sockets);
        of_slot.extend(rows.map(|row| match parts.get(socket_of(*row)) {
            Some(parts) if !parts.is_empty() => parts[among(row, parts.len()) as usize],
            _ => among(row, sockets.len()),
        }));
    }

    /// Returns the owner of the row of a slot.
    #[inline]
    pub fn of(&self, slot: u32) -> u32 {
        self.of_slot[slot as usize]
    }
}

/// Returns the parts that are on each socket, by socket.
fn parts_by_socket(sockets: &[usize]) -> Vec<Vec<u32>> {
    let most = sockets.iter().max().map_or(0, |socket| socket + 1);
    let mut parts = vec![Vec::new(); most];
    (0..).zip(sockets).for_each(|(part, &socket)| parts[socket].push(part));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_txn::AccessBuffer;

    fn owners(rows: &[u64], sockets: &[usize], socket_of: Option<SocketOf>) -> Vec<(u64, u32)> {
        let mut epoch = AccessBuffer::new();
        rows.iter().for_each(|&row| epoch.push([RowId(row << 6)]));
        let mut owners = Owners { socket_of, ..Owners::default() };
        owners.find(epoch.accesses(), sockets);
        (0..).zip(rows).map(|(slot, &row)| (row, owners.of(slot))).collect()
    }

    /// Whatever else is in the epoch, and in whatever order.
    #[test]
    fn a_row_has_the_same_owner_in_each_epoch() {
        for count in [1, 2, 3, 5] {
            let sockets = vec![0; count];
            let rows: Vec<u64> = (0..300).map(|t| t % 60).collect();
            let first = owners(&rows, &sockets, None);
            let others: Vec<u64> = rows.iter().rev().copied().chain(60..90).collect();
            let second = owners(&others, &sockets, None);
            for (row, owner) in &first {
                assert!(second.iter().filter(|other| other.0 == *row).all(|other| other.1 == *owner), "row {row}");
            }
            let has_rows = |owner| first.iter().any(|of| of.1 == owner);
            assert!((0..count as u32).all(has_rows), "one of {count} has no row of 60");
        }
    }

    #[test]
    fn a_row_that_is_placed_has_an_owner_on_its_socket() {
        let sockets = [3, 0, 3, 0, 3];
        let of = owners(&(0..300).collect::<Vec<_>>(), &sockets, Some(|row| 3 * ((row.0 >> 6) % 2) as usize));
        assert!(of.iter().all(|&(row, owner)| sockets[owner as usize] == 3 * (row % 2) as usize));
        let has_rows = |owner| of.iter().any(|of| of.1 == owner);
        assert!((0..5).all(has_rows), "each worker owns rows of its socket");
        // Nobody is on these sockets.
        let elsewhere = owners(&(0..300).collect::<Vec<_>>(), &sockets, Some(|row| 1 + 9 * (row.0 % 2) as usize));
        assert!((0..5).all(|owner| elsewhere.iter().any(|of| of.1 == owner)));
    }
}
