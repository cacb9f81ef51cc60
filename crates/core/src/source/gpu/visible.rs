//! Which GPUs the job may use: by its environment, and by its device cgroup where that can be read.
//!
//! In:  `/proc/[pid]/environ`, `devices.list` of cgroup v1, the GPUs. Out: `is_allowed` of each.
//! Not here: what follows from it (`recommend`); the machine's columns have all GPUs in any case.
//!
//! Only the variables below are looked at, and nothing of them is kept but the answer. The rules are those of the CUDA
//! programming guide, NVIDIA's container toolkit and ROCm. Under cgroup v2 device rules are programs of the kernel
//! that nobody can read.

use super::{Gpu, Vendor};
use crate::root::Root;
use crate::source::cgroup::groups_of;
use crate::tree::pid_path;

/// Device numbers (`Documentation/admin-guide/devices.txt`).
const NVIDIA_MAJOR: u32 = 195;

/// What the job may use, found out once it is there.
#[derive(Debug, Default)]
pub(super) struct Permissions {
    root_pid: Option<u32>,
    variables: Variables,
    /// Minor numbers of NVIDIA devices; `None` where nothing is forbidden.
    nvidia_minors: Option<Vec<u32>>,
}

/// The variables, where they are set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Variables {
    cuda: Option<String>,
    nvidia: Option<String>,
    rocr: Option<String>,
    hip: Option<String>,
}

impl Permissions {
    /// Says of each GPU whether the job may use it.
    pub(super) fn apply(&mut self, root: &Root, root_pid: Option<u32>, gpus: &mut [Gpu]) {
        let Some(pid) = root_pid else { return };
        if self.root_pid != root_pid {
            let mut buffer = Vec::new();
            let Ok(environ) = root.read(pid_path(pid, "environ").as_str(), &mut buffer) else { return };
            self.variables = parse_environ(environ);
            self.nvidia_minors = nvidia_minors(root, pid);
            self.root_pid = root_pid;
        }
        let of = |vendor: Vendor| gpus.iter().filter(move |gpu| gpu.vendor == vendor);
        let ids = |vendor: Vendor| of(vendor).map(|gpu| gpu.id.clone()).collect::<Vec<_>>();
        let mut allowed = nvidia(&self.variables, &ids(Vendor::Nvidia));
        if let Some(minors) = &self.nvidia_minors {
            for (minor, is_allowed) in allowed.iter_mut().enumerate() {
                // Index and minor number are the same but on machines where a GPU was taken out.
                *is_allowed &= u32::try_from(minor).is_ok_and(|minor| minors.contains(&minor));
            }
        }
        let amd = amd(&self.variables, &ids(Vendor::Amd));
        let (mut nvidia, mut amd) = (allowed.into_iter(), amd.into_iter());
        for gpu in gpus {
            gpu.is_allowed = match gpu.vendor {
                Vendor::Nvidia => nvidia.next().unwrap_or(true),
                Vendor::Amd => amd.next().unwrap_or(true),
                Vendor::Intel => true,
            };
        }
    }
}

fn parse_environ(environ: &[u8]) -> Variables {
    let value = |name: &str| {
        let mut entries = environ.split(|byte| *byte == 0);
        let found = entries.find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
        Some(String::from_utf8_lossy(found).trim().to_owned())
    };
    Variables {
        cuda: value("CUDA_VISIBLE_DEVICES"),
        nvidia: value("NVIDIA_VISIBLE_DEVICES"),
        rocr: value("ROCR_VISIBLE_DEVICES"),
        hip: value("HIP_VISIBLE_DEVICES"),
    }
}

fn nvidia(variables: &Variables, ids: &[String]) -> Vec<bool> {
    let mut allowed = vec![true; ids.len()];
    match variables.nvidia.as_deref() {
        // `void` and nothing: the container toolkit did nothing here.
        None | Some("" | "void" | "all") => {}
        Some("none") => return vec![false; ids.len()],
        Some(list) => {
            let named = named(list, ids);
            // Inside of the container the numbers are new, and all that is there is ours.
            if list.split(',').count() < ids.len() && named.contains(&true) {
                allowed = named;
            }
        }
    }
    if let Some(list) = variables.cuda.as_deref() {
        let kept: Vec<usize> = (0..ids.len()).filter(|at| allowed[*at]).collect();
        let kept_ids: Vec<String> = kept.iter().map(|at| ids[*at].clone()).collect();
        let named = named(list, &kept_ids);
        for (at, is_named) in kept.into_iter().zip(named) {
            allowed[at] = is_named;
        }
    }
    allowed
}

fn amd(variables: &Variables, ids: &[String]) -> Vec<bool> {
    let of = |list: &Option<String>| list.as_deref().map(|list| named(list, ids));
    let all = || vec![true; ids.len()];
    let (rocr, hip) = (of(&variables.rocr).unwrap_or_else(all), of(&variables.hip).unwrap_or_else(all));
    if variables.rocr.is_none() {
        return hip;
    }
    rocr
}

/// GPUs that a list of indices or UUIDs names. It counts up to the first entry that names nothing; a list without a
/// valid entry hides all GPUs.
fn named(list: &str, ids: &[String]) -> Vec<bool> {
    let mut named = vec![false; ids.len()];
    for entry in list.split(',').map(str::trim) {
        let at = match entry.parse::<usize>() {
            Ok(index) => Some(index).filter(|index| *index < ids.len()),
            // An instance (`MIG-…`) has no number here: its GPU is not told, so the only one is meant.
            Err(_) if entry.starts_with("MIG-") => (ids.len() == 1).then_some(0),
            // The beginning of a UUID is enough, if only one GPU has it.
            Err(_) if !entry.is_empty() => {
                let mut matching = ids.iter().enumerate().filter(|(_, id)| id.starts_with(entry));
                matching.next().map(|(at, _)| at).filter(|_| matching.next().is_none())
            }
            Err(_) => None,
        };
        match at {
            Some(at) => named[at] = true,
            None if entry.starts_with("MIG-") => return vec![true; ids.len()],
            None => break,
        }
    }
    named
}

/// Minor numbers of NVIDIA devices that a cgroup of version 1 lets process `pid` open; `None` where it lets all.
fn nvidia_minors(root: &Root, pid: u32) -> Option<Vec<u32>> {
    let groups = groups_of(root, &pid.to_string());
    let group = groups.iter().find(|group| group.controllers.iter().any(|name| name == "devices"))?;
    parse_devices(&root.text(&format!("{}/devices.list", group.folder))?)
}

/// Lines of `type major:minor access`; `None` where all NVIDIA devices are open.
fn parse_devices(text: &str) -> Option<Vec<u32>> {
    let mut minors = Vec::new();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let (kind, numbers) = (words.next()?, words.next()?);
        if kind == "b" {
            continue;
        }
        let (major, minor) = numbers.split_once(':')?;
        match (major.parse::<u32>(), minor.parse::<u32>()) {
            (Ok(NVIDIA_MAJOR), Ok(minor)) => minors.push(minor),
            (Ok(NVIDIA_MAJOR) | Err(_), Err(_)) => return None,
            _ => {}
        }
    }
    Some(minors)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(count: usize) -> Vec<String> {
        (0..count).map(|index| format!("GPU-{index}aa-bb")).collect()
    }

    fn with(cuda: Option<&str>, nvidia_list: Option<&str>) -> Vec<bool> {
        let variables = Variables {
            cuda: cuda.map(str::to_owned),
            nvidia: nvidia_list.map(str::to_owned),
            ..Variables::default()
        };
        nvidia(&variables, &ids(4))
    }

    const ALL: [bool; 4] = [true; 4];
    const NONE: [bool; 4] = [false; 4];

    #[test]
    fn a_job_may_use_what_its_environment_names() {
        assert_eq!(with(None, None), ALL);
        assert_eq!(with(Some("1,3"), None), [false, true, false, true]);
        assert_eq!(with(Some("GPU-2"), None), [false, false, true, false]);
        for nothing in ["", "-1", "no", "9"] {
            assert_eq!(with(Some(nothing), None), NONE, "{nothing}");
        }
        assert_eq!(with(Some("0,9,1"), None), [true, false, false, false], "up to the first that is wrong");
        assert_eq!(with(Some("MIG-1234"), None), ALL, "whose instance it is cannot be told");
    }

    #[test]
    fn a_container_may_use_what_was_put_into_it() {
        assert_eq!(with(None, Some("all")), ALL);
        assert_eq!(with(None, Some("void")), ALL);
        assert_eq!(with(None, Some("none")), NONE);
        assert_eq!(with(None, Some("0,2")), [true, false, true, false]);
        assert_eq!(with(None, Some("4,5,6,7")), ALL, "numbers of the host, of which these four are all");
        assert_eq!(
            with(Some("1"), Some("0,2")),
            [false, false, true, false],
            "counted among those that are left"
        );
    }

    #[test]
    fn rocm_has_its_own_variables() {
        let variables = Variables { rocr: Some("1".to_owned()), ..Variables::default() };
        assert_eq!(amd(&variables, &ids(2)), [false, true]);
        let variables = Variables { hip: Some("0".to_owned()), ..Variables::default() };
        assert_eq!(amd(&variables, &ids(2)), [true, false]);
        assert_eq!(nvidia(&variables, &ids(2)), [true, true]);
    }

    #[test]
    fn the_environment_is_read_by_name_and_not_by_what_it_starts_with() {
        let found = parse_environ(b"A=1\0XCUDA_VISIBLE_DEVICES=9\0CUDA_VISIBLE_DEVICES=0\0B");
        assert_eq!(found, Variables { cuda: Some("0".to_owned()), ..Variables::default() });
    }

    #[test]
    fn a_device_cgroup_may_forbid_gpus() {
        assert_eq!(parse_devices("c 1:3 rwm\nc 195:1 rw\nc 195:255 rw\nb 8:* rwm\n"), Some(vec![1, 255]));
        assert_eq!(parse_devices("a *:* rwm\n"), None);
        assert_eq!(parse_devices("c 195:* rw\n"), None);
        assert_eq!(parse_devices("c 1:3 rwm\n"), Some(vec![]));
    }
}
