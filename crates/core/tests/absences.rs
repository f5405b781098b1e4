//! What core's types must not be able to do.

use core::cell::Cell;
use core::marker::PhantomData;

use snowmint_core::{Bounds, Generator, Grant, SharedGenerator};

/// Asks the compiler whether `T` is `Clone`, which all that is `Copy` is too: where the first answer below does not
/// apply, method lookup falls back to the second.
struct Asked<T>(PhantomData<T>);

impl<T: Clone> Asked<T> {
    const IS_CLONE: bool = true;
}

trait Otherwise {
    const IS_CLONE: bool = false;
}

impl<T> Otherwise for Asked<T> {}

/// One grant makes one generator, and a cursor exists once: a copy of either would mint every ID twice.
#[test]
fn neither_a_grant_nor_a_generator_can_be_cloned() {
    let asked = [
        ("Bounds", Asked::<Bounds>::IS_CLONE),
        ("Grant", Asked::<Grant>::IS_CLONE),
        ("Generator", Asked::<Generator>::IS_CLONE),
        ("SharedGenerator", Asked::<SharedGenerator<Cell<u64>>>::IS_CLONE),
        #[cfg(target_has_atomic = "64")]
        ("AtomicGenerator", Asked::<snowmint_core::AtomicGenerator>::IS_CLONE),
    ];
    for (name, is_clone) in asked {
        // Bounds show that the question can be answered with yes.
        assert_eq!(is_clone, name == "Bounds", "{name}");
    }
}
