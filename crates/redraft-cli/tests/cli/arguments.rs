//! The command line: what is accepted, what is refused, and with which status.

use crate::{expect, redraft, text};

/// Arguments, and words of the complaint.
const WRONG: &[(&[&str], &[&str])] = &[
    (&["frobnicate"], &["frobnicate"]),
    (&["generate", "--ids", "1,x"], &["'x'", "token id"]),
    (&["generate", "--ids", ""], &["token id"]),
    (&["generate", "--ids", "1,,2"], &["token id"]),
    (&["generate", "--ids", "-1"], &["token id"]),
    (&["generate", "--ids", "4294967296"], &["token id"]),
    (&["generate", "--ids", "1", "--prompt", "x"], &["--ids", "--prompt"]),
    (&["generate", "--ids", "1", "--system", "x"], &["--ids", "--system"]),
    (&["generate", "--messages", "f", "--prompt", "x"], &["--messages", "--prompt"]),
    (&["generate", "--messages", "f", "--raw"], &["--messages", "--raw"]),
    (&["generate", "x", "--prompt", "y"], &["--prompt"]),
    (&["generate", "x", "--raw", "--system", "y"], &["--raw", "--system"]),
    (&["generate", "x", "y"], &["'y'"]),
    (&["generate", "x", "--temperature", "-1"], &["--temperature", "0 (greedy)"]),
    (&["generate", "x", "--temperature", "NaN"], &["--temperature", "finite"]),
    (&["generate", "x", "--temperature", "hot"], &["--temperature", "number"]),
    (&["generate", "x", "--top-p", "1.5"], &["--top-p", "0 to 1"]),
    (&["generate", "x", "--min-p", "inf"], &["--min-p", "finite"]),
    (&["generate", "x", "--top-k", "-5"], &["-5"]),
    (&["generate", "x", "--repetition-penalty", "0"], &["--repetition-penalty", "0.01 to 100"]),
    (&["generate", "x", "--logit-bias", "5"], &["--logit-bias", "ID=VALUE"]),
    (&["generate", "x", "--logit-bias", "a=1"], &["--logit-bias", "token id"]),
    (&["generate", "x", "--logit-bias", "1=NaN"], &["--logit-bias", "finite"]),
    (&["generate", "x", "--logit-bias", "1=inf"], &["--logit-bias", "finite"]),
    (&["generate", "x", "--logit-bias", "1=2e6"], &["--logit-bias", "1000000"]),
    (&["generate", "x", "--logit-bias", "1=1", "--logit-bias", "1=2"], &["--logit-bias", "more than once"]),
    (&["chat", "--logit-bias", "1=1", "--logit-bias", "1=2"], &["--logit-bias", "more than once"]),
    (&["generate", "x", "--temperature", "101"], &["--temperature", "100"]),
    (&["generate", "x", "--temperature", "1e-9"], &["--temperature", "0.00001"]),
    (&["chat", "--temperature", "101"], &["--temperature", "100"]),
    (&["generate", "x", "--min-p", "-0.5"], &["--min-p", "0 to 1"]),
    (&["generate", "x", "--repetition-penalty", "1000"], &["--repetition-penalty", "0.01 to 100"]),
    (&["generate", "x", "--presence-penalty", "101"], &["--presence-penalty", "-100 to 100"]),
    (&["generate", "x", "--frequency-penalty", "-101"], &["--frequency-penalty", "-100 to 100"]),
    (&["generate", "x", "--penalty-window", "4097"], &["--penalty-window", "4096"]),
    (&["generate", "x", "--penalty-window", "x"], &["--penalty-window", "whole number"]),
    (&["generate", ""], &["prompt is empty", "--raw"]),
    (&["generate", "--prompt", " \n"], &["prompt is empty"]),
    (&["generate", "", "--system", "x"], &["prompt is empty"]),
    (&["generate", "x", "--stop", ""], &["--stop"]),
    (&["generate", "x", "--max-tokens", "0"], &["--max-tokens"]),
    (&["generate", "x", "--max-tokens", "99999999999"], &["--max-tokens"]),
    (&["generate", "x", "--context", "0"], &["--context"]),
    (&["generate", "x", "--kv", "q4"], &["--kv", "f16"]),
    (&["generate", "x", "--seed", "-1"], &["-1"]),
    (&["generate", "x", "--speculate", "eagle"], &["--speculate", "reconsider"]),
    (&["generate", "x", "--logprobs", "3"], &["--json"]),
    (&["generate", "x", "--json", "--logprobs", "99"], &["--logprobs"]),
    (&["generate", "x", "--model", ""], &["--model", "smollm2-135m"]),
    (&["generate", "x", "--model", "hf:owner/repo"], &["hf:owner/repo"]),
    (&["pull", "hf:owner/../../x.gguf"], &["plain name"]),
    (&["pull"], &["MODEL"]),
    (&["inspect"], &["FILE"]),
    (&["generate", "x", "--speculate", "chain"], &["chain", "needs a drafter", "--drafter FILE", "lookup"]),
    (&["generate", "x", "--speculate", "tree"], &["tree", "needs a drafter"]),
    (&["chat", "--speculate", "reconsider"], &["reconsider", "needs a drafter"]),
    (&["bench", "--speculate", "lookup,chain"], &["chain", "needs a drafter"]),
    (&["generate", "x", "--speculate", "lookup", "--nodes", "17"], &["--nodes is 17", "1 to 16"]),
    (&["generate", "x", "--speculate", "lookup", "--depth", "0"], &["--depth is 0", "1 to 16"]),
    (
        &["generate", "x", "--speculate", "lookup", "--nodes", "3", "--depth", "4"],
        &["--nodes 3", "--depth 4"],
    ),
    (&["generate", "x", "--speculate", "lookup", "--nodes", "-1"], &["-1"]),
    (&["generate", "x", "--speculate", "lookup", "--nodes", "many"], &["--nodes", "many"]),
    (&["generate", "x", "--speculate", "lookup", "--width", "2"], &["--width", "lookup"]),
    (&["generate", "x", "--speculate", "lookup", "--drafter", "d"], &["--drafter", "--lookup"]),
    (&["generate", "x", "--speculate", "chain", "--drafter", "d", "--nodes", "99"], &["--nodes is 99"]),
    (
        &["generate", "x", "--speculate", "chain", "--drafter", "d", "--children", "2"],
        &["--children", "tree"],
    ),
    (
        &["generate", "x", "--speculate", "tree", "--drafter", "d", "--nodes", "64"],
        &["--nodes is 64", "1 to 63"],
    ),
    (&["generate", "x", "--speculate", "tree", "--drafter", "d", "--width", "0"], &["--width is 0"]),
    (&["generate", "x", "--speculate", "tree", "--drafter", "d", "--children", "9"], &["--children is 9"]),
    (&["generate", "x", "--speculate", "tree", "--drafter", "d", "--depth", "17"], &["--depth is 17"]),
    (
        &[
            "generate",
            "x",
            "--speculate",
            "tree",
            "--drafter",
            "d",
            "--width",
            "16",
            "--children",
            "8",
            "--depth",
            "16",
        ],
        &["--width, --children and --depth", "pool"],
    ),
    (&["generate", "x", "--speculate", "tree", "--drafter", "d", "--reconsider", "1"], &["--reconsider"]),
    (&["generate", "x", "--speculate", "tree", "--drafter", "d", "--gate", "off"], &["--gate", "reconsider"]),
    (
        &["generate", "x", "--speculate", "reconsider", "--drafter", "d", "--refined", "5"],
        &["--refined is 5"],
    ),
    (
        &["generate", "x", "--speculate", "reconsider", "--drafter", "d", "--refined", "0"],
        &["--refined is 0"],
    ),
    (
        &[
            "generate",
            "x",
            "--speculate",
            "reconsider",
            "--drafter",
            "d",
            "--width",
            "12",
            "--reconsider",
            "5",
        ],
        &["--width and --reconsider", "17"],
    ),
    (
        &["generate", "x", "--speculate", "reconsider", "--drafter", "d", "--gate", "x"],
        &["--gate", "calibrated"],
    ),
    (&["generate", "x", "--speculate", "off", "--nodes", "3"], &["--nodes", "speculation is off"]),
    (&["generate", "x", "--nodes", "3"], &["--nodes", "speculation is off"]),
    (&["generate", "x", "--lookup"], &["--lookup", "speculation is off"]),
    (&["generate", "x", "--drafter", "d", "--nodes", "3"], &["--nodes", "auto chooses"]),
    (&["generate", "x", "--speculate", "auto", "--lookup"], &["--lookup", "without a drafter"]),
    (&["generate", "x", "--speculate", "auto", "--gate", "top1"], &["--gate", "without a drafter"]),
    (&["generate", "x", "--speculate", "auto", "--nodes", "7"], &["--nodes", "auto chooses"]),
    (&["generate", "x", "--speculate", "lookup", "--uncoupled"], &["--uncoupled", "drafter"]),
    (
        &["generate", "x", "--speculate", "tree", "--drafter", "d", "--uncoupled"],
        &["--uncoupled", "--temperature"],
    ),
    (&["tree", "x", "--drafter", "d", "--uncoupled"], &["--uncoupled", "--temperature"]),
    (&["bench", "--speculate", "chain", "--drafter", "d", "--uncoupled"], &["--uncoupled", "--temperature"]),
    (&["bench", "--temperature", "1"], &["--speculate"]),
    (&["bench", "--seed", "1"], &["--speculate"]),
    (&["bench", "--speculate", "lookup", "--temperature", "-1"], &["temperature", "-1"]),
    (
        &["generate", "x", "--logit-bias", "99999999=1"],
        &["--logit-bias", "no vocabulary has a token 99999999"],
    ),
    (&["generate", "x", "--speculate", "tree", "--drafter", "d", "--control"], &["--control", "reconsider"]),
    (
        &["generate", "x", "--speculate", "reconsider", "--drafter", "d", "--control", "--children", "8"],
        &["--control", "--children", "at most 8"],
    ),
    (&["generate", "x", "--precision", "f8"], &["--precision", "f8", "f16", "f32"]),
    (&["generate", "x", "--late"], &["--late", "auto decides"]),
    (&["generate", "x", "--late", "--speculate", "auto", "--drafter", "d"], &["--late", "auto decides"]),
    (&["generate", "x", "--late", "--speculate", "off"], &["--late", "no rounds"]),
    (
        &["generate", "x", "--late", "--speculate", "lookup", "--json", "--logprobs", "1"],
        &["--late", "--logprobs"],
    ),
    (&["bench", "--late"], &["--speculate"]),
    (&["bench", "--late", "--speculate", "lookup,auto"], &["--late", "auto decides"]),
    (&["bench", "--late", "--speculate", "off"], &["--late", "no rounds"]),
    (&["chat", "--late", "--speculate", "lookup"], &["--late"]),
    (&["generate", "x", "--remeasure"], &["--remeasure", "auto"]),
    (&["generate", "x", "--speculate", "lookup", "--remeasure"], &["--remeasure", "auto"]),
    (&["generate", "x", "--drafter", ""], &["--drafter"]),
    (&["bench", "--speculate", "chain,eagle"], &["--speculate", "eagle"]),
    (&["bench", "--speculate", "lookup", "--width", "3"], &["--width"]),
    (
        &["bench", "--speculate", "tree,chain", "--drafter", "d", "--nodes", "63"],
        &["--nodes is 63", "1 to 16", "--speculate chain"],
    ),
    (&["bench", "--prompts", "f"], &["--speculate"]),
    (&["bench", "--speculate", "lookup", "--limit", "1"], &["--prompts"]),
    (&["bench", "--speculate", "lookup", "--prompts", "f", "--limit", "0"], &["--limit"]),
    (&["bench", "--nodes", "3"], &["--nodes"]),
    (&["tree", "x", "--speculate", "off"], &["--speculate off", "no trees"]),
    (&["tree", "x", "--json", "-", "--svg", "-"], &["--json", "--svg", "standard output"]),
    (&["tree", "x", "--speculate", "chain"], &["chain", "needs a drafter"]),
    (&["tree", "x", "--nodes", "17"], &["--nodes is 17"]),
    (&["tree", ""], &["prompt is empty"]),
    (&["bench", "--drafter", "d"], &["--speculate"]),
    (&["bench", "--drafter", "d", "--speculate", "lookup,off"], &["--drafter", "uses a drafter"]),
    (&["bench", "--repeat", "0"], &["--repeat"]),
    (&["bench", "--tokens", "x"], &["--tokens"]),
    (&["devices", "extra"], &["extra"]),
    (&["chat", "--json"], &["--json"]),
];

#[test]
fn wrong_usage_exits_with_2_and_names_the_argument() {
    let home = tempfile::tempdir().unwrap();
    for (arguments, words) in WRONG {
        expect(&redraft(home.path(), arguments).output().unwrap(), 2, words);
    }
    assert!(WRONG.len() >= 80);
}

#[test]
fn help_and_version_go_to_standard_output() {
    let home = tempfile::tempdir().unwrap();
    for arguments in [
        &["--help"][..],
        &["--version"],
        &["generate", "--help"],
        &["chat", "-h"],
        &["bench", "--help"],
        &["tree", "--help"],
        &["devices", "--help"],
        &["inspect", "--help"],
        &["pull", "--help"],
    ] {
        let output = redraft(home.path(), arguments).output().unwrap();
        expect(&output, 0, &[]);
        assert!(!output.stdout.is_empty());
        assert!(!text(&output.stdout).contains('\x1b'), "colour in a pipe");
    }
}

#[test]
fn a_model_that_is_nowhere_exits_with_1_and_lists_the_names() {
    let home = tempfile::tempdir().unwrap();
    for arguments in [
        &["generate", "x", "--model", "smolm"][..],
        &["chat", "--model", "./absent.gguf"],
        &["bench", "--model", "absent"],
        &["inspect", "absent.gguf"],
        &["pull", "absent"],
    ] {
        expect(
            &redraft(home.path(), arguments).output().unwrap(),
            1,
            &["no file", "smollm2-135m", "hf:owner/repo"],
        );
    }
    let folder = home.path().display().to_string();
    expect(&redraft(home.path(), &["inspect", &folder]).output().unwrap(), 1, &["not a file"]);
}

/// `redraft … | head -0`: the reader is gone, which is nobody's error.
#[cfg(unix)]
#[test]
fn a_closed_pipe_is_a_quiet_end() {
    let home = tempfile::tempdir().unwrap();
    let model = crate::inspect::tiny(home.path());
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = redraft(home.path(), &["inspect", &model]).stdout(writer).output().unwrap();
    expect(&output, 0, &[]);
    assert_eq!(text(&output.stderr), "");
}
