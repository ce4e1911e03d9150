//! From a GGUF file.

use super::{ARCHITECTURE, CAPTURES, D2T, TARGET, names, rotated, split_halves};
use crate::config::{DrafterConfig, ROPE_THETA, default_head_dim};
use crate::error::DrafterError;
use crate::file::{DrafterFile, Parts, ReconsiderSettings};
use crate::fingerprint::TargetFingerprint;
use crate::json::Object;
use crate::tensor::{Spec, Tensor, specs};
use redraft_gguf::{GgmlType, Gguf, GgufError, Metadata, ReadAt, TensorInfo};
use std::collections::BTreeMap;

/// What must not be switched on, with the reason.
const SWITCHES: [(&str, &str); 4] = [
    ("norm_before_residual", "false: drafters whose residual is the normed feature are not implemented"),
    ("norm_before_fc", "false: a norm over the whole feature is not implemented"),
    // Forks have these two.
    ("fc_norm", "false: this reader does not know where such a file keeps the norms"),
    ("norm_output", "false: what writers of such files mean by it differs"),
];

impl DrafterFile {
    /// Reads a drafter that was converted for llama.cpp.
    ///
    /// # Errors
    ///
    /// [`DrafterError`] names the key or the tensor that is wrong, or that this project has no place for.
    pub async fn read_gguf(source: &impl ReadAt) -> Result<Self, DrafterError> {
        let gguf = Gguf::read(source).await?;
        let config = config(&gguf)?;
        // Before anything is computed from the shape.
        config.check()?;
        let specs = specs(&config, None);
        let (mut tensors, mut draft_ids) = (BTreeMap::new(), None);
        for info in &gguf.tensors {
            if info.name == D2T {
                draft_ids = Some(read_ids(&config, info, source).await?);
                continue;
            }
            let spec = specs.iter().find(|spec| {
                names(spec).is_some_and(|(now, before)| info.name == now || info.name == before)
            });
            let Some(spec) = spec else {
                return Err(DrafterError::Unknown { tensor: info.name.clone() });
            };
            let tensor = read_tensor(&config, spec, info, source).await?;
            if tensors.insert(spec.name.to_owned(), tensor).is_some() {
                let field = format!("tensor {:?}", info.name);
                return Err(DrafterError::invalid(field, "one tensor of this part", "two"));
            }
        }
        let target = target(&gguf.metadata)?;
        Self::new(Parts { config, tensors, draft_ids, reconsider: ReconsiderSettings::default(), target })
    }
}

/// The keys of the architecture.
struct Keys<'a>(&'a Metadata);

impl Keys<'_> {
    fn u32(&self, suffix: &str) -> Result<Option<u32>, DrafterError> {
        Ok(self.0.u32(&key(suffix))?)
    }

    fn need(&self, suffix: &str) -> Result<u32, DrafterError> {
        self.u32(suffix)?.ok_or_else(|| missing(suffix))
    }

    /// A key that may only say what this reader takes for granted.
    fn only(&self, suffix: &str, wanted: u32, what: &str) -> Result<(), DrafterError> {
        match self.u32(suffix)? {
            Some(found) if found != wanted => {
                Err(DrafterError::invalid(key(suffix), format!("{wanted}, {what}"), found))
            }
            _ => Ok(()),
        }
    }
}

fn key(suffix: &str) -> String {
    format!("{ARCHITECTURE}.{suffix}")
}

fn missing(suffix: &str) -> DrafterError {
    DrafterError::Missing {
        field: key(suffix),
        hint: "llama.cpp requires it in a drafter; convert the file again with a current converter",
    }
}

fn config(gguf: &Gguf) -> Result<DrafterConfig, DrafterError> {
    let metadata = &gguf.metadata;
    match metadata.str("general.architecture")? {
        Some(ARCHITECTURE) => {}
        found => {
            let found = found.map_or_else(|| "nothing".to_owned(), |name| format!("{name:?}"));
            let wanted = format!("{ARCHITECTURE:?}, a drafter (most drafters are safetensors files)");
            return Err(DrafterError::invalid("general.architecture", wanted, found));
        }
    }
    let keys = Keys(metadata);
    for (suffix, wanted) in SWITCHES {
        if metadata.bool(&key(suffix))? == Some(true) {
            return Err(DrafterError::invalid(key(suffix), wanted, true));
        }
    }
    keys.only("block_count", 1, "as drafters of more layers are not implemented")?;
    let (hidden, heads) = (keys.need("embedding_length")?, keys.need("attention.head_count")?);
    let head_dim = match keys.u32("attention.key_length")? {
        Some(stated) => stated,
        None => default_head_dim(hidden, heads)?,
    };
    keys.only("attention.value_length", head_dim, "the length of a key")?;
    keys.only("rope.dimension_count", head_dim, "as RoPE over a part of a head is not implemented")?;
    refuse_scaling(metadata)?;
    let vocab = vocab(gguf)?;
    let draft_vocab = match gguf.tensor(D2T) {
        Some(map) => u32::try_from(map.columns()).unwrap_or(u32::MAX),
        None => vocab,
    };
    let eps = "attention.layer_norm_rms_epsilon";
    Ok(DrafterConfig {
        hidden,
        target_hidden: keys.need("target_hidden_size")?,
        heads,
        kv_heads: keys.u32("attention.head_count_kv")?.unwrap_or(heads),
        head_dim,
        ffn: keys.need("feed_forward_length")?,
        rms_eps: metadata.f32(&key(eps))?.ok_or_else(|| missing(eps))?,
        vocab,
        draft_vocab,
        rope_theta: metadata.f32(&key("rope.freq_base"))?.unwrap_or(ROPE_THETA),
        capture_layers: Some(captures(metadata)?),
        norm_output: false,
        fc_norm: false,
    })
}

/// Tokens of the target: what the file states, else how many it lists, else the rows of the drafter's own embedding.
fn vocab(gguf: &Gguf) -> Result<u32, DrafterError> {
    const TOKENS: &str = "tokenizer.ggml.tokens";
    if let Some(stated) = gguf.metadata.u32(&key("vocab_size"))? {
        return Ok(stated);
    }
    let listed = gguf.metadata.strings(TOKENS)?.map(|tokens| tokens.len() as u64);
    let rows = listed.or_else(|| gguf.tensor("token_embd.weight").map(TensorInfo::rows));
    let rows = rows.ok_or_else(|| DrafterError::Missing {
        field: key("vocab_size"),
        hint: "nothing in the file says how many tokens the target has",
    })?;
    Ok(u32::try_from(rows).unwrap_or(u32::MAX))
}

fn captures(metadata: &Metadata) -> Result<[u32; 3], DrafterError> {
    let mut stated = None;
    for suffix in CAPTURES {
        let Some(found) = metadata.i32s(&key(suffix))? else { continue };
        let layers: Option<Vec<u32>> = found.iter().map(|layer| u32::try_from(*layer).ok()).collect();
        let layers = layers.and_then(|layers| <[u32; 3]>::try_from(layers).ok()).ok_or_else(|| {
            let wanted = "three layers: other numbers of captures are not implemented";
            DrafterError::invalid(key(suffix), wanted, format!("{found:?}"))
        })?;
        if let Some(before) = stated.filter(|before| *before != layers) {
            let wanted = format!("{before:?}, as {} says", key(CAPTURES[0]));
            return Err(DrafterError::invalid(key(suffix), wanted, format!("{layers:?}")));
        }
        stated = Some(layers);
    }
    stated.ok_or_else(|| missing(CAPTURES[0]))
}

fn refuse_scaling(metadata: &Metadata) -> Result<(), DrafterError> {
    let kind = key("rope.scaling.type");
    if let Some(found) = metadata.str(&kind)?.filter(|found| *found != "none") {
        let wanted = "\"none\": RoPE scaling of drafters is not implemented";
        return Err(DrafterError::invalid(kind, wanted, format!("{found:?}")));
    }
    for suffix in ["rope.scaling.factor", "rope.scale_linear"] {
        let unscaled = |factor: &f64| [0.0, 1.0].contains(factor);
        if let Some(found) = metadata.f64(&key(suffix))?.filter(|factor| !unscaled(factor)) {
            let wanted = "1: RoPE scaling of drafters is not implemented";
            return Err(DrafterError::invalid(key(suffix), wanted, found));
        }
    }
    Ok(())
}

/// The fingerprint, in files of this project.
fn target(metadata: &Metadata) -> Result<Option<TargetFingerprint>, DrafterError> {
    let Some(text) = metadata.str(TARGET)? else { return Ok(None) };
    let value = serde_json::from_str(text).map_err(|source| DrafterError::Json { field: TARGET, source })?;
    TargetFingerprint::from_json(&Object::new(TARGET, &value)?).map(Some)
}

async fn read_tensor(
    config: &DrafterConfig,
    spec: &Spec,
    info: &TensorInfo,
    source: &impl ReadAt,
) -> Result<Tensor, DrafterError> {
    let mut found: Vec<u64> = info.dims.clone();
    // Some writers pad with ones.
    while found.len() > spec.dims.len() && found.last() == Some(&1) {
        found.pop();
    }
    found.reverse();
    // Without the map, a head of fewer rows than the target has tokens.
    if spec.name == "lm_head.weight" && config.draft_vocab == config.vocab && found != spec.dims {
        return Err(DrafterError::invalid(
            format!("rows of tensor {:?}", info.name),
            format!("{}, one a token of the target, as there is no tensor {D2T:?}", config.vocab),
            format!("{found:?}"),
        ));
    }
    if found != spec.dims {
        let (wanted, tensor) = (spec.dims.clone(), info.name.clone());
        return Err(DrafterError::Shape { tensor, wanted, found });
    }
    let mut bytes = read_bytes(info, source).await?;
    if rotated(spec.name) {
        // The size was checked with the container.
        let row = info.kind.row_bytes(info.columns()).and_then(|bytes| usize::try_from(bytes).ok());
        bytes = split_halves(&bytes, row.unwrap_or(1), config.head_dim as usize);
    }
    Ok(Tensor { kind: info.kind, dims: found, bytes })
}

async fn read_ids(
    config: &DrafterConfig,
    info: &TensorInfo,
    source: &impl ReadAt,
) -> Result<Vec<u32>, DrafterError> {
    if info.kind != GgmlType::I64 {
        let (tensor, wanted) = (info.name.clone(), GgmlType::I64.to_string());
        return Err(DrafterError::Type { tensor, wanted, found: info.kind.to_string() });
    }
    let bytes = read_bytes(info, source).await?;
    let ids = bytes.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes));
    ids.enumerate()
        .map(|(row, id)| {
            u32::try_from(id).ok().filter(|id| *id < config.vocab).ok_or_else(|| {
                let wanted = format!("a token below {}", config.vocab);
                DrafterError::invalid(format!("{D2T}[{row}]"), wanted, id)
            })
        })
        .collect()
}

async fn read_bytes(info: &TensorInfo, source: &impl ReadAt) -> Result<Vec<u8>, DrafterError> {
    let size = usize::try_from(info.size).map_err(|_| DrafterError::Limit {
        field: format!("bytes of tensor {:?}", info.name),
        found: info.size,
        limit: usize::MAX as u64,
    })?;
    let mut bytes = vec![0; size];
    source
        .read_at(info.offset, &mut bytes)
        .await
        .map_err(|source| GgufError::Read { field: format!("data of tensor {:?}", info.name), source })?;
    Ok(bytes)
}
