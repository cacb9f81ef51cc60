//! GPUs of servers for which the price lists are incomplete or wrong, from the vendors' published server series.
//!
//! In:  vendor and name of a server, and its entry in the price list.
//! Out: model in the spelling of the API, manufacturer, number of GPUs (may be a fraction), memory.
//!
//! Azure's list contains neither model nor memory, counts a part of a GPU as a whole GPU, and counts the FPGAs of the
//! NP series as GPUs. AWS's list has 0 GPUs for g6f servers, which have a part of an L4. GCP's list has one GPU for
//! every G4 server, but they have from 1/8 (g4-standard-6) to 8 GPUs (g4-standard-384).

/// GPUs of one server.
#[derive(Clone, Debug, PartialEq)]
pub struct Gpus {
    pub model: &'static str,
    pub manufacturer: &'static str,
    /// Number of GPUs in 24ths.
    pub parts: u32,
    pub vram_min_mib: u32,
    pub vram_total_mib: u32,
}

/// Spelling of a model in the list, spelling in the API, manufacturer.
const MODELS: &[(&str, &str, &str)] = &[
    ("a10", "A10", "NVIDIA"),
    ("a100", "A100", "NVIDIA"),
    ("a10g", "A10G", "NVIDIA"),
    ("b200", "B200", "NVIDIA"),
    ("b300", "B300", "NVIDIA"),
    ("h100", "H100", "NVIDIA"),
    ("h200", "H200", "NVIDIA"),
    ("l4", "L4", "NVIDIA"),
    ("l40s", "L40S", "NVIDIA"),
    ("m60", "M60", "NVIDIA"),
    ("mi25", "Radeon Instinct MI25", "AMD"),
    ("mi300x", "Instinct MI300X", "AMD"),
    ("radeon-pro-v520", "Radeon Pro V520", "AMD"),
    ("radeon-pro-v620", "Radeon Pro V620", "AMD"),
    ("radeon-pro-v710", "Radeon Pro V710", "AMD"),
    ("rtx pro 6000", "RTX PRO 6000", "NVIDIA"),
    ("rtx-pro-4500", "RTX PRO 4500", "NVIDIA"),
    ("rtx-pro-server-6000", "RTX PRO 6000", "NVIDIA"),
    ("t4", "T4", "NVIDIA"),
    ("t4g", "T4G", "NVIDIA"),
    ("v100", "V100", "NVIDIA"),
];

/// Azure size, model, number of GPUs in 24ths, memory of one whole GPU in MiB.
///
/// `NC8ads_A10_v4` is no longer documented. Its vCPUs, memory and price are exactly half of those of `NC16ads_A10_v4`,
/// which has one A10. It is therefore listed with half an A10.
const AZURE: &[(&str, &str, u32, u32)] = &[
    ("NC6s_v3", "v100", 24, 16_384),
    ("NC12s_v3", "v100", 48, 16_384),
    ("NC24s_v3", "v100", 96, 16_384),
    ("NC24rs_v3", "v100", 96, 16_384),
    ("NC4as_T4_v3", "t4", 24, 16_384),
    ("NC8as_T4_v3", "t4", 24, 16_384),
    ("NC16as_T4_v3", "t4", 24, 16_384),
    ("NC64as_T4_v3", "t4", 96, 16_384),
    ("NC8ads_A10_v4", "a10", 12, 24_576),
    ("NC16ads_A10_v4", "a10", 24, 24_576),
    ("NC32ads_A10_v4", "a10", 48, 24_576),
    ("NC24ads_A100_v4", "a100", 24, 81_920),
    ("NC48ads_A100_v4", "a100", 48, 81_920),
    ("NC96ads_A100_v4", "a100", 96, 81_920),
    ("NC40ads_H100_v5", "h100", 24, 96_256),
    ("NC80adis_H100_v5", "h100", 48, 96_256),
    ("NCC40ads_H100_v5", "h100", 24, 96_256),
    ("ND40rs_v2", "v100", 192, 32_768),
    ("ND96asr_v4", "a100", 192, 40_960),
    ("ND96amsr_A100_v4", "a100", 192, 81_920),
    ("ND96isr_H100_v5", "h100", 192, 81_920),
    ("ND96isr_H200_v5", "h200", 192, 144_384),
    ("ND96is_MI300X_v5", "mi300x", 192, 196_608),
    ("ND96isr_MI300X_v5", "mi300x", 192, 196_608),
    ("NG8ads_V620_v1", "radeon-pro-v620", 6, 32_768),
    ("NG16ads_V620_v1", "radeon-pro-v620", 12, 32_768),
    ("NG32ads_V620_v1", "radeon-pro-v620", 24, 32_768),
    ("NV6s_v2", "m60", 24, 8_192),
    ("NV12s_v2", "m60", 48, 8_192),
    ("NV24s_v2", "m60", 96, 8_192),
    ("NV12s_v3", "m60", 24, 8_192),
    ("NV24s_v3", "m60", 48, 8_192),
    ("NV48s_v3", "m60", 96, 8_192),
    ("NV4as_v4", "mi25", 3, 16_384),
    ("NV8as_v4", "mi25", 6, 16_384),
    ("NV16as_v4", "mi25", 12, 16_384),
    ("NV32as_v4", "mi25", 24, 16_384),
    ("NV6ads_A10_v5", "a10", 4, 24_576),
    ("NV12ads_A10_v5", "a10", 8, 24_576),
    ("NV18ads_A10_v5", "a10", 12, 24_576),
    ("NV36ads_A10_v5", "a10", 24, 24_576),
    ("NV36adms_A10_v5", "a10", 24, 24_576),
    ("NV72ads_A10_v5", "a10", 48, 24_576),
    ("NV4ads_V710_v5", "radeon-pro-v710", 4, 24_576),
    ("NV8ads_V710_v5", "radeon-pro-v710", 8, 24_576),
    ("NV12ads_V710_v5", "radeon-pro-v710", 12, 24_576),
    ("NV24ads_V710_v5", "radeon-pro-v710", 24, 24_576),
    ("NV28adms_V710_v5", "radeon-pro-v710", 24, 24_576),
];

/// Azure sizes whose accelerators are FPGAs.
const AZURE_FPGA: &[&str] = &["NP10s", "NP20s", "NP40s"];

/// Server and number of GPUs in 24ths, for servers whose number in the list is wrong.
const PARTS: &[(&str, u32)] = &[
    ("g6f.large", 3),
    ("g6f.xlarge", 3),
    ("g6f.2xlarge", 6),
    ("g6f.4xlarge", 12),
    ("gr6f.4xlarge", 12),
    ("g4-standard-6", 3),
    ("g4-standard-12", 6),
    ("g4-standard-24", 12),
    ("g4-standard-48", 24),
    ("g4-standard-96", 48),
    ("g4-standard-192", 96),
    ("g4-standard-384", 192),
];

/// The GPUs of a server; `None` if the server has no GPU.
///
/// # Errors
/// If the server has a GPU, but neither the list nor the series tells its model.
pub fn gpus(
    vendor_id: &str,
    api_reference: &str,
    listed_count: u32,
    listed_model: &str,
    listed_vram_min_mib: Option<u32>,
) -> Result<Option<Gpus>, String> {
    let (listed_model, parts, one_mib) = if vendor_id == "azure" {
        let size = api_reference.trim_start_matches("Standard_");
        if AZURE_FPGA.contains(&size) {
            return Ok(None);
        }
        match AZURE.iter().find(|(name, ..)| *name == size) {
            Some((_, model, parts, one_mib)) => (*model, *parts, *one_mib),
            None if listed_count == 0 => return Ok(None),
            None => return Err(format!("no published GPU facts for `{api_reference}`")),
        }
    } else if listed_model.is_empty() {
        if listed_count > 0 {
            return Err(format!("`{api_reference}` has GPUs without a model"));
        }
        return Ok(None);
    } else {
        let parts = PARTS
            .iter()
            .find(|(name, _)| *name == api_reference)
            .map_or(listed_count * 24, |(_, parts)| *parts);
        // Memory in these lists is that of one GPU. For g6f it is already the memory of the part.
        let listed =
            listed_vram_min_mib.ok_or_else(|| format!("`{api_reference}` has GPUs without memory"))?;
        let one_mib = if listed_count == 0 { listed * 24 / parts } else { listed };
        (listed_model, parts, one_mib)
    };
    let (_, model, manufacturer) = MODELS
        .iter()
        .find(|(listed, ..)| listed.eq_ignore_ascii_case(listed_model))
        .ok_or_else(|| format!("unknown GPU model `{listed_model}`"))?;
    Ok(Some(Gpus {
        model,
        manufacturer,
        parts,
        vram_min_mib: one_mib * parts.min(24) / 24,
        vram_total_mib: one_mib * parts / 24,
    }))
}
