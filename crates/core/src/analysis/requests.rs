//! Recommended resources as text to paste: one request for each scheduler and workflow manager.
//!
//! In:  [`Resources`], and the [`Run`] for the name of the job. Out: [`Requests`].
//!
//! All of them call a MiB MB, M or Mi, but for some executors of Snakemake, which take MB as 10⁶ bytes: 5 % less.

use std::fmt::Write as _;

use serde::Serialize;

use crate::analysis::recommend::Resources;
use crate::store::recording::Run;

/// The text for each system, under its name in JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Requests {
    /// A decorator of a step.
    pub metaflow: String,
    /// Directives of a batch script.
    pub slurm: String,
    /// The field `resources` of a container.
    pub kubernetes: String,
    /// A selector for `nextflow.config`.
    pub nextflow: String,
    /// Directives of a rule.
    pub snakemake: String,
    /// Properties of a container in a job definition.
    pub aws_batch: String,
}

impl Requests {
    /// Name and text of each request, in the order of the report.
    pub fn named(&self) -> [(&'static str, &str); 6] {
        [
            ("Metaflow", &self.metaflow),
            ("Slurm", &self.slurm),
            ("Kubernetes", &self.kubernetes),
            ("Nextflow", &self.nextflow),
            ("Snakemake", &self.snakemake),
            ("AWS Batch", &self.aws_batch),
        ]
    }
}

impl Resources {
    /// The requests for these resources. Without the name of the job, `NAME` stands for it.
    pub fn requests(&self, run: Option<&Run>) -> Requests {
        let Self { cpu, memory_mb, gpu, .. } = *self;
        // Omitted without a GPU: some schedulers reject a request for 0 GPUs.
        let with_gpu = |before: &str| if gpu > 0 { format!("{before}{gpu}") } else { String::new() };
        let name = nextflow_pattern(run.and_then(|run| run.job.as_deref()).unwrap_or("NAME"));
        let batch = |kind: &str, value| format!("    {{\"type\": \"{kind}\", \"value\": \"{value}\"}}");
        let batch = [("VCPU", cpu), ("MEMORY", memory_mb), ("GPU", gpu)]
            .into_iter()
            .filter(|(_, value)| *value > 0)
            .map(|(kind, value)| batch(kind, value))
            .collect::<Vec<_>>()
            .join(",\n");
        // `--mem` is for all tasks on a node, and these resources are for one of them.
        let identity = run.and_then(|run| run.identity.as_ref());
        let shares_node = identity.is_some_and(|found| found.ranks.is_some() && found.local_ranks != Some(1));
        let slurm_memory = if shares_node {
            format!("--mem-per-cpu={}M", memory_mb.div_ceil(cpu.max(1)))
        } else {
            format!("--mem={memory_mb}M")
        };
        Requests {
            metaflow: format!("@resources(cpu={cpu}, memory={memory_mb}{})", with_gpu(", gpu=")),
            slurm: format!(
                "#SBATCH --cpus-per-task={cpu}\n#SBATCH {slurm_memory}{}",
                with_gpu("\n#SBATCH --gpus=")
            ),
            kubernetes: format!(
                "resources:\n  requests:\n    cpu: \"{cpu}\"\n    memory: {memory_mb}Mi\n  limits:\n    memory: {memory_mb}Mi{}",
                with_gpu("\n    nvidia.com/gpu: ")
            ),
            nextflow: format!(
                "process {{\n    withName: '{name}' {{\n        cpus = {cpu}\n        memory = '{memory_mb} MB'{}\n    }}\n}}",
                with_gpu("\n        accelerator = ")
            ),
            snakemake: format!("threads: {cpu}\nresources: mem_mb={memory_mb}{}", with_gpu(", gpu=")),
            aws_batch: format!("{{\n  \"resourceRequirements\": [\n{batch}\n  ]\n}}"),
        }
    }
}

/// A regular expression of Java that matches this name only, as the content of a Groovy string in single quotes: the
/// selector `withName` takes an expression.
fn nextflow_pattern(name: &str) -> String {
    let mut pattern = String::new();
    for letter in name.chars() {
        if letter.is_alphanumeric() || matches!(letter, '_' | '-' | ':' | ' ') {
            pattern.push(letter);
        } else if letter.is_ascii_punctuation() {
            // The expression has a backslash before the letter. Groovy needs one before a backslash and a quote.
            let groovy = if matches!(letter, '\\' | '\'') { "\\" } else { "" };
            let _ = write!(pattern, "\\\\{groovy}{letter}");
        } else {
            let _ = write!(pattern, "\\\\x{{{:x}}}", u32::from(letter));
        }
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::recording::Identity;

    fn named(job: &str) -> Run {
        Run { job: Some(job.to_owned()), ..Run::default() }
    }

    fn texts(gpu: u32) -> [String; 6] {
        let resources = Resources { cpu: 4, memory_mb: 3072, gpu, vram_mb: 0 };
        resources.requests(Some(&named("align"))).named().map(|(_, text)| text.to_owned())
    }

    #[test]
    fn every_system_has_a_request() {
        assert_eq!(
            texts(0),
            [
                "@resources(cpu=4, memory=3072)",
                "#SBATCH --cpus-per-task=4\n#SBATCH --mem=3072M",
                "resources:\n  requests:\n    cpu: \"4\"\n    memory: 3072Mi\n  limits:\n    memory: 3072Mi",
                "process {\n    withName: 'align' {\n        cpus = 4\n        memory = '3072 MB'\n    }\n}",
                "threads: 4\nresources: mem_mb=3072",
                "{\n  \"resourceRequirements\": [\n    {\"type\": \"VCPU\", \"value\": \"4\"},\n    \
                 {\"type\": \"MEMORY\", \"value\": \"3072\"}\n  ]\n}",
            ]
        );
    }

    #[test]
    fn memory_of_a_rank_is_requested_by_cpu_in_slurm() {
        let slurm = |local_ranks| {
            let identity = Some(Identity { ranks: Some(4), local_ranks, ..Identity::default() });
            let run = Run { identity, ..Run::default() };
            Resources { cpu: 3, memory_mb: 1024, gpu: 0, vram_mb: 0 }.requests(Some(&run)).slurm
        };
        assert_eq!(slurm(Some(2)), "#SBATCH --cpus-per-task=3\n#SBATCH --mem-per-cpu=342M");
        assert_eq!(slurm(Some(1)), "#SBATCH --cpus-per-task=3\n#SBATCH --mem=1024M", "alone on its node");
    }

    #[test]
    fn gpu_is_requested_only_if_recommended() {
        let gpu = [
            ", gpu=2)",
            "\n#SBATCH --gpus=2",
            "\n    nvidia.com/gpu: 2",
            "\n        accelerator = 2\n    }\n}",
            ", gpu=2",
            ",\n    {\"type\": \"GPU\", \"value\": \"2\"}\n  ]\n}",
        ];
        for ((without, with), gpu) in texts(0).iter().zip(texts(2)).zip(gpu) {
            assert!(with.ends_with(gpu) && !without.contains(gpu), "{with}");
        }
    }

    #[test]
    fn name_of_the_job_cannot_leave_the_selector_of_nextflow() {
        let line = |job: Option<&str>| {
            let run = job.map(named);
            let text =
                Resources { cpu: 1, memory_mb: 128, gpu: 0, vram_mb: 0 }.requests(run.as_ref()).nextflow;
            text.lines().nth(1).unwrap().trim().to_owned()
        };
        for (job, expected) in [
            (None, "withName: 'NAME' {"),
            (Some("RNASEQ:ALIGN_2"), "withName: 'RNASEQ:ALIGN_2' {"),
            (Some("größe 2-b"), "withName: 'größe 2-b' {"),
            (Some("train.py"), r"withName: 'train\\.py' {"),
            (Some("!a|b$"), r"withName: '\\!a\\|b\\$' {"),
            (Some(r"it's \"), r"withName: 'it\\\'s \\\\' {"),
            (Some("a\nb\u{202e}"), r"withName: 'a\\x{a}b\\x{202e}' {"),
        ] {
            assert_eq!(line(job), expected, "{job:?}");
        }
    }
}
