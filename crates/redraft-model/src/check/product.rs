//! `matmul` in one format: all tiles against each other, and against the CPU.

use super::Outcome;
use super::synthetic::{Random, rows};
use crate::kernels::{PANEL_GROUP, TILES, Tiles};
use crate::matrix::interleave;
use crate::range::{Fed, stays_float};
use crate::{ModelError, Path, Precision};
use redraft_gguf::{GgmlType, GpuFormat, PANEL, pack_rows, unpack_rows};
use redraft_gpu::{BufferUse, Gpu};
use redraft_shaders::params::{MatmulParams, Step};

/// One file type for each GPU format.
pub(super) const KINDS: [GgmlType; 8] = [
    GgmlType::Q4_1,
    GgmlType::Q4K,
    GgmlType::Q8_0,
    GgmlType::Q6K,
    GgmlType::Q5_1,
    GgmlType::F16,
    GgmlType::BF16,
    GgmlType::F32,
];

const COLUMNS: usize = 512;
const ROWS: usize = 52;
const BATCH: usize = 8;

/// The greatest error that is no mistake, as a part of the sum of magnitudes.
fn tolerance(precision: Precision) -> f64 {
    match precision {
        // Sums of 512 terms stay well within this.
        Precision::F32 => 1e-5,
        // A term goes through eight roundings of 2^-11, and two more for operands that f16 does not hold.
        Precision::F16 => 10.0 / 2048.0,
    }
}

pub(super) fn format_name(kind: GgmlType) -> &'static str {
    GpuFormat::for_type(kind).map_or("unknown", GpuFormat::name)
}

/// Runs every tile. Returns what the comparison says, and which tiles agree.
pub(super) async fn check(gpu: &Gpu, kind: GgmlType, path: Path) -> Result<(Outcome, Tiles), ModelError> {
    let mut random = Random::new(11);
    let bytes = rows(&mut random, kind, COLUMNS, ROWS);
    let pack = |source| ModelError::Pack { tensor: "check".to_owned(), source };
    let (mut quants, mut scales) = (Vec::new(), Vec::new());
    let format = pack_rows(kind, COLUMNS, ROWS, &bytes, &mut quants, &mut scales).map_err(pack)?;
    let weights = unpack_rows(format, COLUMNS, ROWS, &quants, &scales).map_err(pack)?;
    let mut words = interleave(ROWS.div_ceil(PANEL), &quants, &scales);
    let panels = ROWS.div_ceil(PANEL).next_multiple_of(PANEL_GROUP);
    words.resize(words.len() / ROWS.div_ceil(PANEL) * panels, 0);
    let x: Vec<f32> = (0..BATCH * COLUMNS).map(|_| random.signed()).collect();
    let weights_buffer = gpu.storage("check.weights", &words).await?;
    let (x_buffer, fed, weight_scale) = match path.precision() {
        Precision::F32 => (gpu.storage("check.x", &x).await?, Fed::default(), 1.0),
        Precision::F16 => {
            // Inputs are below 1, weights below 1/4. As in a model, only weights that stay floats are scaled.
            let fed = Fed::bounded(1.0);
            let weight_scale = if stays_float(kind) { 4.0 } else { 1.0 };
            let halves: Vec<u16> = x.iter().map(|x| half::f16::from_f32(x * fed.scale).to_bits()).collect();
            (gpu.storage("check.x", &halves).await?, fed, weight_scale)
        }
    };
    let small = |value: usize| u32::try_from(value).unwrap_or(0);
    let params = MatmulParams {
        rows: small(ROWS),
        blocks: small(COLUMNS / 32),
        first: 0,
        stride: small(ROWS),
        add: 0,
        scale: 1.0 / (fed.scale * weight_scale),
        weight_scale,
        pad0: 0,
    };
    let params = gpu.uniform("check.params", &params).await?;
    let y = gpu.buffer("check.y", (BATCH * ROWS * 4) as u64, BufferUse::Storage).await?;
    let mut results: Vec<Vec<u32>> = Vec::new();
    for (tile, flag) in TILES {
        let pipeline = gpu.kernel("matmul", &[format.name(), flag, path.name()]).await?;
        let step = gpu.uniform("check.step", &Step { rows: tile, source: 0, tree_start: 0, pad0: 0 }).await?;
        let slices = [params.whole(), step.whole(), x_buffer.whole(), weights_buffer.whole(), y.whole()];
        let dispatch = gpu.bind(&pipeline, &slices).await?;
        gpu.submit(|pass| pass.run(&dispatch, [small(panels) / path.panels(tile), 1, 1]), &[])?;
        let bytes = gpu.fetch(y.slice(0, u64::from(tile) * ROWS as u64 * 4)).await?;
        results.push(bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect());
    }
    // Tiles have different numbers of rows: what two have in common must be equal.
    let equal = |a: usize, b: usize| match (results.get(a), results.get(b)) {
        (Some(a), Some(b)) => a.iter().zip(b).all(|(a, b)| a == b),
        _ => false,
    };
    Ok((compare(&results, &weights, &x, tolerance(path.precision())), Tiles::agreeing(equal)))
}

fn compare(results: &[Vec<u32>], weights: &[f32], x: &[f32], tolerance: f64) -> Outcome {
    let Some(whole) = results.last() else {
        return Outcome::Failed("no tile ran".to_owned());
    };
    let pairs = || results.iter().flat_map(|tile| tile.iter().zip(whole));
    let values = pairs().filter(|(a, b)| a != b).count();
    if values > 0 {
        return Outcome::Differs { values, of: pairs().count() };
    }
    let mut error = 0.0f64;
    for (index, found) in whole.iter().enumerate() {
        let (m, n) = (index / ROWS, index % ROWS);
        let terms = weights.iter().skip(n * COLUMNS).zip(x.iter().skip(m * COLUMNS)).take(COLUMNS);
        let (sum, magnitude) = terms.fold((0.0, 0.0), |(sum, magnitude), (w, x)| {
            let term = f64::from(*w) * f64::from(*x);
            (sum + term, magnitude + term.abs())
        });
        let difference = (f64::from(f32::from_bits(*found)) - sum).abs() / magnitude.max(f64::MIN_POSITIVE);
        // A NaN must count as the greatest error.
        error = if difference <= error { error } else { difference };
    }
    if error <= tolerance { Outcome::Pass } else { Outcome::Wrong { error } }
}
