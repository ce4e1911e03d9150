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
        "shared lists",
        "{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}",
        "Render",
        "set: the value",
    ),
    (
        "shared lists, plain",
        "{% set x = [1] %}{% set x = [x, x] %}{% set x = [x, x] %}{% set x = [x, x] %}{% set x = [x, x] %}{% set x = [x, x] %}{% set x = [x, x] %}{% set x = [x, x] %}{% set x = [x, x] %}{% set x = [x, x] %}{% set x = [x, x] %}{% set x = [x, x] %}{% set x = [x, x] %}{% set x = [x, x] %}{% set x = [x, x] %}{% set x = [x, x] %}{% set x = [x, x] %}{% set x = [x, x] %}{% set x = [x, x] %}{% set x = [x, x] %}{% set x = [x, x] %}{% set x = [x, x] %}{% set x = [x, x] %}{% set x = [x, x] %}{% set x = [x, x] %}{% set x = [x, x] %}{% set x = [x, x] %}{% set x = [x, x] %}{% set x = [x, x] %}{% set x = [x, x] %}{% set x = [x, x] %}{% set x = [x, x] %}{% set x = [x, x] %}{% set x = [x, x] %}{% set x = [x, x] %}{% set x = [x, x] %}{% set x = [x, x] %}{% set x = [x, x] %}{% set x = [x, x] %}{% set x = [x, x] %}{% set x = [x, x] %}{{ x == x }}",
        "Render",
        "set: the value",
    ),
    (
        "deep list",
        "{% set n = namespace(x=[1]) %}{% for i in range(90000) %}{% set n.x = [n.x] %}{% endfor %}{{ n.x }}",
        "Render",
        "nested",
    ),
    (
        "deep map",
        "{% set n = namespace(x={}) %}{% for i in range(90000) %}{% set n.x = {'a': n.x} %}{% endfor %}",
        "Render",
        "nested",
    ),
    (
        "deep lazy list",
        "{% set n = namespace(x={}) %}{% for i in range(90000) %}{% set n.x = {'a': n.x}.items() %}{% endfor %}",
        "Render",
        "nested",
    ),
    (
        "deep namespaces",
        "{% set n = namespace() %}{% for i in range(90000) %}{% set m = namespace(x=n) %}{% endfor %}",
        "Endless",
        "",
    ),
    (
        "namespace in itself",
        "{% set n = namespace() %}{% set n.x = n %}{{ n }}",
        "Render",
        "holds a namespace",
    ),
    (
        "namespace in its list",
        "{% set n = namespace() %}{% set l = [[n]] %}{% set n.x = l %}{{ n == n }}",
        "Render",
        "holds a namespace",
    ),
    (
        "list as JSON too deep",
        "{{ [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]|tojson }}",
        "Syntax",
        "recursion",
    ),
    (
        "macro arguments",
        "{% macro f(x) %}{% set y = 1 %}{{ f([x, x, x, x]) }}{% endmacro %}{{ f(1) }}",
        "Recursion|Render",
        "",
    ),
    (
        "macro arguments compared",
        "{% macro f(x, d=0) %}{% if d > 12 %}{{ x == [x] }}{{ x == x ~ \"\" }}{% else %}{{ f([x] * 9, d + 1) }}{% endif %}{% endmacro %}{{ f(1) }}",
        "Render",
        "set: the value",
    ),
    (
        "with blocks",
        "{% with x1 = [x0, x0] %}{% with x2 = [x1, x1] %}{% with x3 = [x2, x2] %}{% with x4 = [x3, x3] %}{% with x5 = [x4, x4] %}{% with x6 = [x5, x5] %}{% with x7 = [x6, x6] %}{% with x8 = [x7, x7] %}{% with x9 = [x8, x8] %}{% with x10 = [x9, x9] %}{% with x11 = [x10, x10] %}{% with x12 = [x11, x11] %}{% with x13 = [x12, x12] %}{% with x14 = [x13, x13] %}{% with x15 = [x14, x14] %}{% with x16 = [x15, x15] %}{% with x17 = [x16, x16] %}{% with x18 = [x17, x17] %}{% with x19 = [x18, x18] %}{% with x20 = [x19, x19] %}{% with x21 = [x20, x20] %}{% with x22 = [x21, x21] %}{% with x23 = [x22, x22] %}{% with x24 = [x23, x23] %}{% with x25 = [x24, x24] %}{% with x26 = [x25, x25] %}{% with x27 = [x26, x26] %}{% with x28 = [x27, x27] %}{% with x29 = [x28, x28] %}{% with x30 = [x29, x29] %}{% with x31 = [x30, x30] %}{% with x32 = [x31, x31] %}{% with x33 = [x32, x32] %}{% with x34 = [x33, x33] %}{% with x35 = [x34, x34] %}{% with x36 = [x35, x35] %}{% with x37 = [x36, x36] %}{% with x38 = [x37, x37] %}{% with x39 = [x38, x38] %}{% with x40 = [x39, x39] %}{% with x41 = [x40, x40] %}{% with x42 = [x41, x41] %}{% with x43 = [x42, x42] %}{% with x44 = [x43, x43] %}{% with x45 = [x44, x44] %}{% with x46 = [x45, x45] %}{% with x47 = [x46, x46] %}{% with x48 = [x47, x47] %}{% with x49 = [x48, x48] %}{% with x50 = [x49, x49] %}{% with x51 = [x50, x50] %}{% with x52 = [x51, x51] %}{% with x53 = [x52, x52] %}{% with x54 = [x53, x53] %}{% with x55 = [x54, x54] %}{% with x56 = [x55, x55] %}{% with x57 = [x56, x56] %}{% with x58 = [x57, x57] %}{% with x59 = [x58, x58] %}{% with x60 = [x59, x59] %}{{ x60 == x60 }}{{ x60 ~ \"\" }}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}{% endwith %}",
        "Render",
        "set: the value",
    ),
    (
        "loops",
        "{% for x1 in [[x0, x0]] %}{% for x2 in [[x1, x1]] %}{% for x3 in [[x2, x2]] %}{% for x4 in [[x3, x3]] %}{% for x5 in [[x4, x4]] %}{% for x6 in [[x5, x5]] %}{% for x7 in [[x6, x6]] %}{% for x8 in [[x7, x7]] %}{% for x9 in [[x8, x8]] %}{% for x10 in [[x9, x9]] %}{% for x11 in [[x10, x10]] %}{% for x12 in [[x11, x11]] %}{% for x13 in [[x12, x12]] %}{% for x14 in [[x13, x13]] %}{% for x15 in [[x14, x14]] %}{% for x16 in [[x15, x15]] %}{% for x17 in [[x16, x16]] %}{% for x18 in [[x17, x17]] %}{% for x19 in [[x18, x18]] %}{% for x20 in [[x19, x19]] %}{% for x21 in [[x20, x20]] %}{% for x22 in [[x21, x21]] %}{% for x23 in [[x22, x22]] %}{% for x24 in [[x23, x23]] %}{% for x25 in [[x24, x24]] %}{% for x26 in [[x25, x25]] %}{% for x27 in [[x26, x26]] %}{% for x28 in [[x27, x27]] %}{% for x29 in [[x28, x28]] %}{% for x30 in [[x29, x29]] %}{% for x31 in [[x30, x30]] %}{% for x32 in [[x31, x31]] %}{% for x33 in [[x32, x32]] %}{% for x34 in [[x33, x33]] %}{% for x35 in [[x34, x34]] %}{% for x36 in [[x35, x35]] %}{% for x37 in [[x36, x36]] %}{% for x38 in [[x37, x37]] %}{% for x39 in [[x38, x38]] %}{% for x40 in [[x39, x39]] %}{% for x41 in [[x40, x40]] %}{% for x42 in [[x41, x41]] %}{% for x43 in [[x42, x42]] %}{% for x44 in [[x43, x43]] %}{% for x45 in [[x44, x44]] %}{% for x46 in [[x45, x45]] %}{% for x47 in [[x46, x46]] %}{% for x48 in [[x47, x47]] %}{% for x49 in [[x48, x48]] %}{% for x50 in [[x49, x49]] %}{% for x51 in [[x50, x50]] %}{% for x52 in [[x51, x51]] %}{% for x53 in [[x52, x52]] %}{% for x54 in [[x53, x53]] %}{% for x55 in [[x54, x54]] %}{% for x56 in [[x55, x55]] %}{% for x57 in [[x56, x56]] %}{% for x58 in [[x57, x57]] %}{% for x59 in [[x58, x58]] %}{% for x60 in [[x59, x59]] %}{{ x60 ~ \"\" }}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}",
        "Render",
        "set: the value",
    ),
    (
        "caller arguments",
        "{% macro m0(x) %}{{ caller([x, x]) }}{% endmacro %}{% call(x) m0(1) %}{% call(x) m0(x) %}{% call(x) m0(x) %}{% call(x) m0(x) %}{% call(x) m0(x) %}{% call(x) m0(x) %}{% call(x) m0(x) %}{% call(x) m0(x) %}{% call(x) m0(x) %}{% call(x) m0(x) %}{% call(x) m0(x) %}{% call(x) m0(x) %}{% call(x) m0(x) %}{% call(x) m0(x) %}{% call(x) m0(x) %}{% call(x) m0(x) %}{% call(x) m0(x) %}{% call(x) m0(x) %}{% call(x) m0(x) %}{% call(x) m0(x) %}{% call(x) m0(x) %}{% call(x) m0(x) %}{% call(x) m0(x) %}{% call(x) m0(x) %}{% call(x) m0(x) %}{% call(x) m0(x) %}{% call(x) m0(x) %}{% call(x) m0(x) %}{% call(x) m0(x) %}{% call(x) m0(x) %}{% call(x) m0(x) %}{% call(x) m0(x) %}{% call(x) m0(x) %}{% call(x) m0(x) %}{% call(x) m0(x) %}{% call(x) m0(x) %}{% call(x) m0(x) %}{% call(x) m0(x) %}{% call(x) m0(x) %}{% call(x) m0(x) %}{{ x ~ \"\" }}{% endcall %}{% endcall %}{% endcall %}{% endcall %}{% endcall %}{% endcall %}{% endcall %}{% endcall %}{% endcall %}{% endcall %}{% endcall %}{% endcall %}{% endcall %}{% endcall %}{% endcall %}{% endcall %}{% endcall %}{% endcall %}{% endcall %}{% endcall %}{% endcall %}{% endcall %}{% endcall %}{% endcall %}{% endcall %}{% endcall %}{% endcall %}{% endcall %}{% endcall %}{% endcall %}{% endcall %}{% endcall %}{% endcall %}{% endcall %}{% endcall %}{% endcall %}{% endcall %}{% endcall %}{% endcall %}{% endcall %}",
        "Render|Recursion|Syntax",
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
        if (!expected.is_empty() && !expected.split('|').any(|kind| kind == found))
            || !text.contains(words)
            || seconds > 5.0
        {
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
