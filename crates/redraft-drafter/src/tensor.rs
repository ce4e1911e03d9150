//! The tensors of a drafter: what they are called, what shape they have, and their bytes.

use crate::config::{BLOCK, DrafterConfig};
use crate::error::DrafterError;
use redraft_gguf::{GgmlType, PackError, QuantizeError, dequantize, quantize};

/// Most elements that are held in f32 at once.
const CHUNK: usize = 1 << 16;

/// A tensor in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    /// Type of the elements.
    pub kind: GgmlType,
    /// Dimensions in the order of safetensors: `[rows, columns]` of a matrix.
    pub dims: Vec<u64>,
    /// The elements, row-major, as ggml stores the type.
    pub bytes: Vec<u8>,
}

impl Tensor {
    /// Encodes values in one of the types that [`quantize`] writes.
    ///
    /// # Errors
    ///
    /// [`QuantizeError`] when a value cannot be written, or the columns are no whole number of blocks.
    pub fn from_f32(kind: GgmlType, dims: &[u64], values: &[f32]) -> Result<Self, QuantizeError> {
        let columns = dims.last().and_then(|columns| usize::try_from(*columns).ok()).unwrap_or(0).max(1);
        let block = kind.block_size();
        if !columns.is_multiple_of(block) {
            return Err(QuantizeError::Length { kind: kind.name(), block, found: columns });
        }
        Ok(Self { kind, dims: dims.to_vec(), bytes: quantize(kind, values)? })
    }

    /// The values, row-major.
    ///
    /// # Errors
    ///
    /// [`PackError`] when the type is known by name only, or the bytes are no whole number of blocks.
    pub fn to_f32(&self) -> Result<Vec<f32>, PackError> {
        let mut values = vec![0.0; self.bytes.len() / self.kind.block_bytes() * self.kind.block_size()];
        dequantize(self.kind, &self.bytes, &mut values)?;
        Ok(values)
    }

    /// Elements of the innermost dimension.
    #[must_use]
    pub fn columns(&self) -> u64 {
        self.dims.last().copied().unwrap_or(1)
    }

    /// Bytes that the dimensions call for.
    fn size(&self) -> Option<u64> {
        let rows = self.dims.iter().rev().skip(1).try_fold(1u64, |rows, dim| rows.checked_mul(*dim))?;
        self.kind.row_bytes(self.columns())?.checked_mul(rows)
    }

    /// The values piece by piece: `each` gets the index of the first and some that follow, in whole blocks.
    pub(crate) fn pieces(
        &self,
        name: &str,
        mut each: impl FnMut(usize, &[f32]) -> Result<(), DrafterError>,
    ) -> Result<(), DrafterError> {
        let (block, bytes) = (self.kind.block_size(), self.kind.block_bytes());
        let mut values = Vec::new();
        for (at, piece) in self.bytes.chunks(CHUNK / block * bytes).enumerate() {
            values.resize(piece.len() / bytes * block, 0.0);
            dequantize(self.kind, piece, &mut values)
                .map_err(|source| DrafterError::Blocks { tensor: name.to_owned(), source })?;
            each(at * (CHUNK / block * block), &values)?;
        }
        Ok(())
    }

    /// Appends the elements in the type `kind`.
    pub(crate) fn append_as(
        &self,
        name: &str,
        kind: GgmlType,
        out: &mut Vec<u8>,
    ) -> Result<(), DrafterError> {
        if self.kind == kind {
            out.extend_from_slice(&self.bytes);
            return Ok(());
        }
        // Pieces are whole blocks of every type, as rows are.
        self.pieces(name, |_, values| {
            let blocks = quantize(kind, values)
                .map_err(|source| DrafterError::Quantize { tensor: name.to_owned(), source })?;
            out.extend(blocks);
            Ok(())
        })
    }

    /// Checks shape, type, size and every value.
    fn check(&self, name: &str, spec: &Spec) -> Result<(), DrafterError> {
        if self.dims != spec.dims {
            let (wanted, found) = (spec.dims.clone(), self.dims.clone());
            return Err(DrafterError::Shape { tensor: name.to_owned(), wanted, found });
        }
        let allowed: &[GgmlType] = match spec.role {
            Role::Matrix => &GgmlType::SUPPORTED,
            Role::Norm => &[GgmlType::F32, GgmlType::F16, GgmlType::BF16],
            Role::Table => &[GgmlType::F32],
        };
        if !allowed.contains(&self.kind) {
            let wanted = allowed.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", ");
            return Err(DrafterError::Type { tensor: name.to_owned(), wanted, found: self.kind.to_string() });
        }
        if self.size() != Some(self.bytes.len() as u64) {
            let field = format!("bytes of tensor {name:?}");
            let wanted = self.size().map_or("rows of whole blocks".to_owned(), |size| size.to_string());
            return Err(DrafterError::invalid(field, wanted, self.bytes.len()));
        }
        self.pieces(name, |first, values| match values.iter().position(|value| !value.is_finite()) {
            Some(at) => Err(DrafterError::NotFinite {
                tensor: name.to_owned(),
                index: first + at,
                value: values.get(at).map_or_else(String::new, f32::to_string),
            }),
            None => Ok(()),
        })
    }
}

/// What a tensor is used as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// A weight matrix, in any type that can be repacked for the GPU.
    Matrix,
    /// A vector, in a floating-point type.
    Norm,
    /// Numbers that the host uses, in f32.
    Table,
}

/// One tensor of a drafter.
#[derive(Debug)]
pub(crate) struct Spec {
    /// Its name in the file.
    pub(crate) name: &'static str,
    /// Its name in the manner of GGUF, for the loader of models.
    pub(crate) gguf: &'static str,
    pub(crate) dims: Vec<u64>,
    pub(crate) role: Role,
    pub(crate) required: bool,
}

/// The names that code asks for.
pub(crate) mod name {
    pub(crate) const EMBEDDING: &str = "embed_tokens.weight";
    pub(crate) const FC_NORM: [&str; 3] = ["fc_norm.0.weight", "fc_norm.1.weight", "fc_norm.2.weight"];
    pub(crate) const PASS: &str = "reconsider.embedding";
    pub(crate) const DOWN: &str = "reconsider.down.weight";
    pub(crate) const UP: &str = "reconsider.up.weight";
    pub(crate) const EDGES: &str = "reconsider.edges";
    pub(crate) const LOG_GAIN: &str = "reconsider.log_gain";
    pub(crate) const LOOKUP_EDGE: &str = "reconsider.lookup_edge";
}

/// Every tensor that a drafter of this shape may have, in the order of the forward pass; `rank` is that of the
/// second pass's adapter.
pub(crate) fn specs(config: &DrafterConfig, rank: Option<u64>) -> Vec<Spec> {
    let [h, ht, ffn, vocab, vd, q, kv] = [
        config.hidden,
        config.target_hidden,
        config.ffn,
        config.vocab,
        config.draft_vocab,
        config.queries(),
        config.keys(),
    ]
    .map(u64::from);
    let (fc_norm, own) = (config.fc_norm, config.hidden != config.target_hidden);
    let rank_of = rank.unwrap_or(0);
    use Role::{Matrix, Norm, Table};
    let table: [(&str, &str, Vec<u64>, Role, bool); 23] = [
        (name::EMBEDDING, "token_embd.weight", vec![vocab, h], Matrix, own),
        (name::FC_NORM[0], name::FC_NORM[0], vec![ht], Norm, fc_norm),
        (name::FC_NORM[1], name::FC_NORM[1], vec![ht], Norm, fc_norm),
        (name::FC_NORM[2], name::FC_NORM[2], vec![ht], Norm, fc_norm),
        ("fc.weight", "fc.weight", vec![h, 3 * ht], Matrix, true),
        ("midlayer.input_layernorm.weight", "blk.0.attn_norm.weight", vec![h], Norm, true),
        ("midlayer.hidden_norm.weight", "blk.0.hidden_norm.weight", vec![h], Norm, true),
        ("midlayer.self_attn.q_proj.weight", "blk.0.attn_q.weight", vec![q, 2 * h], Matrix, true),
        ("midlayer.self_attn.k_proj.weight", "blk.0.attn_k.weight", vec![kv, 2 * h], Matrix, true),
        ("midlayer.self_attn.v_proj.weight", "blk.0.attn_v.weight", vec![kv, 2 * h], Matrix, true),
        ("midlayer.self_attn.o_proj.weight", "blk.0.attn_output.weight", vec![h, q], Matrix, true),
        ("midlayer.post_attention_layernorm.weight", "blk.0.ffn_norm.weight", vec![h], Norm, true),
        ("midlayer.mlp.gate_proj.weight", "blk.0.ffn_gate.weight", vec![ffn, h], Matrix, true),
        ("midlayer.mlp.up_proj.weight", "blk.0.ffn_up.weight", vec![ffn, h], Matrix, true),
        ("midlayer.mlp.down_proj.weight", "blk.0.ffn_down.weight", vec![h, ffn], Matrix, true),
        ("norm.weight", "output_norm.weight", vec![h], Norm, true),
        ("lm_head.weight", "output.weight", vec![vd, h], Matrix, true),
        (name::PASS, name::PASS, vec![h], Norm, false),
        (name::DOWN, name::DOWN, vec![rank_of, 2 * h], Matrix, rank.is_some()),
        (name::UP, name::UP, vec![h, rank_of], Matrix, rank.is_some()),
        (name::EDGES, name::EDGES, vec![2, 8, 4, 32], Table, false),
        (name::LOG_GAIN, name::LOG_GAIN, vec![8, 64], Table, false),
        (name::LOOKUP_EDGE, name::LOOKUP_EDGE, vec![17], Table, false),
    ];
    table
        .into_iter()
        .map(|(name, gguf, dims, role, required)| Spec { name, gguf, dims, role, required })
        .collect()
}

/// The name of a tensor as this project writes it, from how any of the frameworks calls it.
pub(crate) fn normalised(name: &str) -> String {
    let name = name.strip_prefix("model.").unwrap_or(name);
    match name.strip_prefix("layers.0.") {
        Some(rest) => format!("midlayer.{rest}"),
        None => name.to_owned(),
    }
}

/// Checks that the tensors are exactly those of a drafter of this shape, and answers the rank of the adapter.
pub(crate) fn check(
    config: &DrafterConfig,
    tensors: &std::collections::BTreeMap<String, Tensor>,
) -> Result<Option<u32>, DrafterError> {
    const MAX_RANK: u64 = 1 << 12;
    let ranks =
        [tensors.get(name::DOWN).map(|t| t.dims.first()), tensors.get(name::UP).map(|t| t.dims.get(1))];
    let rank = ranks.into_iter().flatten().next().map(|rank| rank.copied().unwrap_or(0));
    if let Some(found) = rank
        && (found == 0 || !found.is_multiple_of(BLOCK.into()) || found > MAX_RANK)
    {
        let wanted = format!("a multiple of {BLOCK} up to {MAX_RANK}");
        return Err(DrafterError::invalid(
            "rank of reconsider.down.weight and reconsider.up.weight",
            wanted,
            found,
        ));
    }
    let specs = specs(config, rank);
    // A name that belongs nowhere comes first: it explains why another one is missing.
    let known = |name: &str| {
        specs.iter().any(|spec| spec.name == name) && (config.fc_norm || !name::FC_NORM.contains(&name))
    };
    if let Some(name) = tensors.keys().find(|name| !known(name)) {
        return Err(DrafterError::Unknown { tensor: name.clone() });
    }
    for spec in &specs {
        match tensors.get(spec.name) {
            Some(tensor) => tensor.check(spec.name, spec)?,
            None if spec.required => {
                let hint = match spec.name {
                    name::EMBEDDING => {
                        "a drafter of another width than its target needs an embedding of its own"
                    }
                    "lm_head.weight" => {
                        "the drafter's head must be in the file, tied embeddings are not implemented"
                    }
                    name::DOWN | name::UP => "the adapter of the second pass has both",
                    _ => "the file is incomplete, or its tensors have other names",
                };
                return Err(DrafterError::Missing { field: format!("tensor {:?}", spec.name), hint });
            }
            None => {}
        }
    }
    Ok(rank.and_then(|rank| u32::try_from(rank).ok()))
}
