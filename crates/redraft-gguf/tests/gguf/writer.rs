//! Writes GGUF files, well-formed or lying: every count, length, type and offset can be set apart from the truth.

use redraft_gguf::{Gguf, GgufError, ModelConfig};

/// Number of the value type `u32` and of some others, as GGUF has them.
pub(crate) const U32: u32 = 4;
pub(crate) const F32: u32 = 6;
pub(crate) const BOOL: u32 = 7;
pub(crate) const STRING: u32 = 8;
pub(crate) const ARRAY: u32 = 9;

#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) key: Vec<u8>,
    pub(crate) kind: u32,
    pub(crate) payload: Vec<u8>,
}

#[derive(Clone)]
pub(crate) struct Tensor {
    pub(crate) name: Vec<u8>,
    pub(crate) dims: Vec<u64>,
    /// Number of dimensions that the file states.
    pub(crate) dim_count: u32,
    pub(crate) kind: u32,
    pub(crate) offset: u64,
}

#[derive(Clone)]
pub(crate) struct File {
    pub(crate) magic: [u8; 4],
    pub(crate) version: [u8; 4],
    /// Added to the true counts.
    pub(crate) more_tensors: u64,
    pub(crate) more_entries: u64,
    pub(crate) entries: Vec<Entry>,
    pub(crate) tensors: Vec<Tensor>,
    pub(crate) data_bytes: usize,
    pub(crate) alignment: usize,
}

pub(crate) fn text(value: &str) -> Vec<u8> {
    [&(value.len() as u64).to_le_bytes()[..], value.as_bytes()].concat()
}

/// The payload of an array.
pub(crate) fn array(kind: u32, count: u64, payload: &[u8]) -> Vec<u8> {
    [&kind.to_le_bytes()[..], &count.to_le_bytes(), payload].concat()
}

impl File {
    pub(crate) fn empty() -> Self {
        Self {
            magic: *b"GGUF",
            version: 3u32.to_le_bytes(),
            more_tensors: 0,
            more_entries: 0,
            entries: Vec::new(),
            tensors: Vec::new(),
            data_bytes: 0,
            alignment: 32,
        }
    }

    /// A model of one layer in f32: width 32, feed-forward 64, 2 heads and 1 KV head of 16, 5 tokens.
    pub(crate) fn model(architecture: &str) -> Self {
        let mut file = Self::empty();
        file.set("general.architecture", STRING, text(architecture));
        for (suffix, value) in [
            ("block_count", 1),
            ("context_length", 64),
            ("embedding_length", 32),
            ("feed_forward_length", 64),
            ("attention.head_count", 2),
            ("attention.head_count_kv", 1),
            ("rope.dimension_count", 16u32),
        ] {
            file.set(&format!("{architecture}.{suffix}"), U32, value.to_le_bytes().to_vec());
        }
        let eps = format!("{architecture}.attention.layer_norm_rms_epsilon");
        file.set(&eps, F32, 1e-5f32.to_le_bytes().to_vec());
        let tokens: Vec<u8> = ["a", "b", "c", "d", "e"].into_iter().flat_map(text).collect();
        file.set("tokenizer.ggml.tokens", ARRAY, array(STRING, 5, &tokens));

        file.push("token_embd.weight", &[32, 5]);
        file.push("output_norm.weight", &[32]);
        for (name, dims) in [
            ("attn_norm", &[32][..]),
            ("attn_q", &[32, 32]),
            ("attn_k", &[32, 16]),
            ("attn_v", &[32, 16]),
            ("attn_output", &[32, 32]),
            ("ffn_norm", &[32]),
            ("ffn_gate", &[32, 64]),
            ("ffn_up", &[32, 64]),
            ("ffn_down", &[64, 32]),
        ] {
            file.push(&format!("blk.0.{name}.weight"), dims);
        }
        if architecture == "qwen2" {
            for (name, length) in [("attn_q", 32), ("attn_k", 16), ("attn_v", 16)] {
                file.push(&format!("blk.0.{name}.bias"), &[length]);
            }
        }
        file
    }

    /// Sets a key, replacing an entry of that name.
    pub(crate) fn set(&mut self, key: &str, kind: u32, payload: Vec<u8>) {
        self.unset(key);
        self.entries.push(Entry { key: key.as_bytes().to_vec(), kind, payload });
    }

    pub(crate) fn set_u32(&mut self, key: &str, value: u32) {
        self.set(key, U32, value.to_le_bytes().to_vec());
    }

    pub(crate) fn set_f32(&mut self, key: &str, value: f32) {
        self.set(key, F32, value.to_le_bytes().to_vec());
    }

    pub(crate) fn unset(&mut self, key: &str) {
        self.entries.retain(|entry| entry.key != key.as_bytes());
    }

    /// Appends an f32 tensor after the data so far.
    pub(crate) fn push(&mut self, name: &str, dims: &[u64]) {
        self.data_bytes = self.data_bytes.next_multiple_of(self.alignment);
        self.tensors.push(Tensor {
            name: name.as_bytes().to_vec(),
            dims: dims.to_vec(),
            dim_count: u32::try_from(dims.len()).unwrap(),
            kind: 0,
            offset: self.data_bytes as u64,
        });
        self.data_bytes += usize::try_from(dims.iter().product::<u64>()).unwrap() * 4;
    }

    pub(crate) fn tensor(&mut self, name: &str) -> &mut Tensor {
        self.tensors.iter_mut().find(|tensor| tensor.name == name.as_bytes()).unwrap()
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.tensors.retain(|tensor| tensor.name != name.as_bytes());
    }

    /// The header alone, without the padding before tensor data.
    pub(crate) fn header(&self) -> Vec<u8> {
        let mut out = [self.magic, self.version].concat();
        out.extend((self.tensors.len() as u64).wrapping_add(self.more_tensors).to_le_bytes());
        out.extend((self.entries.len() as u64).wrapping_add(self.more_entries).to_le_bytes());
        for entry in &self.entries {
            out.extend((entry.key.len() as u64).to_le_bytes());
            out.extend(&entry.key);
            out.extend(entry.kind.to_le_bytes());
            out.extend(&entry.payload);
        }
        for tensor in &self.tensors {
            out.extend((tensor.name.len() as u64).to_le_bytes());
            out.extend(&tensor.name);
            out.extend(tensor.dim_count.to_le_bytes());
            tensor.dims.iter().for_each(|dim| out.extend(dim.to_le_bytes()));
            out.extend(tensor.kind.to_le_bytes());
            out.extend(tensor.offset.to_le_bytes());
        }
        out
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = self.header();
        out.resize(out.len().next_multiple_of(self.alignment) + self.data_bytes, 0);
        out
    }
}

pub(crate) fn read(bytes: &Vec<u8>) -> Result<Gguf, GgufError> {
    pollster::block_on(Gguf::read(bytes))
}

/// Reads the header and then the shape of the model.
pub(crate) fn load(bytes: &Vec<u8>) -> Result<ModelConfig, GgufError> {
    ModelConfig::from_gguf(&read(bytes)?)
}
