//! Small vocabularies, and the way to the real ones.

use redraft_gguf::{Array, Gguf, Metadata, Value};
use redraft_text::Tokenizer;
use std::path::PathBuf;

pub(crate) const NORMAL: i32 = 1;
pub(crate) const UNKNOWN: i32 = 2;
pub(crate) const CONTROL: i32 = 3;
pub(crate) const USER: i32 = 4;
pub(crate) const BYTE: i32 = 6;

/// GPT-2's letter for a byte, by its definition: printable bytes as they are, the others from U+0100 on.
pub(crate) fn letter(byte: u8) -> char {
    let printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if printable(byte) {
        return char::from(byte);
    }
    let shift = (0..byte).filter(|&other| !printable(other)).count();
    char::from_u32(0x100 + u32::try_from(shift).unwrap()).unwrap()
}

pub(crate) fn strings(texts: impl IntoIterator<Item = impl Into<String>>) -> Value {
    Value::Array(Array::String(texts.into_iter().map(Into::into).collect()))
}

/// 256 letters, `he`, `ll`, `hell`, `Ġw`; user-defined `<think>`; control `<|im_start|>`, `<|im_end|>`.
pub(crate) fn byte_level() -> Metadata {
    let mut tokens: Vec<String> = (0..=255).map(|byte| letter(byte).to_string()).collect();
    tokens.extend(["he", "ll", "hell", "Ġw", "<think>", "<|im_start|>", "<|im_end|>"].map(String::from));
    let mut kinds = vec![NORMAL; 260];
    kinds.extend([USER, CONTROL, CONTROL]);
    let mut metadata = Metadata::new();
    metadata.insert("tokenizer.ggml.model", Value::String("gpt2".into()));
    metadata.insert("tokenizer.ggml.pre", Value::String("smollm".into()));
    metadata.insert("tokenizer.ggml.tokens", strings(tokens));
    metadata.insert("tokenizer.ggml.token_type", Value::Array(Array::I32(kinds)));
    metadata.insert("tokenizer.ggml.merges", strings(["h e", "l l", "he ll", "Ġ w"]));
    metadata.insert("tokenizer.ggml.bos_token_id", Value::U32(261));
    metadata.insert("tokenizer.ggml.eos_token_id", Value::U32(262));
    metadata
}

/// `<unk>`, `<s>`, `</s>`, 256 bytes, a few pieces with scores.
pub(crate) fn sentence() -> Metadata {
    let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>"].map(String::from).to_vec();
    tokens.extend((0..=255).map(|byte: u8| format!("<0x{byte:02X}>")));
    let mut kinds = vec![UNKNOWN, CONTROL, CONTROL];
    kinds.extend([BYTE; 256]);
    let mut scores = vec![0.0; 259];
    for (index, piece) in ["▁", "a", "b", "ab", "▁a", "▁ab", "é", "▁▁"].into_iter().enumerate() {
        tokens.push(piece.to_owned());
        kinds.push(NORMAL);
        scores.push(-f32::from(u8::try_from(index).unwrap()));
    }
    let mut metadata = Metadata::new();
    metadata.insert("tokenizer.ggml.model", Value::String("llama".into()));
    metadata.insert("tokenizer.ggml.tokens", strings(tokens));
    metadata.insert("tokenizer.ggml.token_type", Value::Array(Array::I32(kinds)));
    metadata.insert("tokenizer.ggml.scores", Value::Array(Array::F32(scores)));
    metadata
}

pub(crate) fn build(metadata: &Metadata) -> Tokenizer {
    Tokenizer::from_gguf(metadata).unwrap()
}

/// Reads the header of a GGUF file.
pub(crate) fn open(path: &std::path::Path) -> Metadata {
    let source = redraft_gguf::FileSource::open(path).unwrap();
    pollster::block_on(Gguf::read(&source)).unwrap().metadata
}

/// A path from the environment, or a declared skip.
pub(crate) fn from_environment(variable: &str, test: &str) -> Option<PathBuf> {
    if variable == "REDRAFT_MODEL" {
        // The variable, or the copy in the cache folder.
        return redraft_testing::model_path(test);
    }
    let path = std::env::var_os(variable).map(PathBuf::from);
    if path.is_none() {
        redraft_testing::declared_skip(test, &format!("{variable} is not set"));
    }
    path
}

/// A file of the reference data beside the repository, or a declared skip.
pub(crate) fn reference(name: &str, test: &str) -> Option<serde_json::Value> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/reference");
    let Ok(bytes) = std::fs::read(folder.join(name)) else {
        redraft_testing::declared_skip(test, &format!("the reference data {name} is absent"));
        return None;
    };
    Some(serde_json::from_slice(&bytes).unwrap())
}
