//! The `config.json` of EAGLE-3 checkpoints, as the training frameworks write it.

use super::{DrafterConfig, ROPE_THETA, Stated, default_head_dim};
use crate::error::DrafterError;
use crate::json::Object;
use serde_json::Value;

/// How the text is called in messages.
const NAME: &str = "config.json";
/// The list of captured layers: at the top level the inputs of these layers, in `eagle_config` their outputs.
const CAPTURES: &str = "eagle_aux_hidden_state_layer_ids";

/// What must not be switched on, or off, with the reason.
const SWITCHES: [(&str, bool, &str); 9] = [
    (
        "norm_before_residual",
        false,
        "false: drafters whose residual is the normed feature are not implemented",
    ),
    ("norm_before_fc", false, "false: a norm over the whole feature is not implemented (fc_norm is)"),
    ("attention_bias", false, "false: biases are not implemented"),
    ("mlp_bias", false, "false: biases are not implemented"),
    ("use_sliding_window", false, "false: sliding windows are not implemented"),
    ("use_mtp_layernorm", false, "false: the norms of multi-token prediction are not implemented"),
    (
        "use_aux_hidden_state",
        true,
        "true: drafters over the last hidden state alone (EAGLE-1) are not implemented",
    ),
    ("use_input_layernorm_in_first_layer", true, "true: an un-normed token embedding is not implemented"),
    ("use_last_layernorm", true, "true: a head without a norm before it is not implemented"),
];

/// The objects in which the keys of the various writers lie, in order of precedence.
struct Keys<'a> {
    top: Object<'a>,
    places: Vec<Object<'a>>,
}

impl<'a> Keys<'a> {
    fn place(&self, key: &str) -> &Object<'a> {
        self.places.iter().find(|place| place.get(key).is_some()).unwrap_or(&self.top)
    }

    fn u32(&self, key: &str) -> Result<Option<u32>, DrafterError> {
        self.place(key).u32(key)
    }

    fn need(&self, key: &str) -> Result<u32, DrafterError> {
        self.u32(key)?.ok_or_else(|| DrafterError::Missing {
            field: self.top.name(key),
            hint: "it is required in the configuration of an EAGLE-3 drafter",
        })
    }

    fn invalid(&self, key: &str, wanted: &str) -> DrafterError {
        self.place(key).invalid(key, wanted)
    }

    fn refuse_variants(&self) -> Result<(), DrafterError> {
        for (key, allowed, wanted) in SWITCHES {
            if self.place(key).bool(key)?.is_some_and(|found| found != allowed) {
                return Err(self.invalid(key, wanted));
            }
        }
        for key in ["num_hidden_layers", "parallel_draft_step"] {
            if self.u32(key)?.is_some_and(|found| found != 1) {
                return Err(self.invalid(key, "1: other numbers are not implemented"));
            }
        }
        let windowed = self.place("sliding_window").get("sliding_window").is_some();
        if windowed && self.place("use_sliding_window").bool("use_sliding_window")?.is_none() {
            return Err(self.invalid("sliding_window", "null: sliding windows are not implemented"));
        }
        if self.place("hidden_act").str("hidden_act")?.is_some_and(|found| found != "silu") {
            return Err(self.invalid("hidden_act", "\"silu\": other activations are not implemented"));
        }
        Ok(())
    }

    /// The RoPE base, from where the various versions of the format keep it.
    fn rope_theta(&self) -> Result<f32, DrafterError> {
        let mut nested = None;
        for key in ["rope_parameters", "rope_scaling"] {
            let Some(object) = self.place(key).object(key)? else { continue };
            for kind in ["rope_type", "type"] {
                if object.str(kind)?.is_some_and(|found| found != "default") {
                    let wanted = "\"default\": RoPE scaling of drafters is not implemented; many are trained without it \
                         and state it all the same, then remove the key";
                    return Err(object.invalid(kind, wanted));
                }
            }
            nested = nested.or(object.f32("rope_theta")?);
        }
        Ok(self.place("rope_theta").f32("rope_theta")?.or(nested).unwrap_or(ROPE_THETA))
    }

    fn captures(&self, eagle: Option<&Object<'_>>) -> Result<Option<[u32; 3]>, DrafterError> {
        if let Some(inputs) = self.top.triple(CAPTURES)? {
            return Ok(Some(inputs));
        }
        let outputs = eagle.map(|object| object.triple(CAPTURES)).transpose()?.flatten();
        Ok(outputs.map(|layers| layers.map(|layer| layer.saturating_add(1))))
    }
}

/// Reads the configuration.
pub(crate) fn parse(json: &str) -> Result<Stated, DrafterError> {
    let value: Value =
        serde_json::from_str(json).map_err(|source| DrafterError::Json { field: NAME, source })?;
    let top = Object::new(NAME, &value)?;
    let eagle = top.object("eagle_config")?;
    let nested = top.object("transformer_layer_config")?;
    let places = [Some(top.clone()), eagle.clone(), nested].into_iter().flatten().collect();
    let keys = Keys { top, places };
    keys.refuse_variants()?;

    let (hidden, heads) = (keys.need("hidden_size")?, keys.need("num_attention_heads")?);
    let vocab = keys.need("vocab_size")?;
    let eps = keys.place("rms_norm_eps").f32("rms_norm_eps")?.ok_or_else(|| DrafterError::Missing {
        field: keys.top.name("rms_norm_eps"),
        hint: "it is required in the configuration of an EAGLE-3 drafter",
    })?;
    let config = DrafterConfig {
        hidden,
        target_hidden: keys.u32("target_hidden_size")?.unwrap_or(hidden),
        heads,
        kv_heads: keys.u32("num_key_value_heads")?.unwrap_or(heads),
        head_dim: match keys.u32("head_dim")? {
            Some(stated) => stated,
            None => default_head_dim(hidden, heads)?,
        },
        ffn: keys.need("intermediate_size")?,
        rms_eps: eps,
        vocab,
        draft_vocab: keys.u32("draft_vocab_size")?.unwrap_or(vocab),
        rope_theta: keys.rope_theta()?,
        capture_layers: keys.captures(eagle.as_ref())?,
        norm_output: keys.place("norm_output").bool("norm_output")?.unwrap_or(false),
        fc_norm: false,
    };
    Ok(Stated { config, fc_norm: keys.place("fc_norm").bool("fc_norm")? })
}
