//! Commands that need an adapter, on a tiny random model. Where there is no adapter they are declared skips.

use std::fs;
use std::process::Stdio;

use redraft_testing::TinyModel;
use serde_json::Value;

use crate::scene::{Scene, keys};
use crate::{expect, redraft, text};

#[test]
fn generate_json_has_the_promised_shape() {
    let Some(scene) = Scene::new("generate_json_has_the_promised_shape") else { return };
    let value = scene.json(&["generate", "Hello", "--max-tokens", "8", "--ignore-eos", "--json"]);
    assert_eq!(
        keys(&value),
        ["text", "prompt_ids", "ids", "stop_reason", "timings", "adapter", "speculation"]
    );
    assert_eq!(
        keys(&value["timings"]),
        ["load_s", "prefill_s", "decode_s", "prefill_tokens_per_s", "decode_tokens_per_s"]
    );
    assert!(value["timings"].as_object().unwrap().values().all(|v| v.as_f64().is_some_and(|v| v > 0.0)));
    assert_eq!(keys(&value["adapter"]), ["name", "backend"]);
    assert_eq!(value["speculation"], Value::Null);
    assert_eq!(value["ids"].as_array().unwrap().len(), 8);
    assert_eq!(value["stop_reason"], "length");
    assert!(value["prompt_ids"].as_array().unwrap().len() > "Hello".len(), "the chat template is missing");
}

#[test]
fn the_same_seed_gives_the_same_answer_however_the_prompt_comes() {
    let Some(scene) = Scene::new("the_same_seed_gives_the_same_answer_however_the_prompt_comes") else {
        return;
    };
    let common = ["-n", "12", "--temperature", "1", "--seed", "5", "--ignore-eos", "--json"];
    let with = |first: &[&str]| scene.json(&[first, &common].concat());
    let plain = with(&["generate", "Hi there", "--system", "S"]);
    fs::write(
        scene.path("m.json"),
        r#"[{"role":"system","content":"S"},{"role":"user","content":"Hi there"}]"#,
    )
    .unwrap();
    let messages = with(&["generate", "--messages", &scene.path("m.json")]);
    let ids: Vec<String> = plain["prompt_ids"].as_array().unwrap().iter().map(Value::to_string).collect();
    let by_ids = with(&["generate", "--ids", &ids.join(",")]);
    let other = scene.json(&[
        "generate",
        "Hi there",
        "--system",
        "S",
        "-n",
        "12",
        "--temperature",
        "1",
        "--seed",
        "6",
        "--ignore-eos",
        "--json",
    ]);
    for same in [&messages, &by_ids] {
        assert_eq!(plain["prompt_ids"], same["prompt_ids"]);
        assert_eq!(plain["ids"], same["ids"]);
    }
    assert_ne!(plain["ids"], other["ids"]);

    let arguments =
        ["generate", "--system", "S", "-n", "12", "--temperature", "1", "--seed", "5", "--ignore-eos"];
    let streamed = scene.piped(&arguments, "Hi there\n");
    expect(&streamed, 0, &[]);
    assert_eq!(
        text(&streamed.stdout).trim_end_matches('\n'),
        plain["text"].as_str().unwrap().trim_end_matches('\n')
    );
}

#[test]
fn raw_prompts_skip_the_template() {
    let Some(scene) = Scene::new("raw_prompts_skip_the_template") else { return };
    let value = scene.json(&["generate", "--prompt", "Hi", "--raw", "-n", "1", "--json"]);
    assert!(value["prompt_ids"].as_array().unwrap().len() <= 3);
}

#[test]
fn log_probabilities_come_on_request() {
    let Some(scene) = Scene::new("log_probabilities_come_on_request") else { return };
    let value = scene.json(&["generate", "Hi", "-n", "4", "--ignore-eos", "--json", "--logprobs", "3"]);
    let steps = value["logprobs"].as_array().unwrap();
    assert_eq!(steps.len(), 4);
    for (step, id) in steps.iter().zip(value["ids"].as_array().unwrap()) {
        assert_eq!(&step["id"], id);
        let top = step["top"].as_array().unwrap();
        assert_eq!(top.len(), 3);
        // Greedy: the chosen token is the likeliest.
        assert_eq!(top[0]["id"], *id);
        assert_eq!(top[0]["logprob"], step["logprob"]);
        assert!(step["logprob"].as_f64().unwrap() <= 0.0);
    }
}

#[test]
fn a_stop_string_ends_the_answer_before_it() {
    let Some(scene) = Scene::new("a_stop_string_ends_the_answer_before_it") else { return };
    let whole = scene.json(&["generate", "Hi", "-n", "24", "--ignore-eos", "--json"]);
    let whole = whole["text"].as_str().unwrap();
    let stop: String = whole.chars().skip(6).take(2).collect();
    let value = scene.json(&["generate", "Hi", "-n", "24", "--ignore-eos", "--json", "--stop", &stop]);
    assert_eq!(value["stop_reason"], "stop");
    assert_eq!(value["text"].as_str().unwrap(), &whole[..whole.find(&stop).unwrap()]);
}

#[test]
fn a_banned_token_never_comes() {
    let Some(scene) = Scene::new("a_banned_token_never_comes") else { return };
    let common = ["generate", "Hi", "-n", "6", "--ignore-eos", "--json"];
    let free = scene.json(&common);
    let first = free["ids"][0].as_u64().unwrap();
    let ban = format!("{first}=-inf");
    let banned = scene.json(&[&common[..], &["--logit-bias", &ban]].concat());
    assert!(banned["ids"].as_array().unwrap().iter().all(|id| id.as_u64() != Some(first)), "{banned}");
}

#[test]
fn a_tokenizer_can_come_as_json() {
    let Some(scene) = Scene::new("a_tokenizer_can_come_as_json") else { return };
    let file = scene.path("tokenizer.json");
    fs::write(&file, TinyModel::default().tokenizer_json()).unwrap();
    let common = ["generate", "Hi there", "-n", "4", "--ignore-eos", "--json"];
    let (own, given) = (scene.json(&common), scene.json(&[&common[..], &["--tokenizer", &file]].concat()));
    assert_eq!((&own["prompt_ids"], &own["text"]), (&given["prompt_ids"], &given["text"]));
    fs::write(&file, "{}").unwrap();
    expect(&scene.run(&["generate", "x", "--tokenizer", &file]), 1, &["tokenizer"]);
    expect(&scene.run(&["generate", "x", "--tokenizer", "absent.json"]), 1, &["cannot read absent.json"]);
}

#[test]
fn requests_that_the_model_cannot_serve_are_errors() {
    let Some(scene) = Scene::new("requests_that_the_model_cannot_serve_are_errors") else { return };
    let long = "word ".repeat(3000);
    for (arguments, word) in [
        (&["generate", "--ids", "1,320"][..], "320"),
        (&["generate", "x", "--logit-bias", "99999=1"], "99999"),
        (&["generate", &long], "context"),
        (&["generate", "x", "--context", "4294967295"], "context"),
        (&["generate", "x", "--adapter", "no such adapter"], "no such adapter"),
    ] {
        expect(&scene.run(arguments), 1, &[word]);
    }
    expect(&scene.run(&["bench", "--prompt-tokens", "5000"]), 2, &["--prompt-tokens", "--context"]);
}

#[test]
fn bench_json_has_the_promised_shape() {
    let Some(scene) = Scene::new("bench_json_has_the_promised_shape") else { return };
    let arguments = ["bench", "--prompt-tokens", "16", "--tokens", "4", "--repeat", "2", "--max-rows", "3"];
    let value = scene.json(&[&arguments[..], &["--json"]].concat());
    assert_eq!(
        keys(&value),
        ["decode_tokens_per_s", "prefill_tokens_per_s", "cost_curve", "adapter", "host", "shader_warm_up"]
    );
    assert_eq!(keys(&value["host"]), ["recording_ms", "dispatches"]);
    assert!(value["host"]["recording_ms"]["min"].as_f64().unwrap() > 0.0);
    // Two layers of at most eight dispatches; embedding, norm, head and two of sampling beside them.
    let dispatches = value["host"]["dispatches"].as_u64().unwrap();
    assert!((10..=2 * 8 + 5).contains(&dispatches), "{dispatches} dispatches");
    assert!(value["shader_warm_up"]["seconds"].as_f64().unwrap() > 0.0);
    let state = value["shader_warm_up"]["cache"].as_str().unwrap();
    assert!(["warm", "none"].contains(&state), "an earlier run has left its kernels: {state}");
    for speed in ["decode_tokens_per_s", "prefill_tokens_per_s"] {
        assert_eq!(keys(&value[speed]), ["median", "min", "max"]);
        assert!(value[speed]["min"].as_f64().unwrap() > 0.0);
        assert!(value[speed]["min"].as_f64() <= value[speed]["median"].as_f64());
        assert!(value[speed]["median"].as_f64() <= value[speed]["max"].as_f64());
    }
    let curve = value["cost_curve"].as_array().unwrap();
    assert_eq!(curve.iter().map(|c| c["m"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(keys(&curve[0]), ["m", "ms", "relative"]);
    assert!(curve[0]["relative"].as_f64().unwrap() >= 1.0);
    assert_eq!(keys(&value["adapter"]), ["name", "backend"]);

    let output = scene.run(&arguments);
    expect(&output, 0, &[]);
    for word in ["V(M)", "recording a decode step", "dispatches", "shader warm-up"] {
        assert!(text(&output.stdout).contains(word), "{word}");
    }
}

#[test]
fn a_chat_without_a_terminal_answers_each_line() {
    let Some(scene) = Scene::new("a_chat_without_a_terminal_answers_each_line") else { return };
    let saved = scene.path("saved.json");
    let input = format!("one\n\ntwo\n/stats\n/save {saved}\n/reset\n/load {saved}\n/exit\nnever\n");
    let output = scene.piped(&["chat", "-n", "4", "--system", "S"], &input);
    expect(&output, 0, &["4 tokens", "of 2048 tokens", "5 messages written", "5 messages read"]);
    let messages: Value = serde_json::from_str(&fs::read_to_string(&saved).unwrap()).unwrap();
    let roles: Vec<_> = messages.as_array().unwrap().iter().map(|m| m["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "user", "assistant"]);
    let answers = format!(
        "{}\n{}\n",
        messages[2]["content"].as_str().unwrap(),
        messages[4]["content"].as_str().unwrap()
    );
    assert_eq!(text(&output.stdout), answers);
    expect(&scene.piped(&["chat"], "/frobnicate\n"), 1, &["/frobnicate"]);
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_an_answer_with_what_there_is() {
    let Some(scene) = Scene::new("ctrl_c_ends_an_answer_with_what_there_is") else { return };
    let mut command =
        scene.command(&["generate", "Hi", "--ignore-eos", "-n", "1900", "--logit-bias", "70=200"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut first).unwrap();
    crate::interrupt(&child);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    let length = output.stdout.len();
    assert!(length < 1890, "all {length} tokens came before the interruption");
}

#[test]
fn products_in_f16_on_request() {
    let Some(scene) = Scene::new("products_in_f16_on_request") else { return };
    let devices = redraft(scene.home.path(), &["devices", "--adapter", "auto", "--json"]).output().unwrap();
    let devices: Value = serde_json::from_slice(&devices.stdout).unwrap();
    let common = ["generate", "Hi Hi Hi Hi", "-n", "16", "--ignore-eos", "--precision", "f16", "--json"];
    if devices[0]["features"]["f16"] != true {
        expect(&scene.run(&common), 1, &["shader-f16", "precision f32"]);
        return;
    }
    let plain = scene.json(&common);
    let fast = scene.json(&[&common[..], &["--speculate", "lookup"]].concat());
    assert_eq!(plain["ids"].as_array().unwrap().len(), 16);
    assert_eq!(plain["ids"], fast["ids"], "with lookup");
}

#[test]
fn devices_lists_limits_and_checks() {
    let Some(scene) = Scene::new("devices_lists_limits_and_checks") else { return };
    let output = redraft(scene.home.path(), &["devices", "--check", "--json"]).output().unwrap();
    expect(&output, 0, &[]);
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    let checked: Vec<_> = value.as_array().unwrap().iter().filter(|a| a["check"]["passed"] == true).collect();
    assert!(!checked.is_empty());
    assert!(checked[0]["limits"]["max_buffer"].as_u64().unwrap() > 0);
    let f16 = checked[0]["features"]["f16"] == true;
    for (tier, families) in [
        ("check", &["broadcast", "shuffle"][..]),
        ("check_strict", &["plain", "slices"]),
        ("check_f16", &["shuffle16"]),
        ("check_strict_f16", &["slices16"]),
    ] {
        let check = &checked[0][tier];
        if tier.ends_with("f16") && !f16 {
            assert_eq!(*check, Value::Null, "{tier}: the adapter has no f16");
            continue;
        }
        assert_eq!(check["passed"], true, "{tier}: {check}");
        if checked[0]["features"]["subgroups"] != Value::Null || tier.starts_with("check_strict") {
            assert!(families.contains(&check["path"].as_str().unwrap()), "{tier}: {}", check["path"]);
        }
        assert_eq!(check["tiles"]["used"], serde_json::json!([1, 2, 4, 8]), "{tier}");
        assert_eq!(check["tiles"]["differing"], serde_json::json!([]), "{tier}");
        let names: Vec<_> =
            check["items"].as_array().unwrap().iter().map(|i| i["kernel"].as_str().unwrap()).collect();
        for rows in ["m16", "m32", "m33"] {
            assert!(names.iter().any(|name| name.ends_with(rows)), "{tier}: {rows} is not in {names:?}");
        }
    }
    // One adapter by its number, one by its name, and one that is not there.
    let index = checked[0]["index"].to_string();
    let name = checked[0]["name"].as_str().unwrap();
    for wanted in [index.as_str(), name, "auto"] {
        let output =
            redraft(scene.home.path(), &["devices", "--json", "--adapter", wanted]).output().unwrap();
        expect(&output, 0, &[]);
        let value: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(value[0]["name"], checked[0]["name"], "{wanted}");
        assert!(value.as_array().unwrap().len() == 1 || wanted == name, "{wanted}: {value}");
    }
    let absent = ["devices", "--check", "--adapter", "no such adapter"];
    expect(&redraft(scene.home.path(), &absent).output().unwrap(), 1, &["no such adapter", name]);
    let output = redraft(scene.home.path(), &["devices"]).output().unwrap();
    expect(&output, 0, &[]);
    for word in ["0: ", "backend", "features", "limits", "usable"] {
        assert!(text(&output.stdout).contains(word), "{word}");
    }
}
