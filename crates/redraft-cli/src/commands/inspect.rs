//! `redraft inspect`: what is in a GGUF file and what memory it needs. No adapter is touched.

use std::fmt::Write as _;
use std::io::IsTerminal;
use std::path::PathBuf;

use clap::Args;
use pollster::block_on;
use redraft::{
    DrafterError, DrafterFile, KvType, MemoryPlan, Path, Planned, Quantization, TargetFingerprint,
};
use redraft_gguf::{Array, FileSource, Gguf, ModelConfig, ReadAt, TensorInfo, Value};
use serde_json::json;

use crate::args::Kv;
use crate::error::CliError;
use crate::model::{self, ModelRef};
use crate::output;
use crate::speculate::{DrafterInput, find_drafter, read_drafter};

/// Context that is planned for when the model allows it, as the other commands do.
const DEFAULT_CONTEXT: u32 = 4096;
/// Elements shown of an array, and characters of a text, before it is cut.
const SHOWN_ELEMENTS: usize = 6;
const SHOWN_CHARACTERS: usize = 100;

/// Flags of `inspect`.
#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// A GGUF file, or any other way to name a model
    #[arg(value_name = "FILE")]
    pub(crate) model: ModelRef,
    /// Tokens of context to plan memory for [default: what the model was trained for, at most 4096]
    #[arg(short, long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) context: Option<u32>,
    /// Type of the key-value cache to plan for
    #[arg(long, value_enum, default_value_t = Kv::F16)]
    pub(crate) kv: Kv,
    /// Plan memory for this drafter and its draft trees too
    #[arg(long, value_name = "FILE")]
    pub(crate) drafter: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Everything there is to tell about a file.
struct Inspection<'a> {
    path: &'a std::path::Path,
    size: u64,
    gguf: Gguf,
    /// The model, or why this version cannot run it.
    model: Result<(ModelConfig, u32, MemoryPlan), String>,
    /// The drafter that was named, or that speculation would take.
    drafter: Option<PathBuf>,
}

pub(crate) fn run(args: &InspectArgs) -> Result<(), CliError> {
    let drafter = args.drafter.as_deref().map(read_drafter).transpose()?;
    let path = model::resolve(&args.model)?;
    let source = FileSource::open(&path)?;
    let gguf = block_on(Gguf::read(&source))
        .map_err(|source| CliError::Gguf { path: path.display().to_string(), source })?;
    if let Some(DrafterInput { file, path, .. }) = &drafter {
        check_drafter(file, &gguf)
            .map_err(|source| CliError::Drafter { path: path.clone(), source: Box::new(source) })?;
    }
    let model = plan(&gguf, args.context, args.kv.into(), drafter.as_ref().map(|input| &input.file));
    let drafter = match (drafter, &model) {
        (Some(named), _) => Some(PathBuf::from(named.path)),
        (None, Ok((config, ..))) => find_drafter(&args.model, &path, &gguf, config).map(|found| found.path),
        (None, Err(_)) => None,
    };
    let inspection = Inspection { path: &path, size: source.size(), drafter, model, gguf };
    if let (Some(asked), Ok((config, ..))) = (args.context, &inspection.model)
        && asked > config.context
    {
        output::warning(format_args!(
            "--context {asked} is more than the {} tokens that the model was trained for; it will not load with it",
            config.context
        ));
    }
    if args.json {
        return output::emit_json(&to_json(&inspection));
    }
    let text = to_text(&inspection);
    output::emit(&output::printable(&text, std::io::stdout().is_terminal()))
}

/// Refuses a drafter of another target; a model that cannot run has none.
fn check_drafter(drafter: &DrafterFile, gguf: &Gguf) -> Result<(), DrafterError> {
    let Ok(config) = ModelConfig::from_gguf(gguf) else { return Ok(()) };
    let layers = drafter.config().captures(config.layers)?;
    drafter.check_target(&TargetFingerprint::of(gguf, &config, layers)?).map(|_| ())
}

fn plan(
    gguf: &Gguf,
    context: Option<u32>,
    kv: KvType,
    drafter: Option<&DrafterFile>,
) -> Result<(ModelConfig, u32, MemoryPlan), String> {
    let config = ModelConfig::from_gguf(gguf).map_err(|e| e.to_string())?;
    let context = context.unwrap_or(config.context.min(DEFAULT_CONTEXT));
    // The family that needs more; captures are for drafters.
    let captures = if drafter.is_some() { 3 } else { 0 };
    let planned = Planned { context, kv, path: Path::Broadcast, captures };
    let plan = MemoryPlan::of(&config, gguf, &planned).map_err(|e| e.to_string())?;
    let Some(drafter) = drafter else { return Ok((config, context, plan)) };
    let drafter = Some((drafter, Quantization::Q8_0));
    let plan = plan.with_drafter(context, kv, Path::Broadcast, drafter).map_err(|e| e.to_string())?;
    Ok((config, context, plan))
}

fn to_text(inspection: &Inspection<'_>) -> String {
    let Inspection { path, size, gguf, model, drafter } = inspection;
    let mut text = format!(
        "{}\nGGUF version {}, {}, alignment {}\n\nMetadata ({} keys)\n",
        path.display(),
        gguf.version,
        output::bytes(*size),
        gguf.alignment,
        gguf.metadata.len()
    );
    // Writing to a String cannot fail.
    for (key, value) in gguf.metadata.iter() {
        let _ = writeln!(text, "  {key:<44} {:<16} {}", value.type_name(), value_text(value));
    }
    let _ = writeln!(text, "\nTensors ({})", gguf.tensors.len());
    let _ = writeln!(text, "  {:<36} {:<6} {:>20} {:>12} {:>14}", "name", "type", "shape", "bytes", "offset");
    for tensor in &gguf.tensors {
        let TensorInfo { name, kind, size, offset, .. } = tensor;
        let shape = tensor.dims.iter().map(u64::to_string).collect::<Vec<_>>().join(" x ");
        let _ = writeln!(text, "  {name:<36} {:<6} {shape:>20} {size:>12} {offset:>14}", kind.name());
    }
    match model {
        Err(reason) => {
            let _ = writeln!(text, "\nThis version cannot run the model: {reason}");
        }
        Ok((config, context, plan)) => {
            let _ = writeln!(
                text,
                "\nModel\n  {}: {} layers, width {}, feed-forward {}, {} heads, {} key-value heads of {}, \
                 vocabulary {}, trained for {} tokens",
                config.architecture.name(),
                config.layers,
                config.hidden,
                config.ffn,
                config.heads,
                config.kv_heads,
                config.head_dim,
                config.vocab,
                config.context
            );
            let _ = writeln!(text, "\nMemory on the adapter at {context} tokens of context");
            let rows = [
                ("weights", plan.weights),
                ("key-value cache", plan.kv_cache),
                ("activations", plan.activations),
                ("sampling", plan.sampling),
                ("drafter", plan.drafter),
                ("draft trees", plan.trees),
                ("total", plan.total()),
            ];
            for (label, bytes) in rows.into_iter().filter(|(_, bytes)| *bytes > 0) {
                let _ = writeln!(text, "  {label:<16} {:>12}", output::bytes(bytes));
            }
            let shown = drafter.as_ref().map_or_else(|| "none found".to_owned(), |d| d.display().to_string());
            let _ = writeln!(text, "\nDrafter\n  {shown}");
        }
    }
    text
}

/// A value on one line, long ones cut.
fn value_text(value: &Value) -> String {
    match value {
        Value::U8(v) => v.to_string(),
        Value::I8(v) => v.to_string(),
        Value::U16(v) => v.to_string(),
        Value::I16(v) => v.to_string(),
        Value::U32(v) => v.to_string(),
        Value::I32(v) => v.to_string(),
        Value::U64(v) => v.to_string(),
        Value::I64(v) => v.to_string(),
        Value::F32(v) => v.to_string(),
        Value::F64(v) => v.to_string(),
        Value::Bool(v) => v.to_string(),
        Value::String(v) => quoted(v),
        Value::Array(array) => {
            let mut items = first_elements(array).into_iter().map(|v| v.to_string()).collect::<Vec<_>>();
            if array.len() > items.len() {
                items.push(format!("… {} in all", array.len()));
            }
            format!("[{}]", items.join(", "))
        }
    }
}

fn quoted(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARACTERS) {
        None => format!("{text:?}"),
        Some((cut, _)) => format!("{:?}… {} bytes in all", text.get(..cut).unwrap_or_default(), text.len()),
    }
}

fn first_elements(array: &Array) -> Vec<serde_json::Value> {
    fn take<T: Clone + Into<serde_json::Value>>(values: &[T]) -> Vec<serde_json::Value> {
        values.iter().take(SHOWN_ELEMENTS).cloned().map(Into::into).collect()
    }
    match array {
        Array::U8(v) => take(v),
        Array::I8(v) => take(v),
        Array::U16(v) => take(v),
        Array::I16(v) => take(v),
        Array::U32(v) => take(v),
        Array::I32(v) => take(v),
        Array::U64(v) => take(v),
        Array::I64(v) => take(v),
        Array::F32(v) => take(v),
        Array::F64(v) => take(v),
        Array::Bool(v) => take(v),
        Array::String(v) => take(v),
    }
}

fn value_json(value: &Value) -> serde_json::Value {
    match value {
        Value::U8(v) => json!(v),
        Value::I8(v) => json!(v),
        Value::U16(v) => json!(v),
        Value::I16(v) => json!(v),
        Value::U32(v) => json!(v),
        Value::I32(v) => json!(v),
        Value::U64(v) => json!(v),
        Value::I64(v) => json!(v),
        Value::F32(v) => json!(v),
        Value::F64(v) => json!(v),
        Value::Bool(v) => json!(v),
        Value::String(v) => json!(v),
        Value::Array(v) => json!({ "type": v.type_name(), "length": v.len(), "first": first_elements(v) }),
    }
}

fn to_json(inspection: &Inspection<'_>) -> serde_json::Value {
    let Inspection { path, size, gguf, model, drafter } = inspection;
    let metadata: serde_json::Map<_, _> =
        gguf.metadata.iter().map(|(key, value)| (key.to_owned(), value_json(value))).collect();
    let tensor = |t: &TensorInfo| json!({ "name": t.name, "type": t.kind.name(), "dims": t.dims, "offset": t.offset, "bytes": t.size });
    let described = model.as_ref().ok();
    json!({
        "path": path.display().to_string(),
        "bytes": size,
        "version": gguf.version,
        "alignment": gguf.alignment,
        "metadata": metadata,
        "tensors": gguf.tensors.iter().map(tensor).collect::<Vec<_>>(),
        "model": described.map(|(config, ..)| json!({
            "architecture": config.architecture.name(),
            "layers": config.layers,
            "hidden": config.hidden,
            "ffn": config.ffn,
            "heads": config.heads,
            "kv_heads": config.kv_heads,
            "head_dim": config.head_dim,
            "vocab": config.vocab,
            "context": config.context,
        })),
        "memory": described.map(|(_, context, plan)| json!({
            "context": context,
            "weights": plan.weights,
            "kv_cache": plan.kv_cache,
            "activations": plan.activations,
            "sampling": plan.sampling,
            "drafter": plan.drafter,
            "draft_trees": plan.trees,
            "total": plan.total(),
        })),
        "drafter": drafter.as_ref().map(|path| path.display().to_string()),
        "unsupported": model.as_ref().err(),
    })
}
