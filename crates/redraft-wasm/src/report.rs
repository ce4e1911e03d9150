//! What JavaScript is told. The shapes are those of `web/package/src/wasm.ts`.

use crate::costs::CostsReport;
use redraft::{
    Engine, Gate, Generation, LogProb, LogProbs, Origin, Plan, PlanRun, RoundTrace, SpeculationStats, Step,
    TokenId,
};
use serde::Serialize;

/// A loaded model.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EngineReport {
    adapter: String,
    path: &'static str,
    architecture: String,
    layers: u32,
    hidden: u32,
    vocab: u32,
    /// Tokens of the context as it was loaded.
    context: u32,
    /// Tokens that the model was trained for.
    trained_context: u32,
    chat_template: bool,
    drafter: bool,
    memory: MemoryReport,
    /// The tiles in use, in words.
    tiles: String,
    /// Whether verifying several rows at once can pay.
    tiles_agree: bool,
    warnings: Vec<String>,
    /// What an automatic choice of speculation calculates with; null before it was measured.
    costs: Option<CostsReport>,
}

/// Device memory in bytes.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct MemoryReport {
    weights: u64,
    kv_cache: u64,
    activations: u64,
    sampling: u64,
    total: u64,
}

impl From<&Engine> for EngineReport {
    fn from(engine: &Engine) -> Self {
        let (config, memory) = (engine.config(), engine.memory());
        Self {
            adapter: engine.adapter().name.clone(),
            path: engine.model().path().name(),
            architecture: format!("{:?}", config.architecture).to_lowercase(),
            layers: config.layers,
            hidden: config.hidden,
            vocab: config.vocab,
            context: engine.context(),
            trained_context: config.context,
            chat_template: engine.template().is_some(),
            drafter: engine.has_drafter(),
            memory: MemoryReport {
                weights: memory.weights,
                kv_cache: memory.kv_cache,
                activations: memory.activations,
                sampling: memory.sampling,
                total: memory.total(),
            },
            tiles: engine.tiles().to_string(),
            tiles_agree: engine.tiles().agree(),
            warnings: engine.warnings().to_vec(),
            costs: engine.costs().map(CostsReport::from),
        }
    }
}

/// One token of an answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TokenReport {
    id: u32,
    text: String,
    origin: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    log_probs: Option<LogProbsReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    round: Option<RoundReport>,
}

impl TokenReport {
    pub(crate) fn new(step: Step, engine: &Engine) -> Self {
        Self {
            id: step.id.0,
            text: step.text,
            origin: origin(step.origin),
            log_probs: step.log_probs.map(|found| LogProbsReport::new(&found, engine)),
            round: step.trace.map(|trace| RoundReport::new(&trace, engine)),
        }
    }
}

fn origin(origin: Origin) -> &'static str {
    match origin {
        Origin::Target => "target",
        Origin::Drafted => "drafted",
        Origin::Refined => "refined",
        Origin::Lookup => "lookup",
    }
}

#[derive(Debug, Serialize)]
struct LogProbsReport {
    chosen: LogProbReport,
    top: Vec<LogProbReport>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct LogProbReport {
    id: u32,
    text: String,
    bytes: Vec<u8>,
    /// Null for minus infinity.
    log_prob: Option<f64>,
}

impl LogProbsReport {
    fn new(found: &LogProbs, engine: &Engine) -> Self {
        let of = |one: &LogProb| {
            let bytes = engine.tokenizer().token_bytes(one.token.0).unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes).into_owned();
            LogProbReport {
                id: one.token.0,
                text,
                bytes,
                log_prob: one.log_prob.is_finite().then_some(one.log_prob),
            }
        };
        Self { chosen: of(&found.chosen), top: found.top.iter().map(of).collect() }
    }
}

/// The tree of a round.
#[derive(Debug, Serialize)]
struct RoundReport {
    plan: PlanReport,
    /// Tokens before the root.
    start: u32,
    /// The root first, parents before children.
    nodes: Vec<NodeReport>,
    /// The accepted path, the root first.
    accepted: Vec<usize>,
}

#[derive(Debug, Serialize)]
struct NodeReport {
    token: u32,
    text: String,
    parent: Option<usize>,
    depth: u32,
    score: Option<f32>,
    origin: &'static str,
    unsure: Option<f32>,
    reconsidered: bool,
    row: Option<u32>,
}

impl RoundReport {
    fn new(trace: &RoundTrace, engine: &Engine) -> Self {
        let words = |token: TokenId| {
            let bytes = engine.tokenizer().token_bytes(token.0).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let nodes = trace.nodes.iter().map(|node| NodeReport {
            token: node.token.0,
            text: words(node.token),
            parent: node.parent,
            depth: node.depth,
            score: node.score.is_finite().then_some(node.score),
            origin: origin(node.origin),
            unsure: node.unsure,
            reconsidered: node.reconsidered,
            row: node.row,
        });
        Self {
            plan: PlanReport::from(&trace.plan),
            start: trace.start,
            nodes: nodes.collect(),
            accepted: trace.accepted.clone(),
        }
    }
}

/// A plan, as requests name it.
#[derive(Debug, Serialize)]
struct PlanReport {
    mode: &'static str,
    nodes: u32,
    depth: u32,
    width: u32,
    children: u32,
    reconsider: u32,
    refined: u32,
    gate: &'static str,
    lookup: bool,
}

impl From<&Plan> for PlanReport {
    fn from(plan: &Plan) -> Self {
        let mode = match plan {
            plan if !plan.drafter => "lookup",
            plan if plan.reconsider > 0 => "reconsider",
            plan if plan.width == 1 && plan.children == 1 => "chain",
            _ => "tree",
        };
        let gate = match plan.gate {
            Gate::Off => "off",
            Gate::Top1 => "top1",
            Gate::Entropy => "entropy",
            Gate::Calibrated => "calibrated",
            Gate::Random => "random",
        };
        Self {
            mode,
            nodes: plan.nodes,
            depth: plan.depth,
            width: plan.width,
            children: plan.children,
            reconsider: plan.reconsider,
            refined: plan.refined,
            gate,
            lookup: plan.lookup,
        }
    }
}

/// A finished answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AnswerReport {
    text: String,
    ids: Vec<u32>,
    prompt_tokens: usize,
    reused_tokens: u32,
    /// `eos`, `stop`, `length`, `context` or `cancelled`.
    stop_reason: &'static str,
    timings: TimingsReport,
    speculation: Option<SpeculationReport>,
    warning: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct TimingsReport {
    prefill_seconds: f64,
    /// Of those, what the first automatic answer took to measure what steps cost.
    measuring_seconds: f64,
    prefill_tokens: u32,
    decode_seconds: f64,
    decode_tokens: u32,
}

/// What speculation did.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SpeculationReport {
    rounds: u64,
    plain: u64,
    drafted: u64,
    accepted: u64,
    tau: Option<f64>,
    reconsidered: u64,
    refined: u64,
    duplicates: u64,
    rescues: u64,
    lookup_hits: u64,
    acceptance_by_depth: Vec<f64>,
    history: Vec<RunReport>,
}

#[derive(Debug, Serialize)]
struct RunReport {
    /// Null for plain decoding.
    plan: Option<PlanReport>,
    rounds: u64,
    emitted: u64,
}

impl From<&PlanRun> for RunReport {
    fn from(run: &PlanRun) -> Self {
        Self { plan: run.plan.as_ref().map(PlanReport::from), rounds: run.rounds, emitted: run.emitted }
    }
}

impl From<&SpeculationStats> for SpeculationReport {
    fn from(stats: &SpeculationStats) -> Self {
        Self {
            rounds: stats.rounds,
            plain: stats.plain,
            drafted: stats.drafted,
            accepted: stats.accepted,
            tau: stats.tau(),
            reconsidered: stats.reconsidered,
            refined: stats.refined,
            duplicates: stats.duplicates,
            rescues: stats.rescues,
            lookup_hits: stats.lookup_hits,
            acceptance_by_depth: stats.by_depth.iter().map_while(redraft::DepthStats::rate).collect(),
            history: stats.history.iter().map(RunReport::from).collect(),
        }
    }
}

impl From<Generation> for AnswerReport {
    fn from(answer: Generation) -> Self {
        Self {
            ids: answer.ids.iter().map(|id| id.0).collect(),
            prompt_tokens: answer.prompt_ids.len(),
            reused_tokens: answer.reused_tokens,
            stop_reason: answer.stop_reason.as_str(),
            timings: TimingsReport {
                prefill_seconds: answer.timings.prefill_s,
                measuring_seconds: answer.timings.measuring_s,
                prefill_tokens: answer.timings.prefill_tokens,
                decode_seconds: answer.timings.decode_s,
                decode_tokens: answer.timings.decode_tokens,
            },
            speculation: answer.speculation.as_ref().map(SpeculationReport::from),
            warning: answer.warning,
            text: answer.text,
        }
    }
}
