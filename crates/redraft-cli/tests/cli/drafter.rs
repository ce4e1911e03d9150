//! `drafter inspect|export|import`, and finding the drafter of a model.

use std::fs;
use std::path::{Path, PathBuf};

use redraft_testing::{TinyDrafter, TinyModel};
use serde_json::Value;

use crate::scene::Scene;
use crate::{expect, redraft, text};

/// A folder with a model and a drafter for it.
struct Folder {
    home: tempfile::TempDir,
    model: String,
    drafter: String,
}

/// Other engines do not take captures of the embeddings, so there is a layer to spare.
fn target() -> TinyModel {
    TinyModel { layers: 3, ..TinyModel::default() }
}

fn tiny() -> TinyDrafter {
    TinyDrafter { target: target(), captures: [1, 2, 3], ..TinyDrafter::default() }
}

impl Folder {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name).display().to_string();
        let (model, drafter) = (path("model.gguf"), path("d.safetensors"));
        fs::write(&model, target().to_gguf().unwrap()).unwrap();
        fs::write(&drafter, tiny().to_file().unwrap().write()).unwrap();
        Self { home, model, drafter }
    }

    fn path(&self, name: &str) -> String {
        self.home.path().join(name).display().to_string()
    }

    fn run(&self, arguments: &[&str]) -> std::process::Output {
        redraft(self.home.path(), arguments).output().unwrap()
    }

    fn inspect(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[&["drafter", "inspect", "--json"], arguments].concat());
        expect(&output, 0, &[]);
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

#[test]
fn drafters_go_out_and_come_back() {
    let folder = Folder::new();
    let original = folder.inspect(&[&folder.drafter]);
    for (format, out, flags) in [
        ("eagle", "checkpoint", &["--dtype", "f32"][..]),
        ("eagle", "half", &[]),
        ("gguf", "d.gguf", &[]),
        ("gguf", "q8.gguf", &["--dtype", "q8_0", "--target", &folder.model]),
    ] {
        let (out, back) = (folder.path(out), folder.path(&format!("{out}.safetensors")));
        let export = ["drafter", "export", &folder.drafter, "--to", format, "--out", &out];
        let output = folder.run(&[&export, flags].concat());
        expect(&output, 0, &["left out", "reconsider.embedding"]);
        assert_eq!(text(&output.stdout), format!("{out}\n"));
        // As it is, it is a drafter too.
        assert_eq!(folder.inspect(&[&out])["config"], original["config"], "{out}");

        let import = ["drafter", "import", &out, "--target", &folder.model, "--out", &back];
        let output = folder.run(&import);
        expect(&output, 0, &[]);
        assert_eq!(text(&output.stdout), format!("{back}\n"));
        let found = folder.inspect(&[&back, "--target", &folder.model]);
        for key in ["config", "target"] {
            assert_eq!(found[key], original[key], "{key} of {out}");
        }
        assert_eq!((&found["fits"], &found["reasons"]), (&true.into(), &Value::Array(Vec::new())), "{out}");
        // Nothing is left behind but what was asked for.
        assert!(folder.run(&["drafter", "inspect", &back]).status.success());
    }
    let config = fs::read_to_string(folder.path("half/config.json")).unwrap();
    assert!(config.contains("LlamaForCausalLMEagle3") && config.contains("float16"), "{config}");
    let weights = fs::metadata(folder.path("half/model.safetensors")).unwrap().len();
    assert!(weights < fs::metadata(folder.path("checkpoint/model.safetensors")).unwrap().len() * 6 / 10);
    let left: Vec<String> = fs::read_dir(folder.path("half"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !["config.json", "model.safetensors"].contains(&name.as_str()))
        .collect();
    assert_eq!(left, [""; 0]);
}

#[test]
fn nothing_is_overwritten_without_force() {
    let folder = Folder::new();
    let there = folder.path("there");
    fs::write(&there, "mine").unwrap();
    let export = ["drafter", "export", &folder.drafter, "--to", "gguf", "--out", &there];
    let import = ["drafter", "import", &folder.drafter, "--target", &folder.model, "--out", &there];
    for command in [&export[..], &import] {
        expect(&folder.run(command), 1, &["there", "--force"]);
        assert_eq!(fs::read_to_string(&there).unwrap(), "mine");
    }
    let checkpoint = folder.path("checkpoint");
    fs::create_dir(&checkpoint).unwrap();
    fs::write(folder.path("checkpoint/model.safetensors"), "mine").unwrap();
    let eagle = ["drafter", "export", &folder.drafter, "--to", "eagle", "--out", &checkpoint];
    expect(&folder.run(&eagle), 1, &["model.safetensors", "--force"]);
    assert!(!Path::new(&folder.path("checkpoint/config.json")).exists(), "nothing was begun");
    for command in [&export[..], &import, &eagle] {
        expect(&folder.run(&[command, &["--force"]].concat()), 0, &[]);
    }
    assert_ne!(fs::read(&there).unwrap(), b"mine");
}

#[test]
fn what_does_not_go_together_is_refused() {
    let folder = Folder::new();
    let out = folder.path("out");
    let export = |drafter: &str, flags: &[&str]| {
        folder.run(&[&["drafter", "export", drafter, "--out", &out], flags].concat())
    };
    for (format, dtype, instead) in
        [("eagle", "q8_0", "bf16"), ("eagle", "q4_0", "f16"), ("gguf", "bf16", "q8_0")]
    {
        let output = export(&folder.drafter, &["--to", format, "--dtype", dtype]);
        expect(&output, 2, &["--dtype", dtype, instead]);
    }
    let newer = folder.path("newer.safetensors");
    fs::write(&newer, TinyDrafter { norm_output: true, ..tiny() }.to_file().unwrap().write()).unwrap();
    expect(&export(&newer, &["--to", "gguf"]), 1, &["newer", "norm_output"]);
    let other = folder.path("other.gguf");
    fs::write(&other, TinyModel { layers: 4, ..target() }.to_gguf().unwrap()).unwrap();
    expect(&export(&folder.drafter, &["--to", "gguf", "--target", &other]), 1, &["layers", "3", "4"]);
    let import = ["drafter", "import", &folder.drafter, "--target", &other, "--out", &out];
    expect(&folder.run(&import), 1, &["layers", "3", "4"]);
    expect(&export(&folder.model, &["--to", "gguf"]), 1, &["general.architecture", "eagle3", "llama"]);
    expect(&export(&folder.path("absent"), &["--to", "gguf"]), 1, &["absent"]);
    assert!(!Path::new(&out).exists(), "nothing was written");
    let misfit = folder.inspect(&[&folder.drafter, "--target", &other]);
    assert_eq!(misfit["fits"], false);
    assert!(misfit["reasons"][0].as_str().unwrap().contains("layers"), "{misfit}");
}

#[test]
fn inspect_tells_people_what_it_tells_programs() {
    let folder = Folder::new();
    let output = folder.run(&["drafter", "inspect", &folder.drafter, "--target", &folder.model]);
    expect(&output, 0, &[]);
    let shown = text(&output.stdout);
    for words in [
        "160 of 320 tokens",
        "layers [1, 2, 3]",
        "llama: 3 layers, width 64",
        "it is for this model",
        "pass embedding: yes, adapter: none",
        "midlayer.self_attn.q_proj.weight",
    ] {
        assert!(shown.contains(words), "{words:?} is not in: {shown}");
    }
    let value = folder.inspect(&[&folder.drafter]);
    assert_eq!(value["tensors"].as_array().unwrap().len(), tiny().to_file().unwrap().tensors().len());
    assert_eq!((&value["fits"], &value["reasons"]), (&Value::Null, &Value::Null), "nobody asked");
}

// ---- Finding ----

/// `inspect` of a model says which drafter speculation would take.
#[test]
fn a_models_drafter_is_found_where_it_should_be() {
    let folder = Folder::new();
    let home = folder.home.path();
    let found = |more: &dyn Fn(&mut std::process::Command)| {
        let mut command = redraft(home, &["inspect", "--json", &folder.model]);
        more(&mut command);
        let output = command.output().unwrap();
        expect(&output, 0, &[]);
        let value: Value = serde_json::from_slice(&output.stdout).unwrap();
        (value["drafter"].as_str().map(PathBuf::from), text(&output.stderr))
    };
    let place = |name: &str| {
        let path = home.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::copy(&folder.drafter, &path).unwrap();
        path
    };
    let plain: &dyn Fn(&mut std::process::Command) = &|_| {};
    assert_eq!(found(plain), (None, String::new()), "its own name does not say drafter");

    // In a checkout, from below; the folder that the command runs in is not this one otherwise.
    fs::create_dir_all(home.join("checkout/crates/redraft-drafter")).unwrap();
    fs::write(home.join("checkout/crates/redraft-drafter/Cargo.toml"), "").unwrap();
    let shipped = place("checkout/models/model-drafter/model.safetensors");
    let below = home.join("checkout/crates");
    let inside = |command: &mut std::process::Command| {
        command.current_dir(&below);
    };
    assert_eq!(found(&inside).0, Some(fs::canonicalize(&shipped).unwrap()));
    let cached = place("redraft/drafters/any.safetensors");
    assert_eq!(found(&inside).0, Some(cached), "what was fetched comes first");
    let named = place("a/drafter.safetensors");
    let places = std::env::join_paths([home.join("absent"), home.join("a")]).unwrap();
    let variable = |command: &mut std::process::Command| {
        inside(command);
        command.env("REDRAFT_MODELS", &places);
    };
    assert_eq!(found(&variable).0, Some(named.clone()), "what the user names comes before that");
    let own = place("model.drafter.safetensors");
    assert_eq!(found(&variable).0, Some(own.clone()), "and beside the model before all");

    // What is damaged is told and passed over.
    fs::write(&own, "{").unwrap();
    let (path, told) = found(&variable);
    assert_eq!(path, Some(named));
    assert!(told.contains("warning") && told.contains("model.drafter.safetensors"), "{told}");
}

#[test]
fn answers_take_the_drafter_that_was_found_and_say_so() {
    let Some(scene) = Scene::new("answers_take_the_drafter_that_was_found_and_say_so") else { return };
    let drafter = TinyDrafter { target: Scene::target(), ..TinyDrafter::default() }.to_file().unwrap();
    let places = scene.home.path().join("places");
    fs::create_dir(&places).unwrap();
    let file = places.join("drafter.safetensors");
    fs::write(&file, drafter.write()).unwrap();
    let run = |flags: &[&str]| {
        let fixed = ["generate", "one two", "-n", "12", "--ignore-eos", "--json", "--stats"];
        let output =
            scene.command(&[&fixed, flags].concat()).env("REDRAFT_MODELS", &places).output().unwrap();
        expect(&output, 0, &[]);
        let value: Value = serde_json::from_slice(&output.stdout).unwrap();
        (value, text(&output.stderr))
    };
    let shown = format!("drafter {}", file.display());
    let (tree, told) = run(&["--speculate", "tree"]);
    assert!(told.contains(&shown), "{told}");
    assert_eq!(tree["speculation"]["plan"]["mode"], "tree");
    for off in [&["--no-drafter"][..], &["--speculate", "off"], &["--speculate", "lookup"]] {
        let (value, told) = run(off);
        assert!(!told.contains(&shown), "{off:?}: {told}");
        assert_eq!(value["ids"], tree["ids"], "{off:?}");
        assert_ne!(value["speculation"]["plan"]["mode"], "tree", "{off:?}");
    }
    // A damaged one is no reason to fail: there is simply none.
    fs::write(&file, "{").unwrap();
    let (value, told) = run(&[]);
    assert!(told.contains("warning") && told.contains("drafter.safetensors"), "{told}");
    assert_eq!((&value["ids"], &value["speculation"]), (&tree["ids"], &Value::Null));
    let output = scene.run(&["generate", "x", "--no-drafter", "--drafter", "d"]);
    expect(&output, 2, &["--no-drafter", "--drafter"]);
}
