//! A value for the whole process, without a lock that a fork could leave held.
#![expect(unsafe_code, reason = "a pointer that is set once is read without a lock")]

use std::sync::atomic::{AtomicPtr, Ordering};

/// A value that is handed over once, for as long as the process lives, by whoever comes first.
///
/// There is no lock and nothing to wait for: a fork at any moment leaves the child a value or none, and never a lock
/// whose holder was not copied.
#[derive(Debug)]
pub struct Handover<T>(AtomicPtr<T>);

impl<T: Send + Sync + 'static> Handover<T> {
    /// Nothing yet.
    #[must_use]
    pub const fn empty() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// What was handed over.
    #[must_use]
    pub fn get(&self) -> Option<&'static T> {
        // SAFETY: null, or a leaked box that nobody frees or changes; `Acquire` sees all that was written into it.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// What was handed over, or else what is made now. Two who come at once both make it, and have the first one's.
    pub fn get_or_make(&self, make: impl FnOnce() -> T) -> &'static T {
        self.get().unwrap_or_else(|| {
            let made = Box::into_raw(Box::new(make()));
            let first =
                self.0.compare_exchange(std::ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire);
            // SAFETY: either is a leaked box that nobody frees or changes. One who comes second by a hair leaves his
            // behind, once.
            unsafe { &*first.map_or_else(|first| first, |_| made) }
        })
    }

    /// Hands a value over, unless one is there.
    pub fn set(&self, value: T) {
        self.get_or_make(|| value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_value_handed_over_is_everybodys() {
        static CELL: Handover<String> = Handover::empty();
        assert_eq!(CELL.get(), None);
        std::thread::scope(|scope| {
            for number in 0..8 {
                scope.spawn(move || {
                    CELL.set(format!("value {number}"));
                    assert!(CELL.get().is_some_and(|value| value.starts_with("value ")));
                });
            }
        });
        let first = CELL.get();
        assert_eq!(Some(CELL.get_or_make(|| unreachable!())), first);
        CELL.set("late".to_owned());
        assert_eq!((CELL.get(), first.is_some()), (first, true));
    }

    #[test]
    fn nobody_waits_for_a_value_that_another_one_makes() {
        static CELL: Handover<u32> = Handover::empty();
        let made = CELL.get_or_make(|| {
            // As in a forked child, which has no copy of the thread that was making it.
            std::thread::spawn(|| assert_eq!(*CELL.get_or_make(|| 2), 2)).join().unwrap();
            1
        });
        assert_eq!(*made, 2, "the first");
    }
}
