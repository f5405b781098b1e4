//! The guest's allocator: for lists and texts that cross the boundary, and nothing else.
//!
//! Nothing that is allocated outlives the call that it was allocated for. So freed memory need not be found again: a
//! pointer moves up, and when the last live allocation is gone it starts anew. Memory stays as large as the largest
//! call needed, however many calls there are.
//!
//! Small allocations have a block of their own, which is there from the start. No call makes more than a handful of
//! them, so they never fail: only a long list can, and then the answer is null, never a trap.

/// Bytes of the block for small allocations.
pub(crate) const BLOCK_BYTES: usize = 4_096;

/// What counts as small. A call makes at most three: its list of fields, its other list or text, and its answer.
pub(crate) const SMALL_BYTES_MAX: usize = 512;

/// Pages of WebAssembly memory.
pub(crate) const PAGE_BYTES: usize = 65_536;

/// How far a stretch of memory is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bump {
    next: usize,
}

impl Bump {
    /// A stretch from this address on, unused.
    pub(crate) const fn new(start: usize) -> Self {
        Self { next: start }
    }

    /// Where `size` bytes at `align`, a power of two, would lie, and the stretch with them used. `None` if no address
    /// can reach so far.
    pub(crate) const fn place(self, size: usize, align: usize) -> Option<(usize, Self)> {
        let Some(padded) = self.next.checked_add(align - 1) else { return None };
        let at = padded & !(align - 1);
        match at.checked_add(size) {
            Some(next) => Some((at, Self { next })),
            None => None,
        }
    }

    /// The first address that is not used.
    pub(crate) const fn next(self) -> usize {
        self.next
    }
}

/// How many pages memory must grow by from `memory_bytes` to reach to `end`.
pub(crate) const fn pages_missing(memory_bytes: usize, end: usize) -> usize {
    end.saturating_sub(memory_bytes).div_ceil(PAGE_BYTES)
}

#[cfg(target_arch = "wasm32")]
mod global {
    use core::alloc::{GlobalAlloc, Layout};
    use core::cell::{Cell, UnsafeCell};
    use core::ptr;

    use super::{BLOCK_BYTES, Bump, PAGE_BYTES, SMALL_BYTES_MAX, pages_missing};

    #[repr(align(16))]
    struct Block(UnsafeCell<[u8; BLOCK_BYTES]>);

    // SAFETY: the guest is built for WebAssembly without threads. The block is reached only by pointers that the arena
    // hands out, none of which overlap.
    unsafe impl Sync for Block {}

    static BLOCK: Block = Block(UnsafeCell::new([0; BLOCK_BYTES]));

    /// The state: `None` before the first allocation.
    struct Arena {
        live: Cell<usize>,
        /// How far the block is used.
        small: Cell<Option<Bump>>,
        /// How far the memory above the program's own data is used.
        large: Cell<Option<Bump>>,
    }

    // SAFETY: as for the block: one thread at a time enters an instance.
    unsafe impl Sync for Arena {}

    #[global_allocator]
    static ARENA: Arena = Arena { live: Cell::new(0), small: Cell::new(None), large: Cell::new(None) };

    unsafe extern "C" {
        /// The linker puts this where the program's data ends; only its address means anything.
        static __heap_base: u8;
    }

    // SAFETY: every pointer is aligned as asked, lies within memory, and overlaps no other that is live: addresses only
    // rise until nothing is live. Nothing here panics.
    unsafe impl GlobalAlloc for Arena {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            let pointer = self.small(layout).or_else(|| self.large(layout));
            let Some(pointer) = pointer else { return ptr::null_mut() };
            self.live.set(self.live.get() + 1);
            pointer
        }

        unsafe fn dealloc(&self, _pointer: *mut u8, _layout: Layout) {
            let live = self.live.get().saturating_sub(1);
            self.live.set(live);
            if live == 0 {
                self.small.set(None);
                self.large.set(None);
            }
        }
    }

    impl Arena {
        fn small(&self, layout: Layout) -> Option<*mut u8> {
            if layout.size() > SMALL_BYTES_MAX {
                return None;
            }
            let start = BLOCK.0.get().cast::<u8>();
            let used = self.small.get().unwrap_or(Bump::new(start.addr()));
            let (at, used) = used.place(layout.size(), layout.align())?;
            if used.next() > start.addr() + BLOCK_BYTES {
                return None;
            }
            self.small.set(Some(used));
            Some(start.with_addr(at))
        }

        fn large(&self, layout: Layout) -> Option<*mut u8> {
            let start = (&raw const __heap_base).cast_mut();
            let used = self.large.get().unwrap_or(Bump::new(start.addr()));
            let (at, used) = used.place(layout.size(), layout.align())?;
            let memory_bytes = core::arch::wasm32::memory_size::<0>().saturating_mul(PAGE_BYTES);
            let missing = pages_missing(memory_bytes, used.next());
            if missing > 0 && core::arch::wasm32::memory_grow::<0>(missing) == usize::MAX {
                return None;
            }
            self.large.set(Some(used));
            Some(start.with_addr(at))
        }
    }
}
