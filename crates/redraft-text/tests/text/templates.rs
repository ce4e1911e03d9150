//! Templates as Hugging Face renders them.

use redraft_text::{ChatTemplate, Message, RenderOptions, TemplateError};
use serde_json::json;

fn conversation() -> Vec<Message> {
    vec![Message::system("Be <brief>."), Message::user(" Hi "), Message::assistant("Hello")]
}

fn render(source: &str) -> String {
    let options = RenderOptions { now: Some(0), ..Default::default() };
    ChatTemplate::new(source, "<s>", "</s>").unwrap().render(&conversation(), options).unwrap()
}

/// Expected texts are what `jinja2.sandbox.ImmutableSandboxedEnvironment` with the settings of
/// `transformers.apply_chat_template` gives.
#[test]
fn the_dialect_is_that_of_hugging_face() {
    let table = [
        // Blocks take their line with them; output does not.
        (
            "{% for m in messages %}\n  {% if m.role == 'user' %}\nU:{{ m.content }}\n  {% endif %}\n{% endfor %}",
            "U: Hi \n",
        ),
        ("a\n  {%- if true %}\n b\n{% endif -%}\n  c\n", "a b\nc"),
        ("x\n", "x"),
        ("{{ messages[0]['content'] }}", "Be <brief>."),
        ("{{ messages[1].content | trim }}|{{ messages[1].content.strip() }}", "Hi|Hi"),
        ("{{ messages[0].content.split('<')[-1] }}", "brief>."),
        ("{{ messages[0].content.startswith('Be') }}{{ none }}{{ 1.0 }}", "TrueNone1.0"),
        (
            "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
            "3",
        ),
        (
            "{% for m in messages %}{% if loop.index0 == 1 %}{% continue %}{% endif %}{{ m.role }}{% if not loop.last %},{% endif %}{% endfor %}",
            "system,assistant",
        ),
        (
            "{% for m in messages[1:] %}{% if m.role == 'assistant' %}{% break %}{% endif %}{{ m.role }}{% endfor %}",
            "user",
        ),
        ("{{ bos_token + messages[1].role + eos_token }}", "<s>user</s>"),
        (
            "{% if tools is none %}no tools{% endif %}{% if tools is defined %}, defined{% endif %}",
            "no tools, defined",
        ),
        ("{% if documents %}d{% endif %}{% if enable_thinking is defined %}t{% endif %}{{ missing }}", ""),
        ("{{ messages[0] | tojson }}", r#"{"role": "system", "content": "Be <brief>."}"#),
        (
            "{% for k, v in messages[0].items() %}{{ k }}={{ v }};{% endfor %}",
            "role=system;content=Be <brief>.;",
        ),
        ("{{ strftime_now('%d %b %Y') }}", "01 Jan 1970"),
        ("{% generation %}G{% endgeneration %}{%- generation -%} x {%- endgeneration -%} y", "Gxy"),
        ("{% macro f(x) %}[{{ x }}]{% endmacro %}{{ f('a') ~ f(2) }}", "[a][2]"),
        ("{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | join }}", " Hi "),
        ("{{ 'a' if messages | length > 2 else 'b' }}{{ messages[-1].role }}", "aassistant"),
        ("{{- '<|x|>' -}}\n{#- comment -#}\n z", "<|x|>z"),
        (
            "{{ 'tool' in messages[0] }}{{ messages[0].get('name', 'anon') }}{{ messages[0] is mapping }}",
            "FalseanonTrue",
        ),
        (
            "{{ 'aXbX'.replace('X', '-') }}{{ 'abc'[1:] }}{{ 'ab' * 2 }}{{ 7 // 2 }}{{ 7 % 4 }}",
            "a-b-bcabab33",
        ),
        (
            "{{ ['a', 'b'] | join(', ') }} {{ messages | map(attribute='role') | list | last }}",
            "a, b assistant",
        ),
        (
            "{{ \"it's\" }}{{ 'a\\n' }}{{ 'x' is string }}{{ 'Ab'.lower() }}{{ 'ab'.title() }}",
            "it'sa\nTrueabAb",
        ),
        ("{{ {'a': [1, 'x', none, true]} }}", "{'a': [1, 'x', None, True]}"),
    ];
    for (source, expected) in table {
        assert_eq!(render(source), expected, "{source}");
    }
}

#[test]
fn options_reach_the_template() {
    let source = "{{ add_generation_prompt }} {{ tools[0].function.name }} {{ mode }} {{ tools | tojson(indent=1) }} {{ bos_token }}";
    let extra = json!({"mode": "fast", "bos_token": "no", "messages": []}).as_object().unwrap().clone();
    let tools = vec![json!({"type": "function", "function": {"name": "f", "a": 1.0}})];
    let options = RenderOptions { add_generation_prompt: true, tools, extra, now: None };
    let text = ChatTemplate::new(source, "<s>", "").unwrap().render(&conversation(), options).unwrap();
    let tools =
        "[\n {\n  \"type\": \"function\",\n  \"function\": {\n   \"name\": \"f\",\n   \"a\": 1.0\n  }\n }\n]";
    assert_eq!(text, format!("True f fast {tools} <s>"), "and the named variables are not replaced");
}

#[test]
fn messages_keep_their_further_fields() {
    let text = r#"{"role": "tool", "content": "4", "name": "sum", "ids": [1]}"#;
    let message: Message = serde_json::from_str(text).unwrap();
    assert_eq!(
        serde_json::to_value(&message).unwrap(),
        serde_json::from_str::<serde_json::Value>(text).unwrap()
    );
    let template = ChatTemplate::new("{{ messages[0].name }}{{ messages[0].ids[0] }}", "", "").unwrap();
    assert_eq!(template.render(&[message], RenderOptions::default()).unwrap(), "sum1");
}

#[test]
fn exceptions_carry_the_templates_words() {
    let source =
        "{% if messages[0].role != 'user' %}{{ raise_exception('begin with ' + 'user') }}{% endif %}";
    for source in [source.to_owned(), format!("{{% macro f() %}}{source}{{% endmacro %}}{{{{ f() }}}}")] {
        let error =
            ChatTemplate::new(&source, "", "").unwrap().render(&conversation(), RenderOptions::default());
        match error.unwrap_err() {
            TemplateError::Raised { message } => assert_eq!(message, "begin with user", "{source}"),
            other => panic!("{source}: {other:?}"),
        }
    }
}

#[test]
fn long_conversations_are_not_endless() {
    let source =
        "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content | trim + eos_token + '\n' }}{% endfor %}";
    let messages: Vec<Message> =
        (0..20_000).map(|turn| Message::user(format!("{turn} {}", "word ".repeat(50)))).collect();
    let text =
        ChatTemplate::new(source, "", "</s>").unwrap().render(&messages, RenderOptions::default()).unwrap();
    assert!(text.len() > 5_000_000, "{} bytes", text.len());
}
