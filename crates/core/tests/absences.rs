//! What core's types must not be able to do.

use core::cell::Cell;
use core::marker::PhantomData;

use snowmint_core::{Bounds, Generator, Grant, SharedGenerator};

/// Asks the compiler whether `T` is `Clone`, which all that is `Copy` is too: where the first answer below does not
/// apply, method lookup falls back to the second.
struct Asked<T>(PhantomData<T>);

impl<T: Clone> Asked<T> {
    fn is_clone(&self) -> bool {
        true
    }
}

trait Otherwise {
    fn is_clone(&self) -> bool {
        false
    }
}

impl<T> Otherwise for Asked<T> {}

/// One grant makes one generator, and a cursor exists once: a copy of either would mint every ID twice.
#[test]
fn neither_a_grant_nor_a_generator_can_be_cloned() {
    assert!(Asked::<Bounds>(PhantomData).is_clone(), "the question can be answered with yes");
    assert!(!Asked::<Grant>(PhantomData).is_clone());
    assert!(!Asked::<Generator>(PhantomData).is_clone());
    assert!(!Asked::<SharedGenerator<Cell<u64>>>(PhantomData).is_clone());
    #[cfg(target_has_atomic = "64")]
    assert!(!Asked::<snowmint_core::AtomicGenerator>(PhantomData).is_clone());
}
