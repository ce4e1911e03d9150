//! Compiling every kernel before it is needed.

use crate::forward::Model;
use crate::kernels::TILES;
use crate::{Batch, KvType, ModelError, Path, Phase, Progress, TileReport, Tiles};
use redraft_decode::TokenId;
use redraft_gguf::{Gguf, GpuFormat, ModelConfig};
use redraft_gpu::Gpu;

/// Compiles every kernel of the model, with progress; later look-ups find them. Returns their number.
pub(crate) async fn warm_up(
    gpu: &Gpu,
    gguf: &Gguf,
    config: &ModelConfig,
    path: Path,
    kv: KvType,
    progress: &mut impl FnMut(Progress),
) -> Result<u64, ModelError> {
    let mut wanted: Vec<(&str, Vec<&str>)> = vec![("rms_norm", vec![path.norm()]), ("capture", vec![])];
    let kv = kv_flag(kv);
    if path.whole_rows() {
        wanted.push(("attention_scores", vec![kv, path.name()]));
        wanted.push(("attention_values", vec![kv, path.name()]));
    } else {
        wanted.push(("attention", vec![kv, path.mixed()]));
    }
    let format_of = |name: &str| {
        let tensor = gguf.tensor(name)?;
        GpuFormat::for_type(tensor.kind).ok().map(|format| (tensor.kind, format.name()))
    };
    let mut product = |kernel: &'static str, format: &'static str| {
        for (_, tile) in TILES {
            let item = (kernel, vec![format, tile, path.name()]);
            if !wanted.contains(&item) {
                wanted.push(item);
            }
        }
    };
    for layer in 0..config.layers {
        for part in ["attn_q", "attn_k", "attn_v"] {
            if let Some((_, format)) = format_of(&format!("blk.{layer}.{part}.weight")) {
                product("qkv_rope", format);
            }
        }
        let gate = format_of(&format!("blk.{layer}.ffn_gate.weight"));
        let up = format_of(&format!("blk.{layer}.ffn_up.weight"));
        if let (Some((gate, format)), Some((up, _))) = (gate, up) {
            product("gate_up", if gate == up { format } else { GpuFormat::F32.name() });
        }
        for part in ["attn_output", "ffn_down"] {
            if let Some((_, format)) = format_of(&format!("blk.{layer}.{part}.weight")) {
                product("matmul", format);
            }
        }
    }
    let embedding = format_of("token_embd.weight");
    if let Some((_, format)) = format_of("output.weight").or(embedding) {
        product("matmul", format);
    }
    if let Some((_, format)) = embedding {
        wanted.push(("embed", vec![format]));
    }
    let kernels = wanted.len() as u64;
    let total = kernels + TILES.len() as u64;
    for (done, (name, flags)) in (0u64..).zip(&wanted) {
        progress(Progress { phase: Phase::Kernels, done, total });
        gpu.kernel(name, flags).await?;
    }
    progress(Progress { phase: Phase::Kernels, done: kernels, total });
    Ok(kernels)
}

pub(crate) fn kv_flag(kv: KvType) -> &'static str {
    match kv {
        KvType::F16 => "kv16",
        KvType::F32 => "kv32",
    }
}

impl Model {
    /// Runs every tile once, because some drivers compile a kernel when it first runs, not when it is asked for, and
    /// keeps those whose results agree bit for bit: compilers may fuse and reassociate each variant in another way.
    pub(crate) async fn first_steps(
        &mut self,
        kernels: u64,
        progress: &mut impl FnMut(Progress),
    ) -> Result<(), ModelError> {
        let wanted = self.tiles.used;
        let total = kernels + TILES.len() as u64;
        let second = self.config.vocab.saturating_sub(1).min(1);
        let mut results = Vec::new();
        for (done, (index, (rows, ..))) in (kernels + 1..).zip(TILES.into_iter().enumerate()) {
            self.tiles.used = Tiles::only(index);
            let tokens: Vec<_> = (0..rows).map(|row| TokenId(row % 2 * second)).collect();
            let mut found = self.roots(&tokens).await?;
            if rows == 1 {
                // The second token of the larger tiles, alone as well.
                found.extend(self.roots(&[TokenId(second)]).await?);
            }
            results.push(found);
            progress(Progress { phase: Phase::Kernels, done, total });
        }
        // Every second row is the same token, and so must its results be.
        let regular = |rows: &[Vec<u8>]| rows.iter().zip(rows.iter().skip(2)).all(|(a, b)| a == b);
        let agreeing = Tiles::agreeing(|a, b| match (results.get(a), results.get(b)) {
            (Some(a), Some(b)) => regular(a) && regular(b) && a.iter().zip(b).all(|(a, b)| a == b),
            _ => false,
        });
        self.tiles = TileReport { used: wanted.and(agreeing), agreeing, compared: true };
        if agreeing != Tiles::ALL {
            log::warn!("{}: {}", self.gpu.report().name, self.tiles);
        }
        Ok(())
    }

    /// Computes tokens side by side at position 0. Returns what each leaves behind: logits, and the key and value of
    /// the last layer, which depend on all layers before.
    async fn roots(&self, tokens: &[TokenId]) -> Result<Vec<Vec<u8>>, ModelError> {
        let batch = Batch::tree(0, tokens, &vec![None; tokens.len()]);
        self.submit(&batch, |_| Ok(()), &[])?;
        let last = (self.config.layers as usize).saturating_sub(1);
        let mut rows = Vec::new();
        for row in 0..batch.rows() {
            let mut bytes = self.gpu.fetch(self.logits_row(row)).await?;
            if let Some((key, value)) = self.key_value(last, row) {
                bytes.extend(self.gpu.fetch(key).await?);
                bytes.extend(self.gpu.fetch(value).await?);
            }
            rows.push(bytes);
        }
        Ok(rows)
    }
}
