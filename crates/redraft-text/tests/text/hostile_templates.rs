//! Templates that attack.

use redraft_gguf::{Metadata, Value};
use redraft_text::{ChatTemplate, Message, RenderOptions, TemplateError};
use std::time::Instant;

/// Name, template, kind of the error, words of the message.
const CASES: &[(&str, &str, &str, &str)] = &[
    ("unclosed block", "a\n{% if x %}", "Syntax", "line 2"),
    ("unclosed tag", "{% if x", "Syntax", "line 1"),
    ("unclosed generation", "{% generation %}", "Syntax", "line 1"),
    ("unknown tag", "\n\n{% frobnicate %}", "Syntax", "line 3"),
    ("bad expression", "{{ 1 + }}", "Syntax", "line 1"),
    ("unknown filter", "{{ 1|nope }}", "Render", "nope"),
    ("unknown function", "\n{{ nope() }}", "Render", "line 2"),
    ("unknown method", "{{ 'a'.append(1) }}", "Render", "append"),
    ("attribute of undefined", "{{ a.b.c }}", "Render", "line 1"),
    ("division by zero", "{{ 1 // 0 }}", "Render", "line 1"),
    ("raise", "{{ raise_exception('no') }}", "Raised", "no"),
    (
        "endless range",
        "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
        "Endless",
        "units of work",
    ),
    ("huge range", "{% for i in range(10000000000) %}x{% endfor %}", "", ""),
    ("recursive macro", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "Recursion", "levels"),
    (
        "two macros",
        "{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{% endmacro %}{{ f() }}",
        "Recursion",
        "levels",
    ),
    (
        "recursive loop",
        "{% for x in messages recursive %}{{ loop(messages) }}{% endfor %}",
        "Recursion",
        "levels",
    ),
    ("includes itself", "{% include 'chat_template' %}", "Recursion", "levels"),
    ("extends itself", "{% extends 'chat_template' %}", "", ""),
    ("imports itself", "{% import 'chat_template' as c %}", "", ""),
    (
        "doubling string",
        "{% set n = namespace(x='x') %}{% for i in range(64) %}{% set n.x = n.x ~ n.x %}{% endfor %}{{ n.x }}",
        "Endless",
        "units of work",
    ),
    ("repeated string", "{{ 'x' * 10000000000 }}", "", ""),
    ("repeated list", "{{ [1] * 10000000000 }}", "", ""),
    ("padded string", "{{ '%2000000000d' | format(1) }}", "", ""),
    ("replace bomb", "{{ ('x' * 100000).replace('x', 'y' * 100000) }}", "Endless", "units of work"),
    ("join bomb", "{{ (messages * 1000) | join('x' * 100000) }}", "", ""),
    ("indent bomb", "{{ ('\n' * 100000) | indent(1000000) }}", "", ""),
    ("center bomb", "{{ 'x' | center(10000000000) }}", "", ""),
    (
        "much output",
        "{% set a = 'x' * 1000000 %}{% for i in range(40) %}{{ a }}{% endfor %}",
        "OutputTooLarge",
        "16777216",
    ),
    (
        "shared lists printed",
        "{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}",
        "",
        "",
    ),
    (
        "shared lists as JSON",
        "{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x|tojson }}",
        "Endless",
        "units of work",
    ),
    (
        "shared lists compared",
        "{% set n = namespace(x=[1], y=[1]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% set n.y = [n.y, n.y] %}{% endfor %}{{ n.x == n.y }}",
        "",
        "",
    ),
    (
        "deep list as JSON",
        "{% set n = namespace(x=[1]) %}{% for i in range(500) %}{% set n.x = [n.x] %}{% endfor %}{{ n.x|tojson }}",
        "Render",
        "nested",
    ),
    (
        "deep list printed",
        "{% set n = namespace(x=[1]) %}{% for i in range(90000) %}{% set n.x = [n.x] %}{% endfor %}{{ n.x }}",
        "",
        "",
    ),
    (
        "deep list dropped",
        "{% set n = namespace(x=[1]) %}{% for i in range(90000) %}{% set n.x = [n.x] %}{% endfor %}",
        "",
        "",
    ),
    (
        "deep map dropped",
        "{% set n = namespace(x={}) %}{% for i in range(90000) %}{% set n.x = {'a': n.x} %}{% endfor %}",
        "",
        "",
    ),
    (
        "namespace in itself",
        "{% set n = namespace() %}{% set n.x = n %}{{ n }}{{ n|tojson }}{{ n == n }}",
        "",
        "",
    ),
    ("bad separators", "{{ 1|tojson(separators=3) }}", "Render", "line 1"),
    ("unknown tojson option", "{{ 1|tojson(frob=3) }}", "Render", "frob"),
    ("bad strftime", "{{ strftime_now('%!') }}", "Render", "directive"),
];

fn kind(error: &TemplateError) -> &'static str {
    match error {
        TemplateError::Syntax { .. } => "Syntax",
        TemplateError::Raised { .. } => "Raised",
        TemplateError::Endless { .. } => "Endless",
        TemplateError::Recursion { .. } => "Recursion",
        TemplateError::OutputTooLarge { .. } => "OutputTooLarge",
        TemplateError::Render { .. } => "Render",
        TemplateError::TooLong { .. } => "TooLong",
        TemplateError::Metadata(_) => "Metadata",
        _ => "another",
    }
}

/// Every case ends soon and without a panic. An empty kind leaves open how: the engine may find the template
/// harmless, or stop it for any reason.
#[test]
fn hostile_templates_are_stopped() {
    let messages = [Message::user("a"), Message::assistant("b")];
    let mut wrong = Vec::new();
    for (name, source, expected, words) in CASES {
        let start = Instant::now();
        let result = ChatTemplate::new(source, "", "")
            .and_then(|template| template.render(&messages, RenderOptions::default()));
        let seconds = start.elapsed().as_secs_f64();
        let (found, text) = match &result {
            Ok(text) => ("Ok", format!("{} bytes", text.len())),
            Err(error) => (kind(error), error.to_string()),
        };
        eprintln!("{name}: {found} in {seconds:.3} s: {}", text.chars().take(200).collect::<String>());
        if (!expected.is_empty() && found != *expected) || !text.contains(words) || seconds > 5.0 {
            wrong.push(format!(
                "{name}: expected {expected:?} with {words:?}, found {found} in {seconds:.1} s: {text}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn damaged_metadata_is_named() {
    let with = |key: &str, value: Value| {
        let mut metadata = crate::fixtures::byte_level();
        metadata.insert("tokenizer.chat_template", Value::String("{{ bos_token }}{{ eos_token }}".into()));
        metadata.insert(key, value);
        ChatTemplate::from_gguf(&metadata)
    };
    let fine = with("unrelated", Value::U8(1)).unwrap().unwrap();
    assert_eq!(fine.render(&[], RenderOptions::default()).unwrap(), "<|im_start|><|im_end|>");
    for (key, value, words) in [
        ("tokenizer.chat_template", Value::U32(1), "tokenizer.chat_template"),
        ("tokenizer.chat_template", Value::String("{{".into()), "line 1"),
        ("tokenizer.chat_template", Value::String("x".repeat(2 << 20)), "1048576"),
        ("tokenizer.ggml.bos_token_id", Value::U32(9999), "tokenizer.ggml.bos_token_id"),
        ("tokenizer.ggml.eos_token_id", Value::Bool(true), "tokenizer.ggml.eos_token_id"),
        ("tokenizer.ggml.tokens", Value::U32(1), "tokenizer.ggml.tokens"),
    ] {
        let error = with(key, value).unwrap_err().to_string();
        assert!(error.contains(words), "{key}: {error}");
    }
    assert!(ChatTemplate::from_gguf(&Metadata::new()).unwrap().is_none(), "base models have no template");
}
