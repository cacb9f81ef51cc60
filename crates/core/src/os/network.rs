//! Permission to use the network.
//!
//! Out: [`offline`], from `RESOURCE_TRACKER_OFFLINE`. An option of a front can forbid network access, but not allow it.

/// Whether `RESOURCE_TRACKER_OFFLINE` forbids network access. An empty value, `0`, `false` and `no` allow it.
pub fn offline() -> bool {
    std::env::var_os("RESOURCE_TRACKER_OFFLINE").is_some_and(|value| is_set(&value.to_string_lossy()))
}

fn is_set(value: &str) -> bool {
    !matches!(value.trim().to_ascii_lowercase().as_str(), "" | "0" | "false" | "no")
}

#[cfg(test)]
mod tests {
    #[test]
    fn offline_unless_unset_or_false() {
        for (value, offline) in
            [("1", true), ("true", true), ("yes", true), ("", false), ("0", false), ("No", false)]
        {
            assert_eq!(super::is_set(value), offline, "{value}");
        }
    }
}
