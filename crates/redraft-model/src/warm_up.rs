//! Compiling every kernel before it is needed.

use crate::forward::Model;
use crate::kernels::TILES;
use crate::{Batch, KvType, LogitRows, ModelError, Path, Phase, Progress};
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
        wanted.push(("attention", vec![kv]));
    }
    let format_of = |name: &str| {
        let tensor = gguf.tensor(name)?;
        GpuFormat::for_type(tensor.kind).ok().map(|format| (tensor.kind, format.name()))
    };
    let mut product = |kernel: &'static str, format: &'static str| {
        for (_, tile, _) in TILES {
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
    /// Runs every tile once: some drivers compile a kernel when it first runs, not when it is asked for.
    pub(crate) fn first_steps(
        &self,
        kernels: u64,
        progress: &mut impl FnMut(Progress),
    ) -> Result<(), ModelError> {
        let total = kernels + TILES.len() as u64;
        for (done, (rows, ..)) in (kernels + 1..).zip(TILES) {
            if rows <= self.context {
                let tokens = vec![TokenId(0); rows as usize];
                self.submit(&Batch::chain(0, &tokens, LogitRows::All), |_| Ok(()), &[])?;
                self.gpu.flush()?;
            }
            progress(Progress { phase: Phase::Kernels, done, total });
        }
        Ok(())
    }
}
