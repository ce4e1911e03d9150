//! A tiny model to run commands on.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Once;

use redraft_testing::TinyModel;
use serde_json::Value;

use crate::{expect, redraft};

/// A folder with a tiny model in it.
pub(crate) struct Scene {
    pub(crate) home: tempfile::TempDir,
    pub(crate) model: String,
}

impl Scene {
    /// None, with a declared skip, on a machine without an adapter.
    pub(crate) fn new(test: &str) -> Option<Self> {
        let home = tempfile::tempdir().unwrap();
        let output = redraft(home.path(), &["devices", "--json"]).output().unwrap();
        expect(&output, 0, &[]);
        let adapters: Value = serde_json::from_slice(&output.stdout).unwrap();
        let Some(adapter) = adapters.as_array().unwrap().iter().find(|a| a["usable"] == true) else {
            redraft_testing::declared_skip(test, "there is no usable adapter");
            return None;
        };
        log_gpu_test(test, adapter["name"].as_str().unwrap());
        let model = home.path().join("tiny.gguf");
        fs::write(&model, Self::target().to_gguf().unwrap()).unwrap();
        let model = model.display().to_string();
        let scene = Self { home, model };
        // The first run compiles the kernels into the driver's cache. The tests run at once; one is to do it for all.
        static WARM: Once = Once::new();
        WARM.call_once(|| expect(&scene.run(&["generate", "--ids", "1", "-n", "2"]), 0, &[]));
        Some(scene)
    }

    /// The model.
    pub(crate) fn target() -> TinyModel {
        TinyModel { context: 2048, ..TinyModel::default() }
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = redraft(self.home.path(), arguments);
        command.args(["--model", &self.model]);
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(arguments);
        expect(&output, 0, &[]);
        serde_json::from_slice(&output.stdout).unwrap()
    }

    pub(crate) fn piped(&self, arguments: &[&str], input: &str) -> Output {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.home.path().join(name).display().to_string()
    }
}

/// Tells the test runner that a test really ran on an adapter.
fn log_gpu_test(test: &str, adapter: &str) {
    let Some(file) = std::env::var_os("REDRAFT_GPU_TEST_LOG") else { return };
    let mut file = fs::File::options().create(true).append(true).open(Path::new(&file)).unwrap();
    file.write_all(format!("redraft-cli::{test}\t{adapter}\tdefault\n").as_bytes()).unwrap();
}

pub(crate) fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}
