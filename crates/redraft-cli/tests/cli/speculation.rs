//! Speculative decoding: every flag, what comes out of it, and what bad files get.

use std::fs;

use redraft_testing::{RoleTypes, TinyDrafter, TinyModel};
use serde_json::{Value, json};

use crate::scene::{Scene, keys};
use crate::{expect, redraft, text};

/// Keys of `speculation` in `generate --json`.
const REPORT: [&str; 15] = [
    "plan",
    "rounds",
    "drafted",
    "accepted",
    "tau",
    "reconsidered",
    "refined",
    "rescues",
    "duplicates",
    "lookup_hits",
    "acceptance_by_depth",
    "phase_ms",
    "measuring_s",
    "warning",
    "history",
];

/// A prompt in which everything comes twice.
pub(crate) const TWICE: &str = "one two three four five six one two three four five six one two";

impl Scene {
    /// Writes a drafter and returns its path.
    pub(crate) fn drafter(&self, name: &str, drafter: &TinyDrafter) -> String {
        let path = self.path(name);
        fs::write(&path, drafter.to_file().unwrap().write()).unwrap();
        path
    }

    /// Whether the adapter in use has timestamps. Where it has none, what they would tell is declared as skipped.
    fn timestamps(&self, test: &str) -> bool {
        let output = redraft(self.home.path(), &["devices", "--json"]).output().unwrap();
        let devices: Value = serde_json::from_slice(&output.stdout).unwrap();
        let name = self.answer(&[])["adapter"]["name"].clone();
        let entry = devices.as_array().unwrap().iter().find(|entry| entry["name"] == name).unwrap();
        let has = entry["features"]["timestamps"] == true;
        if !has {
            redraft_testing::declared_skip(&format!("phases in {test}"), "the adapter has no timestamps");
        }
        has
    }

    /// An answer to [`TWICE`] with further flags.
    fn answer(&self, flags: &[&str]) -> Value {
        self.json(&[&["generate", TWICE, "-n", "40", "--ignore-eos", "--json"], flags].concat())
    }
}

/// What every adapter with timestamps tells of rounds that draft and verify, and no other does.
fn check_phases(phases: &Value, timestamps: bool) {
    if !timestamps {
        assert_eq!(*phases, Value::Null, "without timestamps nothing is known");
        return;
    }
    let names = ["extend", "draft", "tree", "verify", "sample", "accept"];
    assert_eq!(keys(phases), names, "the phases of a round");
    for phase in ["draft", "tree", "verify", "sample", "accept"] {
        assert!(phases[phase].as_f64().unwrap() > 0.0, "{phase}: {phases}");
    }
}

pub(crate) fn drafter() -> TinyDrafter {
    TinyDrafter { target: Scene::target(), tables: true, ..TinyDrafter::default() }
}

#[test]
fn every_kind_gives_the_plain_answer_and_reports_its_plan() {
    let Some(scene) = Scene::new("every_kind_gives_the_plain_answer_and_reports_its_plan") else { return };
    let file = scene.drafter("d.safetensors", &drafter());
    let plain = scene.answer(&["--speculate", "off", "--drafter", &file]);
    let timestamps = scene.timestamps("every_kind_gives_the_plain_answer_and_reports_its_plan");
    assert_eq!(plain["speculation"], Value::Null);
    let chain = json!({
        "mode": "chain", "nodes": 3, "depth": 3, "width": 1, "children": 1, "reconsider": 0, "refined": null, "gate": null,
        "lookup": false,
    });
    let tree = json!({
        "mode": "tree", "nodes": 15, "depth": 5, "width": 4, "children": 4, "reconsider": 0, "refined": null,
        "gate": null, "lookup": false,
    });
    let again = json!({
        "mode": "reconsider", "nodes": 15, "depth": 5, "width": 4, "children": 4, "reconsider": 2, "refined": 2,
        "gate": "top1", "lookup": false,
    });
    let found = json!({
        "mode": "lookup", "nodes": 3, "depth": 3, "width": null, "children": null, "reconsider": null, "refined": null,
        "gate": null, "lookup": true,
    });
    let with = |plan: &Value, changes: Value| {
        let mut plan = plan.clone();
        changes.as_object().unwrap().iter().for_each(|(key, value)| plan[key] = value.clone());
        plan
    };
    let cases: &[(&[&str], Value)] = &[
        (&["--speculate", "chain"], chain.clone()),
        (
            &["--speculate", "chain", "--nodes", "7", "--lookup"],
            with(&chain, json!({"nodes": 7, "depth": 7, "lookup": true})),
        ),
        (&["--speculate", "tree"], tree.clone()),
        (
            &[
                "--speculate",
                "tree",
                "--nodes",
                "7",
                "--depth",
                "3",
                "--width",
                "2",
                "--children",
                "3",
                "--lookup",
            ],
            with(&tree, json!({"nodes": 7, "depth": 3, "width": 2, "children": 3, "lookup": true})),
        ),
        (&["--speculate", "reconsider"], again.clone()),
        (
            &["--speculate", "reconsider", "--reconsider", "4", "--refined", "1", "--gate", "entropy"],
            with(&again, json!({"reconsider": 4, "refined": 1, "gate": "entropy"})),
        ),
        (&["--speculate", "reconsider", "--gate", "random"], with(&again, json!({"gate": "random"}))),
        (&["--speculate", "reconsider", "--gate", "calibrated"], with(&again, json!({"gate": "calibrated"}))),
        (
            &["--speculate", "reconsider", "--control", "--expand-refined", "--no-recurrence"],
            with(&again, json!({"expand_refined": true, "control": true, "no_recurrence": true})),
        ),
        (&["--speculate", "reconsider", "--gate", "off"], with(&again, json!({"gate": "off"}))),
        (&["--speculate", "lookup"], found.clone()),
        (&["--speculate", "lookup", "--depth", "8"], with(&found, json!({"nodes": 8, "depth": 8}))),
    ];
    for (flags, plan) in cases {
        let lookup = plan["mode"] == "lookup";
        let flags = if lookup { flags.to_vec() } else { [*flags, &["--drafter", &file]].concat() };
        let value = scene.answer(&flags);
        assert_eq!(value["ids"], plain["ids"], "{flags:?}");
        assert_eq!(value["text"], plain["text"], "{flags:?}");
        let report = &value["speculation"];
        assert_eq!(keys(report), REPORT, "{flags:?}");
        assert_eq!(report["plan"], *plan, "{flags:?}");
        let number =
            |key: &str| report[key].as_u64().unwrap_or_else(|| panic!("{key} of {flags:?}: {report}"));
        assert!(number("rounds") > 0 && number("rounds") <= 39, "{flags:?}: {report}");
        let history = report["history"].as_array().unwrap();
        let runs = |of_plan: bool| {
            history.iter().filter(|run| run["plan"].is_null() != of_plan).fold(
                [0, 0],
                |[rounds, emitted], run| {
                    [rounds + run["rounds"].as_u64().unwrap(), emitted + run["emitted"].as_u64().unwrap()]
                },
            )
        };
        let ([rounds, emitted], [_, alone]) = (runs(true), runs(false));
        // The first token is not of a round; where there is nothing to look up, neither are others.
        assert!(lookup || alone == 0, "{flags:?}: {report}");
        assert_eq!(emitted + alone, 39, "{flags:?}: {report}");
        assert_eq!((number("rounds"), number("accepted")), (rounds, emitted - rounds), "{flags:?}: {report}");
        let tau = report["tau"].as_f64().unwrap();
        assert!((tau - emitted as f64 / rounds as f64).abs() < 1e-9, "{flags:?}: {report}");
        let gated = report["plan"]["gate"].as_str().is_some_and(|gate| gate != "off");
        assert_eq!(number("reconsidered") > 0, gated, "{flags:?}: {report}");
        let rates = report["acceptance_by_depth"].as_array().unwrap();
        assert!(
            !rates.is_empty() && rates.iter().all(|r| (0.0..=1.0).contains(&r.as_f64().unwrap())),
            "{report}"
        );
        check_phases(&report["phase_ms"], timestamps);
        assert!(
            history.iter().all(|run| run["plan"].is_null() || run["plan"] == *plan),
            "{flags:?}: {report}"
        );
    }
    // At a temperature too.
    let hot = ["--temperature", "1", "--seed", "3"];
    let plain = scene.answer(&hot);
    for more in [&[][..], &["--uncoupled"], &["--late"]] {
        let flags = [&hot[..], &["--speculate", "tree", "--drafter", &file], more].concat();
        assert_eq!(plain["ids"], scene.answer(&flags)["ids"], "{flags:?}");
    }
}

#[test]
fn a_drafter_that_fails_is_told_to_scripts_too() {
    let Some(scene) = Scene::new("a_drafter_that_fails_is_told_to_scripts_too") else { return };
    let mut parts = drafter().to_file().unwrap().into_parts();
    // Finite in the file, not finite in the logits.
    for value in parts.tensors.get_mut("norm.weight").unwrap().bytes.chunks_exact_mut(4) {
        value.copy_from_slice(&f32::MAX.to_le_bytes());
    }
    let file = scene.path("broken.safetensors");
    fs::write(&file, redraft::DrafterFile::new(parts).unwrap().write()).unwrap();
    let plain = scene.answer(&[]);
    let value = scene.answer(&["--speculate", "chain", "--drafter", &file]);
    assert_eq!(value["ids"], plain["ids"]);
    let told = |warning: &Value| warning.as_str().is_some_and(|text| text.contains("the drafter computed"));
    assert!(told(&value["speculation"]["warning"]), "{}", value["speculation"]);
    let flags = [
        "--speculate",
        "chain,lookup",
        "--drafter",
        &file,
        "--tokens",
        "8",
        "--repeat",
        "1",
        "--max-rows",
        "0",
    ];
    let value = scene.json(&[&["bench", "--json"][..], &flags].concat());
    let proposers = value["speculation"]["proposers"].as_array().unwrap();
    assert!(told(&proposers[0]["warning"]), "{}", proposers[0]);
    assert_eq!((&proposers[0]["identical"], &proposers[1]["warning"]), (&json!(true), &Value::Null));
}

#[test]
fn auto_is_the_default_with_a_drafter_and_remembers_costs() {
    let Some(scene) = Scene::new("auto_is_the_default_with_a_drafter_and_remembers_costs") else { return };
    let plain = scene.answer(&[]);
    assert_eq!(plain["speculation"], Value::Null, "no drafter");
    let costs = scene.home.path().join("redraft").join("costs");
    let kept = || {
        let files = fs::read_dir(&costs).unwrap().map(|entry| entry.unwrap().path());
        files.map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect::<Vec<_>>()
    };
    // Without a drafter auto is lookup or off.
    let value = scene.answer(&["--speculate", "auto"]);
    assert_eq!((&value["ids"], &value["speculation"]["plan"]["mode"]), (&plain["ids"], &json!("auto")));
    assert_eq!(kept().len(), 1);
    // Whoever waits for the first token is told what for, also where nobody looks at a terminal.
    let measuring = &value["speculation"]["measuring_s"];
    assert!(measuring.as_f64() > Some(0.0) && value["timings"]["prefill_s"].as_f64() > measuring.as_f64());
    let told = "measuring what speculation costs on this adapter (once)…";
    for (flags, measures) in [(&["--remeasure", "--stats"][..], true), (&["--stats"], false)] {
        let common = ["generate", "Hi", "-n", "2", "--speculate", "auto"];
        let output = scene.run(&[&common[..], flags].concat());
        expect(&output, 0, &[]);
        let stderr = text(&output.stderr);
        assert_eq!(stderr.matches(told).count(), usize::from(measures), "{stderr}");
        assert_eq!(stderr.contains("measuring took"), measures, "{stderr}");
    }
    assert_eq!(scene.answer(&["--speculate", "auto"])["speculation"]["measuring_s"], 0.0, "it was known");
    // A drafter beside the model is the model's.
    scene.drafter("tiny.drafter.safetensors", &drafter());
    let value = scene.answer(&[]);
    assert_eq!((&value["ids"], &value["speculation"]["plan"]["mode"]), (&plain["ids"], &json!("auto")));
    let before = kept();
    assert_eq!(before.len(), 2, "another drafter has other costs");
    scene.answer(&[]);
    assert_eq!(kept(), before, "nothing was measured again");
    scene.answer(&["--remeasure"]);
    assert_ne!(kept(), before);
    let value: Value = serde_json::from_str(&before[0].1).unwrap();
    assert_eq!(keys(&value), ["key", "costs"]);
    // Where nothing can be measured it is plain.
    let value = scene.json(&["generate", "--ids", "1,2", "-n", "4", "--context", "16", "--json"]);
    assert_eq!(
        (&value["speculation"]["plan"]["mode"], &value["speculation"]["rounds"]),
        (&json!("auto"), &json!(0))
    );
    // What cannot be read, or cannot be true, is told and measured again.
    let cheap = |text: &str| {
        let mut value: Value = serde_json::from_str(text).unwrap();
        value["costs"]["verify"] = json!([[1, 1.0], [32, 0.001]]);
        value.to_string()
    };
    for (damaged, words) in [(None, "EOF"), (Some(cheap), "a step of the model costs 0.001")] {
        for (file, text) in &before {
            fs::write(file, damaged.map_or("{".to_owned(), |damage| damage(text))).unwrap();
        }
        let output = scene.run(&["generate", "x", "-n", "2"]);
        expect(&output, 0, &["cannot be used", words, "measuring again"]);
        let output = scene.run(&["generate", "x", "-n", "2"]);
        expect(&output, 0, &[]);
        assert!(!text(&output.stderr).contains("measuring again"), "{}", text(&output.stderr));
    }
    // What its trees reconsider can be said.
    let value = scene.answer(&["--speculate", "auto", "--gate", "random", "--reconsider", "3", "--lookup"]);
    assert_eq!((&value["ids"], &value["speculation"]["plan"]["mode"]), (&plain["ids"], &json!("auto")));
}

#[test]
fn second_passes_of_a_drafter_that_has_none_are_noted() {
    let Some(scene) = Scene::new("second_passes_of_a_drafter_that_has_none_are_noted") else { return };
    let trained = scene.drafter("trained.safetensors", &drafter());
    let untrained = TinyDrafter { pass_embedding: false, tables: false, ..drafter() };
    let untrained = scene.drafter("untrained.safetensors", &untrained);
    for (flags, file, noted) in [
        (&["--speculate", "reconsider"][..], &untrained, true),
        (&["--speculate", "reconsider", "--control"], &untrained, false),
        (&["--speculate", "tree"], &untrained, false),
        (&["--speculate", "reconsider"], &trained, false),
    ] {
        let output = scene.run(&[&["generate", "x", "-n", "2", "--drafter", file], flags].concat());
        expect(&output, 0, &[]);
        let stderr = text(&output.stderr);
        assert_eq!(stderr.contains("no trained second pass"), noted, "{flags:?} {file}: {stderr}");
    }
}

#[test]
fn statistics_come_on_request() {
    let Some(scene) = Scene::new("statistics_come_on_request") else { return };
    let common = ["generate", TWICE, "-n", "40", "--ignore-eos", "--stats"];
    let output = scene.run(&[&common[..], &["--speculate", "lookup"]].concat());
    expect(&output, 0, &["speculation: lookup, nodes 3, depth 3", "rounds of", "acceptance by depth"]);
    expect(&scene.run(&common), 0, &["speculation: off"]);
    let timestamps = scene.timestamps("statistics_come_on_request");
    for flags in [&["--speculate", "lookup"][..], &["--speculate", "lookup", "--profile"]] {
        let value = scene.answer(flags);
        let phases = &value["speculation"]["phase_ms"];
        check_phases(phases, timestamps);
        if timestamps {
            assert_eq!(phases["extend"], 0.0, "no drafter: {phases}");
        }
    }
    if timestamps {
        let file = scene.drafter("d.safetensors", &drafter());
        let value = scene.answer(&["--speculate", "tree", "--drafter", &file]);
        let phases = &value["speculation"]["phase_ms"];
        assert!(phases["extend"].as_f64().unwrap() > 0.0, "{phases}");
        expect(&scene.run(&[&common[..], &["--speculate", "lookup"]].concat()), 0, &["milliseconds: extend"]);
    }
}

#[test]
fn a_chat_speculates_and_tells_on_request() {
    let Some(scene) = Scene::new("a_chat_speculates_and_tells_on_request") else { return };
    let common = ["chat", "-n", "6", "--temperature", "0", "--ignore-eos"];
    let input = "one two one two\n/stats\nthree\n/stats\nfour\n";
    let plain = scene.piped(&common, input);
    expect(&plain, 0, &["speculation: off"]);
    let lookup = scene.piped(&[&common[..], &["--speculate", "lookup"]].concat(), input);
    expect(&lookup, 0, &["speculation: lookup", "of 2048 tokens", "without statistics again"]);
    assert_eq!(text(&plain.stdout), text(&lookup.stdout));
    let told = |output: &std::process::Output| text(&output.stderr).matches("speculation: ").count();
    assert_eq!(told(&lookup), 2, "the last answer when asked, the next by itself: {}", text(&lookup.stderr));
    let all = scene.piped(&[&common[..], &["--stats"]].concat(), "one\ntwo\n");
    assert_eq!(told(&all), 2, "{}", text(&all.stderr));
}

#[test]
fn drafters_that_do_not_fit_are_refused() {
    let Some(scene) = Scene::new("drafters_that_do_not_fit_are_refused") else { return };
    let refused = |path: &str, words: &[&str]| {
        for command in [&["generate", "x"][..], &["bench", "--speculate", "chain"]] {
            expect(&scene.run(&[command, &["--drafter", path]].concat()), 1, words);
        }
    };
    refused(&scene.path("absent.safetensors"), &["cannot read", "absent.safetensors"]);
    refused(&scene.model, &["tiny.gguf", "safetensors"]);
    #[cfg(unix)]
    refused("/dev/zero", &["cannot read /dev/zero", "no regular file"]);
    let good = drafter().to_file().unwrap().write();
    let damaged = scene.path("damaged.safetensors");
    for length in [0, 7, 100, good.len() / 2, good.len() - 1] {
        fs::write(&damaged, &good[..length]).unwrap();
        refused(&damaged, &["damaged.safetensors", "safetensors header"]);
    }
    let folder = scene.path("folder");
    fs::create_dir(&folder).unwrap();
    refused(&folder, &["folder", "no safetensors file"]);
    let untrained = scene.drafter("untrained.safetensors", &TinyDrafter { tables: false, ..drafter() });
    let arguments =
        ["generate", "x", "-n", "3", "--speculate", "reconsider", "--gate", "calibrated", "--drafter"];
    expect(&scene.run(&[&arguments[..], &[&untrained]].concat()), 1, &["table of gains", "top1 or entropy"]);
    // Other targets, by the name of what differs.
    let deeper = TinyDrafter { target: TinyModel { layers: 3, ..Scene::target() }, ..drafter() };
    refused(
        &scene.drafter("layers.safetensors", &deeper),
        &["layers.safetensors", "target layers", "3", "2"],
    );
    let wider = TinyDrafter { target: TinyModel { hidden: 96, heads: 6, ..Scene::target() }, ..drafter() };
    let wider = TinyDrafter { hidden: 96, ..wider };
    refused(
        &scene.drafter("hidden.safetensors", &wider),
        &["hidden.safetensors", "target hidden", "96", "64"],
    );
    let words = TinyDrafter { target: TinyModel { vocab: 352, ..Scene::target() }, ..drafter() };
    refused(
        &scene.drafter("vocab.safetensors", &words),
        &["vocab.safetensors", "target vocab", "352", "320"],
    );
    let path = scene.path("vocab.safetensors");
    let inspect =
        redraft(scene.home.path(), &["inspect", &scene.model, "--drafter", &path]).output().unwrap();
    expect(&inspect, 1, &["vocab.safetensors", "target vocab", "352", "320"]);
}

#[test]
fn a_checkpoint_whose_configuration_does_not_count_is_told() {
    let Some(scene) = Scene::new("a_checkpoint_whose_configuration_does_not_count_is_told") else { return };
    let folder = scene.path("checkpoint");
    fs::create_dir(&folder).unwrap();
    scene.drafter("checkpoint/model.safetensors", &drafter());
    let arguments = ["generate", "x", "-n", "3", "--speculate", "chain", "--drafter", &folder];
    let output = scene.run(&arguments);
    expect(&output, 0, &[]);
    assert!(!text(&output.stderr).contains("config.json"), "{}", text(&output.stderr));
    fs::write(scene.path("checkpoint/config.json"), "{\"hidden_size\": 7}").unwrap();
    expect(&scene.run(&arguments), 0, &["warning", "config.json is not looked at", "says its shape itself"]);
}

#[test]
fn drafters_of_another_quantisation_are_used_with_a_warning() {
    let Some(scene) = Scene::new("drafters_of_another_quantisation_are_used_with_a_warning") else { return };
    let types = RoleTypes::all(redraft_gguf::GgmlType::Q8_0);
    let other = TinyDrafter { target: TinyModel { types, ..Scene::target() }, ..drafter() };
    let file = scene.drafter("q8.safetensors", &other);
    let arguments = ["generate", "x", "-n", "3", "--speculate", "chain", "--drafter", &file];
    expect(&scene.run(&arguments), 0, &["warning", "Q8_0", "Q4_1"]);
    let unsigned = scene.drafter("unsigned.safetensors", &TinyDrafter { fingerprint: false, ..drafter() });
    let arguments = ["generate", "x", "-n", "3", "--speculate", "chain", "--drafter", &unsigned];
    expect(&scene.run(&arguments), 0, &["warning", "does not say which model"]);
}

#[test]
fn bench_puts_proposers_side_by_side() {
    let Some(scene) = Scene::new("bench_puts_proposers_side_by_side") else { return };
    let file = scene.drafter("d.safetensors", &drafter());
    let prompts = scene.path("p.jsonl");
    fs::write(
        &prompts,
        "{\"prompt\": \"one two one two\"}\n\n{\"turns\": [\"a b a b\", \"c\"], \"question_id\": 3}\n\
         {\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}\nnot looked at\n",
    )
    .unwrap();
    fn with<'a>(flags: &[&'a str]) -> Vec<&'a str> {
        let small = ["--prompt-tokens", "8", "--tokens", "8", "--repeat", "2", "--max-rows", "0"];
        [&["bench"], &small[..], flags].concat()
    }
    let flags = [
        "--speculate",
        "chain,lookup,off,auto,chain",
        "--drafter",
        &file,
        "--prompts",
        &prompts,
        "--limit",
        "3",
        "--json",
    ];
    let value = scene.json(&with(&flags));
    assert_eq!(
        keys(&value),
        [
            "decode_tokens_per_s",
            "prefill_tokens_per_s",
            "cost_curve",
            "adapter",
            "host",
            "shader_warm_up",
            "speculation"
        ]
    );
    let report = &value["speculation"];
    assert_eq!(keys(report), ["prompts", "tokens", "temperature", "seed", "costs", "proposers"]);
    assert_eq!((&report["prompts"], &report["tokens"]), (&json!(3), &json!(8)));
    assert_eq!(keys(&report["costs"]), ["verify", "draft", "extend", "overhead"]);
    let first = &report["costs"]["verify"][0];
    assert!(first["m"] == 1 && first["relative"].as_f64().unwrap() >= 1.0, "{first}");
    assert!(report["costs"]["extend"].as_f64().unwrap() > 0.0);
    let proposers = report["proposers"].as_array().unwrap();
    let names: Vec<_> = proposers.iter().map(|p| p["proposer"].as_str().unwrap()).collect();
    assert_eq!(names, ["chain", "lookup", "auto"]);
    for proposer in proposers {
        assert_eq!(
            keys(proposer),
            [
                "proposer",
                "plan",
                "plain_tokens_per_s",
                "speculative_tokens_per_s",
                "ratio",
                "tau",
                "predicted_ratio",
                "measured_over_predicted",
                "recording_ms",
                "identical",
                "warning"
            ]
        );
        for key in ["plain_tokens_per_s", "speculative_tokens_per_s", "ratio"] {
            assert_eq!(keys(&proposer[key]), ["median", "min", "max"]);
            assert!(proposer[key]["min"].as_f64().unwrap() > 0.0, "{proposer}");
        }
        assert_eq!(proposer["identical"], true, "{proposer}");
        assert!(proposer["predicted_ratio"].as_f64().unwrap() > 0.0, "{proposer}");
    }
    assert!(proposers[0]["tau"].as_f64().unwrap() >= 1.0);

    // At a temperature the answers are the same too.
    let hot = |more: &[&str]| {
        let flags = ["--speculate", "tree", "--drafter", &file, "--prompts", &prompts, "--limit", "2"];
        let warm = ["--temperature", "1", "--seed", "5", "--json"];
        let report = scene.json(&[&with(&flags)[..], &warm, more].concat())["speculation"].clone();
        assert_eq!((&report["temperature"], &report["seed"]), (&json!(1.0), &json!(5)), "{report}");
        assert_eq!(report["proposers"][0]["identical"], true, "{report}");
        report["proposers"][0]["tau"].as_f64().unwrap()
    };
    let (coupled, uncoupled) = (hot(&[]), hot(&["--uncoupled"]));
    assert!(coupled >= 1.0 && uncoupled >= 1.0, "{coupled}, {uncoupled}");
    // Rounds that run ahead are the same rounds.
    assert_eq!(hot(&["--late"]), coupled, "tokens a round");

    // Without a file of prompts and for people.
    let output = scene.run(&with(&["--speculate", "lookup"]));
    expect(&output, 0, &[]);
    for words in ["4 prompts", "verify V(M)", "predicted", "lookup"] {
        assert!(text(&output.stdout).contains(words), "{words}");
    }
    expect(
        &scene.run(&with(&["--speculate", "lookup", "--prompts", &prompts])),
        1,
        &["p.jsonl line 5", "expected {\"prompt\""],
    );
    fs::write(&prompts, format!("{{\"prompt\": \"x\"}}\n{{\"prompt\": \"{}\"}}\n", "word ".repeat(3000)))
        .unwrap();
    let long = ["--speculate", "lookup", "--prompts", &prompts];
    let short = ["bench", "--prompt-tokens", "8", "--tokens", "4", "--max-rows", "0", "--context", "16"];
    expect(
        &scene.run(&[&short[..], &["--speculate", "lookup"]].concat()),
        2,
        &["--context 16", "at least 32"],
    );
    expect(&scene.run(&with(&long)), 1, &["p.jsonl line 2", "--context"]);
    fs::write(&prompts, "\n").unwrap();
    expect(&scene.run(&with(&long)), 1, &["p.jsonl", "no prompts"]);
    expect(&scene.run(&with(&["--speculate", "lookup", "--prompts", "absent"])), 1, &["cannot read absent"]);
}

/// Nothing is loaded for it: the model is nowhere.
#[test]
fn usage_is_checked_before_anything_is_looked_for() {
    let home = tempfile::tempdir().unwrap();
    for arguments in [
        &["generate", "x", "--model", "absent.gguf", "--speculate", "tree"][..],
        &[
            "generate",
            "x",
            "--model",
            "absent.gguf",
            "--speculate",
            "chain",
            "--drafter",
            "absent",
            "--nodes",
            "17",
        ],
        &["chat", "--model", "absent.gguf", "--speculate", "lookup", "--depth", "17"],
        &["bench", "--model", "absent.gguf", "--speculate", "tree,chain"],
        &["generate", "x", "--model", "absent.gguf", "--late"],
        &["bench", "--model", "absent.gguf", "--speculate", "chain,auto", "--late"],
    ] {
        expect(&redraft(home.path(), arguments).output().unwrap(), 2, &["--help"]);
    }
}
