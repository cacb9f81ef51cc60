//! Names of Linux block devices that are partitions.

/// Whether a block device is a partition, judged by its name only. Used on hosts without `/sys/block`.
///
/// `sda1`, `vda1`, `xvda1` and `hda1` end in digits; `nvme0n1p1`, `mmcblk0p1` and `rbd0p1` end in `p` and digits.
pub fn is_partition(name: &str) -> bool {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    if stem.len() == name.len() {
        return false;
    }
    let lettered = ["sd", "hd", "vd", "xvd"].iter().any(|kind| {
        stem.strip_prefix(kind)
            .is_some_and(|letters| !letters.is_empty() && letters.bytes().all(|b| b.is_ascii_lowercase()))
    });
    // The kernel adds a `p` if the name of the disk ends in a digit (`add_partition` in block/partitions/core.c).
    let numbered = stem.strip_suffix('p').is_some_and(|disk| disk.ends_with(|c: char| c.is_ascii_digit()));
    lettered || numbered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_recognised_by_name() {
        for partition in ["sda1", "vda1", "xvdf12", "hdb3", "sdaa9", "nvme0n1p2", "mmcblk0p1", "nbd0p1"] {
            assert!(is_partition(partition), "{partition}");
        }
        for disk in ["rbd0", "zd0", "bcache0", "nbd0", "mmcblk0", "nvme0n1", "md127", "loop7"] {
            assert!(!is_partition(disk) && is_partition(&format!("{disk}p1")), "{disk}");
        }
        for disk in ["sda", "vda", "xvda", "nvme0n1", "mmcblk0", "dm-0", "md127", "sr0", "loop7", "", "7"] {
            assert!(!is_partition(disk), "{disk}");
        }
    }
}
