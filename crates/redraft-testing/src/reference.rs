//! The oracle: a Llama and Qwen2 forward pass in plain f32, to be read from top to bottom.
//!
//! One loop over layers in the order of the papers, no graph, no threads, no cleverness. Every product sums
//! in one order whatever the number of rows, so a row computed in a tree equals the same row computed alone
//! bit for bit, here as on the GPU.

mod drafter;
mod load;

use half::f16;
use redraft_gguf::{Gguf, ModelConfig, RopeLayout};

pub use drafter::{DraftOutput, DraftRow, Drafter};
pub use load::ReferenceError;
use load::Tensors;

/// Precision of stored keys and values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KvType {
    /// Stored as computed.
    #[default]
    F32,
    /// Rounded to f16 (nearest even) when written; arithmetic stays in f32.
    F16,
}

/// A matrix or, with one row, a vector.
struct Matrix {
    columns: usize,
    values: Vec<f32>, // (rows, columns)
}

struct Layer {
    attn_norm: Vec<f32>,         // (hidden)
    q: Matrix,                   // (heads * head_dim, hidden)
    k: Matrix,                   // (kv_heads * head_dim, hidden)
    v: Matrix,                   // (kv_heads * head_dim, hidden)
    bias: Option<[Vec<f32>; 3]>, // q, k, v: (rows of each)
    output: Matrix,              // (hidden, heads * head_dim)
    ffn_norm: Vec<f32>,          // (hidden)
    gate: Matrix,                // (ffn, hidden)
    up: Matrix,                  // (ffn, hidden)
    down: Matrix,                // (hidden, ffn)
}

/// Keys and values of one layer.
#[derive(Clone, Default)]
struct KeysValues {
    keys: Vec<f32>,   // (slot, kv_heads * head_dim), after RoPE
    values: Vec<f32>, // (slot, kv_heads * head_dim)
}

/// A loaded model and its state: committed positions and the rows of the last call.
pub struct Forward {
    config: ModelConfig,
    embedding: Matrix, // (vocab, hidden)
    layers: Vec<Layer>,
    output_norm: Vec<f32>,          // (hidden)
    head: Option<Matrix>,           // (vocab, hidden); the embedding if tied
    rope_factors: Option<Vec<f32>>, // (rope dims / 2)
    kv: KvType,
    cache: Vec<KeysValues>,      // (layer), slot = position
    length: usize,               // committed positions
    fresh: Vec<KeysValues>,      // (layer), slot = row of the last call
    parents: Vec<Option<usize>>, // (row) of the last call
    capture_layers: Vec<usize>,
    captures: Vec<Vec<f32>>, // (capture), (row, hidden) of the last call
}

impl Forward {
    /// Loads a model from the bytes of a GGUF file; every tensor becomes f32.
    ///
    /// # Errors
    /// [`ReferenceError`] names the tensor or metadata key that does not fit.
    pub fn load(file: &[u8]) -> Result<Self, ReferenceError> {
        let gguf = pollster::block_on(Gguf::read(&file))?;
        let config = ModelConfig::from_gguf(&gguf)?;
        let tensors = Tensors { gguf: &gguf, file };
        let [hidden, ffn, vocab] = [config.hidden, config.ffn, config.vocab].map(|size| size as usize);
        let q = (config.heads * config.head_dim) as usize;
        let kv = (config.kv_heads * config.head_dim) as usize;
        let mut layers = Vec::new();
        for index in 0..config.layers {
            let name = |part: &str| format!("blk.{index}.{part}");
            let bias = |part: &str, width| tensors.values(&name(part), width);
            layers.push(Layer {
                attn_norm: tensors.values(&name("attn_norm.weight"), hidden)?,
                q: tensors.matrix(&name("attn_q.weight"), q, hidden)?,
                k: tensors.matrix(&name("attn_k.weight"), kv, hidden)?,
                v: tensors.matrix(&name("attn_v.weight"), kv, hidden)?,
                bias: if config.qkv_bias {
                    Some([bias("attn_q.bias", q)?, bias("attn_k.bias", kv)?, bias("attn_v.bias", kv)?])
                } else {
                    None
                },
                output: tensors.matrix(&name("attn_output.weight"), hidden, q)?,
                ffn_norm: tensors.values(&name("ffn_norm.weight"), hidden)?,
                gate: tensors.matrix(&name("ffn_gate.weight"), ffn, hidden)?,
                up: tensors.matrix(&name("ffn_up.weight"), ffn, hidden)?,
                down: tensors.matrix(&name("ffn_down.weight"), hidden, ffn)?,
            });
        }
        let separate = !config.tied_embeddings;
        let pairs = config.rope.dims as usize / 2;
        let factors = config.rope.scaling.factors.then(|| tensors.values("rope_freqs.weight", pairs));
        Ok(Self {
            embedding: tensors.matrix("token_embd.weight", vocab, hidden)?,
            output_norm: tensors.values("output_norm.weight", hidden)?,
            head: separate.then(|| tensors.matrix("output.weight", vocab, hidden)).transpose()?,
            rope_factors: factors.transpose()?,
            kv: KvType::F32,
            cache: vec![KeysValues::default(); layers.len()],
            length: 0,
            fresh: vec![KeysValues::default(); layers.len()],
            parents: Vec::new(),
            capture_layers: Vec::new(),
            captures: Vec::new(),
            layers,
            config,
        })
    }

    /// Stores keys and values in the given precision; call it before the first row.
    #[must_use]
    pub fn with_kv(mut self, kv: KvType) -> Self {
        self.kv = kv;
        self
    }

    /// Captures the residual stream at the input of these layers; the number of layers stands for the stream
    /// after the last one (before the final norm).
    #[must_use]
    pub fn with_captures(mut self, layers: &[usize]) -> Self {
        self.capture_layers = layers.to_vec();
        self
    }

    /// The model's configuration.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Number of committed positions.
    pub fn length(&self) -> usize {
        self.length
    }

    /// The captures of the last call in the order asked for, each `[rows, hidden]`.
    pub fn captures(&self) -> &[Vec<f32>] {
        &self.captures
    }

    /// Committed keys (after RoPE) and values of a layer, each `[length, kv_heads * head_dim]`.
    pub fn keys_values(&self, layer: usize) -> Option<(&[f32], &[f32])> {
        self.cache.get(layer).map(|cache| (cache.keys.as_slice(), cache.values.as_slice()))
    }

    /// Forgets all positions from `length` on, and the rows of the last call.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
        let kept = self.length * self.kv_width();
        for cache in &mut self.cache {
            cache.keys.truncate(kept);
            cache.values.truncate(kept);
        }
        self.parents.clear();
    }

    /// Appends one token and returns its logits, `[vocab]`.
    ///
    /// # Errors
    /// [`ReferenceError::Token`] when it is outside the vocabulary.
    pub fn step(&mut self, token: u32) -> Result<Vec<f32>, ReferenceError> {
        let logits = self.forward_rows(&[token], &[None])?;
        self.accept(&[0])?;
        Ok(logits)
    }

    /// Appends tokens and returns the logits of the last one, `[vocab]` (empty for no tokens). Captures are
    /// those of the last chunk of at most 32 rows.
    ///
    /// # Errors
    /// [`ReferenceError::Token`] when one is outside the vocabulary; earlier chunks stay appended.
    pub fn prefill(&mut self, tokens: &[u32]) -> Result<Vec<f32>, ReferenceError> {
        let mut logits = Vec::new();
        for chunk in tokens.chunks(32) {
            let rows: Vec<usize> = (0..chunk.len()).collect();
            let parents: Vec<_> = rows.iter().map(|row| row.checked_sub(1)).collect();
            self.check(chunk, &parents)?;
            logits = self.forward(chunk, &parents, chunk.len() - 1);
            self.accept(&rows)?;
        }
        Ok(logits)
    }

    /// Runs a forest of rows on top of the committed positions and returns all logits, `[rows, vocab]`.
    ///
    /// A row attends to the committed positions, its ancestors and itself. Its parent is an earlier row or
    /// `None` for the last committed position; its position is the committed length plus its depth. Nothing
    /// is committed before [`Forward::accept`].
    ///
    /// # Errors
    /// [`ReferenceError`] when a token or a parent is out of range or the lengths differ.
    pub fn forward_rows(
        &mut self,
        tokens: &[u32],
        parents: &[Option<usize>],
    ) -> Result<Vec<f32>, ReferenceError> {
        self.check(tokens, parents)?;
        Ok(self.forward(tokens, parents, 0))
    }

    /// Commits a path of rows of the last call, root first.
    ///
    /// # Errors
    /// [`ReferenceError::Parent`] when the rows are not a path from a root; nothing is committed then.
    pub fn accept(&mut self, path: &[usize]) -> Result<(), ReferenceError> {
        let mut before = None;
        for &row in path {
            let found = self.parents.get(row).copied();
            if found != Some(before) {
                let expected = format!("{before:?} (rows of the last call: {})", self.parents.len());
                return Err(ReferenceError::Parent { row, expected, found: found.flatten() });
            }
            before = Some(row);
        }
        let width = self.kv_width();
        for (cache, fresh) in self.cache.iter_mut().zip(&self.fresh) {
            for &row in path {
                cache.keys.extend(&fresh.keys[row * width..][..width]);
                cache.values.extend(&fresh.values[row * width..][..width]);
            }
        }
        self.length += path.len();
        self.parents.clear();
        Ok(())
    }

    fn check(&self, tokens: &[u32], parents: &[Option<usize>]) -> Result<(), ReferenceError> {
        if tokens.len() != parents.len() {
            return Err(ReferenceError::Rows { tokens: tokens.len(), parents: parents.len() });
        }
        let vocab = self.config.vocab as usize;
        for (row, (&token, &parent)) in tokens.iter().zip(parents).enumerate() {
            if token as usize >= vocab {
                return Err(ReferenceError::Token { row, token, vocab });
            }
            if parent.is_some_and(|parent| parent >= row) {
                let expected = "an earlier row or None".to_owned();
                return Err(ReferenceError::Parent { row, expected, found: parent });
            }
        }
        Ok(())
    }

    fn kv_width(&self) -> usize {
        (self.config.kv_heads * self.config.head_dim) as usize
    }

    /// The forward pass of checked rows; returns the logits of the rows from `logits_from` on.
    fn forward(&mut self, tokens: &[u32], parents: &[Option<usize>], logits_from: usize) -> Vec<f32> {
        let hidden = self.config.hidden as usize;
        let head_dim = self.config.head_dim as usize;
        let eps = self.config.rms_eps;
        let paths = paths(parents);
        let angles: Vec<_> =
            paths.iter().map(|path| self.rope_angles(self.length + path.len() - 1)).collect();
        self.captures = vec![Vec::new(); self.capture_layers.len()];

        // The residual stream starts as the embedding.
        let mut x = Vec::with_capacity(tokens.len() * hidden); // (rows, hidden)
        for &token in tokens {
            x.extend(&self.embedding.values[token as usize * hidden..][..hidden]);
        }
        for index in 0..self.layers.len() {
            self.capture(index, &x);
            let layer = &self.layers[index];

            // Attention: normalise, project, rotate, store, attend, project back, add.
            let normed = rms_norm(&x, &layer.attn_norm, eps); // (rows, hidden)
            let mut q = product(&normed, &layer.q); // (rows, heads * head_dim)
            let mut k = product(&normed, &layer.k); // (rows, kv_heads * head_dim)
            let mut v = product(&normed, &layer.v); // (rows, kv_heads * head_dim)
            if let Some([q_bias, k_bias, v_bias]) = &layer.bias {
                add_to_rows(&mut q, q_bias);
                add_to_rows(&mut k, k_bias);
                add_to_rows(&mut v, v_bias);
            }
            rope(&mut q, head_dim, &angles, self.config.rope.layout);
            rope(&mut k, head_dim, &angles, self.config.rope.layout);
            if self.kv == KvType::F16 {
                k.iter_mut().chain(&mut v).for_each(|value| *value = f16::from_f32(*value).to_f32());
            }
            self.fresh[index] = KeysValues { keys: k, values: v };
            let attended = self.attention(index, &q, &paths); // (rows, heads * head_dim)
            let layer = &self.layers[index];
            add(&mut x, &product(&attended, &layer.output));

            // Feed-forward, SwiGLU: down(silu(gate(x)) * up(x)).
            let normed = rms_norm(&x, &layer.ffn_norm, eps); // (rows, hidden)
            let mut inner = product(&normed, &layer.gate); // (rows, ffn)
            let up = product(&normed, &layer.up); // (rows, ffn)
            inner.iter_mut().zip(&up).for_each(|(gate, up)| *gate = *gate / (1.0 + (-*gate).exp()) * up);
            add(&mut x, &product(&inner, &layer.down));
        }
        self.capture(self.layers.len(), &x);
        self.parents = parents.to_vec();

        // Logits of the rows that are wanted: (rows - logits_from, vocab).
        let wanted = x.get(logits_from * hidden..).unwrap_or_default();
        product(&rms_norm(wanted, &self.output_norm, eps), self.head.as_ref().unwrap_or(&self.embedding))
    }

    fn capture(&mut self, layer: usize, x: &[f32]) {
        for (wanted, capture) in self.capture_layers.iter().zip(&mut self.captures) {
            if *wanted == layer {
                *capture = x.to_vec();
            }
        }
    }

    /// Softmax attention of each row over committed positions and its own path, in order of position; query
    /// head h reads key and value head h / (heads / kv_heads). `q` and the result: (rows, heads * head_dim).
    fn attention(&self, layer: usize, q: &[f32], paths: &[Vec<usize>]) -> Vec<f32> {
        let [heads, kv_heads, head_dim] =
            [self.config.heads, self.config.kv_heads, self.config.head_dim].map(|size| size as usize);
        let width = kv_heads * head_dim;
        let (cache, fresh) = (&self.cache[layer], &self.fresh[layer]);
        let scale = 1.0 / (head_dim as f32).sqrt();
        let mut out = vec![0.0; q.len()];
        for (row, path) in paths.iter().enumerate() {
            // Where the keys and values of the row's positions 0, 1, … lie.
            let committed = (0..self.length).map(|slot| (cache, slot));
            let slots: Vec<_> = committed.chain(path.iter().map(|&slot| (fresh, slot))).collect();
            for head in 0..heads {
                let at = (row * heads + head) * head_dim;
                let kv_at = head / (heads / kv_heads) * head_dim;
                let q = &q[at..at + head_dim];
                let key = |(of, slot): &(&KeysValues, usize)| {
                    scale * dot(q, &of.keys[slot * width + kv_at..][..head_dim])
                };
                let mut weights: Vec<f32> = slots.iter().map(key).collect();
                softmax(&mut weights);
                let out = &mut out[at..at + head_dim];
                for ((of, slot), weight) in slots.iter().zip(&weights) {
                    let value = &of.values[slot * width + kv_at..][..head_dim];
                    out.iter_mut().zip(value).for_each(|(out, value)| *out += weight * value);
                }
            }
        }
        out
    }

    /// Cosine and sine of each rotated pair at a position, computed in f64.
    fn rope_angles(&self, position: usize) -> Vec<(f32, f32)> {
        let rope = &self.config.rope;
        let angle = |pair: u32| {
            let frequency = rope.base.powf(-2.0 * f64::from(pair) / f64::from(rope.dims));
            let factor = self.rope_factors.as_ref().and_then(|factors| factors.get(pair as usize));
            position as f64 / rope.scaling.linear * frequency / f64::from(factor.copied().unwrap_or(1.0))
        };
        #[expect(clippy::cast_possible_truncation, reason = "rounding to f32 is the point")]
        (0..rope.dims / 2).map(angle).map(|angle| (angle.cos() as f32, angle.sin() as f32)).collect()
    }
}

/// The most likely token, the lowest id among equals; 0 for no logits.
pub fn argmax(logits: &[f32]) -> u32 {
    let best = logits.iter().enumerate().fold((0, f32::NEG_INFINITY), |best, (index, &logit)| {
        if logit > best.1 { (index, logit) } else { best }
    });
    u32::try_from(best.0).unwrap_or(u32::MAX)
}

/// Each row's ancestors and itself, root first.
fn paths(parents: &[Option<usize>]) -> Vec<Vec<usize>> {
    let mut paths: Vec<Vec<usize>> = Vec::with_capacity(parents.len());
    for (row, parent) in parents.iter().enumerate() {
        let mut path = parent.and_then(|parent| paths.get(parent)).cloned().unwrap_or_default();
        path.push(row);
        paths.push(path);
    }
    paths
}

/// x · weight / √(mean(x²) + eps), row by row. x: (rows, width), weight: (width).
fn rms_norm(x: &[f32], weight: &[f32], eps: f32) -> Vec<f32> {
    let normalise = |row: &[f32]| {
        let scale = 1.0 / (dot(row, row) / row.len() as f32 + eps).sqrt();
        row.iter().zip(weight).map(|(x, weight)| x * scale * weight).collect::<Vec<f32>>()
    };
    x.chunks_exact(weight.len()).flat_map(normalise).collect()
}

/// x · weightᵀ. x: (rows, columns), weight: (out, columns) -> (rows, out).
fn product(x: &[f32], weight: &Matrix) -> Vec<f32> {
    let outputs = weight.values.len() / weight.columns;
    let mut out = vec![0.0; x.len() / weight.columns * outputs];
    // Weight rows outside: each is read from memory once for all rows of x.
    for (column, weights) in weight.values.chunks_exact(weight.columns).enumerate() {
        for (row, x) in x.chunks_exact(weight.columns).enumerate() {
            out[row * outputs + column] = dot(weights, x);
        }
    }
    out
}

/// Σ aᵢ bᵢ in sixteen interleaved partial sums, which compilers turn into vector instructions.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0_f32; 16];
    for (a, b) in a.chunks_exact(16).zip(b.chunks_exact(16)) {
        for (sum, (a, b)) in sums.iter_mut().zip(a.iter().zip(b)) {
            *sum += a * b;
        }
    }
    let (rest_a, rest_b) = (a.chunks_exact(16).remainder(), b.chunks_exact(16).remainder());
    sums.iter().sum::<f32>() + rest_a.iter().zip(rest_b).map(|(a, b)| a * b).sum::<f32>()
}

fn add(x: &mut [f32], y: &[f32]) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
}

fn add_to_rows(x: &mut [f32], bias: &[f32]) {
    x.chunks_exact_mut(bias.len()).for_each(|row| add(row, bias));
}

/// Rotates the pairs of every head of every row by the row's angles. x: (rows, any heads * head_dim).
fn rope(x: &mut [f32], head_dim: usize, angles: &[Vec<(f32, f32)>], layout: RopeLayout) {
    let width = x.len() / angles.len().max(1);
    for (row, angles) in x.chunks_exact_mut(width.max(1)).zip(angles) {
        for head in row.chunks_exact_mut(head_dim) {
            for (pair, (cos, sin)) in angles.iter().enumerate() {
                let (i, j) = match layout {
                    RopeLayout::Interleaved => (2 * pair, 2 * pair + 1),
                    RopeLayout::HalfSplit => (pair, pair + angles.len()),
                };
                (head[i], head[j]) = (head[i] * cos - head[j] * sin, head[i] * sin + head[j] * cos);
            }
        }
    }
}

/// exp(xᵢ − max) / Σ exp(xⱼ − max), in place.
fn softmax(x: &mut [f32]) {
    let max = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    x.iter_mut().for_each(|x| *x = (*x - max).exp());
    let sum: f32 = x.iter().sum();
    x.iter_mut().for_each(|x| *x /= sum);
}
