//! That it learns, that stages leave alone what they should, and that a killed run is the same run.

use std::path::Path;

use burn::module::Module as _;
use burn::tensor::Device;
use redraft_drafter::DrafterFile;
use redraft_testing::{TinyDrafter, TinyModel};
use redraft_train::TrainError;
use redraft_train::corpus::Corpus;
use redraft_train::drafter::{Drafter, Frame, SecondPass};
use redraft_train::prepare::{PrepareOptions, prepare};
use redraft_train::target::Target;
use redraft_train::train::{Outcome, Setting, Stage, TrainOptions, train};

use crate::support::{Tiny, corpus, tiny};

fn options() -> TrainOptions {
    TrainOptions {
        epochs: 3,
        steps: 3,
        batch_tokens: 128,
        learning_rate: 3e-3,
        warmup: 4,
        evaluate_every: 5,
        ..TrainOptions::default()
    }
}

struct Run<'a> {
    tiny: &'a Tiny,
    corpus: &'a Corpus,
}

impl Run<'_> {
    fn train(
        &self,
        directory: &Path,
        from: Option<&DrafterFile>,
        options: &TrainOptions,
    ) -> Result<Outcome, TrainError> {
        let device = Device::flex();
        let made = TinyDrafter { norm_output: true, fc_norm: true, ..TinyDrafter::default() };
        let ids = self.corpus.manifest().draft_ids.clone();
        let target = Target::load(&self.tiny.file, made.captures, 1, &device)?;
        let config = made.config();
        let drafter = match from {
            Some(file) => Drafter::from_file(file, 32, 7, &device)?,
            None => Drafter::new(&config, &ids, 32, &target, 7, &device)?,
        };
        let mut draft_index = vec![None; 320];
        for (index, &id) in (0_u32..).zip(&ids) {
            draft_index[id as usize] = Some(index);
        }
        let setting = Setting {
            corpus: self.corpus,
            frame: Frame::new(config, target.embedding(), 64, &device).with_drafts(&ids),
            teacher_head: target.head_rows(&ids),
            draft_index,
            device,
            directory: directory.to_owned(),
            progress: false,
        };
        train(&setting, drafter, options)
    }

    fn file(&self, outcome: &Outcome) -> DrafterFile {
        let made = TinyDrafter { norm_output: true, fc_norm: true, ..TinyDrafter::default() };
        let manifest = self.corpus.manifest();
        let target = manifest.target.clone();
        outcome.drafter.to_file(&made.config(), &manifest.draft_ids, target, true).expect("a drafter")
    }
}

#[test]
fn stages_learn_what_they_should_and_nothing_else() {
    let tiny = tiny(&TinyModel::default());
    let corpus = corpus(&tiny, "corpus", 60);
    let run = Run { tiny: &tiny, corpus: &corpus };
    let options = TrainOptions { epochs: 12, ..options() };
    let base = run.train(&tiny.path("base"), None, &options).expect("a base drafter");
    let curve = std::fs::read_to_string(tiny.path("base").join("curves.json")).expect("curves");
    let curve: Vec<serde_json::Value> = serde_json::from_str(&curve).expect("JSON");
    let loss = |at: usize| curve[at]["held_out"]["loss"].as_f64().expect("a loss");
    assert!(loss(curve.len() - 1) < 0.95 * loss(0), "held-out loss {} to {}", loss(0), loss(curve.len() - 1));
    let picture = std::fs::read_to_string(tiny.path("base").join("curves.svg")).expect("a picture");
    assert!(picture.contains("<polyline"), "curves are drawn");

    let base_file = run.file(&base);
    let second = TrainOptions { stage: Stage::Reconsider, hesitant: 0.0, ..options.clone() };
    let second = run.train(&tiny.path("second"), Some(&base_file), &second).expect("a second pass");
    let second_file = run.file(&second);
    for (name, tensor) in base_file.tensors().filter(|(name, _)| !name.starts_with("reconsider")) {
        assert_eq!(second_file.tensor(name), Some(tensor), "{name} of the first pass stays bit for bit");
    }
    let pass = second_file.reconsider().embedding.expect("a pass embedding");
    assert!(pass.iter().any(|value| *value != 0.0), "the pass embedding learns");
    let up = second_file.tensor("reconsider.up.weight").expect("an adapter").to_f32().expect("floats");
    assert!(up.iter().any(|value| *value != 0.0), "the adapter learns");
    let sum =
        |of: fn(&redraft_train::train::StepMetrics) -> f64| second.best.steps.iter().map(of).sum::<f64>();
    assert!(sum(|s| s.second_loss) < sum(|s| s.loss), "the second pass is better than the first");

    let joint = TrainOptions { stage: Stage::Joint, hesitant: 0.0, epochs: 2, ..options };
    let joint = run.train(&tiny.path("joint"), Some(&second_file), &joint).expect("both");
    let joint_file = run.file(&joint);
    for name in ["fc.weight", "lm_head.weight", "reconsider.up.weight"] {
        assert_ne!(joint_file.tensor(name), second_file.tensor(name), "{name} learns in the joint stage");
    }
}

/// The program, as a user calls it.
fn call(tiny: &Tiny, corpus: &str, arguments: &[&str]) -> std::process::Output {
    std::process::Command::new(env!("CARGO_BIN_EXE_redraft-train"))
        .args(["run", "--model"])
        .arg(tiny.path("tiny.gguf"))
        .arg("--corpus")
        .arg(tiny.path(corpus))
        .args(["--epochs", "1", "--steps", "2", "--batch-tokens", "128", "--warmup", "1"])
        .args(arguments)
        .output()
        .expect("the program")
}

/// What it wrote.
fn program(tiny: &Tiny, corpus: &str, arguments: &[&str]) -> DrafterFile {
    let out = call(tiny, corpus, arguments);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let path = String::from_utf8(out.stdout).expect("text").lines().last().expect("a path").to_owned();
    DrafterFile::read(&std::fs::read(path).expect("written")).expect("a drafter")
}

/// A corpus of other text has another draft vocabulary; rows of the head belong to the tokens that they began with.
#[test]
fn a_drafter_that_learns_on_keeps_its_tokens() {
    let tiny = tiny(&TinyModel::default());
    corpus(&tiny, "corpus", 24);
    let fewer = PrepareOptions { draft_vocab: 96, ..crate::support::options() };
    prepare(&tiny.file, crate::support::samples(24), &tiny.path("other"), &fewer, &Device::flex())
        .expect("a corpus");
    let out = tiny.path("out");
    let out = out.to_str().expect("a path");
    let base = program(&tiny, "corpus", &["--out", out, "base"]);
    assert_eq!(base.draft_ids().len(), 160, "the first has the tokens of its corpus");
    let on = tiny.path("on");
    let from = [out, "/base.safetensors"].concat();
    let on_path = on.to_str().expect("a path");
    let on = program(&tiny, "other", &["--out", on_path, "--from", &from, "joint"]);
    assert_eq!(on.draft_ids(), base.draft_ids(), "and keeps them");
    assert_ne!(on.tensor("lm_head.weight"), base.tensor("lm_head.weight"), "it learned");

    // So does its adapter, or it is told; where there is none yet, its rank is chosen.
    assert_eq!(on.reconsider().rank, Some(32));
    let again = [on_path, "/joint.safetensors"].concat();
    let refused = call(&tiny, "other", &["--out", out, "--from", &again, "--rank", "64", "joint"]);
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && told.contains("--rank") && told.contains("32"), "{told}");
    let wide = program(&tiny, "other", &["--out", out, "--from", &from, "--rank", "64", "reconsider"]);
    assert_eq!(wide.reconsider().rank, Some(64));
}

/// Alternatives of the second pass start as the drafter's own, learn, and leave the first pass alone.
#[test]
fn other_second_passes_learn() {
    let tiny = tiny(&TinyModel::default());
    let corpus = corpus(&tiny, "corpus", 60);
    let run = Run { tiny: &tiny, corpus: &corpus };
    let base = run.train(&tiny.path("base"), None, &options()).expect("a base drafter");
    let base = run.file(&base);
    let second = |form: SecondPass, epochs: u32, learning_rate: f64| {
        let options = TrainOptions {
            stage: Stage::Reconsider,
            hesitant: 0.0,
            second_pass: form,
            epochs,
            learning_rate,
            ..options()
        };
        let directory = tiny.path(&format!("{form:?}-{epochs}"));
        let outcome = run.train(&directory, Some(&base), &options).expect("a second pass");
        let sum = |of: fn(&redraft_train::train::StepMetrics) -> f64| {
            outcome.best.steps.iter().map(of).sum::<f64>()
        };
        (sum(|s| s.loss), sum(|s| s.second_loss))
    };
    let (first, adapter) = second(SecondPass::Adapter, 1, 1e-9);
    for form in [SecondPass::Candidates, SecondPass::Layer] {
        let (unchanged, before) = second(form, 1, 1e-9);
        assert!(
            (unchanged - first).abs() < 1e-3,
            "{form:?} leaves the first pass alone: {unchanged}, {first}"
        );
        assert!((before - adapter).abs() < 1e-3, "{form:?} starts as the adapter: {before}, {adapter}");
        let (unchanged, after) = second(form, 6, 3e-3);
        assert!(
            (unchanged - first).abs() < 1e-3,
            "{form:?} leaves the first pass alone: {unchanged}, {first}"
        );
        assert!(after < 0.98 * before, "{form:?} learns: {before} to {after}");
    }
    let joint = TrainOptions { stage: Stage::Joint, second_pass: SecondPass::Layer, ..options() };
    let error = run.train(&tiny.path("joint"), Some(&base), &joint).expect_err("not there");
    assert!(error.to_string().starts_with("--second-pass"), "{error}");
}

/// A run that was stopped at a checkpoint, or in the middle of writing one, ends in the same bits as one that was not.
#[test]
fn a_killed_run_goes_on_to_the_same_bits() {
    let tiny = tiny(&TinyModel::default());
    let corpus = corpus(&tiny, "corpus", 40);
    let run = Run { tiny: &tiny, corpus: &corpus };
    let options = options();
    let whole = run.train(&tiny.path("whole"), None, &options).expect("a run");
    assert!(whole.steps >= 10, "{} steps are too few to stop between", whole.steps);

    // Killed behind the first checkpoint: the later ones never were.
    let killed = tiny.path("killed");
    run.train(&killed, None, &options).expect("a run");
    let mut found: Vec<_> = std::fs::read_dir(&killed)
        .expect("a directory")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.to_string_lossy().contains("step-"))
        .collect();
    found.sort();
    assert_eq!(found.len(), 2, "two checkpoints are kept");
    std::fs::remove_dir_all(&found[1]).expect("removed");
    std::fs::remove_file(killed.join("best.bpk")).expect("removed");
    std::fs::create_dir(killed.join("part")).expect("a checkpoint in the making");
    std::fs::write(killed.join("part").join("drafter.bpk"), b"half").expect("written");
    let resumed = run.train(&killed, None, &options).expect("the rest");
    assert_eq!(resumed.steps, whole.steps);
    // Records carry the parameters' ids, which are drawn anew in each process: weights are compared as drafter files.
    let last = |directory: &Path| {
        let path = directory.join(format!("step-{:06}", whole.steps)).join("drafter.bpk");
        let drafter = whole.drafter.clone().try_load_file(path).expect("a checkpoint");
        run.file(&Outcome { drafter, ..whole.clone() }).write()
    };
    let (resumed, uninterrupted) = (last(&killed), last(&tiny.path("whole")));
    assert!(resumed == uninterrupted, "the drafter of the last step, byte for byte");

    let other = TrainOptions { learning_rate: 1e-4, ..options };
    let error = run.train(&killed, None, &other).expect_err("another run's directory");
    assert!(error.to_string().contains("other options"), "{error}");
}

#[test]
fn settings_out_of_range_are_named() {
    let default = TrainOptions::default();
    for (setting, options) in [
        ("--steps", TrainOptions { steps: 0, ..default.clone() }),
        ("--steps", TrainOptions { steps: 9, ..default.clone() }),
        ("--learning-rate", TrainOptions { learning_rate: f64::NAN, ..default.clone() }),
        ("--epochs", TrainOptions { epochs: 0, ..default.clone() }),
        ("--hesitant", TrainOptions { hesitant: 1.5, ..default.clone() }),
        ("--batch-tokens", TrainOptions { batch_tokens: 1, ..default.clone() }),
        ("--evaluate-every", TrainOptions { evaluate_every: 0, ..default.clone() }),
    ] {
        let error = options.check().expect_err(setting);
        assert!(error.to_string().starts_with(setting), "{error}");
    }
    default.check().expect("the defaults");
}
