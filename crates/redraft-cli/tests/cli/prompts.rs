//! Prompts that cannot be used are refused before a model is looked for.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Output, Stdio};

use crate::{expect, redraft};

/// Runs with `input` on standard input. The model does not exist, so whoever gets that far fails too, differently.
fn piped(home: &Path, arguments: &[&str], input: &[u8]) -> Output {
    let mut child = redraft(home, arguments)
        .args(["--model", "absent.gguf"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The child may end before it has read everything.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

#[test]
fn bad_conversations_are_refused_with_the_reason() {
    let home = tempfile::tempdir().unwrap();
    let deep = "[".repeat(100_000);
    let cases: &[(&[u8], &str)] = &[
        (b"", "not a conversation"),
        (b"null", "not a conversation"),
        (b"[]", "empty"),
        (b"{}", "not a conversation"),
        (b"[{\"role\":\"user\"}]", "content"),
        (b"[{\"content\":\"x\"}]", "role"),
        (b"[{\"role\":1,\"content\":\"x\"}]", "not a conversation"),
        (b"[{\"role\":\"user\",\"content\":{}}]", "not a conversation"),
        (b"[{\"role\":\"user\",\"content\":\"x\"}", "line 1"),
        (b"[{\"role\":\"user\",\"content\":\"\"}]", "last message is empty"),
        (b"[{\"role\":\"\",\"content\":\"x\"}]", "empty role"),
        (b"[{\"role\":\"user\",\"content\":\"\xff\"}]", "not UTF-8"),
        (deep.as_bytes(), "not a conversation"),
    ];
    let file = home.path().join("messages.json");
    for (content, word) in cases {
        fs::write(&file, content).unwrap();
        let name = file.display().to_string();
        expect(&piped(home.path(), &["generate", "--messages", &name], b""), 1, &[word, "messages.json"]);
        expect(&piped(home.path(), &["generate", "--messages", "-"], content), 1, &[word, "standard input"]);
    }
    expect(&piped(home.path(), &["generate", "--messages", "absent.json"], b""), 1, &["absent.json", "read"]);
}

#[test]
fn standard_input_is_the_prompt_when_none_is_given() {
    let home = tempfile::tempdir().unwrap();
    expect(&piped(home.path(), &["generate"], b"\xff\xfe"), 1, &["standard input", "not UTF-8"]);
    expect(&piped(home.path(), &["generate", "-"], b"a\xff"), 1, &["standard input", "byte 1"]);
    let endless = vec![b'a'; (16 << 20) + 1];
    expect(&piped(home.path(), &["generate"], &endless), 1, &["standard input", "longer than"]);
    expect(&piped(home.path(), &["generate"], b"\n"), 2, &["prompt is empty"]);
    // A good prompt gets as far as the model.
    expect(&piped(home.path(), &["generate"], b"hello\n"), 1, &["absent.gguf"]);
}
