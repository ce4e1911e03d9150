//! Against other implementations: transformers and llama.cpp.

use crate::fixtures::{build, from_environment, open, reference};
use redraft_text::{ChatTemplate, Message, RenderOptions, Special};
use std::time::Instant;

fn ids(value: &serde_json::Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| u32::try_from(id.as_u64().unwrap()).unwrap()).collect()
}

#[test]
fn smollm2_ids_equal_those_of_transformers() {
    let test = "smollm2_ids_equal_those_of_transformers";
    let Some(path) = from_environment("REDRAFT_MODEL", test) else { return };
    let Some(file) = reference("smollm2_tokenizer_vectors.json", test) else { return };
    let tokenizer = build(&open(&path));
    let vectors = file["vectors"].as_array().unwrap();
    assert_eq!(vectors.len(), 16, "all vectors are there");
    for vector in vectors {
        let text = vector["text"].as_str().unwrap();
        let expected = ids(&vector["ids"]);
        assert_eq!(tokenizer.encode(text, Special::Parse).unwrap(), expected, "{text:?}");
        assert_eq!(tokenizer.decode_with_specials(&expected).unwrap(), text, "and back");
    }
}

#[test]
fn smollm2_chats_equal_those_of_transformers() {
    let test = "smollm2_chats_equal_those_of_transformers";
    let Some(path) = from_environment("REDRAFT_MODEL", test) else { return };
    let Some(file) = reference("smollm2_reference.json", test) else { return };
    let metadata = open(&path);
    let tokenizer = build(&metadata);
    let template = ChatTemplate::from_gguf(&metadata).unwrap().expect("the model carries a template");
    let prompts = file["prompts"].as_array().unwrap();
    assert_eq!(prompts.len(), 5, "all prompts are there");
    for prompt in prompts {
        let messages: Vec<Message> = serde_json::from_value(prompt["messages"].clone()).unwrap();
        let options = RenderOptions { add_generation_prompt: true, ..Default::default() };
        let text = template.render(&messages, options).unwrap();
        assert_eq!(text, prompt["text"].as_str().unwrap(), "templated text");
        let expected = ids(&prompt["prompt_ids"]);
        assert_eq!(tokenizer.encode(&text, Special::Parse).unwrap(), expected, "ids of {text:?}");
        assert_eq!(tokenizer.decode_with_specials(&expected).unwrap(), text, "and back");
    }
}

#[test]
fn smollm2_is_described_and_quick_to_build() {
    let Some(path) = from_environment("REDRAFT_MODEL", "smollm2_is_described_and_quick_to_build") else {
        return;
    };
    let metadata = open(&path);
    let start = Instant::now();
    let tokenizer = build(&metadata);
    eprintln!("built {} tokens in {:?}", tokenizer.len(), start.elapsed());
    assert_eq!(tokenizer.len(), 49152);
    assert_eq!((tokenizer.bos(), tokenizer.add_bos(), tokenizer.add_eos()), (Some(1), false, false));
    assert_eq!(
        tokenizer.eos_ids(),
        [2, 0],
        "the end of turn, and the end of text that is also marked as control"
    );
    assert_eq!(tokenizer.token_text(2), Some("<|im_end|>"));
    assert_eq!(tokenizer.id_of("<|im_end|>"), Some(2));
    assert_eq!(tokenizer.token_bytes(905).unwrap(), b" world");
    let plain = tokenizer.encode("<|im_end|>", Special::Plain).unwrap();
    assert!(plain.len() > 1 && !plain.contains(&2), "a user cannot end the turn: {plain:?}");
    assert_eq!(tokenizer.decode(&plain).unwrap(), "<|im_end|>", "but the text is kept");
}

/// llama.cpp's own vectors: texts in `.inp`, their ids in `.out`, special tokens not parsed.
fn llama_cpp(name: &str) {
    let Some(folder) = from_environment("REDRAFT_VOCABS", &format!("llama_cpp vocabulary {name}")) else {
        return;
    };
    let path = folder.join(format!("ggml-vocab-{name}.gguf"));
    let tokenizer = build(&open(&path));
    let read = |extension: &str| std::fs::read_to_string(format!("{}.{extension}", path.display())).unwrap();
    let (texts, outputs) = (read("inp"), read("out"));
    let texts: Vec<&str> = texts.split("\n__ggml_vocab_test__\n").collect();
    let outputs: Vec<&str> = outputs.lines().collect();
    assert!(outputs.len() > 40, "{name}: {} vectors", outputs.len());
    let mut wrong = Vec::new();
    for (text, output) in texts.iter().zip(&outputs) {
        let expected: Vec<u32> = output.split_whitespace().map(|id| id.parse().unwrap()).collect();
        let found = tokenizer.encode(text, Special::Plain).unwrap();
        if found != expected {
            wrong.push(format!("{text:?}: expected {expected:?}, found {found:?}"));
        }
        assert_eq!(tokenizer.decode(&found).unwrap(), *text, "{name}: and back");
    }
    assert!(wrong.is_empty(), "{name}: {} of {} differ:\n{}", wrong.len(), outputs.len(), wrong.join("\n"));
    eprintln!("{name}: {} vectors", outputs.len());
}

#[test]
fn gpt_2_equals_llama_cpp() {
    llama_cpp("gpt-2");
}

#[test]
fn qwen2_equals_llama_cpp() {
    llama_cpp("qwen2");
}

#[test]
fn llama_bpe_equals_llama_cpp() {
    llama_cpp("llama-bpe");
}

#[test]
fn llama_spm_equals_llama_cpp() {
    llama_cpp("llama-spm");
}

#[test]
fn phi_3_equals_llama_cpp() {
    llama_cpp("phi-3");
}
