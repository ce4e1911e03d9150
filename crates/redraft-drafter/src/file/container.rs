//! The safetensors container, written.

use crate::tensor::Tensor;
use redraft_gguf::GgmlType;
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// What the header's length is a multiple of, so that the tensors after it are aligned.
const ALIGNMENT: usize = 8;

/// A safetensors file of these tensors, with `metadata` as its texts by key.
pub(crate) fn container(mut stored: Vec<Stored<'_>>, metadata: Map<String, Value>) -> Vec<u8> {
    // Wide elements first, so that all are aligned.
    stored.sort_by(|a, b| (b.align, a.name).cmp(&(a.align, b.name)));
    let mut header = Map::new();
    header.insert("__metadata__".into(), metadata.into());
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

/// A tensor as the header speaks of it.
pub(crate) struct Stored<'a> {
    pub(crate) name: &'a str,
    pub(crate) dtype: &'static str,
    /// Bytes of an element.
    pub(crate) align: usize,
    pub(crate) shape: Vec<u64>,
    pub(crate) bytes: Cow<'a, [u8]>,
}

impl<'a> Stored<'a> {
    pub(crate) fn new(name: &'a str, tensor: &'a Tensor) -> Self {
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
