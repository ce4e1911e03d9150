//! The tensors that an architecture calls for, by name and shape.

use super::{MAX_VOCAB, ModelConfig};
use crate::container::{Gguf, TensorInfo};
use crate::error::GgufError;
use crate::pack::GpuFormat;
use crate::types::GgmlType;
use std::collections::HashSet;

const EMBEDDING: &str = "token_embd.weight";

/// The number of rows of the embedding, which must be `[hidden, vocab]`.
pub(super) fn vocab(gguf: &Gguf, hidden: u32) -> Result<u32, GgufError> {
    const TOKENS: &str = "tokenizer.ggml.tokens";
    let embedding = find(gguf, EMBEDDING)?;
    let vocab = embedding.rows();
    if vocab > MAX_VOCAB {
        let field = format!("rows of tensor {EMBEDDING:?}");
        return Err(GgufError::Limit { field, found: vocab, limit: MAX_VOCAB });
    }
    shape(embedding, &[hidden.into(), vocab])?;
    if let Some(tokens) = gguf.metadata.strings(TOKENS)?
        && tokens.len() as u64 > vocab
    {
        return Err(GgufError::Invalid {
            field: TOKENS.into(),
            wanted: format!("at most {vocab} tokens, the rows of {EMBEDDING}"),
            found: tokens.len().to_string(),
        });
    }
    // At most MAX_VOCAB, so it fits.
    Ok(u32::try_from(vocab).unwrap_or(u32::MAX))
}

/// Checks that the file has exactly the tensors that the model takes.
pub(super) fn check(gguf: &Gguf, config: &ModelConfig) -> Result<(), GgufError> {
    let (hidden, vocab) = (u64::from(config.hidden), u64::from(config.vocab));
    let mut expected = Expected { gguf, names: HashSet::new() };
    expected.matrix(EMBEDDING, &[hidden, vocab])?;
    expected.matrix("output_norm.weight", &[hidden])?;
    if !config.tied_embeddings {
        expected.matrix("output.weight", &[hidden, vocab])?;
    }
    if config.rope.scaling.factors {
        expected.floats("rope_freqs.weight", &[u64::from(config.rope.dims / 2)])?;
    }
    for layer in 0..config.layers {
        expected.block(layer, config)?;
    }
    let unused = gguf.tensors.iter().find(|tensor| !expected.names.contains(tensor.name.as_str()));
    if let Some(tensor) = unused {
        return Err(GgufError::Invalid {
            field: format!("tensor {:?}", tensor.name),
            wanted: format!(
                "only tensors that a {}-layer {} model uses",
                config.layers,
                config.architecture.name()
            ),
            found: "one whose part in the model is not implemented".into(),
        });
    }
    Ok(())
}

/// Collects the names of the tensors that were called for.
struct Expected<'a> {
    gguf: &'a Gguf,
    names: HashSet<&'a str>,
}

impl Expected<'_> {
    /// A tensor of any type that can be repacked.
    fn matrix(&mut self, name: &str, dims: &[u64]) -> Result<(), GgufError> {
        let tensor = find(self.gguf, name)?;
        shape(tensor, dims)?;
        GpuFormat::for_type(tensor.kind)
            .map_err(|source| GgufError::TensorType { tensor: name.to_owned(), source })?;
        self.names.insert(&tensor.name);
        Ok(())
    }

    /// A tensor that must be f32.
    fn floats(&mut self, name: &str, dims: &[u64]) -> Result<(), GgufError> {
        self.matrix(name, dims)?;
        let kind = find(self.gguf, name)?.kind;
        if kind != GgmlType::F32 {
            return Err(GgufError::Invalid {
                field: format!("tensor {name:?}"),
                wanted: "type F32".into(),
                found: format!("type {kind}"),
            });
        }
        Ok(())
    }

    /// The tensors of one block, in the order of the forward pass.
    fn block(&mut self, layer: u32, config: &ModelConfig) -> Result<(), GgufError> {
        let (hidden, ffn) = (u64::from(config.hidden), u64::from(config.ffn));
        let queries = u64::from(config.heads) * u64::from(config.head_dim);
        let keys = u64::from(config.kv_heads) * u64::from(config.head_dim);
        let weights: [(&str, &[u64]); 9] = [
            ("attn_norm", &[hidden]),
            ("attn_q", &[hidden, queries]),
            ("attn_k", &[hidden, keys]),
            ("attn_v", &[hidden, keys]),
            ("attn_output", &[queries, hidden]),
            ("ffn_norm", &[hidden]),
            ("ffn_gate", &[hidden, ffn]),
            ("ffn_up", &[hidden, ffn]),
            ("ffn_down", &[ffn, hidden]),
        ];
        for (name, dims) in weights {
            self.matrix(&format!("blk.{layer}.{name}.weight"), dims)?;
        }
        if config.qkv_bias {
            for (name, length) in [("attn_q", queries), ("attn_k", keys), ("attn_v", keys)] {
                self.matrix(&format!("blk.{layer}.{name}.bias"), &[length])?;
            }
        }
        Ok(())
    }
}

fn find<'a>(gguf: &'a Gguf, name: &str) -> Result<&'a TensorInfo, GgufError> {
    gguf.tensor(name).ok_or_else(|| GgufError::Missing {
        field: format!("tensor {name:?}"),
        hint: "the file is incomplete, or one part of a split model",
    })
}

/// Compares dimensions; trailing ones of 1 do not count, as some writers pad them.
fn shape(tensor: &TensorInfo, wanted: &[u64]) -> Result<(), GgufError> {
    let (head, tail) = tensor.dims.split_at(wanted.len().min(tensor.dims.len()));
    if head != wanted || tail.iter().any(|&dim| dim != 1) {
        return Err(GgufError::Shape {
            tensor: tensor.name.clone(),
            wanted: wanted.to_vec(),
            found: tensor.dims.clone(),
        });
    }
    Ok(())
}
