//! To the bytes of a safetensors file.

use super::{D2T, DrafterFile, METADATA_KEY, VERSION};
use crate::tensor::Tensor;
use redraft_gguf::GgmlType;
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// What the header's length is a multiple of, so that the tensors after it are aligned.
const ALIGNMENT: usize = 8;

impl DrafterFile {
    /// The file: EAGLE-3's names, and everything else as one JSON text in the metadata block. Reading it gives an equal
    /// drafter, and writing that the same bytes.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let mut stored = self.stored();
        // Wide elements first, so that all are aligned.
        stored.sort_by(|a, b| (b.align, a.name).cmp(&(a.align, b.name)));
        let mut header = Map::new();
        header.insert("__metadata__".into(), json!({ METADATA_KEY: self.metadata().to_string() }));
        let mut end = 0;
        for tensor in &stored {
            let start = end;
            end += tensor.bytes.len();
            let entry = json!({ "dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [start, end] });
            header.insert(tensor.name.to_owned(), entry);
        }
        let mut text = Value::Object(header).to_string();
        while !text.len().is_multiple_of(ALIGNMENT) {
            text.push(' ');
        }
        let mut out = Vec::with_capacity(8 + text.len() + end);
        out.extend((text.len() as u64).to_le_bytes());
        out.extend(text.bytes());
        for tensor in &stored {
            out.extend_from_slice(&tensor.bytes);
        }
        out
    }

    fn stored(&self) -> Vec<Stored<'_>> {
        let mut stored: Vec<Stored<'_>> =
            self.tensors.iter().map(|(name, tensor)| Stored::new(name, tensor)).collect();
        if self.config.draft_vocab != self.config.vocab {
            let offsets = (0i64..).zip(&self.draft_ids).map(|(row, id)| i64::from(*id) - row);
            stored.push(Stored {
                name: D2T,
                dtype: "I64",
                align: 8,
                shape: vec![self.config.draft_vocab.into()],
                bytes: offsets.flat_map(i64::to_le_bytes).collect::<Vec<_>>().into(),
            });
        }
        stored
    }

    fn metadata(&self) -> Value {
        let mut map = Map::new();
        map.insert("version".into(), VERSION.into());
        map.insert("config".into(), self.config.to_own());
        let blocks = self.tensors.iter().filter(|(_, tensor)| tensor.kind.block_size() > 1);
        let types: Map<_, _> =
            blocks.map(|(name, tensor)| (name.clone(), Value::from(tensor.kind.name()))).collect();
        if !types.is_empty() {
            map.insert("types".into(), types.into());
        }
        if let Some(target) = &self.target {
            map.insert("target".into(), target.to_json());
        }
        let settings = self.reconsider.settings;
        if settings != super::ReconsiderSettings::default() {
            let all = json!({
                "gate_threshold": settings.gate_threshold,
                "refined_offset": settings.refined_offset,
                "calibrated": settings.calibrated,
            });
            map.insert("reconsider".into(), all);
        }
        Value::Object(map)
    }
}

/// A tensor as the header speaks of it.
struct Stored<'a> {
    name: &'a str,
    dtype: &'static str,
    /// Bytes of an element.
    align: usize,
    shape: Vec<u64>,
    bytes: Cow<'a, [u8]>,
}

impl<'a> Stored<'a> {
    fn new(name: &'a str, tensor: &'a Tensor) -> Self {
        let mut shape = tensor.dims.clone();
        let (dtype, align) = match tensor.kind {
            GgmlType::F32 => ("F32", 4),
            GgmlType::F16 => ("F16", 2),
            GgmlType::BF16 => ("BF16", 2),
            // Blocks: [rows, bytes of a row].
            kind => {
                if let Some(columns) = shape.last_mut() {
                    *columns = kind.row_bytes(*columns).unwrap_or(0);
                }
                ("U8", 1)
            }
        };
        Self { name, dtype, align, shape, bytes: tensor.bytes.as_slice().into() }
    }
}
