//! `inspect` on good and on hostile files.

use std::fs;
use std::path::Path;

use crate::{expect, redraft, text};

/// Writes a tiny model into `home` and returns its path.
pub(crate) fn tiny(home: &Path) -> String {
    let file = home.join("tiny.gguf");
    fs::write(&file, redraft_testing::TinyModel::default().to_gguf().unwrap()).unwrap();
    file.display().to_string()
}

#[test]
fn json_has_metadata_tensors_and_a_memory_plan() {
    let home = tempfile::tempdir().unwrap();
    let file = tiny(home.path());
    let output = redraft(home.path(), &["inspect", &file, "--json", "--context", "64"]).output().unwrap();
    expect(&output, 0, &[]);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["bytes"], fs::metadata(&file).unwrap().len());
    assert_eq!(value["metadata"]["general.architecture"], "llama");
    assert_eq!(value["metadata"]["tokenizer.ggml.tokens"]["type"], "array of string");
    assert_eq!(value["model"]["layers"], 2);
    assert_eq!(value["memory"]["context"], 64);
    assert!(value["memory"]["weights"].as_u64().unwrap() > 0);
    assert_eq!(value["unsupported"], serde_json::Value::Null);
    let tensors = value["tensors"].as_array().unwrap();
    assert!(
        tensors.iter().any(|t| t["name"] == "token_embd.weight" && t["dims"].as_array().unwrap().len() == 2)
    );
}

#[test]
fn a_drafter_and_its_trees_are_in_the_plan() {
    let home = tempfile::tempdir().unwrap();
    let file = tiny(home.path());
    let drafter = home.path().join("d.safetensors");
    fs::write(&drafter, redraft_testing::TinyDrafter::default().to_file().unwrap().write()).unwrap();
    let memory = |more: &[&str]| {
        let arguments = [&["inspect", &file, "--json"], more].concat();
        let output = redraft(home.path(), &arguments).output().unwrap();
        expect(&output, 0, &[]);
        let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        value["memory"].clone()
    };
    let number = |memory: &serde_json::Value, key: &str| memory[key].as_u64().unwrap();
    let (alone, both) = (memory(&[]), memory(&["--drafter", &drafter.display().to_string()]));
    assert_eq!((number(&alone, "drafter"), number(&alone, "draft_trees")), (0, 0));
    assert!(number(&both, "drafter") > 100_000 && number(&both, "draft_trees") > 50_000, "{both}");
    // Captures are in the activations.
    assert!(number(&both, "activations") > number(&alone, "activations"), "{both}");
    let parts = ["weights", "kv_cache", "activations", "sampling", "drafter", "draft_trees"];
    assert_eq!(parts.map(|part| number(&both, part)).iter().sum::<u64>(), number(&both, "total"));
    let path = drafter.display().to_string();
    let output = redraft(home.path(), &["inspect", &file, "--drafter", &path]).output().unwrap();
    assert!(text(&output.stdout).contains("draft trees"), "{}", text(&output.stdout));
}

#[test]
fn the_cache_type_changes_the_plan() {
    let home = tempfile::tempdir().unwrap();
    let file = tiny(home.path());
    let cache = |kv: &str| {
        let output = redraft(home.path(), &["inspect", &file, "--json", "--kv", kv]).output().unwrap();
        let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        value["memory"]["kv_cache"].as_u64().unwrap()
    };
    assert_eq!(cache("f32"), 2 * cache("f16"));
}

#[test]
fn a_context_beyond_the_models_own_is_warned_of() {
    let home = tempfile::tempdir().unwrap();
    let file = tiny(home.path());
    let output = redraft(home.path(), &["inspect", &file, "--json", "-c", "513"]).output().unwrap();
    expect(&output, 0, &["warning", "--context 513", "512 tokens"]);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["memory"]["context"], 513);
    let output = redraft(home.path(), &["inspect", &file, "-c", "512"]).output().unwrap();
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn text_lists_the_same_and_cuts_long_arrays() {
    let home = tempfile::tempdir().unwrap();
    let file = tiny(home.path());
    let output = redraft(home.path(), &["inspect", &file]).output().unwrap();
    expect(&output, 0, &[]);
    let shown = text(&output.stdout);
    for word in
        ["general.architecture", "token_embd.weight", "blk.1.ffn_down.weight", "in all]", "key-value cache"]
    {
        assert!(shown.contains(word), "{word} is not in: {shown}");
    }
    assert!(shown.lines().all(|line| line.len() < 400));
}

#[test]
fn damaged_files_are_errors_that_name_the_file() {
    let home = tempfile::tempdir().unwrap();
    let good = fs::read(tiny(home.path())).unwrap();
    let file = home.path().join("bad.gguf");
    let name = file.display().to_string();
    let mut wrong_magic = good.clone();
    wrong_magic[0] = b'X';
    let mut absurd_count = good.clone();
    absurd_count[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
    for bad in [&good[..0], &good[..3], &good[..20], &good[..good.len() / 2], &wrong_magic, &absurd_count] {
        fs::write(&file, bad).unwrap();
        for arguments in [&["inspect", &name][..], &["generate", "x", "-m", &name], &["chat", "-m", &name]] {
            expect(&redraft(home.path(), arguments).output().unwrap(), 1, &[]);
        }
        expect(&redraft(home.path(), &["inspect", &name]).output().unwrap(), 1, &["bad.gguf"]);
    }
}
