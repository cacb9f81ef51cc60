//! Sizes that schedulers and clouds offer: memory in steps, CPUs and GPUs as whole numbers.

/// Memory sizes below whole GiB.
const SMALL_MB: [u32; 5] = [128, 256, 512, 1024, 2048];

/// Rounds up to 128, 256, 512, 1024 or 2048 MiB, and above that to whole GiB.
pub fn round_memory(mb: f64) -> u32 {
    let small = SMALL_MB.into_iter().find(|size| mb <= f64::from(*size));
    small.unwrap_or_else(|| whole((mb / 1024.0).ceil()).saturating_mul(1024))
}

/// Rounds to the nearest whole number, halves to the even one as Python's `round` does.
pub(crate) fn round_count(value: f64) -> u32 {
    whole(value.round_ties_even())
}

/// The next whole number.
pub(crate) fn round_up(value: f64) -> u32 {
    whole(value.ceil())
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rounded by the caller; `as` saturates, and converts NaN to 0"
)]
fn whole(value: f64) -> u32 {
    value as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_rounded_up_to_the_next_size() {
        let cases = [
            (0.0, 128),
            (128.0, 128),
            (128.01, 256),
            (256.5, 512),
            (513.0, 1024),
            (1024.1, 2048),
            (2048.0, 2048),
            (2048.1, 3072),
            (3072.0, 3072),
            (100_000.0, 100_352),
        ];
        for (mb, size) in cases {
            assert_eq!(round_memory(mb), size, "{mb}");
        }
    }

    #[test]
    fn halves_are_rounded_to_the_even_number() {
        assert_eq!([0.5, 1.5, 2.5, 3.5].map(round_count), [0, 2, 2, 4]);
        assert_eq!([f64::NAN, -1.0, 1e300].map(round_count), [0, 0, u32::MAX]);
    }
}
