//! `redraft tree`: what is shown, what is written, and what closed outputs do.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::Value;

use crate::scene::{Scene, keys};
use crate::speculation::{TWICE, drafter};
use crate::{expect, text};

#[test]
fn trees_are_shown_and_written() {
    let Some(scene) = Scene::new("trees_are_shown_and_written") else { return };
    let file = scene.drafter("d.safetensors", &drafter());
    let (json, svg) = (scene.path("t.json"), scene.path("t.svg"));
    let common = ["tree", TWICE, "-n", "8", "--ignore-eos", "--drafter", &file];
    let output = scene.run(&[&common[..], &["--lookup", "--json", &json, "--svg", &svg, "--stats"]].concat());
    expect(&output, 0, &["speculation: reconsider", "with lookup"]);
    let shown = text(&output.stdout);
    assert!(!shown.contains('\x1b'), "colour in a pipe");
    for words in
        ["round 1 after", "└─ ", "depth  1", "row  1", "drafted", "rejected", "not verified)", "answer: "]
    {
        assert!(shown.contains(words), "{words:?} is not in: {shown}");
    }
    let value: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!(keys(&value), ["text", "prompt_ids", "ids", "stop_reason", "rounds"]);
    let rounds = value["rounds"].as_array().unwrap();
    assert_eq!(shown.matches("round ").count(), rounds.len());
    let mut known = value["prompt_ids"].as_array().unwrap().len();
    let ids = value["ids"].as_array().unwrap();
    for round in rounds {
        assert_eq!(keys(round), ["plan", "start", "nodes", "accepted"]);
        assert_eq!(round["start"], known, "the root is the last token");
        let nodes = round["nodes"].as_array().unwrap();
        assert_eq!(
            keys(&nodes[0]),
            ["token", "text", "parent", "depth", "score", "pass", "unsure", "reconsidered", "row", "fate"]
        );
        let at = known - value["prompt_ids"].as_array().unwrap().len();
        let path: Vec<_> = round["accepted"]
            .as_array()
            .unwrap()
            .iter()
            .map(|i| &nodes[usize::try_from(i.as_u64().unwrap()).unwrap()])
            .collect();
        for (node, id) in path.iter().zip(&ids[at..]) {
            assert_eq!(node["token"], *id, "accepted tokens are the answer's");
        }
        known += path.len();
        assert!(nodes.iter().filter(|node| !node["row"].is_null()).count() > 1);
    }
    let picture = fs::read_to_string(&svg).unwrap();
    assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));

    // Outputs that cannot be, before anything runs.
    let folder = scene.path("");
    expect(&scene.run(&[&common[..], &["--json", &json, "--svg", &json]].concat()), 2, &["same file"]);
    expect(&scene.run(&[&common[..], &["--svg", &file]].concat()), 2, &["--svg", "reads this file"]);
    expect(&scene.run(&[&common[..], &["--svg", &folder]].concat()), 1, &["cannot write"]);
    assert!(fs::metadata(&file).unwrap().len() > 10_000, "the drafter is still there");

    // To standard output, all nodes, and without a drafter.
    let value = scene.json(&["tree", TWICE, "-n", "40", "--ignore-eos", "--json", "-"]);
    assert_eq!(value["rounds"][0]["plan"]["mode"], "lookup");
    let output = scene.run(&[&common[..], &["--speculate", "tree", "--all"]].concat());
    expect(&output, 0, &[]);
    assert!(text(&output.stdout).contains("pruned") && !text(&output.stdout).contains("not verified)"));
    let output = scene.run(&[&common[..], &["--svg", "-"]].concat());
    expect(&output, 0, &[]);
    assert!(text(&output.stdout).starts_with("<svg "));
    let nowhere = scene.path("absent/t.json");
    let output = scene.run(&["tree", "x", "-n", "2", "--json", &nowhere]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("cannot write"), "{}", text(&output.stderr));
}

/// As with `| head -1`: the reader is gone after a line.
#[test]
fn files_are_written_though_nobody_reads_the_text() {
    let Some(scene) = Scene::new("files_are_written_though_nobody_reads_the_text") else { return };
    let (json, svg) = (scene.path("t.json"), scene.path("t.svg"));
    let common = ["tree", TWICE, "-n", "40", "--ignore-eos", "--svg", &svg];
    for more in [&["--json", &json][..], &["--json", "-"], &[]] {
        let _ = fs::remove_file(&svg);
        let mut command = scene.command(&[&common[..], more].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut reader = BufReader::new(child.stdout.take().unwrap());
        if more.contains(&"-") {
            // Closed before anything comes.
            drop(reader);
        } else {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            assert!(line.starts_with("round 1"), "{line}");
            drop(reader);
        }
        expect(&child.wait_with_output().unwrap(), 0, &[]);
        let picture = fs::read_to_string(&svg).unwrap();
        assert!(picture.ends_with("</svg>\n"), "{more:?}: {picture}");
        let rounds = picture.matches("round ").count();
        assert!(rounds > 1, "{more:?}: the whole answer: {picture}");
    }
    assert!(fs::read_to_string(&json).unwrap().ends_with("}\n"), "the other file");
}
