//! Which GPUs the job may use, according to its environment and its device cgroup.
//!
//! In:  `/proc/[pid]/environ`, `devices.list` of cgroup v1, the GPUs. Out: `is_allowed` of each GPU.
//! Not here: recommendations (`analysis::recommend`). The machine's columns include GPUs that the job may not use.
//!
//! Of the environment only the variables below are read, and recordings contain only `is_allowed`. The rules are those
//! of the CUDA programming guide, NVIDIA's container toolkit and ROCm. The device rules of cgroup v2 cannot be read,
//! because they are BPF programs.
//!
//! CUDA numbers GPUs by speed (`CUDA_DEVICE_ORDER=FASTEST_FIRST`, the default) or by PCI address (`PCI_BUS_ID`), as the
//! driver lists them here. GPUs of one model have the same order in both. With several models the order by speed is not
//! documented, so an index may mean any of them.

use super::{Gpu, Vendor};
use crate::os::pid_path;
use crate::os::root::Root;
use crate::probe::cgroup::groups_of;

/// GPU permissions of one job. They are read once for each root process.
#[derive(Debug, Default)]
pub(super) struct Permissions {
    root_pid: Option<u32>,
    variables: Variables,
    /// Rules of the device cgroup; `None` if they cannot be read.
    devices: Option<Vec<Rule>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Variables {
    cuda: Option<String>,
    /// `CUDA_DEVICE_ORDER`.
    cuda_order: Option<String>,
    nvidia: Option<String>,
    rocr: Option<String>,
    hip: Option<String>,
}

/// All ids by which a list may name a GPU.
type Names = Vec<String>;

impl Permissions {
    /// Sets `is_allowed` of every GPU. Returns a note if it is not known which GPUs the job may use.
    pub(super) fn apply(
        &mut self,
        root: &Root,
        root_pid: Option<u32>,
        gpus: &mut [Gpu],
    ) -> Option<&'static str> {
        let pid = root_pid?;
        if self.root_pid != root_pid {
            let mut buffer = Vec::new();
            let environ = root.read(pid_path(pid, "environ").as_str(), &mut buffer).ok()?;
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
        let is_ambiguous = self.variables.has_ambiguous_index(gpus);
        let mut variables = self.variables.clone();
        if is_ambiguous {
            variables.cuda = None;
        }
        // An index in a list counts only GPUs that the device cgroup allows.
        for (vendor, lists) in [(Vendor::Nvidia, nvidia as Lists), (Vendor::Amd, amd)] {
            let mut open: Vec<&mut Gpu> =
                gpus.iter_mut().filter(|gpu| gpu.vendor == vendor && gpu.is_allowed).collect();
            let names = |gpu: &&mut Gpu| [std::slice::from_ref(&gpu.id), &gpu.aliases].concat();
            let names: Vec<Names> = open.iter().map(names).collect();
            for (gpu, is_named) in open.iter_mut().zip(lists(&variables, &names)) {
                gpu.is_allowed = is_named;
            }
        }
        is_ambiguous.then_some(AMBIGUOUS_ORDER)
    }
}

const AMBIGUOUS_ORDER: &str = "GPU: it is not known which GPUs the job may use: CUDA_VISIBLE_DEVICES has indices, the \
                               GPUs are of several models, and CUDA_DEVICE_ORDER is not PCI_BUS_ID";

impl Variables {
    /// Whether `CUDA_VISIBLE_DEVICES` names some of the allowed GPUs by indices whose order is not known.
    fn has_ambiguous_index(&self, gpus: &[Gpu]) -> bool {
        let models: Vec<&str> = gpus
            .iter()
            .filter(|gpu| gpu.vendor == Vendor::Nvidia && gpu.is_allowed)
            .map(|gpu| gpu.name.as_str())
            .collect();
        let indices = |list: &str| -> Vec<usize> {
            let indices = list.split(',').map_while(|entry| entry.trim().parse().ok());
            indices.take_while(|index| *index < models.len()).collect()
        };
        let named = self.cuda.as_deref().map(indices).unwrap_or_default();
        let names_all = (0..models.len()).all(|index| named.contains(&index));
        let has_several_models = models.windows(2).any(|pair| pair[0] != pair[1]);
        let is_by_address = self.cuda_order.as_deref() == Some("PCI_BUS_ID");
        !named.is_empty() && !names_all && has_several_models && !is_by_address
    }
}

/// For each GPU, whether the variables allow it.
type Lists = fn(&Variables, &[Names]) -> Vec<bool>;

/// A line of `devices.list`; `None` matches any number.
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
        cuda_order: value("CUDA_DEVICE_ORDER"),
        nvidia: value("NVIDIA_VISIBLE_DEVICES"),
        rocr: value("ROCR_VISIBLE_DEVICES"),
        hip: value("HIP_VISIBLE_DEVICES"),
    }
}

fn nvidia(variables: &Variables, ids: &[Names]) -> Vec<bool> {
    let mut allowed = vec![true; ids.len()];
    match variables.nvidia.as_deref() {
        // With `void` or an empty value the container toolkit does nothing.
        None | Some("" | "void" | "all") => {}
        Some("none") => return vec![false; ids.len()],
        Some(list) => {
            let named = named(list, ids);
            // In a container the list may have the host's indices. The container may use all GPUs that it has.
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
    // HIP uses the variable of CUDA if its own is not set.
    narrow(&mut allowed, variables.hip.as_deref().or(variables.cuda.as_deref()), ids);
    allowed
}

/// Restricts the allowed GPUs to those in a list. An index in the list counts only GPUs that are still allowed.
fn narrow(allowed: &mut [bool], list: Option<&str>, ids: &[Names]) {
    let Some(list) = list else { return };
    let left: Vec<usize> = (0..ids.len()).filter(|at| allowed[*at]).collect();
    let ids_left: Vec<Names> = left.iter().map(|at| ids[*at].clone()).collect();
    for (at, is_named) in left.into_iter().zip(named(list, &ids_left)) {
        allowed[at] = is_named;
    }
}

/// GPUs in a list of indices or UUIDs, up to the first invalid entry. A list without a valid entry hides all GPUs.
fn named(list: &str, ids: &[Names]) -> Vec<bool> {
    let mut named = vec![false; ids.len()];
    for entry in list.split(',').map(str::trim) {
        let at = match entry.parse::<usize>() {
            Ok(index) => Some(index).filter(|index| *index < ids.len()),
            Err(_) if !entry.is_empty() => {
                // Before 2021 the id of a MIG instance was `MIG-<UUID of its GPU>/<numbers>`.
                let of_gpu = entry.strip_prefix("MIG-").and_then(|rest| rest.split_once('/'));
                let entry = of_gpu.map_or(entry, |(uuid, _)| uuid);
                // An unambiguous prefix of a UUID is enough.
                let has_it = |names: &Names| names.iter().any(|name| name.starts_with(entry));
                let mut matching = ids.iter().enumerate().filter(|(_, names)| has_it(names));
                matching.next().map(|(at, _)| at).filter(|_| matching.next().is_none())
            }
            Err(_) => None,
        };
        match at {
            Some(at) => named[at] = true,
            // The GPU of an unknown MIG instance is unknown, so all GPUs stay allowed.
            None if entry.starts_with("MIG-") => return vec![true; ids.len()],
            None => break,
        }
    }
    named
}

/// The rules of the device cgroup (version 1) of a process.
fn devices(root: &Root, pid: u32) -> Option<Vec<Rule>> {
    let groups = groups_of(root, &pid.to_string());
    let group = groups.iter().find(|group| group.controllers.iter().any(|name| name == "devices"))?;
    parse_devices(&root.text(&format!("{}/devices.list", group.folder))?)
}

/// Parses lines of `type major:minor access`; `None` on an invalid line.
fn parse_devices(text: &str) -> Option<Vec<Rule>> {
    let mut rules = Vec::new();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let (kind, numbers, access) = (words.next()?, words.next()?, words.next()?);
        let number = |text: &str| if text == "*" { Some(None) } else { text.parse().ok().map(Some) };
        let (major, minor) = numbers.split_once(':')?;
        // Rules for block devices (`b`) do not apply to GPUs. Access `m` (mknod) does not allow opening a file.
        if kind != "b" && access.contains(['r', 'w']) {
            rules.push(Rule { major: number(major)?, minor: number(minor)? });
        }
    }
    Some(rules)
}

/// Parses bytes as each file that this module reads, for the fuzz test.
#[cfg(feature = "internals")]
pub(super) fn parse_any(bytes: &[u8]) {
    let names = vec![vec!["GPU-0aa".to_owned()], vec!["MIG-1cc".to_owned()]];
    let _ = nvidia(&parse_environ(bytes), &names);
    let _ = parse_devices(&String::from_utf8_lossy(bytes));
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
    fn environment_restricts_the_gpus() {
        assert_eq!(with(None, None), ALL);
        assert_eq!(with(Some("1,3"), None), [false, true, false, true]);
        assert_eq!(with(Some("GPU-2"), None), [false, false, true, false]);
        for nothing in ["", "-1", "no", "9"] {
            assert_eq!(with(Some(nothing), None), NONE, "{nothing}");
        }
        assert_eq!(with(Some("0,9,1"), None), [true, false, false, false], "up to the first invalid entry");
        assert_eq!(with(Some("MIG-1cc"), None), [false, true, false, false]);
        assert_eq!(with(Some("MIG-GPU-2aa-bb/1/0"), None), [false, false, true, false]);
        assert_eq!(with(Some("MIG-9"), None), ALL, "the GPU of an unknown instance is unknown");
    }

    #[test]
    fn container_toolkit_variable_restricts_the_gpus() {
        assert_eq!(with(None, Some("all")), ALL);
        assert_eq!(with(None, Some("void")), ALL);
        assert_eq!(with(None, Some("none")), NONE);
        assert_eq!(with(None, Some("0,2")), [true, false, true, false]);
        assert_eq!(
            with(None, Some("4,5,6,7")),
            ALL,
            "the list has indices of the host, the container has four GPUs"
        );
        assert_eq!(
            with(Some("1"), Some("0,2")),
            [false, false, true, false],
            "the index counts GPUs that are still allowed"
        );
    }

    #[test]
    fn rocm_variables_restrict_amd_gpus() {
        let variables = Variables { rocr: Some("1".to_owned()), ..Variables::default() };
        assert_eq!(amd(&variables, &ids(2)), [false, true]);
        let variables = Variables { hip: Some("0".to_owned()), ..Variables::default() };
        assert_eq!(amd(&variables, &ids(2)), [true, false]);
        let both =
            Variables { rocr: Some("1,2".to_owned()), hip: Some("1".to_owned()), ..Variables::default() };
        assert_eq!(amd(&both, &ids(3)), [false, false, true], "the second GPU that is still allowed");
        assert_eq!(nvidia(&variables, &ids(2)), [true, true]);
        let cuda = Variables { cuda: Some("1".to_owned()), ..Variables::default() };
        assert_eq!(amd(&cuda, &ids(2)), [false, true]);
        let both = Variables { hip: Some("0".to_owned()), ..cuda };
        assert_eq!(amd(&both, &ids(2)), [true, false]);
    }

    #[test]
    fn indices_count_gpus_that_the_device_cgroup_allows() {
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
    fn index_into_gpus_of_several_models_needs_the_order_by_pci_address() {
        let gpu = |name: &str| Gpu { id: format!("GPU-{name}"), name: name.to_owned(), ..Gpu::default() };
        let folder = tempfile::tempdir().unwrap();
        let environ = folder.path().join("proc/7/environ");
        std::fs::create_dir_all(environ.parent().unwrap()).unwrap();
        let root = Root::recorded(folder.path()).unwrap();
        let allowed = |names: [&str; 2], variables: &str| {
            std::fs::write(&environ, variables.replace(' ', "\0")).unwrap();
            let mut gpus = names.map(gpu);
            let mut permissions = Permissions::default();
            // The second reading uses the variables that the first has read.
            permissions.apply(&root, Some(7), &mut gpus);
            let note = permissions.apply(&root, Some(7), &mut gpus);
            (gpus.map(|gpu| gpu.is_allowed), note.is_some())
        };
        let (two, one) = (["T4", "H100"], ["T4", "T4"]);
        assert_eq!(allowed(two, "CUDA_VISIBLE_DEVICES=0"), ([true; 2], true), "the fastest first");
        assert_eq!(allowed(two, "CUDA_VISIBLE_DEVICES=0 CUDA_DEVICE_ORDER=FASTEST_FIRST"), ([true; 2], true));
        let by_address = "CUDA_VISIBLE_DEVICES=0 CUDA_DEVICE_ORDER=PCI_BUS_ID";
        assert_eq!(allowed(two, by_address), ([true, false], false));
        assert_eq!(allowed(two, "CUDA_VISIBLE_DEVICES=GPU-H"), ([false, true], false), "a UUID");
        assert_eq!(allowed(two, "CUDA_VISIBLE_DEVICES=1,0"), ([true; 2], false), "all GPUs");
        assert_eq!(allowed(two, "CUDA_VISIBLE_DEVICES="), ([false; 2], false), "no GPU");
        assert_eq!(allowed(one, "CUDA_VISIBLE_DEVICES=1"), ([false, true], false), "one model");
    }

    #[test]
    fn variables_are_matched_by_their_whole_name() {
        let found = parse_environ(b"A=1\0XCUDA_VISIBLE_DEVICES=9\0CUDA_VISIBLE_DEVICES=0\0B");
        assert_eq!(found, Variables { cuda: Some("0".to_owned()), ..Variables::default() });
    }

    #[test]
    fn device_cgroup_restricts_gpus() {
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
