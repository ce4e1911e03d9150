//! What JavaScript asks for. The fields are checked by name; unknown ones are refused.

use redraft::{Gate, KvType, Message, Path, Plan, Precision, SamplingParams, Speculation, TokenId};
use serde::Deserialize;

/// How to load a model.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct LoadRequest {
    /// Tokens of the context.
    pub(crate) context: Option<u32>,
    /// `f16` or `f32`.
    pub(crate) kv: Option<Kv>,
    /// `f32` or `f16`: what the model multiplies in.
    pub(crate) precision: Option<FloatWidth>,
    /// Kernel family; by default what suits the adapter.
    pub(crate) path: Option<PathName>,
    /// Refuse models that need more device memory than this many bytes.
    pub(crate) memory_limit: Option<u64>,
    /// Bind no more than this many bytes at once.
    pub(crate) max_binding: Option<u64>,
}

/// Type of the KV cache.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kv {
    F16,
    F32,
}

impl From<Kv> for KvType {
    fn from(kv: Kv) -> Self {
        match kv {
            Kv::F16 => Self::F16,
            Kv::F32 => Self::F32,
        }
    }
}

/// What the model multiplies in.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FloatWidth {
    F16,
    F32,
}

impl From<FloatWidth> for Precision {
    fn from(width: FloatWidth) -> Self {
        match width {
            FloatWidth::F16 => Self::F16,
            FloatWidth::F32 => Self::F32,
        }
    }
}

/// A kernel family by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PathName {
    Plain,
    Broadcast,
    Slices,
    Shuffle,
    Slices16,
    Shuffle16,
}

impl From<PathName> for Path {
    fn from(name: PathName) -> Self {
        match name {
            PathName::Plain => Self::Plain,
            PathName::Broadcast => Self::Broadcast,
            PathName::Slices => Self::Slices,
            PathName::Shuffle => Self::Shuffle,
            PathName::Slices16 => Self::Slices16,
            PathName::Shuffle16 => Self::Shuffle16,
        }
    }
}

/// How to answer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct AnswerRequest {
    pub(crate) prompt: Prompt,
    pub(crate) max_tokens: Option<u32>,
    #[serde(default)]
    pub(crate) sampling: SamplingRequest,
    #[serde(default)]
    pub(crate) stop: Vec<String>,
    /// With each token its log-probability and those of this many likeliest ones.
    pub(crate) log_probs: Option<u8>,
    #[serde(default)]
    pub(crate) ignore_eos: bool,
    #[serde(default)]
    pub(crate) speculation: SpeculationRequest,
    /// Hand out the draft tree of each round.
    #[serde(default)]
    pub(crate) trace: bool,
}

/// What is answered.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Prompt {
    Messages(Vec<Message>),
    Text(String),
    Tokens(Vec<u32>),
}

/// How tokens are drawn; what is absent has the library's default.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct SamplingRequest {
    temperature: Option<f32>,
    top_k: Option<u32>,
    top_p: Option<f32>,
    min_p: Option<f32>,
    repetition_penalty: Option<f32>,
    presence_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    penalty_window: Option<u32>,
    logit_bias: Vec<(u32, f32)>,
    seed: Option<u64>,
}

impl SamplingRequest {
    pub(crate) fn params(&self) -> SamplingParams {
        let default = SamplingParams::default();
        SamplingParams {
            temperature: self.temperature.unwrap_or(default.temperature),
            top_k: self.top_k.unwrap_or(default.top_k),
            top_p: self.top_p.unwrap_or(default.top_p),
            min_p: self.min_p.unwrap_or(default.min_p),
            repetition_penalty: self.repetition_penalty.unwrap_or(default.repetition_penalty),
            presence_penalty: self.presence_penalty.unwrap_or(default.presence_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(default.frequency_penalty),
            penalty_window: self.penalty_window.unwrap_or(default.penalty_window),
            logit_bias: self.logit_bias.iter().map(|(token, bias)| (TokenId(*token), *bias)).collect(),
            seed: self.seed.unwrap_or(default.seed),
        }
    }
}

/// Whether and how to draft ahead.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SpeculationRequest {
    #[default]
    Off,
    Auto,
    Plan(PlanRequest),
}

impl SpeculationRequest {
    pub(crate) fn speculation(&self) -> Speculation {
        match self {
            Self::Off => Speculation::Off,
            Self::Auto => Speculation::Auto,
            Self::Plan(plan) => Speculation::Plan(plan.plan()),
        }
    }
}

/// A plan: a kind, and what differs from its default shape.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct PlanRequest {
    mode: PlanMode,
    nodes: Option<u32>,
    depth: Option<u32>,
    width: Option<u32>,
    children: Option<u32>,
    reconsider: Option<u32>,
    refined: Option<u32>,
    gate: Option<GateName>,
    lookup: Option<bool>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum PlanMode {
    Lookup,
    Chain,
    Tree,
    Reconsider,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum GateName {
    Off,
    Top1,
    Entropy,
    Calibrated,
    Random,
}

impl PlanRequest {
    fn plan(&self) -> Plan {
        let mut plan = match self.mode {
            PlanMode::Lookup => Plan::lookup(self.depth.or(self.nodes).unwrap_or(3)),
            PlanMode::Chain => Plan::chain(self.nodes.or(self.depth).unwrap_or(3)),
            PlanMode::Tree => Plan::tree(15, 5, 4, 4),
            PlanMode::Reconsider => Plan::default(),
        };
        let fields = [
            (&mut plan.nodes, self.nodes),
            (&mut plan.depth, self.depth),
            (&mut plan.width, self.width),
            (&mut plan.children, self.children),
            (&mut plan.reconsider, self.reconsider),
            (&mut plan.refined, self.refined),
        ];
        for (field, wanted) in fields {
            *field = wanted.unwrap_or(*field);
        }
        plan.lookup = self.lookup.unwrap_or(plan.lookup);
        if let Some(gate) = self.gate {
            plan.gate = match gate {
                GateName::Off => Gate::Off,
                GateName::Top1 => Gate::Top1,
                GateName::Entropy => Gate::Entropy,
                GateName::Calibrated => Gate::Calibrated,
                GateName::Random => Gate::Random,
            };
        }
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<AnswerRequest, serde_json::Error> {
        serde_json::from_str(json)
    }

    #[test]
    fn a_request_is_read_field_by_field() {
        let request = read(
            r#"{"prompt": {"messages": [{"role": "user", "content": "hi", "name": "x"}]}, "maxTokens": 7,
                "sampling": {"temperature": 0.5, "seed": 9007199254740991, "logitBias": [[3, -2.5]]},
                "speculation": {"plan": {"mode": "tree", "nodes": 6, "gate": "entropy"}}}"#,
        )
        .unwrap();
        let Prompt::Messages(messages) = &request.prompt else { panic!("{:?}", request.prompt) };
        assert_eq!((messages[0].role.as_str(), messages[0].extra.len()), ("user", 1), "messages");
        let sampling = request.sampling.params();
        assert_eq!((sampling.temperature, sampling.seed), (0.5, 9_007_199_254_740_991), "sampling");
        assert_eq!(sampling.logit_bias, [(TokenId(3), -2.5)], "bias");
        assert_eq!(sampling.top_p, 1.0, "the library's default");
        let expected = Plan { nodes: 6, gate: Gate::Entropy, ..Plan::tree(15, 5, 4, 4) };
        assert_eq!(request.speculation.speculation(), Speculation::Plan(expected), "plan");
        let plain = read(r#"{"prompt": {"text": "a"}, "speculation": "off"}"#).unwrap();
        assert_eq!(plain.speculation.speculation(), Speculation::Off, "off");
    }

    #[test]
    fn a_model_is_loaded_in_the_precision_that_is_named() {
        let read = |json: &str| serde_json::from_str::<LoadRequest>(json);
        let half = read(r#"{"precision": "f16", "path": "shuffle16"}"#).unwrap();
        assert_eq!(half.precision.map(Precision::from), Some(Precision::F16), "precision");
        assert_eq!(half.path.map(Path::from), Some(Path::Shuffle16), "path");
        assert!(read("{}").unwrap().precision.is_none(), "the library's default");
        let error = read(r#"{"precision": "f8"}"#).unwrap_err().to_string();
        assert!(error.contains("f8") && error.contains("f16"), "{error}");
    }

    #[test]
    fn shapes_follow_the_kind() {
        let plan = |json: &str| {
            let speculation: SpeculationRequest = serde_json::from_str(json).unwrap();
            speculation.speculation()
        };
        assert_eq!(plan(r#"{"plan": {"mode": "lookup"}}"#), Speculation::Plan(Plan::lookup(3)));
        assert_eq!(plan(r#"{"plan": {"mode": "lookup", "nodes": 5}}"#), Speculation::Plan(Plan::lookup(5)));
        assert_eq!(plan(r#"{"plan": {"mode": "chain", "nodes": 4}}"#), Speculation::Plan(Plan::chain(4)));
        assert_eq!(plan(r#"{"plan": {"mode": "reconsider"}}"#), Speculation::Plan(Plan::default()));
        assert_eq!(plan(r#""auto""#), Speculation::Auto);
    }

    #[test]
    fn what_is_not_known_is_named() {
        for (json, word) in [
            (r#"{"prompt": {"text": "a"}, "maxTokns": 1}"#, "maxTokns"),
            (r#"{"prompt": {"text": "a"}, "sampling": {"topk": 1}}"#, "topk"),
            (r#"{"prompt": {"words": "a"}}"#, "words"),
            (r#"{"maxTokens": 1}"#, "prompt"),
        ] {
            let error = read(json).unwrap_err().to_string();
            assert!(error.contains(word), "{json}: {error}");
        }
    }
}
