//! `/proc/self/mountinfo`: the list of mounts.
//!
//! In:  the text of the file. Out: [`Mount`]s with octal escapes decoded (`proc_pid_mountinfo(5)`).
//! Not here: the choice of local file systems (`space`).

use super::text::{fields, lines};
use crate::error::ParseError;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Device number of the file system, as `major:minor`.
    pub device: String,
    /// The folder within the file system that appears at the mount point.
    pub root: String,
    pub mount_point: String,
    /// Type of the file system: `ext4`, `overlay`, `fuse.sshfs`, …
    pub kind: String,
    /// Device, ZFS pool or network host; some file systems use any other text.
    pub source: String,
    /// Options of the file system; the controllers of a cgroup v1 hierarchy.
    pub options: String,
}

pub fn parse_mountinfo(text: &[u8]) -> impl Iterator<Item = Result<Mount, ParseError>> {
    lines(text).filter(|line| !line.is_empty()).map(|line| {
        let missing = |field| ParseError::Missing { field };
        let mut columns = fields(line);
        let device = columns.nth(2).ok_or(missing("major:minor"))?;
        let root = columns.next().ok_or(missing("root"))?;
        let mount_point = columns.next().ok_or(missing("mount point"))?;
        // A single hyphen marks the end of the optional fields.
        let mut behind = columns.skip_while(|field| *field != b"-").skip(1);
        let kind = behind.next().ok_or(missing("file system type"))?;
        let source = behind.next().unwrap_or_default();
        let options = behind.next().unwrap_or_default();
        Ok(Mount {
            device: unescape(device),
            root: unescape(root),
            mount_point: unescape(mount_point),
            kind: unescape(kind),
            source: unescape(source),
            options: unescape(options),
        })
    })
}

/// Decodes `\040` and other octal escapes. Bytes that are not UTF-8 become a replacement character: `statvfs` then does
/// not find the mount point, and only this file system is left out.
fn unescape(field: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        let octal = (*first == b'\\').then(|| tail.get(..3)).flatten().and_then(|digits| {
            digits.iter().try_fold(0_u32, |value, digit| {
                matches!(digit, b'0'..=b'7').then(|| value * 8 + u32::from(digit - b'0'))
            })
        });
        if let Some(byte) = octal.and_then(|value| u8::try_from(value).ok()) {
            bytes.push(byte);
            rest = tail.get(3..).unwrap_or_default();
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_in_names_and_optional_fields_are_parsed() {
        let text = b"36 35 98:0 /mnt1 /mnt\\040two rw,noatime shared:1 master:2 - ext4 /dev/root\\0401 rw,errors=continue\n";
        let mount = parse_mountinfo(text).next().unwrap().unwrap();
        let expected = Mount {
            device: "98:0".into(),
            root: "/mnt1".into(),
            mount_point: "/mnt two".into(),
            kind: "ext4".into(),
            source: "/dev/root 1".into(),
            options: "rw,errors=continue".into(),
        };
        assert_eq!(mount, expected);
    }

    #[test]
    fn invalid_escape_is_left_unchanged() {
        assert_eq!(unescape(b"a\\9\\04"), "a\\9\\04");
        assert_eq!(unescape(b"\\777"), "\\777");
    }
}
