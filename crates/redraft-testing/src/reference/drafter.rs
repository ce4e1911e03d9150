//! The oracle of drafters: one decoder layer over the target's features, first and second passes, in plain f32.
//!
//! One row after the other, as the papers write it. What a row attends to is said by the caller, slot by slot, so that
//! trees, second passes and their ablations are all the same few lines.

use half::f16;
use redraft_drafter::{DrafterConfig, DrafterFile};
use redraft_gguf::RopeLayout;

use super::{Forward, KvType, Matrix, ReferenceError, add, dot, product, rms_norm, rope, softmax};

/// A loaded drafter and its keys and values.
pub struct Drafter {
    config: DrafterConfig,
    draft_ids: Vec<u32>,              // (draft vocab)
    embedding: Matrix,                // (vocab, H): its own, else the target's
    fc_norm: Option<[Vec<f32>; 3]>,   // (Ht) each
    fc: Matrix,                       // (H, 3Ht)
    input_norm: Vec<f32>,             // (H), of the token's embedding
    hidden_norm: Vec<f32>,            // (H), of the feature
    q: Matrix,                        // (heads * head_dim, 2H)
    k: Matrix,                        // (kv_heads * head_dim, 2H)
    v: Matrix,                        // (kv_heads * head_dim, 2H)
    output: Matrix,                   // (H, heads * head_dim)
    ffn_norm: Vec<f32>,               // (H)
    gate: Matrix,                     // (ffn, H)
    up: Matrix,                       // (ffn, H)
    down: Matrix,                     // (H, ffn)
    norm: Vec<f32>,                   // (H)
    head: Matrix,                     // (draft vocab, H)
    pass_embedding: Option<Vec<f32>>, // (H): r
    adapter: Option<[Matrix; 2]>,     // (rank, 2H), (H, rank)
    kv: KvType,
    keys: Vec<f32>,   // (slot, kv_heads * head_dim), after RoPE
    values: Vec<f32>, // (slot, kv_heads * head_dim)
    stable: usize,    // slots of extended rows; those of steps follow
}

/// A row of a step.
#[derive(Clone, Copy, Debug)]
pub struct DraftRow<'a> {
    /// The token whose successor is asked for.
    pub token: u32,
    /// RoPE position; the same in both passes.
    pub position: usize,
    /// Slots of rows of earlier steps that it attends to, in this order, after all extended rows and before itself: the
    /// first-pass rows of its ancestors, and in a second pass its own.
    pub chain: &'a [usize],
    /// A second pass: the pass embedding is added to its feature, and the adapter applies.
    pub second_pass: bool,
    /// The hidden output that it continues from, `[H]`: its parent's, in a second pass that of its own first pass.
    pub feature: &'a [f32],
}

/// What a row yields.
#[derive(Clone, Debug, PartialEq)]
pub struct DraftOutput {
    /// The slot of its keys and values.
    pub slot: usize,
    /// The feature of the rows after it, `[H]`.
    pub hidden: Vec<f32>,
    /// Over the draft vocabulary, `[draft vocab]`.
    pub logits: Vec<f32>,
}

/// A row on its way: its feature is fused, its slots are complete but for its own.
struct Row {
    token: u32,
    position: usize,
    slots: Vec<usize>,
    second_pass: bool,
    g: Vec<f32>, // (H)
}

impl Drafter {
    /// Loads a drafter; every tensor becomes f32. `target` lends its embedding where the drafter has none.
    ///
    /// # Errors
    /// [`ReferenceError`] names the tensor that does not fit.
    pub fn load(file: &DrafterFile, target: &Forward) -> Result<Self, ReferenceError> {
        let vector = |name: &str| {
            let tensor = file.tensor(name).ok_or_else(|| ReferenceError::Missing(name.to_owned()))?;
            tensor.to_f32().map_err(|source| ReferenceError::Tensor { name: name.to_owned(), source })
        };
        let matrix = |name: &str| {
            let columns = file.tensor(name).map_or(1, |tensor| tensor.columns());
            Ok::<_, ReferenceError>(Matrix {
                columns: usize::try_from(columns).unwrap_or(1),
                values: vector(name)?,
            })
        };
        let layer = |part: &str| format!("midlayer.{part}.weight");
        let config = file.config().clone();
        let embedding = match file.tensor("embed_tokens.weight") {
            Some(_) => matrix("embed_tokens.weight")?,
            None => Matrix { columns: target.embedding.columns, values: target.embedding.values.clone() },
        };
        let (expected, found) = (config.vocab as usize * config.hidden as usize, embedding.values.len());
        if expected != found {
            return Err(ReferenceError::Length { name: "embedding".to_owned(), expected, found });
        }
        let fc_norm = |index: usize| vector(&format!("fc_norm.{index}.weight"));
        let reconsider = file.reconsider();
        Ok(Self {
            embedding,
            fc_norm: if config.fc_norm { Some([fc_norm(0)?, fc_norm(1)?, fc_norm(2)?]) } else { None },
            fc: matrix("fc.weight")?,
            input_norm: vector(&layer("input_layernorm"))?,
            hidden_norm: vector(&layer("hidden_norm"))?,
            q: matrix(&layer("self_attn.q_proj"))?,
            k: matrix(&layer("self_attn.k_proj"))?,
            v: matrix(&layer("self_attn.v_proj"))?,
            output: matrix(&layer("self_attn.o_proj"))?,
            ffn_norm: vector(&layer("post_attention_layernorm"))?,
            gate: matrix(&layer("mlp.gate_proj"))?,
            up: matrix(&layer("mlp.up_proj"))?,
            down: matrix(&layer("mlp.down_proj"))?,
            norm: vector("norm.weight")?,
            head: matrix("lm_head.weight")?,
            adapter: match reconsider.rank {
                Some(_) => Some([matrix("reconsider.down.weight")?, matrix("reconsider.up.weight")?]),
                None => None,
            },
            pass_embedding: reconsider.embedding,
            draft_ids: file.draft_ids().to_vec(),
            config,
            kv: KvType::F32,
            keys: Vec::new(),
            values: Vec::new(),
            stable: 0,
        })
    }

    /// Stores keys and values in the given precision; call it before the first row.
    #[must_use]
    pub fn with_kv(mut self, kv: KvType) -> Self {
        self.kv = kv;
        self
    }

    /// The drafter's shape.
    pub fn config(&self) -> &DrafterConfig {
        &self.config
    }

    /// The target's token of a row of the head.
    pub fn token(&self, draft: usize) -> Option<u32> {
        self.draft_ids.get(draft).copied()
    }

    /// Number of extended rows.
    pub fn length(&self) -> usize {
        self.stable
    }

    /// Keys (after RoPE) and values of all slots, each `[slots, kv_heads * head_dim]`.
    pub fn keys_values(&self) -> (&[f32], &[f32]) {
        (&self.keys, &self.values)
    }

    /// Forgets the extended rows from `length` on, and all rows of steps.
    pub fn truncate(&mut self, length: usize) {
        self.stable = self.stable.min(length);
        let kept = self.stable * self.config.keys() as usize;
        self.keys.truncate(kept);
        self.values.truncate(kept);
    }

    /// Forgets the rows of steps and appends rows with true features of the target, `[rows, 3Ht]`; `tokens` are the
    /// tokens after those that the features belong to. A row's position is its number among all extended rows, and it
    /// attends to those before it.
    ///
    /// # Errors
    /// [`ReferenceError`] when a token is out of range or the lengths differ; nothing is appended then.
    pub fn extend(&mut self, features: &[f32], tokens: &[u32]) -> Result<Vec<DraftOutput>, ReferenceError> {
        let width = 3 * self.config.target_hidden as usize;
        if features.len() != width * tokens.len() {
            let (expected, found) = (width * tokens.len(), features.len());
            return Err(ReferenceError::Length { name: "features".to_owned(), expected, found });
        }
        tokens.iter().enumerate().try_for_each(|(row, &token)| self.check(row, token))?;
        self.truncate(self.stable);
        let mut outputs = Vec::with_capacity(tokens.len());
        for (feature, &token) in features.chunks_exact(width).zip(tokens) {
            // g = fc · concat(a, b, c), each normed first if the drafter does that.
            let mut fused = feature.to_vec(); // (3Ht)
            if let Some(norms) = &self.fc_norm {
                let parts = feature.chunks_exact(width / 3).zip(norms);
                fused = parts.flat_map(|(part, norm)| rms_norm(part, norm, self.config.rms_eps)).collect();
            }
            let g = product(&fused, &self.fc);
            let position = self.stable;
            outputs.push(self.forward(Row {
                token,
                position,
                slots: (0..position).collect(),
                second_pass: false,
                g,
            }));
            self.stable += 1;
        }
        Ok(outputs)
    }

    /// Runs rows of one step. They do not see each other.
    ///
    /// # Errors
    /// [`ReferenceError`] when a token, a slot or the length of a feature does not fit; nothing is appended then.
    pub fn step(&mut self, rows: &[DraftRow<'_>]) -> Result<Vec<DraftOutput>, ReferenceError> {
        let slots = self.keys.len() / self.config.keys() as usize;
        for (index, row) in rows.iter().enumerate() {
            self.check(index, row.token)?;
            let (expected, found) = (self.config.hidden as usize, row.feature.len());
            if expected != found {
                return Err(ReferenceError::Length {
                    name: format!("feature of row {index}"),
                    expected,
                    found,
                });
            }
            if let Some(&slot) = row.chain.iter().find(|slot| !(self.stable..slots).contains(*slot)) {
                return Err(ReferenceError::Slot { row: index, slot, first: self.stable, slots });
            }
        }
        let run = |row: &DraftRow<'_>| {
            let mut g = row.feature.to_vec();
            if let Some(embedding) = self.pass_embedding.as_ref().filter(|_| row.second_pass) {
                add(&mut g, embedding);
            }
            let slots = (0..self.stable).chain(row.chain.iter().copied()).collect();
            self.forward(Row {
                token: row.token,
                position: row.position,
                slots,
                second_pass: row.second_pass,
                g,
            })
        };
        Ok(rows.iter().map(run).collect())
    }

    fn check(&self, row: usize, token: u32) -> Result<(), ReferenceError> {
        let vocab = self.config.vocab as usize;
        if token as usize >= vocab { Err(ReferenceError::Token { row, token, vocab }) } else { Ok(()) }
    }

    /// The forward pass of a checked row.
    fn forward(&mut self, row: Row) -> DraftOutput {
        let (hidden, eps) = (self.config.hidden as usize, self.config.rms_eps);
        let Row { token, position, mut slots, second_pass, g } = row;

        // The input of attention: the token's embedding first, the feature second.
        let e = &self.embedding.values[token as usize * hidden..][..hidden];
        let mut x = rms_norm(e, &self.input_norm, eps);
        x.extend(rms_norm(&g, &self.hidden_norm, eps)); // (2H)

        // Attention: project, rotate, store, attend, project back, add to the feature as it is.
        let head_dim = self.config.head_dim as usize;
        let angles = [self.angles(position)];
        let mut q = product(&x, &self.q); // (heads * head_dim)
        let mut k = product(&x, &self.k); // (kv_heads * head_dim)
        let mut v = product(&x, &self.v); // (kv_heads * head_dim)
        rope(&mut q, head_dim, &angles, RopeLayout::HalfSplit);
        rope(&mut k, head_dim, &angles, RopeLayout::HalfSplit);
        if self.kv == KvType::F16 {
            k.iter_mut().chain(&mut v).for_each(|value| *value = f16::from_f32(*value).to_f32());
        }
        let slot = self.keys.len() / k.len();
        self.keys.extend(k);
        self.values.extend(v);
        slots.push(slot);
        let mut h = g; // (H)
        add(&mut h, &product(&self.attention(&q, &slots), &self.output));

        // Feed-forward, SwiGLU: down(silu(gate(x)) * up(x)).
        let normed = rms_norm(&h, &self.ffn_norm, eps); // (H)
        let mut inner = product(&normed, &self.gate); // (ffn)
        let up = product(&normed, &self.up); // (ffn)
        inner.iter_mut().zip(&up).for_each(|(gate, up)| *gate = *gate / (1.0 + (-*gate).exp()) * up);
        add(&mut h, &product(&inner, &self.down));

        // The adapter of second passes reads what attention read.
        if let Some([down, up]) = self.adapter.as_ref().filter(|_| second_pass) {
            add(&mut h, &product(&product(&x, down), up));
        }
        let normed = rms_norm(&h, &self.norm, eps); // (H)
        let logits = product(&normed, &self.head); // (draft vocab)
        DraftOutput { slot, hidden: if self.config.norm_output { normed } else { h }, logits }
    }

    /// Softmax attention over the slots in their order; query head h reads key and value head
    /// h / (heads / kv_heads). `q` and the result: (heads * head_dim).
    fn attention(&self, q: &[f32], slots: &[usize]) -> Vec<f32> {
        let (width, head_dim) = (self.config.keys() as usize, self.config.head_dim as usize);
        let group = (self.config.heads / self.config.kv_heads) as usize;
        let scale = 1.0 / (head_dim as f32).sqrt();
        let mut out = vec![0.0; q.len()];
        for (head, (q, out)) in q.chunks_exact(head_dim).zip(out.chunks_exact_mut(head_dim)).enumerate() {
            let at = |slot: &usize| slot * width + head / group * head_dim;
            let key = |slot| scale * dot(q, &self.keys[at(slot)..][..head_dim]);
            let mut weights: Vec<f32> = slots.iter().map(key).collect();
            softmax(&mut weights);
            for (slot, weight) in slots.iter().zip(&weights) {
                let value = &self.values[at(slot)..][..head_dim];
                out.iter_mut().zip(value).for_each(|(out, value)| *out += weight * value);
            }
        }
        out
    }

    /// Cosine and sine of each pair at a position, computed in f64.
    fn angles(&self, position: usize) -> Vec<(f32, f32)> {
        let (base, dims) = (f64::from(self.config.rope_theta), f64::from(self.config.head_dim));
        let angle = |pair: u32| position as f64 * base.powf(-2.0 * f64::from(pair) / dims);
        #[expect(clippy::cast_possible_truncation, reason = "rounding to f32 is the point")]
        (0..self.config.head_dim / 2)
            .map(angle)
            .map(|angle| (angle.cos() as f32, angle.sin() as f32))
            .collect()
    }
}
