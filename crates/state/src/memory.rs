//! Zeroed memory for rows and indexes, cut from large blocks on huge pages: random access to a big table is limited
//! by address translation as much as by the cache.

use crate::homes::Bind;
use crate::index::ADDRESS_BITS;
use std::alloc::{Layout, handle_alloc_error};
use std::ops::Range;

/// The size of a huge page. The sizes and addresses of blocks are multiples of it.
pub const BLOCK_BYTES: usize = 2 << 20;
/// Words of a cache line; all runs are multiples of it.
const LINE_WORDS: usize = 8;
/// The distance between two places where a block's head may lie.
const HEAD_STEP: usize = 8 << 10;
/// The size of the cache line before a block's head that holds the socket it is bound to, bytes.
const HOME_BYTES: usize = 8 * LINE_WORDS;
/// The base-2 logarithm of the number of these places, all in the first half of a block.
const HEAD_PLACES_LOG: u32 = 7;

/// A run of zeroed words cut from an [`Arena`], valid as long as the arena lives. It may be returned with
/// [`Arena::give_back`].
pub struct Words {
    start: *mut u64,
    len: usize,
}

// SAFETY: plain memory; the owner decides which thread may touch which word when (crate invariants).
unsafe impl Send for Words {}
// SAFETY: as above; `Words` itself only returns addresses.
unsafe impl Sync for Words {}

impl Words {
    /// Returns a run of no words.
    pub fn none() -> Words {
        Words { start: std::ptr::null_mut(), len: 0 }
    }

    /// Address of the first word; a multiple of a cache line.
    #[inline(always)]
    pub fn start(&self) -> *mut u64 {
        self.start
    }

    /// Returns the number of words.
    #[allow(clippy::len_without_is_empty, reason = "only in the place of others")]
    pub fn len(&self) -> usize {
        self.len
    }
}

/// Blocks of memory that never move and are freed together.
#[derive(Default)]
pub struct Arena {
    blocks: Vec<(*mut u8, Layout)>,
    /// The socket that blocks are bound to, and what binds them. Only blocks with heads are.
    home: Option<(usize, Bind)>,
    /// Bytes of each block's head, from [`head_of`] on, that are never cut, nor are the [`HOME_BYTES`] before it. If
    /// there are any, all blocks have [`BLOCK_BYTES`].
    head: usize,
    /// The offset up to which the last block was cut.
    used: usize,
    /// Free runs, returned or left over, by the base-2 logarithm of their words, which are powers of two.
    free: Vec<Vec<*mut u64>>,
}

// SAFETY: as for `Words`.
unsafe impl Send for Arena {}
// SAFETY: as for `Words`.
unsafe impl Sync for Arena {}

impl Arena {
    /// Makes an arena whose blocks have a head: this many zeroed bytes for another use, which an address in a run leads
    /// to. The head lies at [`head_of`] the block, which begins at the multiple of [`BLOCK_BYTES`] below the address.
    pub fn with_head(head: usize) -> Arena {
        assert!(head.is_multiple_of(8 * LINE_WORDS) && head < BLOCK_BYTES / 4, "a head is whole lines of a block");
        let mut arena = Arena::default();
        arena.head = head;
        arena
    }

    /// Makes an arena whose blocks have heads and are bound to a socket.
    pub fn on_socket(head: usize, socket: usize, bind: Bind) -> Arena {
        assert!(head > 0, "a block says before its head on which socket it is");
        let mut arena = Arena::with_head(head);
        arena.home = Some((socket, bind));
        arena
    }

    /// Returns the blocks.
    pub fn blocks(&self) -> impl Iterator<Item = *const u8> + '_ {
        self.blocks.iter().map(|(block, _)| block.cast_const())
    }

    /// Returns the bytes of all blocks, except those of the last one that were not cut yet.
    pub fn bytes(&self) -> usize {
        let behind_head = self.head_ahead().map_or(0, |head| BLOCK_BYTES - self.after_head(head));
        self.blocks.iter().map(|(_, layout)| layout.size()).sum::<usize>() - self.room().len() - behind_head
    }

    /// Takes over the blocks of another arena with heads of the same size, and its free runs.
    pub fn absorb(&mut self, mut other: Arena) {
        assert_eq!(self.head, other.head, "arenas of one kind");
        other.free_room();
        while other.pass_head() {
            other.free_room();
        }
        for (class, runs) in std::mem::take(&mut other.free).into_iter().enumerate() {
            runs.into_iter().for_each(|run| self.put_free(class, run));
        }
        // They go before the last block, which is still being cut.
        let last = self.blocks.pop();
        let was_empty = last.is_none();
        self.blocks.append(&mut other.blocks);
        self.blocks.extend(last);
        if was_empty {
            self.used = self.blocks.last().map_or(0, |(_, layout)| layout.size());
        }
    }

    /// Returns a run of `len` zeroed words, at least one.
    pub fn cut(&mut self, len: usize) -> Words {
        let words = self.cut_words(len);
        #[cfg(feature = "loom")]
        crate::sync::make_words(words.start().addr()..words.start().addr() + 8 * words.len(), self.head);
        words
    }

    fn cut_words(&mut self, len: usize) -> Words {
        assert!(len > 0, "an empty run has no address");
        let len = len.next_multiple_of(LINE_WORDS);
        if len.is_power_of_two()
            && let Some(start) = self.take_free(len.trailing_zeros() as usize)
        {
            // SAFETY: a free run of `len` words.
            unsafe { start.write_bytes(0, len) };
            return Words { start, len };
        }
        let bytes = len * 8;
        while self.room().len() < bytes {
            self.free_room();
            if !self.pass_head() {
                self.grow(bytes);
            }
        }
        let (block, _) = self.blocks.last().expect("a block with room was just made sure of");
        let start = block.wrapping_add(self.used).cast();
        self.used += bytes;
        Words { start, len }
    }

    /// Takes a run back, to be cut again.
    ///
    /// # Safety
    /// It was cut from this arena, and its addresses are not used any more.
    pub unsafe fn give_back(&mut self, words: Words) {
        if words.len.is_power_of_two() {
            self.put_free(words.len.trailing_zeros() as usize, words.start);
        }
    }

    /// Returns a free run of 2^class words, from the smallest run that is large enough; the upper halves of that run
    /// stay free.
    fn take_free(&mut self, class: usize) -> Option<*mut u64> {
        let found = (class..self.free.len()).find(|&larger| !self.free[larger].is_empty())?;
        let start = self.free[found].pop()?;
        (class..found).for_each(|half| self.put_free(half, start.wrapping_add(1 << half)));
        Some(start)
    }

    fn put_free(&mut self, class: usize, start: *mut u64) {
        if self.free.len() <= class {
            self.free.resize_with(class + 1, Vec::new);
        }
        self.free[class].push(start);
    }

    /// Returns the place of the last block's head with what is before it, unless the block was used beyond that place.
    fn head_ahead(&self) -> Option<usize> {
        let head = head_of(self.blocks.last()?.0.addr()) - HOME_BYTES;
        (self.head > 0 && self.used <= head).then_some(head)
    }

    /// Returns the end of a head that begins here, with what is before it.
    fn after_head(&self, head: usize) -> usize {
        head + HOME_BYTES + self.head
    }

    /// Returns the part of the last block that is cut next, up to its head or its end.
    fn room(&self) -> Range<usize> {
        let end = self.blocks.last().map_or(0, |(_, layout)| layout.size());
        self.used..self.head_ahead().unwrap_or(end)
    }

    /// Continues after the head of the last block, if the head is ahead.
    fn pass_head(&mut self) -> bool {
        let head = self.head_ahead();
        self.used = head.map_or(self.used, |head| self.after_head(head));
        head.is_some()
    }

    /// Frees the part of the last block that would be cut next.
    fn free_room(&mut self) {
        let Some(&(block, _)) = self.blocks.last() else { return };
        let room = self.room();
        let end: *mut u64 = block.wrapping_add(room.end).cast();
        let mut left = room.len() / 8;
        while left > 0 {
            let class = left.ilog2() as usize;
            self.put_free(class, end.wrapping_sub(left));
            left -= 1 << class;
        }
        self.used = room.end;
    }

    fn grow(&mut self, bytes: usize) {
        let size = bytes.next_multiple_of(BLOCK_BYTES);
        assert!(self.head == 0 || bytes <= BLOCK_BYTES / 4, "a run does not fit beside the head of a block");
        let layout = Layout::from_size_align(size, BLOCK_BYTES).expect("a table is smaller than the address space");
        let block = system::allocate(layout);
        assert!((block.addr() + size) >> ADDRESS_BITS == 0, "processes have no further addresses");
        advise(block, size);
        if let Some((socket, bind)) = &self.home {
            bind(block.addr()..block.addr() + size, *socket);
            // SAFETY: no other thread knows the block, and the word lies before its head.
            unsafe { home_of(block.addr()).write(*socket as u64) };
        }
        self.blocks.push((block, layout));
        self.used = 0;
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        for &(block, layout) in &self.blocks {
            #[cfg(feature = "loom")]
            crate::sync::forget(block.addr()..block.addr() + layout.size());
            // SAFETY: allocated in `grow` with this layout.
            unsafe { system::free(block, layout) }
        }
    }
}

/// Blocks from the system itself. Memory that an allocator has used before may lie on small pages, and would stay
/// there.
#[cfg(unix)]
mod system {
    use super::{BLOCK_BYTES, Layout, handle_alloc_error};

    /// Returns a zeroed block of pages.
    pub fn allocate(layout: Layout) -> *mut u8 {
        let bytes = layout.size() + BLOCK_BYTES;
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping touches no other; the pages before and after the block are part of it and unused.
        unsafe {
            let whole = libc::mmap(std::ptr::null_mut(), bytes, access, kind, -1, 0);
            if whole == libc::MAP_FAILED {
                handle_alloc_error(layout);
            }
            let whole: *mut u8 = whole.cast();
            let before = whole.align_offset(BLOCK_BYTES);
            let block = whole.wrapping_add(before);
            if before > 0 {
                libc::munmap(whole.cast(), before);
            }
            libc::munmap(block.wrapping_add(layout.size()).cast(), BLOCK_BYTES - before);
            block
        }
    }

    /// Frees a block.
    ///
    /// # Safety
    /// It was allocated here with this layout, and is not used any more.
    pub unsafe fn free(block: *mut u8, layout: Layout) {
        // SAFETY: by the caller.
        unsafe { libc::munmap(block.cast(), layout.size()) };
    }
}

/// Blocks from the allocator, on systems without mappings.
#[cfg(not(unix))]
mod system {
    use super::{Layout, handle_alloc_error};

    /// Returns a zeroed block.
    pub fn allocate(layout: Layout) -> *mut u8 {
        // SAFETY: blocks are not empty.
        let block = unsafe { std::alloc::alloc_zeroed(layout) };
        if block.is_null() { handle_alloc_error(layout) } else { block }
    }

    /// Frees a block.
    ///
    /// # Safety
    /// It was allocated here with this layout, and is not used any more.
    pub unsafe fn free(block: *mut u8, layout: Layout) {
        // SAFETY: by the caller.
        unsafe { std::alloc::dealloc(block, layout) };
    }
}

/// Returns the offset of a block's head. It differs between blocks, so that block heads do not compete for the same
/// cache sets.
#[inline(always)]
pub fn head_of(block: usize) -> usize {
    let number = (block / BLOCK_BYTES) as u32;
    (number.wrapping_mul(0x9e37_79b9) >> (u32::BITS - HEAD_PLACES_LOG)) as usize * HEAD_STEP + HOME_BYTES
}

/// Returns the place at which a block holds the socket that it is bound to.
fn home_of(block: usize) -> *mut u64 {
    (block + head_of(block) - HOME_BYTES) as *mut u64
}

/// Returns the socket that the block of this address is bound to.
///
/// # Safety
/// The address lies in a run that was cut from an arena on a socket.
#[inline]
pub unsafe fn socket_of_block(address: usize) -> usize {
    // SAFETY: by the caller; it was written when the block was made, and never again.
    unsafe { home_of(address / BLOCK_BYTES * BLOCK_BYTES).read() as usize }
}

/// Binds memory to the first of these memory nodes, a bit each, or as near to it as there is room. Returns whether the
/// system has done so; otherwise it puts the memory where it sees fit.
pub fn bind_to_node(memory: std::ops::Range<usize>, nodes: u64) -> bool {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: this policy changes no content, whatever the range.
        let bound = unsafe {
            let (mask, bits) = (std::ptr::from_ref(&nodes), u64::BITS as usize + 1);
            libc::syscall(libc::SYS_mbind, memory.start, memory.len(), libc::MPOL_PREFERRED, mask, bits, 0)
        };
        bound == 0
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (memory, nodes);
        false
    }
}

/// Requests huge pages for an array that is large enough for them. Call it before the array is touched.
pub fn advise_huge<T>(array: &mut [T]) {
    let range = array.as_mut_ptr_range();
    let start = range.start.addr().next_multiple_of(BLOCK_BYTES);
    let end = range.end.addr() / BLOCK_BYTES * BLOCK_BYTES;
    if start < end {
        advise(range.start.cast::<u8>().with_addr(start), end - start);
    }
}

/// Advises the system to use huge pages; if it has none, small ones are used.
fn advise(start: *mut u8, bytes: usize) {
    #[cfg(target_os = "linux")]
    // SAFETY: this advice changes no content, whatever the range.
    unsafe {
        libc::madvise(start.cast(), bytes, libc::MADV_HUGEPAGE);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (start, bytes);
}

/// The size from which rows or an array of their addresses no longer fit the second-level cache beside all other data,
/// bytes.
pub(crate) const FAR: usize = 256 << 10;

/// Prefetches a cache line into the second-level cache. A processor fetches twice as many lines at once into it as
/// into the first level, so many random lines arrive in half the time. Any address is valid.
#[inline(always)]
pub fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch does not access memory architecturally.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Prefetches an entry of an array.
#[inline(always)]
pub fn ask_for<T>(array: &[T], place: usize) {
    prefetch(array.as_ptr().wrapping_add(place).cast())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cuts runs and fills each. Checks that no two overlap and that all were zeroed.
    fn fill(arena: &mut Arena, lens: impl IntoIterator<Item = usize>, taken: &mut Vec<(usize, usize)>) -> Vec<Words> {
        let cut = |len: usize| {
            let words = arena.cut(len);
            // SAFETY: a run that was just cut; no other thread has it.
            let slice = unsafe { std::slice::from_raw_parts_mut(words.start(), words.len()) };
            assert!(slice.iter().all(|&word| word == 0), "a run of {len} words came with content");
            slice.fill(u64::MAX);
            let start = words.start() as usize;
            taken.push((start, start + 8 * words.len()));
            words
        };
        let runs: Vec<Words> = lens.into_iter().map(cut).collect();
        taken.sort_unstable();
        assert!(taken.windows(2).all(|pair| pair[0].1 <= pair[1].0), "two runs meet");
        runs
    }

    #[test]
    fn what_was_given_back_is_cut_again_in_smaller_runs() {
        let mut arena = Arena::default();
        let mut taken = Vec::new();
        let large = fill(&mut arena, [1 << 15; 16], &mut taken);
        let blocks = arena.blocks.len();
        // SAFETY: cut from this arena; not used any more.
        large.into_iter().for_each(|words| unsafe { arena.give_back(words) });
        taken.clear();
        fill(&mut arena, [1 << 12; 8 * 16], &mut taken);
        assert_eq!(arena.blocks.len(), blocks, "all of it fits where the large runs were");
    }

    #[test]
    fn the_rest_of_a_block_is_not_lost() {
        let mut arena = Arena::default();
        let mut taken = Vec::new();
        // Two thirds of a block each, so that a third is left over each time.
        fill(&mut arena, [BLOCK_BYTES / 8 * 2 / 3; 6], &mut taken);
        let blocks = arena.blocks.len();
        fill(&mut arena, [1 << 10; 6 * 64], &mut taken);
        assert_eq!(arena.blocks.len(), blocks, "what was left over was cut");
    }

    #[test]
    fn heads_are_not_cut() {
        const HEAD: usize = 24 << 10;
        let mut arena = Arena::with_head(HEAD);
        let mut taken = Vec::new();
        fill(&mut arena, (0..2_000).map(|i| [1 << 10, 8, 24][i % 3]), &mut taken);
        let mut other = Arena::with_head(HEAD);
        fill(&mut other, [1 << 10; 7], &mut taken);
        arena.absorb(other);
        let blocks = arena.blocks.len();
        // All but the heads, and the last block, which is still being cut.
        let free =
            (blocks - 1) * (BLOCK_BYTES - HOME_BYTES - HEAD) - taken.iter().map(|(from, to)| to - from).sum::<usize>();
        fill(&mut arena, std::iter::repeat_n(8, free / 64), &mut taken);
        assert_eq!(arena.blocks.len(), blocks, "what lies before a head, and what was left over, was cut");
        for block in arena.blocks() {
            let head = block.addr() + head_of(block.addr());
            assert!(head + HEAD <= block.addr() + BLOCK_BYTES);
            assert!(taken.iter().all(|&(from, to)| to <= head - HOME_BYTES || head + HEAD <= from), "a head was cut");
        }
        assert!(arena.bytes() >= taken.iter().map(|(from, to)| to - from).sum::<usize>());
    }
}
