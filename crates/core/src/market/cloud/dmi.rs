//! Firmware texts of this machine: `/sys/class/dmi/id`.
//!
//! In:  the root folder: `/`, or another folder in tests.
//! Out: [`Dmi`]; `None` if no text can be read, as in containers without `/sys` and on many ARM boards.
//! Not here: the vendor (`vendor`).

use std::path::Path;

/// The firmware texts that distinguish clouds. A text is empty if its file cannot be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dmi {
    pub sys_vendor: String,
    pub product_name: String,
    pub product_version: String,
    /// Only root can read this file.
    pub product_serial: String,
    /// Only root can read this file.
    pub product_uuid: String,
    pub board_asset_tag: String,
    pub chassis_asset_tag: String,
}

impl Dmi {
    pub(crate) fn read(root: &Path) -> Option<Self> {
        let dir = root.join("sys/class/dmi/id");
        let mut readable = false;
        let mut text = |name: &str| {
            // The texts may contain invalid UTF-8, so they are read as bytes.
            let bytes = std::fs::read(dir.join(name)).ok();
            readable |= bytes.is_some();
            bytes.map_or_else(String::new, |bytes| String::from_utf8_lossy(&bytes).trim().to_owned())
        };
        let dmi = Self {
            sys_vendor: text("sys_vendor"),
            product_name: text("product_name"),
            product_version: text("product_version"),
            product_serial: text("product_serial"),
            product_uuid: text("product_uuid"),
            board_asset_tag: text("board_asset_tag"),
            chassis_asset_tag: text("chassis_asset_tag"),
        };
        readable.then_some(dmi)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dmi_needs_at_least_one_readable_file() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(Dmi::read(root.path()), None);
        let dir = root.path().join("sys/class/dmi/id");
        std::fs::create_dir_all(&dir).unwrap();
        assert_eq!(Dmi::read(root.path()), None);
        std::fs::write(dir.join("sys_vendor"), b"Caf\xe9 GmbH\n").unwrap();
        assert_eq!(
            Dmi::read(root.path()),
            Some(Dmi { sys_vendor: "Caf\u{fffd} GmbH".into(), ..Dmi::default() })
        );
    }
}
