//! Whether we may use the network at all.
//!
//! Out: [`offline`], what `RESOURCE_TRACKER_OFFLINE` says. An option of a front can only add to it.

/// Whether the environment forbids every packet: set to anything but nothing, `0`, `false` or `no`.
#[must_use]
pub fn offline() -> bool {
    std::env::var_os("RESOURCE_TRACKER_OFFLINE").is_some_and(|value| is_set(&value.to_string_lossy()))
}

fn is_set(value: &str) -> bool {
    !matches!(value.trim().to_ascii_lowercase().as_str(), "" | "0" | "false" | "no")
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_a_plain_no_allows_the_network() {
        for (value, offline) in
            [("1", true), ("true", true), ("yes", true), ("", false), ("0", false), ("No", false)]
        {
            assert_eq!(super::is_set(value), offline, "{value}");
        }
    }
}
