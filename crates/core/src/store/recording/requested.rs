//! What was requested for a run, or for this rank of it.
//!
//! In:  the variables of Slurm, `RESOURCE_TRACKER_ASKED_…`, and how the run was launched. Out: [`Asked`].
//! Not here: ranks and names (`identity`).
//!
//! Facts: sections OUTPUT ENVIRONMENT VARIABLES of sbatch(1) and srun(1), and the Quantity of the Kubernetes API. In a step,
//! a tracker is in one task. Outside of a step it is in the batch script, and sees all tasks on that node.

/// Longer values are cut.
const MOST_CHARS: usize = 200;
const MIB: f64 = 1024.0 * 1024.0;
/// Suffixes of a quantity of Kubernetes.
const SUFFIXES: [(&str, f64); 15] = [
    ("Ki", 1024.0),
    ("Mi", MIB),
    ("Gi", MIB * 1024.0),
    ("Ti", MIB * MIB),
    ("Pi", MIB * MIB * 1024.0),
    ("Ei", MIB * MIB * MIB),
    ("n", 1e-9),
    ("u", 1e-6),
    ("m", 1e-3),
    ("k", 1e3),
    ("M", 1e6),
    ("G", 1e9),
    ("T", 1e12),
    ("P", 1e15),
    ("E", 1e18),
];

/// Looks up variables of the environment.
pub struct Variables<'v>(pub &'v dyn Fn(&str) -> Option<String>);

impl Variables<'_> {
    pub fn text(&self, name: &str) -> Option<String> {
        let value = (self.0)(name)?;
        let value: String = value.trim().chars().filter(|one| !one.is_control()).take(MOST_CHARS).collect();
        (!value.is_empty()).then_some(value)
    }

    /// The first of these variables that is set.
    pub fn first(&self, names: &[&str]) -> Option<String> {
        names.iter().find_map(|name| self.text(name))
    }

    pub fn whole(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    /// Whether this is a task of a Slurm step. Outside of a step there is only the batch script, which is process 0.
    pub fn is_in_step(&self) -> bool {
        self.text("SLURM_STEP_ID").is_some() || self.whole("SLURM_PROCID").is_some_and(|rank| rank > 0)
    }

    /// A positive amount, which may be a quantity of Kubernetes.
    fn amount(&self, name: &str) -> Option<f64> {
        quantity(&self.text(name)?)
    }
}

/// How a run was started, as one of several ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launched {
    /// Not a rank.
    Alone,
    /// A rank that is a task of a Slurm step.
    Task,
    /// One of `of_launcher` ranks that a launcher started on this node, or in this task of Slurm.
    Ranks { of_launcher: Option<u64>, is_mpi: bool },
}

/// What was requested for a run, or for this rank; `None` if it is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Asked {
    pub cpus: Option<f64>,
    pub memory_bytes: Option<f64>,
    pub gpus: Option<f64>,
    /// Number of ranks on this node; 1 if there are none.
    pub local_ranks: Option<u64>,
}

impl Asked {
    #[expect(clippy::cast_precision_loss, reason = "numbers of ranks and tasks")]
    pub fn of(variables: &Variables, launched: Launched) -> Self {
        let is_in_step = variables.is_in_step();
        let tasks = tasks_on_node(variables, is_in_step);
        let ranks_of_task = match launched {
            Launched::Alone | Launched::Task => Some(1),
            Launched::Ranks { of_launcher, .. } => of_launcher,
        };
        let sharers = || if is_in_step { ranks_of_task?.checked_mul(tasks?) } else { ranks_of_task };
        let of_node = |amount: f64| Some(amount / sharers()? as f64);
        let of_task = |amount: f64| {
            let seen_tasks = if is_in_step { 1 } else { tasks.unwrap_or(1) };
            Some(amount * seen_tasks as f64 / ranks_of_task? as f64)
        };
        // `mpirun` starts its ranks by one task on each node, which has the variables of the batch script.
        let is_task_first = is_in_step && !matches!(launched, Launched::Ranks { is_mpi: true, .. });
        let either = |task: Option<f64>, node: Option<f64>| {
            let (task, node) = (task.and_then(of_task), node.and_then(of_node));
            if is_task_first { task.or(node) } else { node.or(task) }
        };
        let amount = |name: &str| variables.amount(name);
        let given = |name: &str| amount(name).and_then(of_node);
        let cpus = either(amount("SLURM_CPUS_PER_TASK"), amount("SLURM_CPUS_ON_NODE"));
        let mib = amount("SLURM_MEM_PER_CPU")
            .zip(cpus)
            .map(|(mib, cpus)| mib * cpus)
            .or_else(|| amount("SLURM_MEM_PER_NODE").and_then(of_node));
        let gpus_per_task = variables.text("SLURM_GPUS_PER_TASK").and_then(|text| gpus(&text));
        Self {
            cpus: given("RESOURCE_TRACKER_ASKED_CPUS").or(cpus),
            memory_bytes: given("RESOURCE_TRACKER_ASKED_MEMORY").or(mib.map(|mib| mib * MIB)),
            gpus: given("RESOURCE_TRACKER_ASKED_GPUS")
                .or_else(|| either(gpus_per_task, amount("SLURM_GPUS_ON_NODE"))),
            local_ranks: sharers(),
        }
    }
}

/// Tasks of Slurm on this node.
fn tasks_on_node(variables: &Variables, is_in_step: bool) -> Option<u64> {
    let of_step = |name| variables.text(name).filter(|_| is_in_step);
    let listed = of_step("SLURM_STEP_TASKS_PER_NODE").or_else(|| variables.text("SLURM_TASKS_PER_NODE"));
    let divided = || {
        let tasks = variables.whole("SLURM_NTASKS").unwrap_or(1);
        let nodes = of_step("SLURM_STEP_NUM_NODES")
            .or_else(|| variables.first(&["SLURM_NNODES", "SLURM_JOB_NUM_NODES"]))
            .and_then(|nodes| nodes.parse().ok());
        if tasks == 1 { Some(1) } else { nodes.and_then(|nodes: u64| evenly(tasks, nodes)) }
    };
    listed
        .and_then(|list| tasks_of_node(&list, variables.whole("SLURM_NODEID")))
        .or_else(|| variables.whole("SLURM_NTASKS_PER_NODE"))
        .or_else(divided)
        .filter(|tasks| *tasks > 0)
}

fn evenly(tasks: u64, nodes: u64) -> Option<u64> {
    tasks.checked_div(nodes).filter(|each| each.checked_mul(nodes) == Some(tasks))
}

/// The tasks of a node, by a list such as `2(x3),1`: three nodes with two tasks each, then one with one. Without its number,
/// only if all nodes have as many.
fn tasks_of_node(list: &str, node: Option<u64>) -> Option<u64> {
    let mut first_node = 0_u64;
    let mut same = None;
    for part in list.split(',') {
        let (tasks, nodes) = match part.split_once("(x") {
            Some((tasks, nodes)) => (tasks, nodes.strip_suffix(')')?.parse().ok()?),
            None => (part, 1),
        };
        let tasks: u64 = tasks.parse().ok()?;
        let end = first_node.checked_add(nodes)?;
        match node {
            Some(node) if (first_node..end).contains(&node) => return Some(tasks),
            None if same.is_some_and(|same| same != tasks) => return None,
            _ => same = Some(tasks),
        }
        first_node = end;
    }
    same.filter(|_| node.is_none())
}

/// A number of GPUs such as `2`, `a100:2` or `a100:1,v100:1`.
fn gpus(text: &str) -> Option<f64> {
    text.split(',').map(|part| quantity(part.rsplit(':').next()?)).sum()
}

/// A positive number, which may have a suffix of Kubernetes: `0.5`, `500m`, `4Gi`.
fn quantity(text: &str) -> Option<f64> {
    let with_suffix = || {
        let (digits, factor) =
            SUFFIXES.iter().find_map(|(suffix, factor)| Some((text.strip_suffix(suffix)?, factor)))?;
        Some(digits.parse::<f64>().ok()? * factor)
    };
    text.parse().ok().or_else(with_suffix).filter(|value: &f64| value.is_finite() && *value > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_the_suffixes_of_kubernetes() {
        let known = [
            ("2", 2.0),
            ("0.5", 0.5),
            ("500m", 0.5),
            ("4Gi", 4_294_967_296.0),
            ("1.5G", 1.5e9),
            ("1e3", 1e3),
        ];
        for (text, value) in known {
            assert_eq!(quantity(text), Some(value), "{text}");
        }
        for text in ["", "much", "4 Gi", "-1", "0", "inf", "Gi", "4GiB"] {
            assert_eq!(quantity(text), None, "{text}");
        }
        assert_eq!((gpus("2"), gpus("a100:2"), gpus("a100:1,v100:2")), (Some(2.0), Some(2.0), Some(3.0)));
        assert_eq!((gpus("a100"), gpus("")), (None, None));
    }

    #[test]
    fn tasks_of_a_node_are_read_from_the_list_of_slurm() {
        let found = |list, node| tasks_of_node(list, node);
        assert_eq!([0, 1, 2, 3].map(|node| found("4(x2),1", Some(node))), [Some(4), Some(4), Some(1), None]);
        assert_eq!(
            (found("4(x2)", None), found("4(x2),1", None), found("3", None)),
            (Some(4), None, Some(3))
        );
        for damaged in ["", "4(x", "4(x2", "(x2)", "a", "1,,2", "1(x99999999999999999999)"] {
            assert_eq!(found(damaged, Some(7)), None, "{damaged}");
        }
    }
}
