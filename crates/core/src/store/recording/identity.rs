//! Where a run belongs: user, node, the job of a scheduler, and the rank in a distributed program.
//!
//! In:  the environment variables of the tables below and of `requested`. No other variable is read. Out: [`Identity`].
//! Not here: what was requested (`requested`), what is done with it (`fleet`).

use serde::{Deserialize, Serialize};

use super::requested::{Asked, Launched, Variables};
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
const USER: &[&str] =
    &["RESOURCE_TRACKER_USER", "SLURM_JOB_USER", "AIRFLOW_CTX_DAG_OWNER", "METAFLOW_USER", "USER", "LOGNAME"];
const CLUSTER: &[&str] = &["RESOURCE_TRACKER_CLUSTER", "SLURM_CLUSTER_NAME", "AWS_BATCH_CE_NAME"];
const NODE: &[&str] = &["RESOURCE_TRACKER_NODE", "SLURMD_NODENAME", "NODE_NAME"];
const POD: &[&str] = &["RESOURCE_TRACKER_POD", "POD_NAME"];
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
/// Rank, local rank, number of ranks, and number of ranks on the node. Those of the inner launcher come first: torchrun
/// may run inside of Slurm.
const RANKS: [[&str; 4]; 5] = [
    [RANK_OF_TORCHRUN, "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"],
    [
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ],
    ["PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE", "MPI_LOCALNRANKS"],
    [RANK_OF_SLURM, "SLURM_LOCALID", RANKS_OF_SLURM, ""],
    [RANK_OF_BATCH, "", "AWS_BATCH_JOB_NUM_NODES", ""],
];
const RANK_OF_TORCHRUN: &str = "RANK";
const RANK_OF_SLURM: &str = "SLURM_PROCID";
const RANKS_OF_SLURM: &str = "SLURM_NTASKS";
/// AWS Batch starts one container on each node.
const RANK_OF_BATCH: &str = "AWS_BATCH_JOB_NODE_INDEX";
/// More ranks than any machine has.
const MOST_RANKS: u64 = 10_000_000;

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
    /// Number of ranks on the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_ranks: Option<u64>,
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

/// What is known without variables.
struct Here {
    host: fn() -> Option<String>,
    parent_id: fn() -> Option<u32>,
    user: fn() -> String,
}

impl Identity {
    /// The identity of a run that this process starts.
    pub fn of_environment() -> Self {
        let here = Here { host: os::host_name, parent_id: os::parent_id, user: os::user_name };
        Self::of(&Variables(&|name| std::env::var(name).ok()), &here)
    }

    fn of(variables: &Variables, here: &Here) -> Self {
        let text = |name: &str| variables.text(name);
        let whole = |name: &str| variables.whole(name);
        let scheduler = SCHEDULERS.iter().find(|(_, sets)| text(sets).is_some());
        let is_in_step = variables.is_in_step();
        let found = RANKS.iter().find_map(|names| {
            let (rank, ranks) = (whole(names[0])?, whole(names[2])?);
            (ranks > 1 && rank < ranks && ranks < MOST_RANKS).then_some((names, rank, ranks))
        });
        let launched = found.map_or(Launched::Alone, |(names, rank, ranks)| match names[0] {
            // The batch script is rank 0 too, but sees all tasks on its node.
            RANK_OF_SLURM if !is_in_step => Launched::Alone,
            RANK_OF_BATCH => Launched::Ranks { of_launcher: Some(1), is_mpi: false },
            // Tasks of a step may have the variables of a launcher too, from `srun --mpi` or from their script.
            _ if is_in_step
                && (whole(RANK_OF_SLURM), whole(RANKS_OF_SLURM)) == (Some(rank), Some(ranks))
                && text("TORCHELASTIC_RUN_ID").is_none() =>
            {
                Launched::Task
            }
            first => Launched::Ranks {
                of_launcher: whole(names[3]).filter(|local| (1..=ranks).contains(local)),
                is_mpi: first != RANK_OF_TORCHRUN,
            },
        });
        let Asked { cpus, memory_bytes, gpus, local_ranks } = Asked::of(variables, launched);
        let step = variables.first(STEP);
        Self {
            user: variables.first(USER).or_else(|| Some((here.user)()).filter(|user| !user.is_empty())),
            scheduler: scheduler.map(|(name, _)| (*name).to_owned()),
            cluster: variables.first(CLUSTER),
            node: variables.first(NODE),
            pod: variables
                .first(POD)
                .or_else(|| text("KUBERNETES_SERVICE_HOST").and_then(|_| text("HOSTNAME"))),
            image: variables.first(IMAGE),
            scheduler_job: scheduler_job(variables),
            array_index: ARRAY_INDEX.iter().find_map(|name| whole(name)),
            rank: found.map(|(_, rank, _)| rank),
            local_rank: found.and_then(|(names, ..)| whole(names[1])),
            local_ranks: local_ranks.filter(|_| found.is_some()),
            ranks: found.map(|(.., ranks)| ranks),
            distributed: found.and_then(|(names, ..)| program(variables, here, step.as_deref(), names[0])),
            asked_cpus: cpus,
            asked_memory_bytes: memory_bytes,
            asked_gpus: gpus,
            step,
        }
    }

    /// The part of its node that belongs to this run: a rank shares the node with the other ranks on it. `None` if their
    /// number is unknown.
    pub fn share_of_node(&self) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
        let part = |ranks: u64| 1.0 / ranks as f64;
        if self.ranks.is_none() { Some(1.0) } else { self.local_ranks.map(part) }
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

/// Id of the job. AWS Batch appends the index of an array's child, or of a node. Runs of all DAGs of Airflow that start at
/// the same time have the same id.
fn scheduler_job(variables: &Variables) -> Option<String> {
    SCHEDULER_JOB.iter().find_map(|name| {
        let id = variables.text(name)?;
        Some(match *name {
            "AWS_BATCH_JOB_ID" => id.split([':', '#']).next().unwrap_or_default().to_owned(),
            "AIRFLOW_CTX_DAG_RUN_ID" => match variables.text("AIRFLOW_CTX_DAG_ID") {
                Some(dag) => format!("{dag}/{id}"),
                None => id,
            },
            _ => id,
        })
    })
}

/// Name of a distributed program, whose ranks have the variable `rank`.
fn program(variables: &Variables, here: &Here, step: Option<&str>, rank: &str) -> Option<String> {
    let text = |name: &str| variables.text(name);
    // The default of torchrun is the same for all programs on all machines.
    let of_torchrun = text("TORCHELASTIC_RUN_ID").filter(|id| id != "none");
    let port = text("MASTER_PORT");
    if let Some(job) = text("SLURM_JOB_ID") {
        let job = step.map_or_else(|| job.clone(), |step| format!("{job}.{step}"));
        // A step may run torchrun several times.
        let inner = of_torchrun.or(port).filter(|_| rank == RANK_OF_TORCHRUN);
        let parts = [text("SLURM_CLUSTER_NAME"), Some(job), inner];
        return Some(parts.into_iter().flatten().collect::<Vec<_>>().join(":"));
    }
    let is_remote =
        |host: &String| !host.starts_with("127.") && !["localhost", "::1"].contains(&host.as_str());
    let address = || {
        let host = text("MASTER_ADDR").filter(is_remote).or_else(here.host)?;
        Some(format!("{host}:{}", port?))
    };
    // Without an id of the program, its ranks have the same parent.
    let launcher = || Some(format!("{}:{}", (here.host)()?, (here.parent_id)().unwrap_or(0)));
    of_torchrun
        .or_else(|| text("PMIX_NAMESPACE"))
        // Nodes of one job are `ID#0`, `ID#1`. Children of an array, `ID:0`, are programs of their own.
        .or_else(|| Some(text("AWS_BATCH_JOB_ID")?.split('#').next()?.to_owned()))
        .or_else(address)
        .or_else(launcher)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: f64 = 1024.0 * 1024.0;

    fn identity(variables: &[(&str, &str)]) -> Identity {
        let find =
            |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        let here =
            Here { host: || Some("node".to_owned()), parent_id: || Some(7), user: || "of-uid".to_owned() };
        Identity::of(&Variables(&find), &here)
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
        assert_eq!((found.distributed.as_deref(), found.local_ranks), (Some("42.0"), Some(2)));
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
        assert_eq!((at("n1").as_deref(), at("127.0.0.1").as_deref()), (Some("n1:29500"), Some("node:29500")));
    }

    /// The sums over these ranks, if all of them have the figure.
    fn sums(ranks: &[Identity]) -> (Option<f64>, Option<f64>, Option<f64>, Option<f64>) {
        let sum = |of: fn(&Identity) -> Option<f64>| ranks.iter().map(of).sum();
        (
            sum(|rank| rank.asked_cpus),
            sum(|rank| rank.asked_memory_bytes.map(|bytes| bytes / MIB)),
            sum(|rank| rank.asked_gpus),
            sum(Identity::share_of_node),
        )
    }

    /// Ranks by their number and these variables.
    fn ranks(name: &str, count: u32, variables: &[(&str, &str)]) -> Vec<Identity> {
        let texts: Vec<String> = (0..count).map(|rank| rank.to_string()).collect();
        texts.iter().map(|rank| identity(&[variables, &[(name, rank.as_str())]].concat())).collect()
    }

    const STEP: &[(&str, &str)] =
        &[("SLURM_JOB_ID", "42"), ("SLURM_STEP_ID", "0"), ("SLURM_MEM_PER_NODE", "16384")];
    const TORCHRUN: &[(&str, &str)] = &[("WORLD_SIZE", "4"), ("LOCAL_WORLD_SIZE", "4")];

    #[test]
    fn ranks_on_a_node_add_up_to_its_request() {
        let four = [("SLURM_NTASKS", "4"), ("SLURM_NNODES", "1"), ("SLURM_CPUS_ON_NODE", "4")];
        let node = (Some(4.0), Some(16384.0), None, Some(1.0));
        let tasks = ranks("SLURM_PROCID", 4, &[STEP, &four].concat());
        assert_eq!((sums(&tasks), tasks[0].local_ranks), (node, Some(4)));
        // `srun --mpi=pmi2` and scripts set the variables of other launchers for the same ranks.
        let pmi = ["0", "1", "2", "3"].map(|rank| {
            let both = [("PMI_RANK", rank), ("PMI_SIZE", "4"), ("SLURM_PROCID", rank)];
            identity(&[STEP, &four, &both].concat())
        });
        assert_eq!(sums(&pmi), node);
        let given = [("RESOURCE_TRACKER_ASKED_CPUS", "64"), ("RESOURCE_TRACKER_ASKED_MEMORY", "64Mi")];
        let given = [TORCHRUN, &given, &[("RESOURCE_TRACKER_ASKED_GPUS", "4")]].concat();
        assert_eq!(sums(&ranks("RANK", 4, &given)), (Some(64.0), Some(64.0), Some(4.0), Some(1.0)));
        // The number of ranks on the node is unknown.
        let unknown = ranks("RANK", 4, &[("WORLD_SIZE", "4"), ("RESOURCE_TRACKER_ASKED_CPUS", "64")]);
        assert_eq!(sums(&unknown), (None, None, None, None));
        let uneven = [("SLURM_NTASKS", "5"), ("SLURM_NNODES", "2"), ("SLURM_CPUS_ON_NODE", "4")];
        assert_eq!(sums(&ranks("SLURM_PROCID", 5, &[STEP, &uneven].concat())), (None, None, None, None));
    }

    #[test]
    fn tasks_are_ranks_of_one_program_without_the_id_of_the_step_too() {
        let four = [("SLURM_JOB_ID", "42"), ("SLURM_NTASKS", "4"), ("SLURM_CPUS_PER_TASK", "2")];
        let tasks = ranks("SLURM_PROCID", 4, &four);
        assert!(tasks.iter().all(|task| task.distributed.as_deref() == Some("42") && task.ranks == Some(4)));
        assert_eq!(sums(&tasks).0, Some(8.0));
    }

    #[test]
    fn ranks_of_torchrun_share_the_task_that_started_them() {
        let task = [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "1"), ("SLURM_CPUS_PER_TASK", "64")];
        let gpus = [("SLURM_GPUS_PER_TASK", "a100:4"), ("TORCHELASTIC_RUN_ID", "exp")];
        let found = ranks("RANK", 4, &[TORCHRUN, STEP, &task, &gpus].concat());
        assert_eq!(sums(&found), (Some(64.0), Some(16384.0), Some(4.0), Some(1.0)));
        // Two tasks on the node, each with a torchrun of its own.
        let two = [("SLURM_NTASKS", "2"), ("SLURM_STEP_TASKS_PER_NODE", "2"), ("SLURM_CPUS_PER_TASK", "8")];
        let found = ranks("RANK", 4, &[TORCHRUN, STEP, &two].concat());
        assert_eq!(sums(&found), (Some(8.0), Some(8192.0), None, Some(0.5)));
    }

    #[test]
    fn tracker_of_a_batch_script_sees_all_tasks_on_the_node() {
        let found = |variables: &[(&str, &str)]| {
            let job =
                [("SLURM_JOB_ID", "42"), ("SLURM_NTASKS", "4"), ("SLURM_PROCID", "0"), ("SLURM_NODEID", "0")];
            let found = identity(&[&job, variables].concat());
            assert_eq!((found.rank, found.share_of_node()), (Some(0), Some(1.0)), "alone on the node");
            (found.asked_cpus, found.asked_memory_bytes.map(|bytes| bytes / MIB), found.asked_gpus)
        };
        let on_node =
            [("SLURM_CPUS_PER_TASK", "8"), ("SLURM_CPUS_ON_NODE", "24"), ("SLURM_MEM_PER_CPU", "100")];
        assert_eq!(found(&on_node), (Some(24.0), Some(2400.0), None));
        let tasks =
            [("SLURM_CPUS_PER_TASK", "8"), ("SLURM_TASKS_PER_NODE", "3,1"), ("SLURM_GPUS_PER_TASK", "2")];
        assert_eq!(found(&tasks), (Some(24.0), None, Some(6.0)));
        let whole =
            [("SLURM_NTASKS_PER_NODE", "2"), ("SLURM_MEM_PER_NODE", "4096"), ("SLURM_GPUS_ON_NODE", "2")];
        assert_eq!(found(&whole), (None, Some(4096.0), Some(2.0)));
        let one = [("SLURM_JOB_ID", "42"), ("SLURM_CPUS_PER_TASK", "8"), ("SLURM_MEM_PER_NODE", "32768")];
        let one = identity(&one);
        assert_eq!((one.asked_cpus, one.asked_memory_bytes), (Some(8.0), Some(32768.0 * MIB)));
        // Ranks of `mpirun` in the script, and in the task that `mpirun` starts on another node.
        let mpi =
            [("OMPI_COMM_WORLD_SIZE", "8"), ("OMPI_COMM_WORLD_LOCAL_SIZE", "4"), ("SLURM_CPUS_ON_NODE", "8")];
        let job = [("SLURM_JOB_ID", "42"), ("SLURM_CPUS_PER_TASK", "2"), ("SLURM_MEM_PER_CPU", "100")];
        let daemon =
            [("SLURM_STEP_ID", "0"), ("SLURM_NTASKS", "2"), ("SLURM_NNODES", "2"), ("SLURM_PROCID", "1")];
        for more in [&[][..], &daemon] {
            let found = ranks("OMPI_COMM_WORLD_RANK", 4, &[&mpi[..], &job, more].concat());
            assert_eq!(sums(&found), (Some(8.0), Some(800.0), None, Some(1.0)), "{more:?}");
        }
    }

    #[test]
    fn programs_at_the_same_time_have_different_names() {
        let name = |more: &[(&str, &str)]| identity(&[&[("RANK", "1")], TORCHRUN, more].concat()).distributed;
        let slurm = [("SLURM_JOB_ID", "42"), ("SLURM_STEP_ID", "0"), ("SLURM_CLUSTER_NAME", "blue")];
        let in_slurm = |more: (&str, &str)| name(&[&slurm[..], &[("MASTER_PORT", "29500"), more]].concat());
        assert_eq!(in_slurm(("TORCHELASTIC_RUN_ID", "exp")).as_deref(), Some("blue:42.0:exp"));
        assert_eq!(in_slurm(("TORCHELASTIC_RUN_ID", "none")).as_deref(), Some("blue:42.0:29500"));
        // A process between torchrun and each rank has another pid for each of them.
        assert_eq!(name(&[("MASTER_PORT", "29500")]).as_deref(), Some("node:29500"));
        assert_eq!(name(&[]).as_deref(), Some("node:7"));
        let nodes = [("AWS_BATCH_JOB_NODE_INDEX", "1"), ("AWS_BATCH_JOB_NUM_NODES", "2")];
        let batch = identity(&[&nodes[..], &[("AWS_BATCH_JOB_ID", "f00#1")]].concat());
        assert_eq!(
            (batch.distributed.as_deref(), batch.scheduler_job.as_deref()),
            (Some("f00"), Some("f00"))
        );
        assert_eq!((batch.local_ranks, batch.share_of_node()), (Some(1), Some(1.0)));
        assert_eq!(name(&[("AWS_BATCH_JOB_ID", "f00:3")]).as_deref(), Some("f00:3"), "one of an array");
    }

    #[test]
    fn names_come_from_our_variables_first_and_from_the_system_last() {
        let ours = ["USER", "CLUSTER", "NODE", "POD"].map(|name| format!("RESOURCE_TRACKER_{name}"));
        let theirs = ["SLURM_JOB_USER", "SLURM_CLUSTER_NAME", "SLURMD_NODENAME", "POD_NAME"];
        let both: Vec<_> = ours
            .iter()
            .map(|name| (name.as_str(), "ours"))
            .chain(theirs.map(|name| (name, "theirs")))
            .collect();
        let found = identity(&both);
        assert_eq!(
            [found.user, found.cluster, found.node, found.pod],
            [const { "ours" }; 4].map(|name| Some(name.to_owned()))
        );
        assert_eq!(identity(&[]).user.as_deref(), Some("of-uid"));
        let pod = |more: &[(&str, &str)]| identity(&[&[("HOSTNAME", "train-x7")], more].concat()).pod;
        assert_eq!(
            (pod(&[]), pod(&[("KUBERNETES_SERVICE_HOST", "10.0.0.1")]).as_deref()),
            (None, Some("train-x7"))
        );
        let job = |variables: &[(&str, &str)]| identity(variables).scheduler_job;
        assert_eq!(job(&[("AWS_BATCH_JOB_ID", "f00:3")]).as_deref(), Some("f00"));
        let airflow = [("AIRFLOW_CTX_DAG_RUN_ID", "scheduled__2026-03-01"), ("AIRFLOW_CTX_DAG_ID", "etl")];
        assert_eq!(job(&airflow).as_deref(), Some("etl/scheduled__2026-03-01"));
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
