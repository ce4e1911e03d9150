//! The shape of a drafter.

use crate::error::DrafterError;
use crate::json::Object;
use serde_json::{Map, Value};

pub(crate) mod eagle;

// As far above any drafter as the limits of `redraft-gguf` are above any model: products fit 64 bits.
const MAX_WIDTH: u32 = 1 << 20;
const MAX_HEADS: u32 = 1 << 12;
const MAX_HEAD_DIM: u32 = 1 << 12;
const MAX_VOCAB: u32 = 1 << 22;
const MAX_LAYERS: u32 = 1024;

/// All products run over whole blocks of this many weights.
pub(crate) const BLOCK: u32 = 32;

/// The shape of a drafter: one decoder layer over the target's features.
#[derive(Debug, Clone, PartialEq)]
pub struct DrafterConfig {
    /// Width H of the drafter's residual stream; a multiple of 32.
    pub hidden: u32,
    /// Width Ht of the target's; a multiple of 32. A feature has 3·Ht elements.
    pub target_hidden: u32,
    /// Query heads.
    pub heads: u32,
    /// Key and value heads; divides `heads`.
    pub kv_heads: u32,
    /// Elements of a head; even.
    pub head_dim: u32,
    /// Width of the feed-forward layer; a multiple of 32.
    pub ffn: u32,
    /// Added to the mean square in RMSNorm.
    pub rms_eps: f32,
    /// Tokens of the target.
    pub vocab: u32,
    /// Tokens that the drafter can propose: rows of its head.
    pub draft_vocab: u32,
    /// Base of the RoPE frequencies (half-split layout, no scaling).
    pub rope_theta: f32,
    /// The target's layers whose input is captured, low to high (so `n` is the output of layer `n - 1`, and the number
    /// of layers stands for the stream after the last one). Absent where the file does not say: see
    /// [`Self::captures`].
    pub capture_layers: Option<[u32; 3]>,
    /// Whether the next feature is the normed output of the layer and not the output itself (EAGLE-3.1).
    pub norm_output: bool,
    /// Whether each of the three captures is normed before they are fused (EAGLE-3.1).
    pub fc_norm: bool,
}

/// The keys of the configuration in a file of this project.
const KEYS: [&str; 13] = [
    "hidden",
    "target_hidden",
    "heads",
    "kv_heads",
    "head_dim",
    "ffn",
    "rms_eps",
    "vocab",
    "draft_vocab",
    "rope_theta",
    "capture_layers",
    "norm_output",
    "fc_norm",
];

/// RoPE base of checkpoints that state none: the one that EAGLE-3 trains with, whatever the target uses.
pub(crate) const ROPE_THETA: f32 = 10_000.0;

/// A configuration as a file states it.
pub(crate) struct Stated {
    pub(crate) config: DrafterConfig,
    /// What it says about the norms before the fusion; if nothing, the tensors decide.
    pub(crate) fc_norm: Option<bool>,
}

impl DrafterConfig {
    /// The layers of a target of `layers` layers to capture: the stated ones, else layers 2, L/2 and L-3, which
    /// EAGLE-3 takes.
    ///
    /// # Errors
    ///
    /// [`DrafterError::Invalid`] when the target has too few layers.
    pub fn captures(&self, layers: u32) -> Result<[u32; 3], DrafterError> {
        let found = self.capture_layers.unwrap_or([2, layers / 2, layers.saturating_sub(3)]);
        if found[2] > layers || !ascending(&found) {
            let wanted = format!("three ascending layers of a target of {layers} layers");
            return Err(DrafterError::invalid("capture_layers", wanted, format!("{found:?}")));
        }
        Ok(found)
    }

    /// Elements of all query heads.
    #[must_use]
    pub fn queries(&self) -> u32 {
        self.heads.saturating_mul(self.head_dim)
    }

    /// Elements of all key heads, and of all value heads.
    #[must_use]
    pub fn keys(&self) -> u32 {
        self.kv_heads.saturating_mul(self.head_dim)
    }

    /// Reads the configuration that this project writes.
    pub(crate) fn from_own(object: &Object<'_>) -> Result<Stated, DrafterError> {
        object.only(&KEYS)?;
        let need = |key: &str| {
            object.u32(key)?.ok_or_else(|| DrafterError::Missing {
                field: object.name(key),
                hint: "the configuration of a drafter states all its sizes",
            })
        };
        let (hidden, heads) = (need("hidden")?, need("heads")?);
        let vocab = need("vocab")?;
        let config = Self {
            hidden,
            target_hidden: object.u32("target_hidden")?.unwrap_or(hidden),
            heads,
            kv_heads: object.u32("kv_heads")?.unwrap_or(heads),
            head_dim: match object.u32("head_dim")? {
                Some(stated) => stated,
                None => default_head_dim(hidden, heads)?,
            },
            ffn: need("ffn")?,
            rms_eps: object.f32("rms_eps")?.ok_or_else(|| DrafterError::Missing {
                field: object.name("rms_eps"),
                hint: "the configuration of a drafter states it",
            })?,
            vocab,
            draft_vocab: object.u32("draft_vocab")?.unwrap_or(vocab),
            rope_theta: object.f32("rope_theta")?.unwrap_or(ROPE_THETA),
            capture_layers: object.triple("capture_layers")?,
            norm_output: object.bool("norm_output")?.unwrap_or(false),
            fc_norm: false,
        };
        Ok(Stated { config, fc_norm: object.bool("fc_norm")? })
    }

    /// The configuration as [`Self::from_own`] reads it.
    pub(crate) fn to_own(&self) -> Value {
        let mut map = Map::new();
        let values: [Value; KEYS.len()] = [
            self.hidden.into(),
            self.target_hidden.into(),
            self.heads.into(),
            self.kv_heads.into(),
            self.head_dim.into(),
            self.ffn.into(),
            self.rms_eps.into(),
            self.vocab.into(),
            self.draft_vocab.into(),
            self.rope_theta.into(),
            self.capture_layers.map_or(Value::Null, |layers| layers.to_vec().into()),
            self.norm_output.into(),
            self.fc_norm.into(),
        ];
        map.extend(KEYS.map(str::to_owned).into_iter().zip(values).filter(|(_, value)| !value.is_null()));
        Value::Object(map)
    }

    /// Checks every number and how they go together.
    pub(crate) fn check(&self) -> Result<(), DrafterError> {
        for (field, found, limit) in [
            ("hidden", self.hidden, MAX_WIDTH),
            ("target_hidden", self.target_hidden, MAX_WIDTH),
            ("heads", self.heads, MAX_HEADS),
            ("kv_heads", self.kv_heads, MAX_HEADS),
            ("head_dim", self.head_dim, MAX_HEAD_DIM),
            ("ffn", self.ffn, MAX_WIDTH),
            ("vocab", self.vocab, MAX_VOCAB),
            ("draft_vocab", self.draft_vocab, MAX_VOCAB),
        ] {
            if found == 0 {
                return Err(DrafterError::invalid(field, "at least 1", found));
            }
            if found > limit {
                let (found, limit) = (found.into(), limit.into());
                return Err(DrafterError::Limit { field: field.to_owned(), found, limit });
            }
        }
        for (field, found) in [
            ("hidden", self.hidden),
            ("target_hidden", self.target_hidden),
            ("ffn", self.ffn),
            ("heads times head_dim", self.queries()),
        ] {
            if !found.is_multiple_of(BLOCK) {
                return Err(DrafterError::invalid(field, format!("a multiple of {BLOCK}"), found));
            }
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            let wanted = format!("a divisor of the {} query heads", self.heads);
            return Err(DrafterError::invalid("kv_heads", wanted, self.kv_heads));
        }
        if !self.head_dim.is_multiple_of(2) {
            return Err(DrafterError::invalid("head_dim", "an even number", self.head_dim));
        }
        if self.draft_vocab > self.vocab {
            let wanted = format!("at most the {} tokens of the target", self.vocab);
            return Err(DrafterError::invalid("draft_vocab", wanted, self.draft_vocab));
        }
        if !(self.rms_eps > 0.0 && self.rms_eps < 1.0) {
            return Err(DrafterError::invalid("rms_eps", "a number above 0 and below 1", self.rms_eps));
        }
        if !(self.rope_theta.is_finite() && self.rope_theta >= 1.0) {
            return Err(DrafterError::invalid("rope_theta", "a number of at least 1", self.rope_theta));
        }
        if let Some(layers) = self.capture_layers
            && (!ascending(&layers) || layers[2] > MAX_LAYERS)
        {
            let wanted = format!("three ascending layers up to {MAX_LAYERS}");
            return Err(DrafterError::invalid("capture_layers", wanted, format!("{layers:?}")));
        }
        Ok(())
    }
}

fn ascending(layers: &[u32; 3]) -> bool {
    layers.is_sorted_by(|a, b| a < b)
}

/// `hidden / heads`, for files that state no length of a head.
pub(crate) fn default_head_dim(hidden: u32, heads: u32) -> Result<u32, DrafterError> {
    hidden.checked_div(heads).filter(|head_dim| head_dim.checked_mul(heads) == Some(hidden)).ok_or_else(
        || {
            let wanted = format!("a divisor of the width {hidden}, as head_dim is absent");
            DrafterError::invalid("heads", wanted, heads)
        },
    )
}
