//! Safetensors files taken apart, so that tests can spoil them, and put together again by hand.

use redraft_drafter::DrafterFile;
use redraft_testing::TinyDrafter;
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

/// A tensor of a file.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) name: String,
    pub(crate) dtype: String,
    pub(crate) shape: Vec<u64>,
    pub(crate) bytes: Vec<u8>,
}

/// A file.
#[derive(Clone, Debug)]
pub(crate) struct File {
    /// What is under the key `redraft`, if that is there.
    pub(crate) own: Option<Value>,
    /// The same as text, where it is not JSON.
    pub(crate) own_text: Option<String>,
    pub(crate) tensors: Vec<Stored>,
    /// The `config.json` beside the file.
    pub(crate) config: Option<Value>,
    /// Last change to the header.
    pub(crate) header: fn(&mut Map<String, Value>),
    /// Last change to the bytes.
    pub(crate) bytes: fn(&mut Vec<u8>),
}

static EVERYTHING: LazyLock<File> =
    LazyLock::new(|| File::take_apart(&TinyDrafter::with_everything().to_file().unwrap().write()));

impl File {
    /// A valid drafter with every optional part.
    pub(crate) fn everything() -> Self {
        EVERYTHING.clone()
    }

    /// A plain EAGLE-3 checkpoint as the frameworks write it: a `config.json` and no metadata of ours.
    pub(crate) fn checkpoint() -> Self {
        let tiny = TinyDrafter { pass_embedding: false, fingerprint: false, ..TinyDrafter::default() };
        let mut file = Self::take_apart(&tiny.to_file().unwrap().write());
        file.own = None;
        file.config = Some(json!({
            "architectures": ["LlamaForCausalLMEagle3"],
            "hidden_size": 64,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "intermediate_size": 96,
            "rms_norm_eps": 1e-05,
            "vocab_size": 320,
            "draft_vocab_size": 160,
            "num_hidden_layers": 1,
            "hidden_act": "silu",
            "tie_word_embeddings": false,
        }));
        file
    }

    pub(crate) fn take_apart(bytes: &[u8]) -> Self {
        let length = usize::try_from(u64::from_le_bytes(bytes[..8].try_into().unwrap())).unwrap();
        let mut header: Map<String, Value> = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
        let own = header["__metadata__"]["redraft"].as_str().unwrap().to_owned();
        header.remove("__metadata__");
        let data = &bytes[8 + length..];
        let tensors = header.into_iter().map(|(name, entry)| {
            let number = |value: &Value| usize::try_from(value.as_u64().unwrap()).unwrap();
            let [from, to] = [0, 1].map(|at| number(&entry["data_offsets"][at]));
            let shape = entry["shape"].as_array().unwrap().iter().map(|dim| dim.as_u64().unwrap()).collect();
            let dtype = entry["dtype"].as_str().unwrap().to_owned();
            Stored { name, dtype, shape, bytes: data[from..to].to_vec() }
        });
        Self {
            tensors: tensors.collect(),
            own: Some(serde_json::from_str(&own).unwrap()),
            own_text: None,
            config: None,
            header: |_| {},
            bytes: |_| {},
        }
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut header = Map::new();
        let own = self.own_text.clone().or_else(|| self.own.as_ref().map(Value::to_string));
        if let Some(own) = own {
            header.insert("__metadata__".into(), json!({ "redraft": own }));
        }
        let mut end = 0;
        for tensor in &self.tensors {
            let start = end;
            end += tensor.bytes.len();
            let entry = json!({ "dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [start, end] });
            header.insert(tensor.name.clone(), entry);
        }
        (self.header)(&mut header);
        let text = Value::Object(header).to_string();
        let mut out = (text.len() as u64).to_le_bytes().to_vec();
        out.extend(text.bytes());
        self.tensors.iter().for_each(|tensor| out.extend(&tensor.bytes));
        (self.bytes)(&mut out);
        out
    }

    pub(crate) fn read(&self) -> Result<DrafterFile, redraft_drafter::DrafterError> {
        match &self.config {
            Some(config) => DrafterFile::read_with_config(&self.to_bytes(), &config.to_string()),
            None => DrafterFile::read(&self.to_bytes()),
        }
    }

    pub(crate) fn tensor(&mut self, name: &str) -> &mut Stored {
        self.tensors.iter_mut().find(|tensor| tensor.name == name).expect("the file has the tensor")
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.tensors.retain(|tensor| tensor.name != name);
    }

    pub(crate) fn add(&mut self, name: &str, dtype: &str, shape: &[u64], bytes: Vec<u8>) {
        self.tensors.push(Stored { name: name.into(), dtype: dtype.into(), shape: shape.to_vec(), bytes });
    }

    /// Overwrites an f32 element.
    pub(crate) fn poke(&mut self, name: &str, index: usize, value: f32) {
        self.tensor(name).bytes[index * 4..][..4].copy_from_slice(&value.to_le_bytes());
    }

    /// Overwrites an offset of the map of the draft vocabulary.
    pub(crate) fn offset(&mut self, row: usize, value: i64) {
        self.tensor("d2t").bytes[row * 8..][..8].copy_from_slice(&value.to_le_bytes());
    }

    /// Sets a value below the key `redraft`, at the path of keys.
    pub(crate) fn set(&mut self, path: &[&str], value: Value) {
        let mut place = self.own.as_mut().expect("the file has metadata");
        for key in path {
            place = &mut place[*key];
        }
        *place = value;
    }

    /// Sets a key of `config.json`.
    pub(crate) fn configure(&mut self, key: &str, value: Value) {
        self.config.as_mut().expect("a checkpoint")[key] = value;
    }
}
