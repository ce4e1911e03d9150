//! `redraft drafter`: what is in a drafter, and drafters of and for other engines. No adapter is touched.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use pollster::block_on;
use redraft::{
    DrafterError, DrafterFile, FileSource, FloatType, Gguf, GgufOptions, ModelConfig, Quantization,
    TargetFingerprint,
};
use serde_json::json;

use crate::error::CliError;
use crate::model::{self, ModelRef};
use crate::{loading, output, speculate};

/// Commands about drafters.
#[derive(Debug, Subcommand)]
pub(crate) enum DrafterCommand {
    /// Show what is in a drafter, and whether it is for a model
    Inspect(InspectArgs),
    /// Write a drafter for another engine
    Export(ExportArgs),
    /// Make a drafter of this project from that of another engine
    Import(ImportArgs),
}

/// Flags of `drafter inspect`.
#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// A drafter: a safetensors file, a folder with one and its config.json, or a GGUF file of architecture eagle3
    #[arg(value_name = "FILE")]
    drafter: PathBuf,
    /// Compare it with this model
    #[arg(long, value_name = "MODEL")]
    target: Option<ModelRef>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What other engines read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A folder with config.json and model.safetensors: EAGLE, SpecForge, SGLang, vLLM
    Eagle,
    /// A GGUF file of architecture eagle3: llama.cpp
    Gguf,
}

/// Types of exported weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Dtype {
    F32,
    F16,
    Bf16,
    #[value(name = "q8_0")]
    Q8_0,
    #[value(name = "q4_0")]
    Q4_0,
}

/// Flags of `drafter export`.
#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// The drafter
    #[arg(value_name = "FILE")]
    drafter: PathBuf,
    /// What to write
    #[arg(long, value_enum, value_name = "FORMAT")]
    to: Format,
    /// Where: a folder for eagle, a file for gguf
    #[arg(long, value_name = "PATH")]
    out: PathBuf,
    /// Type of the weights: f32, f16 or bf16 for eagle [default: f16]; f32, f16, q8_0 or q4_0 for gguf
    /// [default: as they are]
    #[arg(long, value_enum, value_name = "TYPE")]
    dtype: Option<Dtype>,
    /// The model that it is for; gguf takes its tokenizer from there
    #[arg(long, value_name = "MODEL")]
    target: Option<ModelRef>,
    /// Overwrite what is there
    #[arg(long)]
    force: bool,
}

/// Flags of `drafter import`.
#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// A folder with config.json and safetensors, or a GGUF file of architecture eagle3
    #[arg(value_name = "PATH")]
    from: PathBuf,
    /// The model that it is for, which the new file will name
    #[arg(long, value_name = "MODEL")]
    target: ModelRef,
    /// The file to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Overwrite what is there
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(command: &DrafterCommand) -> Result<(), CliError> {
    match command {
        DrafterCommand::Inspect(args) => inspect(args),
        DrafterCommand::Export(args) => export(args),
        DrafterCommand::Import(args) => import(args),
    }
}

// ---- inspect ----

fn inspect(args: &InspectArgs) -> Result<(), CliError> {
    let file = speculate::read_drafter(&args.drafter)?.file;
    let verdict = args.target.as_ref().map(|model| verdict(&file, model)).transpose()?;
    if args.json {
        return output::emit_json(&to_json(&args.drafter, &file, verdict.as_ref()));
    }
    let text = to_text(&args.drafter, &file, verdict.as_ref());
    output::emit(&output::printable(&text, io::stdout().is_terminal()))
}

/// The warnings about a drafter and a model, or why they do not go together.
fn verdict(file: &DrafterFile, model: &ModelRef) -> Result<Result<Vec<String>, String>, CliError> {
    let target = Target::read(model)?;
    let checked = file
        .config()
        .captures(target.config.layers)
        .and_then(|layers| TargetFingerprint::of(&target.gguf, &target.config, layers))
        .and_then(|found| file.check_target(&found));
    Ok(match checked {
        Ok(warnings) => Ok(warnings.iter().map(ToString::to_string).collect()),
        Err(error) => Err(error.to_string()),
    })
}

fn to_text(path: &Path, file: &DrafterFile, verdict: Option<&Result<Vec<String>, String>>) -> String {
    let config = file.config();
    // Writing to a String cannot fail.
    let mut text = format!("{}\n\nDrafter\n", path.display());
    let _ = writeln!(
        text,
        "  width {}, over features of 3 x {}; {} heads, {} key-value heads of {}; feed-forward {}\n  \
         {} of {} tokens; RoPE base {}; RMSNorm epsilon {}",
        config.hidden,
        config.target_hidden,
        config.heads,
        config.kv_heads,
        config.head_dim,
        config.ffn,
        config.draft_vocab,
        config.vocab,
        config.rope_theta,
        config.rms_eps
    );
    match config.capture_layers {
        Some(layers) => {
            let _ = writeln!(text, "  captures the input of layers {layers:?}");
        }
        None => text.push_str("  does not say which layers it captures\n"),
    }
    for (flag, what) in [
        (config.fc_norm, "fc_norm: captures are normed before they are fused"),
        (config.norm_output, "norm_output: the next feature is the normed output"),
    ] {
        if flag {
            let _ = writeln!(text, "  {what}");
        }
    }
    let _ = match file.target() {
        Some(target) => writeln!(
            text,
            "\nTarget\n  {}: {} layers, width {}, {} tokens, weights in {}\n  tokenizer {}",
            target.architecture,
            target.layers,
            target.hidden,
            target.vocab,
            target.quantization,
            target.tokenizer
        ),
        None => writeln!(text, "\nTarget\n  the file does not say"),
    };
    let _ = match verdict {
        None => Ok(()),
        Some(Ok(warnings)) if warnings.is_empty() => writeln!(text, "  it is for this model"),
        Some(Ok(warnings)) => writeln!(text, "  it is for this model, but {}", warnings.join("; ")),
        Some(Err(reason)) => writeln!(text, "  it is not for this model: {reason}"),
    };
    let reconsider = file.reconsider();
    let _ = writeln!(
        text,
        "\nReconsideration\n  pass embedding: {}, adapter: {}, tables: {}",
        if reconsider.embedding.is_some() { "yes" } else { "no" },
        reconsider.rank.map_or_else(|| "none".to_owned(), |rank| format!("rank {rank}")),
        if reconsider.settings.calibrated { "calibrated" } else { "none in use" }
    );
    let _ = writeln!(text, "\nTensors ({})", file.tensors().len());
    for (name, tensor) in file.tensors() {
        let shape = tensor.dims.iter().map(u64::to_string).collect::<Vec<_>>().join(" x ");
        let _ =
            writeln!(text, "  {name:<42} {:<6} {shape:>16} {:>12}", tensor.kind.name(), tensor.bytes.len());
    }
    text
}

fn to_json(
    path: &Path,
    file: &DrafterFile,
    verdict: Option<&Result<Vec<String>, String>>,
) -> serde_json::Value {
    let (config, reconsider) = (file.config(), file.reconsider());
    let target = file.target().map(|target| {
        json!({
            "architecture": target.architecture,
            "hidden": target.hidden,
            "layers": target.layers,
            "vocab": target.vocab,
            "capture_layers": target.capture_layers,
            "tokenizer": target.tokenizer,
            "quantization": target.quantization,
        })
    });
    let tensors = file.tensors().map(|(name, tensor)| {
        json!({
            "name": name, "type": tensor.kind.name(), "dims": tensor.dims, "bytes": tensor.bytes.len(),
        })
    });
    json!({
        "path": path.display().to_string(),
        "config": {
            "hidden": config.hidden,
            "target_hidden": config.target_hidden,
            "heads": config.heads,
            "kv_heads": config.kv_heads,
            "head_dim": config.head_dim,
            "ffn": config.ffn,
            "rms_eps": config.rms_eps,
            "vocab": config.vocab,
            "draft_vocab": config.draft_vocab,
            "rope_theta": config.rope_theta,
            "capture_layers": config.capture_layers,
            "norm_output": config.norm_output,
            "fc_norm": config.fc_norm,
        },
        "target": target,
        "fits": verdict.map(Result::is_ok),
        "reasons": verdict.map(|verdict| match verdict {
            Ok(warnings) => warnings.clone(),
            Err(reason) => vec![reason.clone()],
        }),
        "reconsider": {
            "embedding": reconsider.embedding.is_some(),
            "rank": reconsider.rank,
            "calibrated": reconsider.settings.calibrated,
        },
        "tensors": tensors.collect::<Vec<_>>(),
    })
}

// ---- export ----

fn export(args: &ExportArgs) -> Result<(), CliError> {
    let (float, blocks) = types(args)?;
    let files = match args.to {
        Format::Eagle => vec![args.out.join("config.json"), args.out.join("model.safetensors")],
        Format::Gguf => vec![args.out.clone()],
    };
    check_free(&files, args.force)?;
    let mut file = speculate::read_drafter(&args.drafter)?.file;
    let target = args.target.as_ref().map(Target::read).transpose()?;
    let wrong = |source| wrong(&args.drafter, source);
    if let Some(target) = &target {
        file = file.for_target(&target.gguf, &target.config).map_err(wrong)?;
    }
    let (contents, left_out) = match args.to {
        Format::Eagle => {
            let checkpoint = file.to_eagle(float).map_err(wrong)?;
            (vec![checkpoint.config_json.into_bytes(), checkpoint.weights], checkpoint.left_out)
        }
        Format::Gguf => {
            let target = target.as_ref().map(|target| &target.gguf);
            let written = file.to_gguf(&GgufOptions { matrices: blocks, target }).map_err(wrong)?;
            (vec![written.bytes], written.left_out)
        }
    };
    for (path, bytes) in files.iter().zip(&contents) {
        store(path, bytes)?;
    }
    if !left_out.is_empty() {
        output::note(format_args!("left out, as no other engine computes it: {}", left_out.join(", ")));
    }
    output::emit(&format!("{}\n", args.out.display()))
}

/// The type of weights for each format.
fn types(args: &ExportArgs) -> Result<(FloatType, Option<Quantization>), CliError> {
    let refuse = |name: &str, instead: &str| {
        Err(CliError::Usage(format!("--dtype {name}: this format has {instead} here; choose one of them")))
    };
    let eagle = args.to == Format::Eagle;
    match args.dtype {
        None => Ok((FloatType::F16, None)),
        Some(Dtype::F32) => Ok((FloatType::F32, Some(Quantization::F32))),
        Some(Dtype::F16) => Ok((FloatType::F16, Some(Quantization::F16))),
        Some(Dtype::Bf16) if eagle => Ok((FloatType::BF16, None)),
        Some(Dtype::Bf16) => refuse("bf16", "f32, f16, q8_0 and q4_0"),
        Some(Dtype::Q8_0) if !eagle => Ok((FloatType::F16, Some(Quantization::Q8_0))),
        Some(Dtype::Q4_0) if !eagle => Ok((FloatType::F16, Some(Quantization::Q4_0))),
        Some(Dtype::Q8_0) => refuse("q8_0", "f32, f16 and bf16"),
        Some(Dtype::Q4_0) => refuse("q4_0", "f32, f16 and bf16"),
    }
}

// ---- import ----

fn import(args: &ImportArgs) -> Result<(), CliError> {
    check_free(std::slice::from_ref(&args.out), args.force)?;
    let file = speculate::read_drafter(&args.from)?.file;
    let target = Target::read(&args.target)?;
    let file = file.for_target(&target.gguf, &target.config).map_err(|source| wrong(&args.from, source))?;
    store(&args.out, &file.write())?;
    output::emit(&format!("{}\n", args.out.display()))
}

// ---- files ----

/// A model's header.
struct Target {
    gguf: Gguf,
    config: ModelConfig,
}

impl Target {
    fn read(model: &ModelRef) -> Result<Self, CliError> {
        let path = model::resolve(model)?;
        let failed = |source| CliError::Gguf { path: path.display().to_string(), source };
        let gguf = block_on(Gguf::read(&FileSource::open(&path)?)).map_err(failed)?;
        let config = ModelConfig::from_gguf(&gguf).map_err(failed)?;
        Ok(Self { gguf, config })
    }
}

fn wrong(path: &Path, source: DrafterError) -> CliError {
    CliError::Drafter { path: path.display().to_string(), source: Box::new(source) }
}

/// Refuses to overwrite, before anything is computed.
fn check_free(files: &[PathBuf], force: bool) -> Result<(), CliError> {
    match files.iter().find(|file| !force && fs::symlink_metadata(file).is_ok()) {
        Some(file) => {
            let source =
                io::Error::new(io::ErrorKind::AlreadyExists, "it is there already; --force overwrites it");
            Err(failed(file, source))
        }
        None => Ok(()),
    }
}

/// Writes a file in one piece: there is the old one or the new one, never half.
fn store(file: &Path, bytes: &[u8]) -> Result<(), CliError> {
    loading::store(file, bytes).map_err(|source| failed(file, source))
}

fn failed(file: &Path, source: io::Error) -> CliError {
    CliError::File { action: "write", path: file.display().to_string(), source }
}
