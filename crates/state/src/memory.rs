//! Zeroed memory for rows and indexes, cut from large blocks on huge pages: random access to a big
//! table is bound by address translation as much as by the cache.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};

const HUGE_PAGE: usize = 2 << 20;
/// Words of a cache line: everything is cut in multiples of it.
const LINE_WORDS: usize = 8;

/// A run of zeroed words cut from an [`Arena`], valid as long as that lives. Given back with
/// [`Arena::give_back`], or not at all.
pub struct Words {
    start: *mut u64,
    len: usize,
}

// SAFETY: plain memory; who may touch which word when is the business of the owner (crate invariants).
unsafe impl Send for Words {}
// SAFETY: as above; `Words` itself hands out addresses only.
unsafe impl Sync for Words {}

impl Words {
    /// Address of the first word; a multiple of a cache line.
    #[inline(always)]
    pub fn start(&self) -> *mut u64 {
        self.start
    }

    /// How many words.
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.len
    }
}

/// Blocks of memory that never move, freed together.
#[derive(Default)]
pub struct Arena {
    blocks: Vec<(*mut u8, Layout)>,
    /// Bytes cut from the last block.
    used: usize,
    /// Runs given back, by the logarithm of their words, which are powers of two.
    free: Vec<Vec<*mut u64>>,
}

// SAFETY: as for `Words`.
unsafe impl Send for Arena {}
// SAFETY: as for `Words`.
unsafe impl Sync for Arena {}

impl Arena {
    /// `len` zeroed words, at least one.
    pub fn cut(&mut self, len: usize) -> Words {
        assert!(len > 0, "an empty run has no address");
        let len = len.next_multiple_of(LINE_WORDS);
        if len.is_power_of_two()
            && let Some(start) = self.free.get_mut(len.trailing_zeros() as usize).and_then(Vec::pop)
        {
            // SAFETY: a run of `len` words that was given back; nobody has it.
            unsafe { start.write_bytes(0, len) };
            return Words { start, len };
        }
        let bytes = len * 8;
        let room = self.blocks.last().map_or(0, |(_, layout)| layout.size() - self.used);
        if room < bytes {
            self.grow(bytes);
        }
        let (block, _) = self.blocks.last().expect("a block with room was just made sure of");
        let start = block.wrapping_add(self.used).cast();
        self.used += bytes;
        Words { start, len }
    }

    /// Takes a run back, to be cut again.
    ///
    /// # Safety
    /// It was cut from this arena, and nobody uses its addresses any more.
    pub unsafe fn give_back(&mut self, words: Words) {
        if words.len.is_power_of_two() {
            let class = words.len.trailing_zeros() as usize;
            if self.free.len() <= class {
                self.free.resize_with(class + 1, Vec::new);
            }
            self.free[class].push(words.start);
        }
    }

    fn grow(&mut self, bytes: usize) {
        let size = bytes.next_multiple_of(HUGE_PAGE);
        let layout = Layout::from_size_align(size, HUGE_PAGE).expect("a table is smaller than the address space");
        // SAFETY: the layout is not empty; the range advised and zeroed is the allocation.
        let block = unsafe {
            let block = alloc(layout);
            if block.is_null() {
                handle_alloc_error(layout);
            }
            // Advice only: where the system has no huge pages, small ones serve.
            #[cfg(target_os = "linux")]
            libc::madvise(block.cast(), size, libc::MADV_HUGEPAGE);
            block.write_bytes(0, size);
            block
        };
        self.blocks.push((block, layout));
        self.used = 0;
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        for &(block, layout) in &self.blocks {
            // SAFETY: allocated in `grow` with this layout.
            unsafe { dealloc(block, layout) }
        }
    }
}

/// Asks for a cache line before it is needed. Any address is fine.
#[inline(always)]
pub fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch does not access memory architecturally.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
