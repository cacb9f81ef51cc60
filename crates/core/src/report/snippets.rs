//! The recommendation as text to copy: one snippet for each scheduler.

use crate::analysis::recommend::Resources;

/// Name and text of each snippet. Memory is in MiB, which Metaflow and Slurm call M and Kubernetes Mi.
pub(super) fn snippets(resources: &Resources) -> [(&'static str, String); 4] {
    let Resources { cpu, memory_mb, gpu, .. } = *resources;
    // Omitted without a GPU: some schedulers reject a request for 0 GPUs.
    let with_gpu = |before: &str| if gpu > 0 { format!("{before}{gpu}") } else { String::new() };
    let metaflow = format!("@resources(cpu={cpu}, memory={memory_mb}{})", with_gpu(", gpu="));
    let slurm =
        format!("#SBATCH --cpus-per-task={cpu}\n#SBATCH --mem={memory_mb}M{}", with_gpu("\n#SBATCH --gpus="));
    let kubernetes = format!(
        "resources:\n  requests:\n    cpu: \"{cpu}\"\n    memory: {memory_mb}Mi\n  limits:\n    memory: {memory_mb}Mi{}",
        with_gpu("\n    nvidia.com/gpu: ")
    );
    let nextflow = format!("cpus {cpu}\nmemory '{memory_mb} MB'{}", with_gpu("\naccelerator "));
    [("Metaflow", metaflow), ("Slurm", slurm), ("Kubernetes", kubernetes), ("Nextflow", nextflow)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpu_is_requested_only_if_recommended() {
        let texts = |gpu| {
            let resources = Resources { cpu: 4, memory_mb: 3072, gpu, vram_mb: 0 };
            snippets(&resources).map(|(_, text)| text)
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
