//! A point in time by the wall clock and the monotonic clock.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Nanoseconds since 1970. The wall clock can be set, so it is used only for timestamps.
    pub wall_ns: u64,
    /// Nanoseconds of a clock that never goes back. All durations are differences of this clock.
    pub monotonic_ns: u64,
}

impl Moment {
    pub fn now() -> Self {
        let (wall_ns, monotonic_ns) = super::now_ns();
        Self { wall_ns, monotonic_ns }
    }

    /// Seconds since 1970.
    #[expect(clippy::cast_precision_loss, reason = "a double holds dates to better than a microsecond")]
    pub fn wall_s(self) -> f64 {
        self.wall_ns as f64 / 1e9
    }
}
