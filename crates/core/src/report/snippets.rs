//! The recommendation as text to paste: one block for each system that people run jobs with.
//!
//! In:  [`Resources`]. Out: name and text of each block.

use crate::recommend::Resources;

/// A block to copy.
pub(super) struct Snippet {
    pub(super) name: &'static str,
    pub(super) text: String,
}

/// All blocks. Memory in MB of 1024² bytes, which Metaflow and Slurm call M and Kubernetes Mi.
pub(super) fn snippets(resources: &Resources) -> [Snippet; 4] {
    let Resources { cpu, memory_mb, gpu, .. } = *resources;
    // Written only where a GPU is needed: asking for none is not the same to all of them.
    let with_gpu = |text: &dyn Fn(u32) -> String| if gpu > 0 { text(gpu) } else { String::new() };
    [
        Snippet {
            name: "Metaflow",
            text: format!(
                "@resources(cpu={cpu}, memory={memory_mb}{})",
                with_gpu(&|gpu| format!(", gpu={gpu}"))
            ),
        },
        Snippet {
            name: "Slurm",
            text: format!(
                "#SBATCH --cpus-per-task={cpu}\n#SBATCH --mem={memory_mb}M{}",
                with_gpu(&|gpu| format!("\n#SBATCH --gpus={gpu}"))
            ),
        },
        Snippet {
            name: "Kubernetes",
            text: format!(
                "resources:\n  requests:\n    cpu: \"{cpu}\"\n    memory: {memory_mb}Mi\n  limits:\n    memory: {memory_mb}Mi{}",
                with_gpu(&|gpu| format!("\n    nvidia.com/gpu: {gpu}"))
            ),
        },
        Snippet {
            name: "Nextflow",
            text: format!(
                "cpus {cpu}\nmemory '{memory_mb} MB'{}",
                with_gpu(&|gpu| format!("\naccelerator {gpu}"))
            ),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_is_asked_for_only_where_one_is_needed() {
        let texts = |gpu| {
            let resources = Resources { cpu: 4, memory_mb: 3072, gpu, vram_mb: 0 };
            snippets(&resources).map(|snippet| snippet.text)
        };
        assert_eq!(
            texts(0),
            [
                "@resources(cpu=4, memory=3072)",
                "#SBATCH --cpus-per-task=4\n#SBATCH --mem=3072M",
                "resources:\n  requests:\n    cpu: \"4\"\n    memory: 3072Mi\n  limits:\n    memory: 3072Mi",
                "cpus 4\nmemory '3072 MB'",
            ]
        );
        assert_eq!(
            texts(2),
            [
                "@resources(cpu=4, memory=3072, gpu=2)",
                "#SBATCH --cpus-per-task=4\n#SBATCH --mem=3072M\n#SBATCH --gpus=2",
                "resources:\n  requests:\n    cpu: \"4\"\n    memory: 3072Mi\n  limits:\n    memory: 3072Mi\n    nvidia.com/gpu: 2",
                "cpus 4\nmemory '3072 MB'\naccelerator 2",
            ]
        );
    }
}
