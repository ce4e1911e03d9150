//! The target as the teacher: features, final hidden states and distributions of whole texts.

use std::path::Path;

use burn::tensor::{Device, Int, Tensor, TensorData};
use redraft_drafter::TargetFingerprint;
use redraft_gguf::{FileSource, Gguf, GgufError, ModelConfig, ReadAt as _, RopeLayout, dequantize};
use redraft_text::{ChatTemplate, Tokenizer};

use crate::error::TrainError;
use crate::ops::{self, RopeTable, causal_attention, causal_mask, from_heads, product, rms_norm, to_heads};

struct Layer {
    attn_norm: Tensor<1>,         // [hidden]
    q: Tensor<2>,                 // [heads · head_dim, hidden]
    k: Tensor<2>,                 // [kv_heads · head_dim, hidden]
    v: Tensor<2>,                 // [kv_heads · head_dim, hidden]
    bias: Option<[Tensor<1>; 3]>, // of q, k, v
    output: Tensor<2>,            // [hidden, heads · head_dim]
    ffn_norm: Tensor<1>,          // [hidden]
    gate: Tensor<2>,              // [ffn, hidden]
    up: Tensor<2>,                // [ffn, hidden]
    down: Tensor<2>,              // [hidden, ffn]
}

/// A model file, opened.
pub struct TargetFile {
    /// Header and metadata.
    pub gguf: Gguf,
    /// The shape.
    pub config: ModelConfig,
    source: FileSource,
}

impl TargetFile {
    /// Reads the header of a GGUF file.
    ///
    /// # Errors
    /// [`TrainError::Gguf`] when it is none, or of an architecture that is not supported.
    pub fn open(path: &Path) -> Result<Self, TrainError> {
        let failed = |source| TrainError::Gguf { path: path.to_owned(), source: Box::new(source) };
        let source = FileSource::open(path)
            .map_err(|source| failed(GgufError::Read { field: "file".to_owned(), source }))?;
        let gguf = pollster::block_on(Gguf::read(&source)).map_err(failed)?;
        let config = ModelConfig::from_gguf(&gguf).map_err(failed)?;
        Ok(Self { gguf, config, source })
    }

    /// What a drafter trained with these captures is for.
    ///
    /// # Errors
    /// [`TrainError::Drafter`] when the file has no token list.
    pub fn fingerprint(&self, capture_layers: [u32; 3]) -> Result<TargetFingerprint, TrainError> {
        Ok(TargetFingerprint::of(&self.gguf, &self.config, capture_layers)?)
    }

    /// The tokenizer in the file.
    ///
    /// # Errors
    /// [`TrainError::Tokenizer`] when it cannot be built.
    pub fn tokenizer(&self) -> Result<Tokenizer, TrainError> {
        Ok(Tokenizer::from_gguf(&self.gguf.metadata)?)
    }

    /// The chat template in the file, if it has one.
    ///
    /// # Errors
    /// [`TrainError::Template`] when it does not parse.
    pub fn template(&self) -> Result<Option<ChatTemplate>, TrainError> {
        Ok(ChatTemplate::from_gguf(&self.gguf.metadata)?)
    }

    /// A tensor in f32 and its dimensions, rows first.
    pub(crate) fn values(&self, name: &str) -> Result<(Vec<f32>, Vec<usize>), TrainError> {
        let info = self
            .gguf
            .tensor(name)
            .ok_or_else(|| TrainError::Target { problem: format!("has no tensor {name}") })?;
        let dims: Vec<usize> = info.dims.iter().rev().map(|&dim| usize::try_from(dim).unwrap_or(0)).collect();
        let mut bytes = vec![0; usize::try_from(info.size).unwrap_or(0)];
        pollster::block_on(self.source.read_at(info.offset, &mut bytes))
            .map_err(|source| TrainError::Read { name: name.to_owned(), source })?;
        let mut values = vec![0.0; dims.iter().product()];
        dequantize(info.kind, &bytes, &mut values)
            .map_err(|source| TrainError::Tensor { name: name.to_owned(), source })?;
        Ok((values, dims))
    }

    pub(crate) fn vector(&self, name: &str, device: &Device) -> Result<Tensor<1>, TrainError> {
        let (values, dims) = self.values(name)?;
        Ok(Tensor::from_data(TensorData::new(values, dims), device))
    }

    pub(crate) fn matrix(&self, name: &str, device: &Device) -> Result<Tensor<2>, TrainError> {
        let (values, dims) = self.values(name)?;
        Ok(Tensor::from_data(TensorData::new(values, dims), device))
    }

    /// A projection to queries or keys with its heads in the half-split layout, whatever the file's: turning both the
    /// same way round leaves their products as they are.
    fn half_split(&self, name: &str, device: &Device) -> Result<Tensor<2>, TrainError> {
        let (values, dims) = self.values(name)?;
        let (rows, columns) = (dims[0], dims.get(1).copied().unwrap_or(1));
        let order = self.row_order(rows);
        let turned: Vec<f32> =
            order.iter().flat_map(|&row| values[row * columns..][..columns].iter().copied()).collect();
        Ok(Tensor::from_data(TensorData::new(turned, [rows, columns]), device))
    }

    /// Which row of the file each row of a half-split projection of `rows` rows is.
    pub(crate) fn row_order(&self, rows: usize) -> Vec<usize> {
        let (head_dim, rope) = (self.config.head_dim as usize, &self.config.rope);
        let (dims, half) = (rope.dims as usize, rope.dims as usize / 2);
        let from = |row: usize| {
            let (head, element) = (row / head_dim * head_dim, row % head_dim);
            match rope.layout {
                RopeLayout::Interleaved if element < half => head + 2 * element,
                RopeLayout::Interleaved if element < dims => head + 2 * (element - half) + 1,
                _ => row,
            }
        };
        (0..rows).map(from).collect()
    }
}

/// A target on a device, weights dequantised to f32.
pub struct Target {
    config: ModelConfig,
    captures: [u32; 3],
    embedding: Tensor<2>, // [vocab, hidden]
    head: Tensor<2>,      // [vocab, hidden]
    layers: Vec<Layer>,
    norm: Tensor<1>, // [hidden]
    rope: RopeTable,
    device: Device,
}

/// Keys, after RoPE, and values of texts that are being written.
pub struct Cache {
    layers: Vec<[Tensor<4>; 2]>, // each [batch, kv_heads, positions, head_dim]
    length: usize,
}

impl Cache {
    /// Keeps these texts only, in this order.
    pub fn select(&mut self, texts: &Tensor<1, Int>) {
        for tensor in self.layers.iter_mut().flatten() {
            *tensor = tensor.clone().select(0, texts.clone());
        }
    }
}

/// What the target says of a batch of texts.
pub struct Teaching {
    /// The three captures behind one another, `[batch, rows, 3 · hidden]`.
    pub features: Tensor<3>,
    /// The last hidden state after the final norm, `[batch, rows, hidden]`: its product with the head is the logits.
    pub hidden: Tensor<3>,
}

impl Target {
    /// Loads all weights; texts may be `positions` tokens long; `captures` are the layers whose input is captured.
    ///
    /// # Errors
    /// [`TrainError`] names the tensor that cannot be read.
    pub fn load(
        file: &TargetFile,
        captures: [u32; 3],
        positions: usize,
        device: &Device,
    ) -> Result<Self, TrainError> {
        let config = file.config.clone();
        let mut layers = Vec::new();
        for index in 0..config.layers {
            let name = |part: &str| format!("blk.{index}.{part}");
            let bias = |part: &str| file.vector(&name(part), device);
            layers.push(Layer {
                attn_norm: file.vector(&name("attn_norm.weight"), device)?,
                q: file.half_split(&name("attn_q.weight"), device)?,
                k: file.half_split(&name("attn_k.weight"), device)?,
                v: file.matrix(&name("attn_v.weight"), device)?,
                bias: if config.qkv_bias {
                    // Models with biases (Qwen2) are half-split in the file.
                    Some([bias("attn_q.bias")?, bias("attn_k.bias")?, bias("attn_v.bias")?])
                } else {
                    None
                },
                output: file.matrix(&name("attn_output.weight"), device)?,
                ffn_norm: file.vector(&name("ffn_norm.weight"), device)?,
                gate: file.matrix(&name("ffn_gate.weight"), device)?,
                up: file.matrix(&name("ffn_up.weight"), device)?,
                down: file.matrix(&name("ffn_down.weight"), device)?,
            });
        }
        if config.qkv_bias && config.rope.layout == RopeLayout::Interleaved {
            return Err(TrainError::Target { problem: "has biases and interleaved RoPE".to_owned() });
        }
        let embedding = file.matrix("token_embd.weight", device)?;
        let head =
            if config.tied_embeddings { embedding.clone() } else { file.matrix("output.weight", device)? };
        let rope = &config.rope;
        let factors = if rope.scaling.factors { file.values("rope_freqs.weight")?.0 } else { Vec::new() };
        let frequency = |pair: usize| {
            let factor = factors.get(pair).copied().map_or(1.0, f64::from);
            rope.base.powf(-2.0 * pair as f64 / f64::from(rope.dims)) / rope.scaling.linear / factor
        };
        let (head_dim, dims) = (config.head_dim as usize, rope.dims as usize);
        Ok(Self {
            rope: RopeTable::new(positions, head_dim, dims, frequency, device),
            norm: file.vector("output_norm.weight", device)?,
            config,
            captures,
            embedding,
            head,
            layers,
            device: device.clone(),
        })
    }

    /// The shape.
    #[must_use]
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Runs whole texts, `[batch, rows]` tokens each from position 0. Rows that fill up a shorter text come behind it
    /// and change nothing before them.
    #[must_use]
    pub fn forward(&self, tokens: Tensor<2, Int>) -> Teaching {
        let [batch, rows] = tokens.dims();
        let (heads, kv_heads) = (self.config.heads as usize, self.config.kv_heads as usize);
        let (hidden, eps) = (self.config.hidden as usize, self.config.rms_eps);
        let mask = causal_mask(0, rows, rows, heads / kv_heads, &self.device);
        let mut x: Tensor<3> =
            self.embedding.clone().select(0, tokens.reshape([batch * rows])).reshape([batch, rows, hidden]);
        let mut captured = Vec::new();
        for (index, layer) in (0_u32..).zip(&self.layers) {
            self.capture(index, &x, &mut captured);
            let [q, k, v] = self.projections(layer, x.clone(), 0);
            let attended = from_heads(causal_attention(q, k, v, mask.clone()));
            x = x + product(attended, layer.output.clone());
            let normed = rms_norm(x.clone(), layer.ffn_norm.clone(), eps);
            x = x + ops::swiglu(normed, layer.gate.clone(), layer.up.clone(), layer.down.clone());
        }
        self.capture(self.config.layers, &x, &mut captured);
        Teaching { features: Tensor::cat(captured, 2), hidden: rms_norm(x, self.norm.clone(), eps) }
    }

    /// Room for the keys and values of `batch` texts of up to `positions` tokens.
    #[must_use]
    pub fn cache(&self, batch: usize, positions: usize) -> Cache {
        let shape = [batch, self.config.kv_heads as usize, positions, self.config.head_dim as usize];
        let layer = || [Tensor::zeros(shape, &self.device), Tensor::zeros(shape, &self.device)];
        Cache { layers: self.layers.iter().map(|_| layer()).collect(), length: 0 }
    }

    /// Runs the next token of every text of the cache, `[batch]`, all at one position; answers the last hidden state
    /// after the final norm, `[batch, hidden]`.
    #[must_use]
    pub fn step(&self, cache: &mut Cache, tokens: Tensor<1, Int>) -> Tensor<2> {
        let [batch] = tokens.dims();
        let (heads, kv_heads) = (self.config.heads as usize, self.config.kv_heads as usize);
        let (head_dim, eps) = (self.config.head_dim as usize, self.config.rms_eps);
        let at = cache.length;
        let mut x: Tensor<3> = self.embedding.clone().select(0, tokens).unsqueeze_dim(1);
        for (layer, [keys, values]) in self.layers.iter().zip(&mut cache.layers) {
            let [q, k, v] = self.projections(layer, x.clone(), at);
            let place = [0..batch, 0..kv_heads, at..at + 1, 0..head_dim];
            for (all, new) in [(&mut *keys, k), (&mut *values, v)] {
                let owned = std::mem::replace(all, Tensor::empty([1, 1, 1, 1], &self.device));
                *all = owned.slice_assign(place.clone(), new);
            }
            let q = ops::group(q, kv_heads).mul_scalar(ops::scale(head_dim));
            let scores = q.matmul(keys.clone().narrow(2, 0, at + 1).transpose());
            let weights = burn::tensor::activation::softmax(scores, 3);
            let out = ops::ungroup(weights.matmul(values.clone().narrow(2, 0, at + 1)), heads);
            x = x + product(from_heads(out), layer.output.clone());
            let normed = rms_norm(x.clone(), layer.ffn_norm.clone(), eps);
            x = x + ops::swiglu(normed, layer.gate.clone(), layer.up.clone(), layer.down.clone());
        }
        cache.length += 1;
        rms_norm(x, self.norm.clone(), eps).squeeze_dim(1)
    }

    /// Queries, keys (both after RoPE, from position `first` on) and values of a layer.
    fn projections(&self, layer: &Layer, x: Tensor<3>, first: usize) -> [Tensor<4>; 3] {
        let (heads, kv_heads) = (self.config.heads as usize, self.config.kv_heads as usize);
        let normed = rms_norm(x, layer.attn_norm.clone(), self.config.rms_eps);
        let project = |weight: &Tensor<2>, which: usize, heads: usize| {
            let out = product(normed.clone(), weight.clone());
            let out = match &layer.bias {
                Some(bias) => out + bias[which].clone().unsqueeze(),
                None => out,
            };
            to_heads(out, heads)
        };
        let q = self.rope.turn(project(&layer.q, 0, heads), first);
        let k = self.rope.turn(project(&layer.k, 1, kv_heads), first);
        [q, k, project(&layer.v, 2, kv_heads)]
    }

    fn capture(&self, layer: u32, x: &Tensor<3>, captured: &mut Vec<Tensor<3>>) {
        if self.captures.contains(&layer) {
            captured.push(x.clone());
        }
    }

    /// Logits over the whole vocabulary of normed hidden states, `[rows, hidden]` → `[rows, vocab]`.
    #[must_use]
    pub fn logits(&self, hidden: Tensor<2>) -> Tensor<2> {
        hidden.matmul(self.head.clone().transpose())
    }

    /// The rows of the head that belong to `tokens`, `[tokens, hidden]`.
    #[must_use]
    pub fn head_rows(&self, tokens: &[u32]) -> Tensor<2> {
        let ids: Vec<i64> = tokens.iter().map(|&id| i64::from(id)).collect();
        let count = ids.len();
        self.head.clone().select(0, Tensor::from_data(TensorData::new(ids, [count]), &self.device))
    }

    /// As [`Self::head_rows`], with the weight of the final norm multiplied in: for a head behind a norm of ones.
    #[must_use]
    pub fn folded_head_rows(&self, tokens: &[u32]) -> Tensor<2> {
        self.head_rows(tokens) * self.norm.clone().unsqueeze()
    }

    /// The embedding of all tokens, `[vocab, hidden]`.
    #[must_use]
    pub fn embedding(&self) -> Tensor<2> {
        self.embedding.clone()
    }
}
