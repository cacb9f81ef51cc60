//! Where a run belongs: user, node, the job of a scheduler, and the rank in a distributed program.
//!
//! In:  the environment variables of the tables below. No other variable is read. Out: [`Identity`].
//! Not here: what is done with it (`fleet`).

use serde::{Deserialize, Serialize};

use crate::human::Scale;
use crate::os;

/// Schedulers, and a variable that each of them sets.
const SCHEDULERS: [(&str, &str); 9] = [
    ("slurm", "SLURM_JOB_ID"),
    ("aws_batch", "AWS_BATCH_JOB_ID"),
    ("metaflow", "METAFLOW_RUN_ID"),
    ("airflow", "AIRFLOW_CTX_DAG_RUN_ID"),
    ("nextflow", "NXF_TASK_WORKDIR"),
    ("snakemake", "SNAKEMAKE_PROFILE"),
    ("ray", "RAY_JOB_ID"),
    ("torchrun", "TORCHELASTIC_RUN_ID"),
    ("kubernetes", "KUBERNETES_SERVICE_HOST"),
];

/// Variables of each fact, the first that is set counts.
const USER: &[&str] = &["SLURM_JOB_USER", "AIRFLOW_CTX_DAG_OWNER", "METAFLOW_USER", "USER", "LOGNAME"];
const CLUSTER: &[&str] = &["SLURM_CLUSTER_NAME", "AWS_BATCH_CE_NAME"];
const NODE: &[&str] = &["SLURMD_NODENAME", "NODE_NAME"];
const POD: &[&str] = &["POD_NAME"];
const IMAGE: &[&str] = &["RESOURCE_TRACKER_IMAGE", "APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"];
const SCHEDULER_JOB: &[&str] = &[
    "SLURM_ARRAY_JOB_ID",
    "SLURM_JOB_ID",
    "AWS_BATCH_JOB_ID",
    "METAFLOW_RUN_ID",
    "AIRFLOW_CTX_DAG_RUN_ID",
    "RAY_JOB_ID",
];
const STEP: &[&str] = &["SLURM_STEP_ID", "METAFLOW_STEP_NAME", "AIRFLOW_CTX_TASK_ID"];
const ARRAY_INDEX: &[&str] = &["SLURM_ARRAY_TASK_ID", "AWS_BATCH_JOB_ARRAY_INDEX", "JOB_COMPLETION_INDEX"];
/// Rank, local rank and number of ranks. Those of the inner launcher come first: torchrun may run inside of Slurm.
const RANKS: [(&str, &str, &str); 5] = [
    ("RANK", "LOCAL_RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"),
    ("AWS_BATCH_JOB_NODE_INDEX", "", "AWS_BATCH_JOB_NUM_NODES"),
];
const MIB: f64 = 1024.0 * 1024.0;
/// More ranks than any machine has.
const MOST_RANKS: u64 = 10_000_000;
const MOST_CHARS: usize = 200;

/// Key `run.identity` of a recording. Unknown facts are missing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Identity {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Name of the node by the scheduler.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// Container image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Id of the job or flow run by the scheduler; of an array, the id of the array.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler_job: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub array_index: Option<u64>,
    /// Rank in a distributed program of `ranks` processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_rank: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranks: Option<u64>,
    /// The same for all ranks of one distributed program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distributed: Option<String>,
    /// What was requested for this run, or for this rank.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked_cpus: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked_memory_bytes: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked_gpus: Option<f64>,
}

impl Identity {
    /// The identity of a run that this process starts.
    pub fn of_environment() -> Self {
        let launcher = || os::host_name().map(|host| format!("{host}:{}", os::parent_id().unwrap_or(0)));
        Self::of(|name| std::env::var(name).ok(), launcher)
    }

    /// `variable` looks up a variable; `launcher` names the process that started the ranks, where no variable does.
    fn of(variable: impl Fn(&str) -> Option<String>, launcher: impl Fn() -> Option<String>) -> Self {
        let text = |name: &str| {
            let value = variable(name)?;
            let value: String =
                value.trim().chars().filter(|one| !one.is_control()).take(MOST_CHARS).collect();
            (!value.is_empty()).then_some(value)
        };
        let first = |names: &[&str]| names.iter().find_map(|name| text(name));
        let whole = |name: &str| text(name)?.parse::<u64>().ok();
        let scheduler = SCHEDULERS.iter().find(|(_, sets)| text(sets).is_some());
        let found = RANKS.iter().find_map(|(rank, local_rank, ranks)| {
            let (rank, ranks) = (whole(rank)?, whole(ranks)?);
            (ranks > 1 && rank < ranks && ranks < MOST_RANKS).then(|| (rank, whole(local_rank), ranks))
        });
        let step = first(STEP);
        // Without an id of the program, its ranks have the same parent.
        let distributed = || {
            let of_slurm = text("SLURM_JOB_ID").map(|job| match &step {
                Some(step) => format!("{job}.{step}"),
                None => job,
            });
            let of_torchrun = text("TORCHELASTIC_RUN_ID").filter(|id| id != "none");
            // The default of torchrun, the same for all programs on all machines.
            let is_remote =
                |host: &String| !host.starts_with("127.") && !["localhost", "::1"].contains(&host.as_str());
            let address =
                || Some(format!("{}:{}", text("MASTER_ADDR").filter(is_remote)?, text("MASTER_PORT")?));
            of_slurm
                .or(of_torchrun)
                .or_else(|| first(&["PMIX_NAMESPACE", "AWS_BATCH_JOB_ID"]))
                .or_else(address)
                .or_else(&launcher)
        };
        let (asked_cpus, asked_memory_bytes, asked_gpus) = asked(&text);
        Self {
            user: first(USER),
            scheduler: scheduler.map(|(name, _)| (*name).to_owned()),
            cluster: first(CLUSTER),
            node: first(NODE),
            pod: first(POD),
            image: first(IMAGE),
            scheduler_job: first(SCHEDULER_JOB),
            array_index: ARRAY_INDEX.iter().find_map(|name| whole(name)),
            rank: found.map(|(rank, ..)| rank),
            local_rank: found.and_then(|(_, local_rank, _)| local_rank),
            ranks: found.map(|(.., ranks)| ranks),
            distributed: found.and_then(|_| distributed()),
            asked_cpus,
            asked_memory_bytes,
            asked_gpus,
            step,
        }
    }

    /// What was requested, as text; `None` if it is unknown.
    pub fn requested(&self) -> Option<String> {
        let count = |value: f64, name: &str| {
            let many = if value == 1.0 { "" } else { "s" };
            format!("{} {name}{many}", Scale::Count.show(value))
        };
        let parts: Vec<String> = [
            self.asked_cpus.map(|cpus| count(cpus, "CPU")),
            self.asked_memory_bytes.map(|bytes| format!("{} memory", Scale::Bytes.show(bytes))),
            self.asked_gpus.map(|gpus| count(gpus, "GPU")),
        ]
        .into_iter()
        .flatten()
        .collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

/// CPUs, bytes of memory and GPUs that were requested: by `RESOURCE_TRACKER_ASKED_…`, or for one task of Slurm.
fn asked(text: &impl Fn(&str) -> Option<String>) -> (Option<f64>, Option<f64>, Option<f64>) {
    let number =
        |name: &str| text(name)?.parse::<f64>().ok().filter(|value| value.is_finite() && *value > 0.0);
    let tasks_per_node = number("SLURM_NTASKS_PER_NODE").filter(|_| text("SLURM_STEP_ID").is_some());
    let per_task = |of_node: f64| of_node / tasks_per_node.unwrap_or(1.0);
    let cpus = number("RESOURCE_TRACKER_ASKED_CPUS")
        .or_else(|| number("SLURM_CPUS_PER_TASK"))
        .or_else(|| number("SLURM_CPUS_ON_NODE").map(per_task));
    let mib = number("SLURM_MEM_PER_CPU")
        .and_then(|mib| Some(mib * cpus?))
        .or_else(|| number("SLURM_MEM_PER_NODE").map(per_task));
    let memory_bytes = number("RESOURCE_TRACKER_ASKED_MEMORY").or_else(|| mib.map(|mib| mib * MIB));
    let gpus = number("RESOURCE_TRACKER_ASKED_GPUS")
        .or_else(|| number("SLURM_GPUS_PER_TASK"))
        .or_else(|| number("SLURM_GPUS_ON_NODE").map(per_task));
    (cpus, memory_bytes, gpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(variables: &[(&str, &str)]) -> Identity {
        let find =
            |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        Identity::of(find, || Some("node:7".to_owned()))
    }

    #[test]
    fn rank_of_a_slurm_step() {
        let found = identity(&[
            ("SLURM_JOB_ID", "42"),
            ("SLURM_STEP_ID", "0"),
            ("SLURM_PROCID", "3"),
            ("SLURM_LOCALID", "1"),
            ("SLURM_NTASKS", "4"),
            ("SLURM_NTASKS_PER_NODE", "2"),
            ("SLURM_CPUS_PER_TASK", "8"),
            ("SLURM_MEM_PER_NODE", "4096"),
            ("SLURMD_NODENAME", "n17"),
            ("USER", "ada"),
        ]);
        assert_eq!((found.rank, found.local_rank, found.ranks), (Some(3), Some(1), Some(4)));
        assert_eq!(found.distributed.as_deref(), Some("42.0"));
        assert_eq!((found.asked_cpus, found.asked_memory_bytes), (Some(8.0), Some(2048.0 * MIB)));
        assert_eq!(found.requested().as_deref(), Some("8 CPUs, 2.00 GiB memory"));
        assert_eq!((found.scheduler.as_deref(), found.node.as_deref()), (Some("slurm"), Some("n17")));
    }

    #[test]
    fn torchrun_inside_of_slurm_has_its_own_ranks() {
        let torchrun = [("RANK", "5"), ("LOCAL_RANK", "1"), ("WORLD_SIZE", "8"), ("USER", "ada")];
        let slurm = [("SLURM_JOB_ID", "42"), ("SLURM_PROCID", "1"), ("SLURM_NTASKS", "2")];
        let found = identity(&[&torchrun[..], &slurm].concat());
        assert_eq!((found.rank, found.ranks, found.distributed.as_deref()), (Some(5), Some(8), Some("42")));
        let alone = identity(&torchrun);
        assert_eq!(alone.distributed.as_deref(), Some("node:7"), "the ranks have one parent");
        let elastic = identity(&[&torchrun[..], &[("TORCHELASTIC_RUN_ID", "exp1")]].concat());
        assert_eq!(elastic.distributed.as_deref(), Some("exp1"));
        let at = |host| {
            let address = [("MASTER_ADDR", host), ("MASTER_PORT", "29500"), ("TORCHELASTIC_RUN_ID", "none")];
            identity(&[&torchrun[..], &address].concat()).distributed
        };
        assert_eq!((at("n1").as_deref(), at("127.0.0.1").as_deref()), (Some("n1:29500"), Some("node:7")));
    }

    #[test]
    fn values_that_make_no_sense_are_unknown() {
        let found = identity(&[
            ("RANK", "9"),
            ("WORLD_SIZE", "4"),
            ("JOB_COMPLETION_INDEX", "-1"),
            ("SLURM_CPUS_PER_TASK", "inf"),
            ("RESOURCE_TRACKER_ASKED_MEMORY", "much"),
            ("USER", "\u{1b}[31mada\n"),
        ]);
        assert_eq!(found, Identity { user: Some("[31mada".to_owned()), ..Identity::default() });
        assert_eq!(identity(&[("RANK", "0"), ("WORLD_SIZE", "1")]).ranks, None, "not distributed");
    }
}
