//! Statistics of every GPU over a run, in constant memory.
//!
//! In:  one reading per row. Out: [`GpuFigures`], stored under `run.gpus` in a recording; the cells of every GPU. The
//! order of the GPUs stays constant, even if a driver lists them in another order.
//! Not here: the columns that are sums over all GPUs (`sampler::diff`).

use serde::{Deserialize, Serialize};

use super::{Gpu, GpuReading};
use crate::metric::{GpuCells, MOST_GPUS, Metric};

const MIB: f64 = 1_048_576.0;

/// Usage of one GPU in a run, in total and by the job. The JSON form leaves out figures that were never read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuFigures {
    pub name: String,
    /// UUID or PCI address of the GPU.
    pub id: String,
    /// Whether the job was allowed to use the GPU.
    pub allowed: bool,
    /// Whether the job's share is an estimate.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vram_total_mib: Option<f64>,
    /// Usage by all processes, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage_mean: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage_max: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_usage_mean: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_usage_max: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vram_max_mib: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_vram_max_mib: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_mean_w: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_max_w: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_max_c: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_mean_mhz: Option<f64>,
}

/// Running statistics of all GPUs.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    gpus: Vec<(Gpu, Levels)>,
}

/// Statistics of one GPU, in the order of [`Metric::PER_GPU`].
type Levels = [Level; Metric::PER_GPU.len()];

/// Running mean (weighted by time) and maximum of one figure.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    weight_s: f64,
    weighted_sum: f64,
    max: Option<f64>,
}

impl Level {
    fn add(&mut self, value: Option<f64>, weight_s: f64) {
        if let Some(value) = value {
            self.weight_s += weight_s;
            self.weighted_sum += value * weight_s;
            self.max = Some(self.max.map_or(value, |max| max.max(value)));
        }
    }

    fn mean(&self) -> Option<f64> {
        (self.weight_s > 0.0).then(|| self.weighted_sum / self.weight_s)
    }
}

impl Figures {
    /// Adds a row of length `row_s` and returns its cells.
    pub fn add(&mut self, reading: &GpuReading, row_s: f64) -> Vec<GpuCells> {
        let mut row = self.unread();
        let mut filled = Vec::with_capacity(reading.gpus.len());
        for gpu in &reading.gpus {
            // GPUs of the same model without ids are distinguished by their order.
            let is_it = |(at, (known, _)): (usize, &(Gpu, Levels))| {
                known.id == gpu.id && known.name == gpu.name && !filled.contains(&at)
            };
            let at = self.gpus.iter().enumerate().position(is_it).unwrap_or(self.gpus.len());
            filled.push(at);
            if at == self.gpus.len() && at < MOST_GPUS {
                self.gpus.push((gpu.clone(), Levels::default()));
                row.push(GpuCells::default());
            }
            let Some(((known, levels), row)) = self.gpus.get_mut(at).zip(row.get_mut(at)) else { continue };
            known.is_allowed = gpu.is_allowed;
            known.job.is_estimate |= gpu.job.is_estimate;
            known.vram_total_bytes = gpu.vram_total_bytes.or(known.vram_total_bytes);
            *row = cells(gpu);
            for (level, cell) in levels.iter_mut().zip(row) {
                level.add(*cell, row_s);
            }
        }
        row
    }

    /// Empty cells of all known GPUs, for a row in which no driver answered.
    pub fn unread(&self) -> Vec<GpuCells> {
        vec![GpuCells::default(); self.gpus.len()]
    }

    /// Statistics of all rows so far, rounded as in a recording.
    pub fn all(&self) -> Vec<GpuFigures> {
        let share = |value: Option<f64>| value.map(|value| (value * 1e4).round() / 1e4);
        let level = |value: Option<f64>| value.map(|value| (value * 100.0).round() / 100.0);
        let figures = |(gpu, levels): &(Gpu, Levels)| {
            let [usage, job_usage, vram, job_vram, power, temperature, clock] = levels;
            GpuFigures {
                name: gpu.name.clone(),
                id: gpu.id.clone(),
                allowed: gpu.is_allowed,
                estimated: gpu.job.is_estimate,
                vram_total_mib: level(gpu.vram_total_bytes.map(mib)),
                usage_mean: share(usage.mean()),
                usage_max: share(usage.max),
                job_usage_mean: share(job_usage.mean()),
                job_usage_max: share(job_usage.max),
                vram_max_mib: level(vram.max),
                job_vram_max_mib: level(job_vram.max),
                power_mean_w: level(power.mean()),
                power_max_w: level(power.max),
                temperature_max_c: level(temperature.max),
                clock_mean_mhz: level(clock.mean()),
            }
        };
        self.gpus.iter().map(figures).collect()
    }
}

/// Cells of one GPU, in the order of [`Metric::PER_GPU`].
fn cells(gpu: &Gpu) -> GpuCells {
    [
        gpu.usage,
        gpu.job.usage,
        gpu.vram_used_bytes.map(mib),
        gpu.job.vram_bytes.map(mib),
        gpu.power_w,
        gpu.temperature_c,
        gpu.clock_mhz,
    ]
}

#[expect(clippy::cast_precision_loss, reason = "exact below 2^53 bytes")]
fn mib(bytes: u64) -> f64 {
    bytes as f64 / MIB
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::gpu::Share;

    #[test]
    fn statistics_of_each_gpu_are_weighted_by_row_length() {
        let gpu = |id: &str, usage: Option<f64>, vram: u64| Gpu {
            id: id.to_owned(),
            usage,
            is_allowed: true,
            job: Share { usage: Some(0.0), vram_bytes: Some(vram << 20), is_estimate: id == "b" },
            ..Gpu::default()
        };
        let mut figures = Figures::default();
        let reading = |gpus: Vec<Gpu>| GpuReading { gpus, ..GpuReading::default() };
        figures.add(&reading(vec![gpu("a", Some(0.5), 10), gpu("b", None, 1)]), 1.0);
        figures.add(&reading(vec![gpu("a", Some(0.1), 90), gpu("b", None, 2)]), 3.0);
        let all = figures.all();
        let [a, b] = all.as_slice() else { panic!("{all:?}") };
        // The driver lists only the second GPU: the order stays, and the cells of the first GPU are unknown.
        let row = figures.add(&reading(vec![gpu("b", None, 2), gpu("c", Some(1.0), 0)]), 0.0);
        let usage = row.iter().map(|cells| (cells[0], cells[3])).collect::<Vec<_>>();
        assert_eq!(usage, [(None, None), (None, Some(2.0)), (Some(1.0), Some(0.0))]);
        let row = figures.add(&reading(Vec::new()), 0.0);
        assert_eq!(row, vec![GpuCells::default(); 3]);
        let row = figures.add(&reading(vec![gpu("", Some(0.1), 0), gpu("", Some(0.9), 0)]), 0.0);
        assert_eq!((row[3][0], row[4][0]), (Some(0.1), Some(0.9)), "two without an id");
        assert_eq!((a.usage_mean, a.usage_max, a.job_vram_max_mib), (Some(0.2), Some(0.5), Some(90.0)));
        assert_eq!((b.usage_mean, b.job_vram_max_mib, b.estimated), (None, Some(2.0), true));
        assert_eq!(
            serde_json::to_string(b).unwrap(),
            r#"{"name":"","id":"b","allowed":true,"estimated":true,"job_usage_mean":0.0,"job_usage_max":0.0,"job_vram_max_mib":2.0}"#
        );
    }

    #[test]
    fn driver_with_changing_ids_does_not_grow_memory() {
        let mut figures = Figures::default();
        for number in 0..1000 {
            let gpus = vec![Gpu { id: number.to_string(), ..Gpu::default() }];
            figures.add(&GpuReading { gpus, ..GpuReading::default() }, 1.0);
        }
        assert_eq!((figures.all().len(), figures.unread().len()), (MOST_GPUS, MOST_GPUS));
    }
}
