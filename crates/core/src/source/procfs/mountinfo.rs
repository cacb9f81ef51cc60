//! `/proc/self/mountinfo`: what is mounted where.
//!
//! In:  the file's text. Out: [`Mount`]s with the kernel's octal escapes undone (`proc_pid_mountinfo(5)`).
//! Not here: which of them are real file systems (`space`).

use super::text::{fields, lines};
use crate::error::ParseError;

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// `major:minor` of the file system.
    pub device: String,
    /// Which folder of the file system is mounted.
    pub root: String,
    /// Where it is mounted, as seen from our root.
    pub mount_point: String,
    /// `ext4`, `overlay`, `fuse.sshfs`, …
    pub kind: String,
    /// A device, a pool, a host, or nothing meaningful.
    pub source: String,
    /// Options of the file system; for cgroup v1 they name the controllers.
    pub options: String,
}

/// Parses `mountinfo` line by line.
pub fn parse_mountinfo(text: &[u8]) -> impl Iterator<Item = Result<Mount, ParseError>> {
    lines(text).filter(|line| !line.is_empty()).map(|line| {
        let missing = |field| ParseError::Missing { field };
        let mut columns = fields(line);
        let device = columns.nth(2).ok_or(missing("major:minor"))?;
        let root = columns.next().ok_or(missing("root"))?;
        let mount_point = columns.next().ok_or(missing("mount point"))?;
        // Optional fields end with a lone hyphen.
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

/// Undoes `\040` and its like. A mount point that is no UTF-8 keeps a replacement character, and is then
/// not found by `statvfs`: it costs that file system, nothing else.
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
    fn blanks_in_names_and_optional_fields_are_understood() {
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
    fn an_escape_that_is_none_stays_as_it_is() {
        assert_eq!(unescape(b"a\\9\\04"), "a\\9\\04");
        assert_eq!(unescape(b"\\777"), "\\777");
    }
}
