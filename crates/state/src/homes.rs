//! The sockets that the rows of a table are on (TStream 2019, §4.4).
//!
//! **What.** Each virtual node belongs to a socket, and its rows are cut from blocks of that socket alone. A block is
//! bound to its socket before its memory is touched, and its head says which that is. So a row's address leads to the
//! socket ([`socket_of`]), and the schedule can give its operations to a worker there.
//! **Cost.** With several sockets, each table has blocks on each of them. On one, nothing.
//! **Given up.** Indexes, texts and copies of rows are where the system puts them.

use crate::memory::{Arena, socket_of_block};
use crate::rows::RowAddress;
use crate::sync::Mutex;
use std::ops::Range;
use std::sync::Arc;
use tidemill_model::VIRTUAL_NODE_COUNT;

/// Binds memory that was not touched yet to a socket. If it cannot, the memory is where the system puts it.
pub type Bind = Arc<dyn Fn(Range<usize>, usize) + Send + Sync>;

/// The sockets that rows are on.
#[derive(Clone, Default)]
pub struct Homes(Option<Several>);

#[derive(Clone)]
struct Several {
    /// Two or more, sorted.
    sockets: Arc<[usize]>,
    bind: Bind,
}

impl Homes {
    /// Returns the homes of workers on these sockets. If all are on one, memory is left to the system.
    pub fn of(workers: impl IntoIterator<Item = usize>, bind: Bind) -> Homes {
        let mut sockets: Vec<usize> = workers.into_iter().collect();
        sockets.sort_unstable();
        sockets.dedup();
        assert!(sockets.len() <= VIRTUAL_NODE_COUNT, "each socket has virtual nodes");
        Homes((sockets.len() > 1).then(|| Several { sockets: sockets.into(), bind }))
    }

    /// Returns whether there are several homes.
    pub fn are_several(&self) -> bool {
        self.0.is_some()
    }

    fn count(&self) -> usize {
        self.0.as_ref().map_or(1, |several| several.sockets.len())
    }

    /// Returns the number of a virtual node's socket among these.
    #[inline]
    fn place_of(&self, node: usize) -> usize {
        node * self.count() / VIRTUAL_NODE_COUNT
    }

    /// Returns the socket of a virtual node, if there are several.
    pub fn socket_of_node(&self, node: usize) -> Option<usize> {
        self.0.as_ref().map(|several| several.sockets[self.place_of(node)])
    }

    /// Returns the arena of the place-th of them, for blocks with a head.
    fn arena(&self, place: usize, head: usize) -> Arena {
        match &self.0 {
            None => Arena::with_head(head),
            Some(Several { sockets, bind }) => Arena::on_socket(head, sockets[place], bind.clone()),
        }
    }
}

/// The memory of a table's rows: an arena for each socket.
pub struct RowArenas {
    homes: Homes,
    arenas: Vec<Mutex<Arena>>,
}

impl RowArenas {
    /// Makes arenas without blocks; these will have heads of this number of bytes.
    pub fn new(homes: &Homes, head: usize) -> RowArenas {
        let arenas = (0..homes.count()).map(|place| Mutex::new(homes.arena(place, head))).collect();
        RowArenas { homes: homes.clone(), arenas }
    }

    /// Returns the sockets that the rows are on.
    pub fn homes(&self) -> &Homes {
        &self.homes
    }

    /// Returns the arena of a virtual node.
    #[inline]
    pub fn of_node(&self, node: usize) -> &Mutex<Arena> {
        &self.arenas[self.homes.place_of(node)]
    }

    /// Calls `each` with each block. No block comes meanwhile.
    pub fn each_block(&self, mut each: impl FnMut(*const u8)) {
        self.arenas.iter().for_each(|arena| arena.lock().blocks().for_each(&mut each));
    }

    /// Returns the bytes of all blocks, as [`Arena::bytes`].
    pub fn bytes(&self) -> usize {
        self.arenas.iter().map(|arena| arena.lock().bytes()).sum()
    }

    /// Takes over the blocks of others on the same sockets.
    pub fn absorb(&self, others: RowArenas) {
        assert_eq!(self.arenas.len(), others.arenas.len(), "arenas on the same sockets");
        for (arena, other) in self.arenas.iter().zip(others.arenas) {
            arena.lock().absorb(other.into_inner());
        }
    }

    /// Puts others on the same sockets in their place, and frees their memory.
    ///
    /// # Safety
    /// None of it is used any more.
    pub unsafe fn replace(&self, others: RowArenas) {
        assert_eq!(self.arenas.len(), others.arenas.len(), "arenas on the same sockets");
        for (arena, other) in self.arenas.iter().zip(others.arenas) {
            *arena.lock() = other.into_inner();
        }
    }
}

/// Returns the socket that a row is on.
///
/// # Safety
/// It is a slot of a table whose rows are on several sockets.
#[inline]
pub unsafe fn socket_of(row: RowAddress) -> usize {
    // SAFETY: by the caller.
    unsafe { socket_of_block(row as usize) }
}
