//! The logic of the guest's allocator, which is the guest's own file; what it does there is shown by the engine's tests.

#![allow(clippy::unwrap_used)]

#[allow(dead_code)]
#[path = "../../crates/component/src/arena.rs"]
mod arena;

use arena::{BLOCK_BYTES, Bump, PAGE_BYTES, SMALL_BYTES_MAX, pages_missing};

/// Places rise, are aligned, and do not overlap.
#[test]
fn places_are_aligned_and_apart() {
    let mut bump = Bump::new(1_001);
    let mut end = 1_001;
    for (size, align) in [(1, 1), (8, 8), (3, 2), (65_536, 16), (1, 1), (0, 8), (20, 1)] {
        let (at, next) = bump.place(size, align).unwrap();
        assert!(at >= end && at.is_multiple_of(align));
        end = at + size;
        assert_eq!(next.next(), end);
        bump = next;
    }
}

/// What no address can reach is refused, not wrapped.
#[test]
fn nothing_wraps() {
    assert_eq!(Bump::new(usize::MAX).place(1, 1), None);
    assert_eq!(Bump::new(usize::MAX - 3).place(0, 8), None);
    assert_eq!(Bump::new(16).place(usize::MAX, 1), None);
    assert!(Bump::new(usize::MAX - 8).place(8, 1).is_some());
}

#[test]
fn pages() {
    let check = |memory: usize, end: usize, pages: usize| assert_eq!(pages_missing(memory, end), pages);
    check(PAGE_BYTES, 0, 0);
    check(PAGE_BYTES, PAGE_BYTES, 0);
    check(PAGE_BYTES, PAGE_BYTES + 1, 1);
    check(PAGE_BYTES, 3 * PAGE_BYTES, 2);
    check(0, usize::MAX, usize::MAX / PAGE_BYTES + 1);
}

/// All small allocations of a call fit the block, however they are aligned.
#[test]
fn the_block_holds_what_a_call_needs() {
    let needed = 3 * (SMALL_BYTES_MAX + 16);
    assert!(needed <= BLOCK_BYTES);
}
