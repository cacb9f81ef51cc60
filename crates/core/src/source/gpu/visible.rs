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

/// What the job may use, found out once it is there.
#[derive(Debug, Default)]
pub(super) struct Permissions {
    root_pid: Option<u32>,
    variables: Variables,
    /// `None` where nothing is forbidden, as far as can be read.
    devices: Option<Vec<Rule>>,
}

/// The variables, where they are set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Variables {
    cuda: Option<String>,
    nvidia: Option<String>,
    rocr: Option<String>,
    hip: Option<String>,
}

/// The names of a GPU in lists: its id, then others.
type Names = Vec<String>;

impl Permissions {
    /// Says of each GPU whether the job may use it.
    pub(super) fn apply(&mut self, root: &Root, root_pid: Option<u32>, gpus: &mut [Gpu]) {
        let Some(pid) = root_pid else { return };
        if self.root_pid != root_pid {
            let mut buffer = Vec::new();
            let Ok(environ) = root.read(pid_path(pid, "environ").as_str(), &mut buffer) else { return };
            self.variables = parse_environ(environ);
            self.devices = devices(root, pid);
            self.root_pid = root_pid;
        }
        for gpu in &mut *gpus {
            gpu.is_allowed = match (&self.devices, gpu.device) {
                (Some(rules), Some(device)) => rules.iter().any(|rule| rule.allows(device)),
                _ => true,
            };
        }
        // A list counts what can be opened.
        for (vendor, lists) in [(Vendor::Nvidia, nvidia as Lists), (Vendor::Amd, amd)] {
            let mut open: Vec<&mut Gpu> =
                gpus.iter_mut().filter(|gpu| gpu.vendor == vendor && gpu.is_allowed).collect();
            let names = |gpu: &&mut Gpu| [std::slice::from_ref(&gpu.id), &gpu.aliases].concat();
            let names: Vec<Names> = open.iter().map(names).collect();
            for (gpu, is_named) in open.iter_mut().zip(lists(&self.variables, &names)) {
                gpu.is_allowed = is_named;
            }
        }
    }
}

/// Which of these GPUs the variables leave.
type Lists = fn(&Variables, &[Names]) -> Vec<bool>;

/// A line of `devices.list`: devices that may be opened; `None` is any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rule {
    major: Option<u32>,
    minor: Option<u32>,
}

impl Rule {
    fn allows(self, (major, minor): (u32, u32)) -> bool {
        self.major.is_none_or(|own| own == major) && self.minor.is_none_or(|own| own == minor)
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

fn nvidia(variables: &Variables, ids: &[Names]) -> Vec<bool> {
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
    narrow(&mut allowed, variables.cuda.as_deref(), ids);
    allowed
}

fn amd(variables: &Variables, ids: &[Names]) -> Vec<bool> {
    let mut allowed = vec![true; ids.len()];
    narrow(&mut allowed, variables.rocr.as_deref(), ids);
    // HIP takes CUDA's variable for its own, where that is not set.
    narrow(&mut allowed, variables.hip.as_deref().or(variables.cuda.as_deref()), ids);
    allowed
}

/// Leaves those that a list names, which counts among those that were left before it.
fn narrow(allowed: &mut [bool], list: Option<&str>, ids: &[Names]) {
    let Some(list) = list else { return };
    let left: Vec<usize> = (0..ids.len()).filter(|at| allowed[*at]).collect();
    let ids_left: Vec<Names> = left.iter().map(|at| ids[*at].clone()).collect();
    for (at, is_named) in left.into_iter().zip(named(list, &ids_left)) {
        allowed[at] = is_named;
    }
}

/// GPUs that a list of indices or UUIDs names. It counts up to the first entry that names nothing; a list without a
/// valid entry hides all GPUs.
fn named(list: &str, ids: &[Names]) -> Vec<bool> {
    let mut named = vec![false; ids.len()];
    for entry in list.split(',').map(str::trim) {
        let at = match entry.parse::<usize>() {
            Ok(index) => Some(index).filter(|index| *index < ids.len()),
            Err(_) if !entry.is_empty() => {
                // Before 2021 an instance was called `MIG-<UUID of its GPU>/<numbers>`.
                let of_gpu = entry.strip_prefix("MIG-").and_then(|rest| rest.split_once('/'));
                let entry = of_gpu.map_or(entry, |(uuid, _)| uuid);
                // The beginning of a UUID is enough, if only one GPU has it.
                let has_it = |names: &Names| names.iter().any(|name| name.starts_with(entry));
                let mut matching = ids.iter().enumerate().filter(|(_, names)| has_it(names));
                matching.next().map(|(at, _)| at).filter(|_| matching.next().is_none())
            }
            Err(_) => None,
        };
        match at {
            Some(at) => named[at] = true,
            // Whose instance it is cannot be told.
            None if entry.starts_with("MIG-") => return vec![true; ids.len()],
            None => break,
        }
    }
    named
}

/// What a device cgroup of version 1 lets process `pid` open.
fn devices(root: &Root, pid: u32) -> Option<Vec<Rule>> {
    let groups = groups_of(root, &pid.to_string());
    let group = groups.iter().find(|group| group.controllers.iter().any(|name| name == "devices"))?;
    parse_devices(&root.text(&format!("{}/devices.list", group.folder))?)
}

/// Lines of `type major:minor access`; `None` where one is not understood.
fn parse_devices(text: &str) -> Option<Vec<Rule>> {
    let mut rules = Vec::new();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let (kind, numbers, access) = (words.next()?, words.next()?, words.next()?);
        let number = |text: &str| if text == "*" { Some(None) } else { text.parse().ok().map(Some) };
        let (major, minor) = numbers.split_once(':')?;
        // GPUs are no block devices, and who may only make a device file cannot use it.
        if kind != "b" && access.contains(['r', 'w']) {
            rules.push(Rule { major: number(major)?, minor: number(minor)? });
        }
    }
    Some(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(count: usize) -> Vec<Names> {
        (0..count).map(|index| vec![format!("GPU-{index}aa-bb"), format!("MIG-{index}cc")]).collect()
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
        assert_eq!(with(Some("MIG-1cc"), None), [false, true, false, false]);
        assert_eq!(with(Some("MIG-GPU-2aa-bb/1/0"), None), [false, false, true, false]);
        assert_eq!(with(Some("MIG-9"), None), ALL, "whose instance it is cannot be told");
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
        let both =
            Variables { rocr: Some("1,2".to_owned()), hip: Some("1".to_owned()), ..Variables::default() };
        assert_eq!(amd(&both, &ids(3)), [false, false, true], "the second of those that are left");
        assert_eq!(nvidia(&variables, &ids(2)), [true, true]);
        let cuda = Variables { cuda: Some("1".to_owned()), ..Variables::default() };
        assert_eq!(amd(&cuda, &ids(2)), [false, true]);
        let both = Variables { hip: Some("0".to_owned()), ..cuda };
        assert_eq!(amd(&both, &ids(2)), [true, false]);
    }

    #[test]
    fn lists_count_what_the_device_cgroup_lets_open() {
        let gpu = |minor| Gpu { id: format!("GPU-{minor}"), device: Some((195, minor)), ..Gpu::default() };
        let mut gpus: Vec<Gpu> = (0..4).map(gpu).collect();
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("proc")).unwrap();
        let root = Root::recorded(folder.path()).unwrap();
        let mut permissions = Permissions {
            root_pid: Some(7),
            variables: Variables { cuda: Some("0".to_owned()), ..Variables::default() },
            devices: parse_devices("c 195:2 rw\nc 195:3 rw\n"),
        };
        permissions.apply(&root, Some(7), &mut gpus);
        let allowed: Vec<bool> = gpus.iter().map(|gpu| gpu.is_allowed).collect();
        assert_eq!(allowed, [false, false, true, false]);
    }

    #[test]
    fn the_environment_is_read_by_name_and_not_by_what_it_starts_with() {
        let found = parse_environ(b"A=1\0XCUDA_VISIBLE_DEVICES=9\0CUDA_VISIBLE_DEVICES=0\0B");
        assert_eq!(found, Variables { cuda: Some("0".to_owned()), ..Variables::default() });
    }

    #[test]
    fn a_device_cgroup_may_forbid_gpus() {
        let allows = |text: &str, minor: u32| {
            parse_devices(text).is_none_or(|rules| rules.iter().any(|rule| rule.allows((195, minor))))
        };
        let one = "c 1:3 rwm\nc 195:1 rw\nc 195:255 rw\nb *:* rwm\n";
        assert_eq!((allows(one, 0), allows(one, 1)), (false, true));
        for all in ["a *:* rwm\n", "c 195:* rw\n", "what is this\n"] {
            assert!(allows(all, 0), "{all}");
        }
        for none in ["c 1:3 rwm\n", "c *:* m\nc 1:3 rwm\n"] {
            assert!(!allows(none, 0), "{none}");
        }
    }
}
