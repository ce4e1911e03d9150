//! Model files that lie, given to the engine: each ends in a typed error that names what is wrong, none in a panic,
//! none without end. The engine's complement to the table of the GGUF crate.

use pollster::block_on;
use redraft::{
    Array, Engine, EngineOptions, Error, GenerateOptions, GgmlType, Message, ReadAt, ReadError, TokenId,
    Value,
};
use redraft_testing::{Prng, TinyModel, ran_on_gpu};
use redraft_tests::{Parts, answer, load, tiny};
use std::cell::Cell;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Nothing that a tiny file asks for takes this long, on any machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// Runs `work` on a thread of its own; fails when it panics or does not end.
#[track_caller]
fn within<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, receive) = channel();
    let thread = std::thread::spawn(move || send.send(work()));
    match receive.recv_timeout(PATIENCE) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => panic!("{what}: no end after {PATIENCE:?}"),
        Err(RecvTimeoutError::Disconnected) => panic!("{what}: panicked: {:?}", thread.join().map(|_| ())),
    }
}

fn kind(error: &Error) -> &'static str {
    match error {
        Error::File(_) => "File",
        Error::Model(_) => "Model",
        Error::Gpu(_) => "Gpu",
        Error::Tokenizer(_) => "Tokenizer",
        Error::Template(_) => "Template",
        _ => "other",
    }
}

/// What loading ends in: the kind of the error and its message, or nothing.
fn refusal(source: &impl ReadAt) -> Option<(&'static str, String)> {
    let loaded = block_on(Engine::load(source, EngineOptions::default(), |_| {}));
    loaded.err().map(|error| (kind(&error), error.to_string()))
}

/// What is wrong; how to make it so; the kind of the error; words of its message.
type Case = (&'static str, fn(&mut Parts), &'static str, &'static [&'static str]);

fn run(cases: &[Case]) {
    let good = Parts::of(&tiny(&TinyModel::default()));
    let mut failures = String::new();
    for (what, spoil, wanted, words) in cases {
        let mut parts = good.clone();
        spoil(&mut parts);
        let bytes = parts.to_bytes();
        let (found, message) = within(what, move || refusal(&bytes)).unwrap_or(("accepted", String::new()));
        if found != *wanted || !words.iter().all(|word| message.contains(word)) {
            failures.push_str(&format!("{what}: wanted {wanted} {words:?}, got {found}: {message}\n"));
        }
    }
    assert!(failures.is_empty(), "\n{failures}");
}

fn text(value: &str) -> Value {
    Value::String(value.to_owned())
}

fn texts(values: &[&str]) -> Value {
    Value::Array(Array::String(values.iter().map(|value| (*value).to_owned()).collect()))
}

fn without(parts: &mut Parts, name: &str) {
    parts.metadata.retain(|(key, _)| key != name);
    parts.tensors.retain(|tensor| tensor.name != name);
}

fn tokens_of(parts: &mut Parts) -> &mut Vec<String> {
    let value = parts.metadata.iter_mut().find(|(key, _)| key == "tokenizer.ggml.tokens");
    match value {
        Some((_, Value::Array(Array::String(tokens)))) => tokens,
        other => panic!("the tiny model has tokens, found {other:?}"),
    }
}

#[test]
fn tensors_that_are_missing_or_wrong() {
    run(&[
        ("no embedding", |p| without(p, "token_embd.weight"), "File", &["token_embd.weight"]),
        ("no last norm", |p| without(p, "output_norm.weight"), "File", &["output_norm.weight"]),
        ("no query", |p| without(p, "blk.0.attn_q.weight"), "File", &["blk.0.attn_q.weight"]),
        ("no key", |p| without(p, "blk.1.attn_k.weight"), "File", &["blk.1.attn_k.weight"]),
        ("no value", |p| without(p, "blk.1.attn_v.weight"), "File", &["blk.1.attn_v.weight"]),
        ("no output", |p| without(p, "blk.0.attn_output.weight"), "File", &["blk.0.attn_output.weight"]),
        ("no gate", |p| without(p, "blk.0.ffn_gate.weight"), "File", &["blk.0.ffn_gate.weight"]),
        ("no up", |p| without(p, "blk.0.ffn_up.weight"), "File", &["blk.0.ffn_up.weight"]),
        ("no down", |p| without(p, "blk.1.ffn_down.weight"), "File", &["blk.1.ffn_down.weight"]),
        ("no norm", |p| without(p, "blk.1.ffn_norm.weight"), "File", &["blk.1.ffn_norm.weight"]),
        ("no tensors", |p| p.tensors.clear(), "File", &["token_embd.weight"]),
        (
            "a matrix on its side",
            |p| p.tensors.iter_mut().filter(|t| t.name.contains("ffn_down")).for_each(|t| t.dims.reverse()),
            "File",
            &["ffn_down"],
        ),
        (
            "a norm of another width",
            |p| {
                let norm = p.tensors.iter_mut().find(|t| t.name == "output_norm.weight").expect("a norm");
                (norm.dims, norm.bytes) = (vec![32], vec![0; 128]);
            },
            "File",
            &["output_norm.weight", "64", "32"],
        ),
        (
            "weights that are integers",
            |p| {
                let query = p.tensors.iter_mut().find(|t| t.name == "blk.0.attn_q.weight").expect("a query");
                (query.kind, query.bytes) = (GgmlType::I32, vec![0; 64 * 64 * 4]);
            },
            "File",
            &["blk.0.attn_q.weight", "I32"],
        ),
    ]);
}

#[test]
fn shapes_that_lie() {
    run(&[
        ("no layers", |p| p.set("llama.block_count", Value::U32(0)), "File", &["llama.block_count"]),
        ("a layer more", |p| p.set("llama.block_count", Value::U32(3)), "File", &["blk.2."]),
        ("endless layers", |p| p.set("llama.block_count", Value::U32(u32::MAX)), "File", &["block_count"]),
        ("another width", |p| p.set("llama.embedding_length", Value::U32(65)), "File", &["embedding_length"]),
        ("a wider one", |p| p.set("llama.embedding_length", Value::U32(96)), "File", &["token_embd.weight"]),
        ("no width", |p| p.set("llama.embedding_length", Value::U32(0)), "File", &["embedding_length"]),
        ("another inside", |p| p.set("llama.feed_forward_length", Value::U32(128)), "File", &["ffn_"]),
        ("no heads", |p| p.set("llama.attention.head_count", Value::U32(0)), "File", &["head_count"]),
        ("a head more", |p| p.set("llama.attention.head_count", Value::U32(5)), "File", &["head_count"]),
        (
            "uneven heads",
            |p| p.set("llama.attention.head_count_kv", Value::U32(3)),
            "File",
            &["head_count_kv"],
        ),
        ("a long head", |p| p.set("llama.attention.key_length", Value::U32(1 << 30)), "File", &["_length"]),
        ("no context", |p| p.set("llama.context_length", Value::U32(0)), "File", &["context_length"]),
        (
            "text for a number",
            |p| p.set("llama.block_count", text("two")),
            "File",
            &["block_count", "string"],
        ),
        (
            "no epsilon",
            |p| p.set("llama.attention.layer_norm_rms_epsilon", Value::F32(f32::NAN)),
            "File",
            &["rms_epsilon", "NaN"],
        ),
        ("no base", |p| p.set("llama.rope.freq_base", Value::F32(0.0)), "File", &["freq_base"]),
        (
            "another base",
            |p| p.set("llama.rope.freq_base", Value::F32(f32::INFINITY)),
            "File",
            &["freq_base"],
        ),
        ("a rope too long", |p| p.set("llama.rope.dimension_count", Value::U32(99)), "File", &["rope"]),
        ("an unknown kind", |p| p.set("general.architecture", text("mamba")), "File", &["mamba"]),
        ("another kind", |p| p.set("general.architecture", text("qwen2")), "File", &["qwen2"]),
    ]);
}

#[test]
fn tokenizers_that_do_not_match() {
    run(&[
        ("more tokens than rows", |p| add_tokens(p, 3), "File", &["token_embd.weight", "323", "320"]),
        ("no tokens", |p| without(p, "tokenizer.ggml.tokens"), "Tokenizer", &["tokenizer.ggml.tokens"]),
        ("an empty list", |p| p.set("tokenizer.ggml.tokens", texts(&[])), "Tokenizer", &["ggml.tokens"]),
        (
            "numbers for tokens",
            |p| p.set("tokenizer.ggml.tokens", Value::Array(Array::U32(vec![1, 2]))),
            "File",
            &["tokenizer.ggml.tokens"],
        ),
        ("a token twice", |p| tokens_of(p)[9] = "he".to_owned(), "Tokenizer", &["ggml.tokens", "he"]),
        (
            "few types",
            |p| p.set("tokenizer.ggml.token_type", Value::Array(Array::I32(vec![1; 5]))),
            "Tokenizer",
            &["token_type", "320", "5"],
        ),
        ("an end outside", |p| p.set("tokenizer.ggml.eos_token_id", Value::U32(320)), "Tokenizer", &["eos"]),
        ("a far start", |p| p.set("tokenizer.ggml.bos_token_id", Value::U32(!0)), "Tokenizer", &["bos"]),
        ("an unknown kind", |p| p.set("tokenizer.ggml.model", text("rwkv")), "Tokenizer", &["rwkv"]),
        ("no kind", |p| without(p, "tokenizer.ggml.model"), "Tokenizer", &["tokenizer.ggml.model"]),
        ("an unknown splitter", |p| p.set("tokenizer.ggml.pre", text("?")), "Tokenizer", &["ggml.pre"]),
        (
            "a merge of nothing",
            |p| p.set("tokenizer.ggml.merges", texts(&["zzz qqq"])),
            "Tokenizer",
            &["tokenizer.ggml.merges", "zzz"],
        ),
        (
            "no merge at all",
            |p| p.set("tokenizer.ggml.merges", texts(&["alone"])),
            "Tokenizer",
            &["tokenizer.ggml.merges", "alone"],
        ),
        (
            "half a template",
            |p| p.set("tokenizer.chat_template", text("{% for m in messages %}")),
            "Template",
            &["chat_template", "line 1"],
        ),
        (
            "a template of numbers",
            |p| p.set("tokenizer.chat_template", Value::U32(1)),
            "Template",
            &["chat_template"],
        ),
    ]);
}

fn add_tokens(parts: &mut Parts, count: i32) {
    (0..count).for_each(|index| tokens_of(parts).push(format!("<|more_{index}|>")));
    for (key, value) in &mut parts.metadata {
        if let (true, Value::Array(Array::I32(types))) = (key == "tokenizer.ggml.token_type", value) {
            (0..count).for_each(|_| types.push(1));
        }
    }
}

#[test]
fn templates_without_end_leave_a_usable_engine() {
    let good = Parts::of(&tiny(&TinyModel::default()));
    let cases = [
        ("{% for i in range(1000000000) %}{% for j in range(1000000000) %}{% endfor %}{% endfor %}", ""),
        ("{% macro again(n) %}{{ again(n + 1) }}{% endmacro %}{{ again(0) }}", "nests deeper"),
        ("{{ raise_exception('only on Sundays') }}", "only on Sundays"),
        ("{{ messages[0].content * 1000000000 }}", ""),
        ("{{ messages[0].nothing.at.all }}", "line 1"),
    ];
    for (source, words) in cases {
        let mut parts = good.clone();
        parts.set("tokenizer.chat_template", text(source));
        let bytes = parts.to_bytes();
        let (kind, message) = within(source, move || {
            let mut engine = load("hostile.template", &bytes, EngineOptions::default());
            let error = engine.encode_chat(&[Message::user("Hi")]).expect_err("no text");
            let prompt = engine.encode("the sea").expect("text");
            answer(&mut engine, &prompt, GenerateOptions { max_tokens: 3, ..Default::default() })
                .expect("an answer without the template");
            (kind(&error), error.to_string())
        });
        assert!(kind == "Template" && message.contains(words), "{source}: {kind}: {message}");
    }
}

#[test]
fn files_that_are_cut_short() {
    let file = tiny(&TinyModel::default());
    let gguf = block_on(redraft::Gguf::read(&file)).expect("a valid file");
    let data = usize::try_from(gguf.data_offset).expect("a small file");
    let last = gguf.tensors.iter().map(|tensor| tensor.offset + tensor.size).max().expect("tensors");
    let last = usize::try_from(last).expect("a small file");
    let even = |from: usize, to: usize, count: usize| (0..count).map(move |n| from + (to - from) * n / count);
    let mut cuts = vec![0, 1, 3, 4, 7, 8, 15, 16, 23, 24, data - 1, data, last - 1];
    cuts.extend(even(24, data, 60));
    cuts.extend(even(data, last, 30));
    for cut in cuts {
        let bytes = file[..cut].to_vec();
        let (kind, message) = within("a cut", move || refusal(&bytes))
            .unwrap_or_else(|| panic!("cut at {cut} of {}: accepted", file.len()));
        assert_eq!(kind, "File", "cut at {cut} of {}: {message}", file.len());
        assert!(message.len() > 30, "cut at {cut}: {message}");
    }
}

#[test]
fn files_with_a_wrong_byte_end_in_an_error_or_an_answer() {
    let file = tiny(&TinyModel::default());
    let gguf = block_on(redraft::Gguf::read(&file)).expect("a valid file");
    let data = usize::try_from(gguf.data_offset).expect("a small file");
    let tensors = file.windows(17).position(|bytes| bytes == b"token_embd.weight").expect("a tensor list");
    let mut prng = Prng::new(2024);
    let (mut refused, mut answered) = (0, 0);
    for case in 0..64 {
        // The counts, the metadata, the list of tensors, the tensors.
        let at = match case % 8 {
            0 => prng.below(64),
            1 | 2 => prng.below(tensors),
            3..=6 => tensors + prng.below(data - tensors),
            _ => data + prng.below(file.len() - data),
        };
        let mut bytes = file.clone();
        bytes[at] ^= 1 << prng.below(8);
        let what = format!("a bit of byte {at}");
        match within(&what, move || load_and_answer(&bytes)) {
            Ok(()) => answered += 1,
            Err(message) => {
                refused += 1;
                assert!(message.len() > 20, "{what}: {message}");
            }
        }
    }
    assert!(refused >= 16 && answered >= 4, "{refused} refused, {answered} answered");
}

/// Wrong weights may make wrong tokens, or logits that define no distribution: an error, but no panic.
fn load_and_answer(bytes: &Vec<u8>) -> Result<(), String> {
    let mut engine =
        block_on(Engine::load(bytes, EngineOptions::default(), |_| {})).map_err(|error| error.to_string())?;
    ran_on_gpu("hostile.bytes", &engine.adapter().name, false);
    let options = GenerateOptions { max_tokens: 3, log_probs: Some(3), ..GenerateOptions::default() };
    answer(&mut engine, &[TokenId(1), TokenId(2)], options).map(|_| ()).map_err(|error| error.to_string())
}

/// A file on a disk that fails after some reads.
struct Failing {
    bytes: Vec<u8>,
    reads: Cell<u32>,
}

impl ReadAt for Failing {
    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    async fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), ReadError> {
        let Some(left) = self.reads.get().checked_sub(1) else {
            let source = std::io::Error::other("the disk is gone");
            return Err(ReadError::Io { offset, length: into.len() as u64, source });
        };
        self.reads.set(left);
        self.bytes.read_at(offset, into).await
    }
}

#[test]
fn sources_that_fail_while_reading() {
    let bytes = tiny(&TinyModel::default());
    let engine = load("hostile.source", &bytes, EngineOptions::default());
    drop(engine);
    for reads in [0, 1, 2, 3, 8, 15] {
        let bytes = bytes.clone();
        let refused = within("reading", move || refusal(&Failing { bytes, reads: Cell::new(reads) }));
        let (kind, message) = refused.unwrap_or_else(|| panic!("{reads} reads were enough"));
        assert!(matches!(kind, "File" | "Model"), "after {reads} reads: {kind}: {message}");
        assert!(message.contains("the disk is gone"), "after {reads} reads: {message}");
    }
}
