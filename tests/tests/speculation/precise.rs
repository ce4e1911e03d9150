//! The drafter once more in f64, by the formulas: what kernels and their twins are held to where a few bits decide.

use redraft::DrafterFile;
use std::collections::BTreeMap;

/// What a row yields.
#[derive(Debug, Clone)]
pub(crate) struct Output {
    /// The slot of its keys and values.
    pub(crate) slot: usize,
    /// The feature of the rows after it, `[H]`.
    pub(crate) hidden: Vec<f64>,
    /// Over the draft vocabulary.
    pub(crate) logits: Vec<f64>,
}

/// A drafter with an embedding of its own, its keys and values.
pub(crate) struct Precise<'a> {
    file: &'a DrafterFile,
    weights: BTreeMap<&'static str, Vec<f64>>,
    /// `[slot][kv_heads · head_dim]`, after RoPE.
    keys: Vec<Vec<f64>>,
    values: Vec<Vec<f64>>,
    /// Slots of extended rows.
    stable: usize,
}

const WEIGHTS: [&str; 17] = [
    "embed_tokens.weight",
    "fc.weight",
    "midlayer.input_layernorm.weight",
    "midlayer.hidden_norm.weight",
    "midlayer.self_attn.q_proj.weight",
    "midlayer.self_attn.k_proj.weight",
    "midlayer.self_attn.v_proj.weight",
    "midlayer.self_attn.o_proj.weight",
    "midlayer.post_attention_layernorm.weight",
    "midlayer.mlp.gate_proj.weight",
    "midlayer.mlp.up_proj.weight",
    "midlayer.mlp.down_proj.weight",
    "norm.weight",
    "lm_head.weight",
    "reconsider.embedding",
    "reconsider.down.weight",
    "reconsider.up.weight",
];

impl<'a> Precise<'a> {
    /// The drafter of `file`, which has an embedding of its own, a pass embedding and an adapter, and norms no features.
    pub(crate) fn new(file: &'a DrafterFile) -> Self {
        assert!(!file.config().fc_norm, "features are fused as they are");
        let read = |name: &'static str| {
            let tensor = file.tensor(name)?;
            let values = tensor.to_f32().expect("whole blocks");
            Some((name, values.into_iter().map(f64::from).collect()))
        };
        let weights = WEIGHTS.into_iter().filter_map(read).collect();
        Self { file, weights, keys: Vec::new(), values: Vec::new(), stable: 0 }
    }

    fn weight(&self, name: &str) -> &[f64] {
        self.weights.get(name).unwrap_or_else(|| panic!("the drafter has no {name}"))
    }

    fn product(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let dot = |row: &[f64]| row.iter().zip(x).map(|(a, b)| a * b).sum();
        self.weight(name).chunks_exact(x.len()).map(dot).collect()
    }

    fn norm(&self, name: &str, x: &[f64]) -> Vec<f64> {
        #[expect(clippy::cast_precision_loss, reason = "a small width")]
        let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
        let scale = 1.0 / (mean + f64::from(self.file.config().rms_eps)).sqrt();
        x.iter().zip(self.weight(name)).map(|(x, weight)| x * scale * weight).collect()
    }

    /// The token of the target that a row of the head stands for.
    pub(crate) fn token(&self, draft: usize) -> u32 {
        self.file.draft_ids()[draft]
    }

    /// Appends rows with true features of the target, `[rows][3Ht]`, and the tokens behind them. Gives what the last one
    /// read, `[H]`, and what it yields.
    pub(crate) fn extend(&mut self, features: &[f32], tokens: &[u32]) -> (Vec<f64>, Output) {
        let width = features.len() / tokens.len();
        let mut last = None;
        for (feature, token) in features.chunks_exact(width).zip(tokens) {
            let feature: Vec<f64> = feature.iter().copied().map(f64::from).collect();
            let g = self.product("fc.weight", &feature);
            let output = self.row(*token, self.stable, &[], &g, false);
            self.stable += 1;
            last = Some((g, output));
        }
        last.expect("at least one row")
    }

    /// A row at `position` that continues from `feature`, and attends to all extended rows, to the slots of `chain` and to
    /// itself.
    pub(crate) fn row(
        &mut self,
        token: u32,
        position: usize,
        chain: &[usize],
        feature: &[f64],
        second_pass: bool,
    ) -> Output {
        let config = self.file.config();
        let (head_dim, group) = (config.head_dim as usize, (config.heads / config.kv_heads) as usize);
        let mut g = feature.to_vec();
        if second_pass {
            add(&mut g, self.weight("reconsider.embedding"));
        }
        let e = &self.weight("embed_tokens.weight")[token as usize * g.len()..][..g.len()];
        let mut x = self.norm("midlayer.input_layernorm.weight", e);
        x.extend(self.norm("midlayer.hidden_norm.weight", &g));
        let mut q = self.product("midlayer.self_attn.q_proj.weight", &x);
        let mut k = self.product("midlayer.self_attn.k_proj.weight", &x);
        let v = self.product("midlayer.self_attn.v_proj.weight", &x);
        for head in q.chunks_exact_mut(head_dim).chain(k.chunks_exact_mut(head_dim)) {
            rotate(head, position, f64::from(config.rope_theta));
        }
        let slot = self.keys.len();
        self.keys.push(k);
        self.values.push(v);
        let slots: Vec<usize> = (0..self.stable).chain(chain.iter().copied()).chain([slot]).collect();
        let mut mixed = Vec::new();
        for (head, q) in q.chunks_exact(head_dim).enumerate() {
            let at = head / group * head_dim;
            #[expect(clippy::cast_precision_loss, reason = "a small width")]
            let scale = 1.0 / (head_dim as f64).sqrt();
            let score =
                |slot: &usize| q.iter().zip(&self.keys[*slot][at..]).map(|(a, b)| a * b).sum::<f64>() * scale;
            let scores: Vec<f64> = slots.iter().map(score).collect();
            let weights: Vec<f64> = log_softmax(&scores).iter().map(|log| log.exp()).collect();
            mixed.extend((0..head_dim).map(|column| {
                slots.iter().zip(&weights).map(|(slot, w)| w * self.values[*slot][at + column]).sum::<f64>()
            }));
        }
        let mut h = g;
        add(&mut h, &self.product("midlayer.self_attn.o_proj.weight", &mixed));
        let normed = self.norm("midlayer.post_attention_layernorm.weight", &h);
        let gate = self.product("midlayer.mlp.gate_proj.weight", &normed);
        let up = self.product("midlayer.mlp.up_proj.weight", &normed);
        let inner: Vec<f64> =
            gate.iter().zip(&up).map(|(gate, up)| gate / (1.0 + (-gate).exp()) * up).collect();
        add(&mut h, &self.product("midlayer.mlp.down_proj.weight", &inner));
        if second_pass {
            let inner = self.product("reconsider.down.weight", &x);
            add(&mut h, &self.product("reconsider.up.weight", &inner));
        }
        let normed = self.norm("norm.weight", &h);
        let logits = self.product("lm_head.weight", &normed);
        let hidden = if self.file.config().norm_output { normed } else { h };
        Output { slot, hidden, logits }
    }
}

fn add(x: &mut [f64], y: &[f64]) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
}

/// RoPE over the two halves of a head.
fn rotate(head: &mut [f64], position: usize, theta: f64) {
    let half = head.len() / 2;
    for pair in 0..half {
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let angle = position as f64 * theta.powf(-(pair as f64) / half as f64);
        let (a, b) = (head[pair], head[pair + half]);
        head[pair] = a * angle.cos() - b * angle.sin();
        head[pair + half] = a * angle.sin() + b * angle.cos();
    }
}

pub(crate) fn log_softmax(logits: &[f64]) -> Vec<f64> {
    let greatest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logits.iter().map(|logit| (logit - greatest).exp()).sum();
    logits.iter().map(|logit| logit - greatest - sum.ln()).collect()
}

/// Entropy of the eight likeliest tokens and of the rest as a ninth, as a share of ln 9.
pub(crate) fn entropy(log_q: &[f64]) -> f64 {
    let mut sorted = log_q.to_vec();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let (top, rest) = sorted.split_at(8);
    let rest: f64 = rest.iter().map(|log_q| log_q.exp()).sum();
    let of = |q: f64| if q > 0.0 { -q * q.ln() } else { 0.0 };
    (top.iter().map(|log_q| of(log_q.exp())).sum::<f64>() + of(rest)) / 9f64.ln()
}
