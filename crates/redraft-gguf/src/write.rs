//! Writing GGUF files.

use crate::error::GgufError;
use crate::metadata::{Array, Value};
use crate::types::GgmlType;
use std::collections::HashSet;

/// Builds a GGUF file (version 2 or 3, little-endian) from metadata and encoded tensors.
///
/// Keys and tensors are written in the order given; [`Self::to_bytes`] refuses what [`Gguf::read`](crate::Gguf::read)
/// would. The key `general.alignment` is the writer's own: see [`Self::with_alignment`].
///
/// ```
/// use redraft_gguf::{GgmlType, Gguf, GgufWriter, Value, quantize};
///
/// let mut writer = GgufWriter::new();
/// writer.metadata("general.architecture", Value::String("llama".into()));
/// writer.tensor("output_norm.weight", &[4], GgmlType::F32, quantize(GgmlType::F32, &[1.0; 4])?);
/// let file = writer.to_bytes()?;
/// assert_eq!(pollster::block_on(Gguf::read(&file))?.tensors[0].dims, [4]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct GgufWriter {
    version: u32,
    alignment: u32,
    metadata: Vec<(String, Value)>,
    tensors: Vec<Tensor>,
}

#[derive(Clone, Debug)]
struct Tensor {
    name: String,
    dims: Vec<u64>,
    kind: GgmlType,
    bytes: Vec<u8>,
}

/// Alignment of tensor data in files that do not state one, in bytes.
const DEFAULT_ALIGNMENT: u32 = 32;
/// Where a file states another one.
const ALIGNMENT: &str = "general.alignment";
/// Most dimensions of a tensor.
const MAX_DIMS: usize = 4;

impl Default for GgufWriter {
    fn default() -> Self {
        Self { version: 3, alignment: DEFAULT_ALIGNMENT, metadata: Vec::new(), tensors: Vec::new() }
    }
}

impl GgufWriter {
    /// An empty file of version 3 with the default alignment of 32 bytes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the version field. Versions 2 and 3 have the same layout.
    #[must_use]
    pub fn with_version(mut self, version: u32) -> Self {
        self.version = version;
        self
    }

    /// Sets the alignment of tensor data in bytes, a power of two from 8 on; other than 32, it is also written as
    /// `general.alignment`, before all other keys.
    #[must_use]
    pub fn with_alignment(mut self, alignment: u32) -> Self {
        self.alignment = alignment;
        self
    }

    /// Appends a metadata pair.
    pub fn metadata(&mut self, key: &str, value: Value) -> &mut Self {
        self.metadata.push((key.to_owned(), value));
        self
    }

    /// Appends a tensor: `dims` in GGUF order (columns first), `bytes` as ggml stores `kind`, row-major.
    pub fn tensor(&mut self, name: &str, dims: &[u64], kind: GgmlType, bytes: Vec<u8>) -> &mut Self {
        self.tensors.push(Tensor { name: name.to_owned(), dims: dims.to_vec(), kind, bytes });
        self
    }

    /// The file. Tensor data is zero-padded to the alignment, after the last tensor too.
    ///
    /// # Errors
    ///
    /// [`GgufError`] names the key or the tensor that cannot be written: a name that occurs twice, dimensions that the
    /// bytes do not fill, an alignment or a version that no reader takes.
    pub fn to_bytes(&self) -> Result<Vec<u8>, GgufError> {
        self.check()?;
        Ok(self.to_bytes_unchecked())
    }

    /// The file, whatever was put in it: tests need files that lie.
    #[must_use]
    pub fn to_bytes_unchecked(&self) -> Vec<u8> {
        let alignment =
            (self.alignment != DEFAULT_ALIGNMENT).then(|| (ALIGNMENT.to_owned(), Value::U32(self.alignment)));
        let mut out = Bytes(b"GGUF".to_vec());
        out.put(self.version.to_le_bytes());
        out.count(self.tensors.len());
        out.count(self.metadata.len() + usize::from(alignment.is_some()));
        for (key, value) in alignment.iter().chain(&self.metadata) {
            out.string(key);
            out.value(value);
        }
        let mut offset = 0_usize; // from the start of the data section
        for tensor in &self.tensors {
            out.string(&tensor.name);
            // At most a handful; the field has 32 bits.
            out.put(u32::try_from(tensor.dims.len()).unwrap_or(u32::MAX).to_le_bytes());
            tensor.dims.iter().for_each(|dim| out.put(dim.to_le_bytes()));
            out.put(tensor.kind.code().to_le_bytes());
            out.count(offset);
            offset = self.aligned(offset + tensor.bytes.len());
        }
        out.0.resize(self.aligned(out.0.len()), 0);
        out.0.reserve(offset);
        for tensor in &self.tensors {
            out.0.extend_from_slice(&tensor.bytes);
            // The data section starts aligned, so aligning the whole file aligns inside it.
            out.0.resize(self.aligned(out.0.len()), 0);
        }
        out.0
    }

    fn aligned(&self, length: usize) -> usize {
        length.next_multiple_of((self.alignment as usize).max(1))
    }

    fn check(&self) -> Result<(), GgufError> {
        let invalid = |field: String, wanted: &str, found: String| GgufError::Invalid {
            field,
            wanted: wanted.to_owned(),
            found,
        };
        if !(2..=3).contains(&self.version) {
            return Err(invalid("version".into(), "2 or 3", self.version.to_string()));
        }
        if !self.alignment.is_power_of_two() || self.alignment < 8 {
            return Err(invalid(ALIGNMENT.into(), "a power of two from 8 on", self.alignment.to_string()));
        }
        let mut keys = HashSet::new();
        for (key, _) in &self.metadata {
            if key == ALIGNMENT {
                let wanted = "no such key: the writer's alignment decides";
                return Err(invalid(ALIGNMENT.into(), wanted, "one among the metadata".into()));
            }
            if !keys.insert(key) {
                return Err(GgufError::Duplicate { field: "metadata key", name: key.clone() });
            }
        }
        let mut names = HashSet::new();
        for Tensor { name, dims, kind, bytes } in &self.tensors {
            if !names.insert(name) {
                return Err(GgufError::Duplicate { field: "tensor name", name: name.clone() });
            }
            let field = || format!("tensor {name:?}");
            if dims.is_empty() || dims.len() > MAX_DIMS || dims.contains(&0) {
                return Err(invalid(field(), "one to four dimensions above 0", format!("{dims:?}")));
            }
            let rows = dims.iter().skip(1).try_fold(1_u64, |rows, dim| rows.checked_mul(*dim));
            let columns = dims.first().copied().unwrap_or(0);
            let size = kind.row_bytes(columns).zip(rows).and_then(|(row, rows)| row.checked_mul(rows));
            if size != Some(bytes.len() as u64) {
                let wanted = match size {
                    Some(size) => format!("{size} bytes, which {dims:?} of {kind} take"),
                    None => format!("columns that are whole {kind} blocks, found {dims:?}"),
                };
                return Err(invalid(field(), &wanted, format!("{} bytes", bytes.len())));
            }
        }
        Ok(())
    }
}

/// GGUF's primitive encodings, little-endian.
struct Bytes(Vec<u8>);

impl Bytes {
    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        self.0.extend(bytes);
    }

    fn count(&mut self, count: usize) {
        self.put((count as u64).to_le_bytes());
    }

    fn string(&mut self, text: &str) {
        self.count(text.len());
        self.0.extend(text.as_bytes());
    }

    /// The type number and the value.
    fn value(&mut self, value: &Value) {
        let code: u32 = match value {
            Value::U8(_) => 0,
            Value::I8(_) => 1,
            Value::U16(_) => 2,
            Value::I16(_) => 3,
            Value::U32(_) => 4,
            Value::I32(_) => 5,
            Value::F32(_) => 6,
            Value::Bool(_) => 7,
            Value::String(_) => 8,
            Value::Array(_) => 9,
            Value::U64(_) => 10,
            Value::I64(_) => 11,
            Value::F64(_) => 12,
        };
        self.put(code.to_le_bytes());
        match value {
            Value::U8(v) => self.put(v.to_le_bytes()),
            Value::I8(v) => self.put(v.to_le_bytes()),
            Value::U16(v) => self.put(v.to_le_bytes()),
            Value::I16(v) => self.put(v.to_le_bytes()),
            Value::U32(v) => self.put(v.to_le_bytes()),
            Value::I32(v) => self.put(v.to_le_bytes()),
            Value::F32(v) => self.put(v.to_le_bytes()),
            Value::Bool(v) => self.put([u8::from(*v)]),
            Value::String(v) => self.string(v),
            Value::Array(v) => self.array(v),
            Value::U64(v) => self.put(v.to_le_bytes()),
            Value::I64(v) => self.put(v.to_le_bytes()),
            Value::F64(v) => self.put(v.to_le_bytes()),
        }
    }

    /// The element type, the count, and the elements.
    fn array(&mut self, array: &Array) {
        match array {
            Array::U8(v) => self.elements(0, v, |out, v| out.put(v.to_le_bytes())),
            Array::I8(v) => self.elements(1, v, |out, v| out.put(v.to_le_bytes())),
            Array::U16(v) => self.elements(2, v, |out, v| out.put(v.to_le_bytes())),
            Array::I16(v) => self.elements(3, v, |out, v| out.put(v.to_le_bytes())),
            Array::U32(v) => self.elements(4, v, |out, v| out.put(v.to_le_bytes())),
            Array::I32(v) => self.elements(5, v, |out, v| out.put(v.to_le_bytes())),
            Array::F32(v) => self.elements(6, v, |out, v| out.put(v.to_le_bytes())),
            Array::Bool(v) => self.elements(7, v, |out, v| out.put([u8::from(*v)])),
            Array::String(v) => self.elements(8, v, |out, v| out.string(v)),
            Array::U64(v) => self.elements(10, v, |out, v| out.put(v.to_le_bytes())),
            Array::I64(v) => self.elements(11, v, |out, v| out.put(v.to_le_bytes())),
            Array::F64(v) => self.elements(12, v, |out, v| out.put(v.to_le_bytes())),
        }
    }

    fn elements<T>(&mut self, code: u32, values: &[T], mut put: impl FnMut(&mut Self, &T)) {
        self.put(code.to_le_bytes());
        self.count(values.len());
        values.iter().for_each(|value| put(self, value));
    }
}

#[cfg(test)]
mod tests {
    use super::GgufWriter;
    use crate::{GgmlType, GgufError, Value};

    fn refused(writer: &GgufWriter, words: &[&str]) {
        let error: GgufError = writer.to_bytes().unwrap_err();
        for word in words {
            assert!(error.to_string().contains(word), "{word:?} is not in: {error}");
        }
    }

    #[test]
    fn what_no_reader_takes_is_not_written() {
        let one = |name: &str, dims: &[u64], kind, bytes: usize| {
            let mut writer = GgufWriter::new();
            writer.tensor(name, dims, kind, vec![0; bytes]);
            writer
        };
        refused(&GgufWriter::new().with_version(4), &["version", "4"]);
        refused(&GgufWriter::new().with_alignment(24), &["general.alignment", "24"]);
        refused(&GgufWriter::new().with_alignment(4), &["general.alignment", "4"]);
        refused(&one("a", &[3], GgmlType::F32, 8), &["\"a\"", "12 bytes", "8 bytes"]);
        refused(&one("a", &[33, 2], GgmlType::Q8_0, 68), &["\"a\"", "Q8_0", "33"]);
        refused(&one("a", &[u64::MAX, 3], GgmlType::F32, 8), &["\"a\""]);
        refused(&one("a", &[2, 0], GgmlType::F32, 0), &["\"a\"", "above 0"]);
        refused(&one("a", &[], GgmlType::F32, 4), &["\"a\"", "one to four"]);
        let mut twice = one("a", &[1], GgmlType::F32, 4);
        twice.tensor("a", &[1], GgmlType::F32, vec![0; 4]);
        refused(&twice, &["tensor name", "\"a\""]);
        let mut keys = GgufWriter::new();
        keys.metadata("k", Value::U8(1)).metadata("k", Value::U8(2));
        refused(&keys, &["metadata key", "\"k\""]);
        let mut alignment = GgufWriter::new();
        alignment.metadata("general.alignment", Value::U32(64));
        refused(&alignment, &["general.alignment"]);
    }
}
