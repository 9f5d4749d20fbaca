//! Zeroed memory for rows and indexes, on huge pages where it is large: random access to a big table
//! is bound by address translation as much as by the cache.

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, handle_alloc_error};

const HUGE_PAGE: usize = 2 << 20;

/// Zeroed words. Owns them; addresses are stable.
pub struct Words {
    start: *mut u64,
    len: usize,
}

// SAFETY: plain memory; who may touch which word when is the business of the owner (crate invariants).
unsafe impl Send for Words {}
// SAFETY: as above; `Words` itself hands out addresses only.
unsafe impl Sync for Words {}

fn layout(len: usize) -> Layout {
    let bytes = len * 8;
    let align = if bytes >= HUGE_PAGE { HUGE_PAGE } else { 64 };
    Layout::from_size_align(bytes, align).expect("a table is smaller than the address space")
}

impl Words {
    /// `len` zeroed words, at least one.
    pub fn zeroed(len: usize) -> Self {
        assert!(len > 0);
        let layout = layout(len);
        // SAFETY: the layout is not empty.
        let start = unsafe { if layout.align() == HUGE_PAGE { huge(layout) } else { alloc_zeroed(layout) } };
        if start.is_null() {
            handle_alloc_error(layout);
        }
        Words { start: start.cast(), len }
    }

    /// Address of the first word.
    pub fn start(&self) -> *mut u64 {
        self.start
    }

    /// How many words.
    pub fn len(&self) -> usize {
        self.len
    }
}

/// # Safety
/// `layout` is not empty.
unsafe fn huge(layout: Layout) -> *mut u8 {
    // SAFETY: by the caller; the range advised and zeroed is the allocation.
    unsafe {
        let start = alloc(layout);
        if !start.is_null() {
            // Advice only: where the system has no huge pages, small ones serve.
            libc::madvise(start.cast(), layout.size(), libc::MADV_HUGEPAGE);
            start.write_bytes(0, layout.size());
        }
        start
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with the same layout.
        unsafe { dealloc(self.start.cast(), layout(self.len)) }
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
