//! The container: header, metadata, and the list of tensors.

use crate::cursor::Cursor;
use crate::error::GgufError;
use crate::metadata::{Array, Metadata, Value};
use crate::source::ReadAt;
use crate::types::GgmlType;
use std::collections::HashMap;

/// Alignment of tensor data where the file does not state one.
const DEFAULT_ALIGNMENT: u32 = 32;
/// Longest text of a metadata value, in bytes. Chat templates take tens of kilobytes.
const MAX_STRING: u64 = 64 << 20;
/// Longest metadata key, in bytes: the format's own limit.
const MAX_KEY: u64 = 65_535;
/// Longest tensor name, in bytes. ggml itself stops at 64.
const MAX_NAME: u64 = 256;
/// Most metadata keys.
const MAX_KEYS: u64 = 1_000_000;
/// Most tensors.
const MAX_TENSORS: u64 = 1_000_000;
/// Most dimensions of a tensor.
const MAX_DIMS: u32 = 4;
/// Fewest bytes that a metadata entry takes: length of the key, type, one byte of value.
const LEAST_ENTRY: u64 = 8 + 4 + 1;
/// Fewest bytes that an entry of the tensor list takes: length of the name, number of dimensions, one dimension,
/// type, offset.
const LEAST_TENSOR: u64 = 8 + 4 + 8 + 4 + 8;

/// The header of a GGUF file. Tensor data stays in the file.
#[derive(Debug, Clone)]
pub struct Gguf {
    /// Version of the format: 2 or 3.
    pub version: u32,
    /// Alignment of tensor data, in bytes: a power of two.
    pub alignment: u32,
    /// Keys and values.
    pub metadata: Metadata,
    /// Tensors in the order of the file's list; names are unique, byte ranges lie in the file and apart.
    pub tensors: Vec<TensorInfo>,
    /// Where tensor data begins, in bytes from the start of the file.
    pub data_offset: u64,
    index: HashMap<String, usize>,
}

/// Name, shape, type and place of one tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// Name, unique in the file.
    pub name: String,
    /// One to four dimensions in GGUF order: `dims[0]` is the number of columns and varies fastest. None is 0.
    pub dims: Vec<u64>,
    /// Type of the elements.
    pub kind: GgmlType,
    /// First byte, from the start of the file.
    pub offset: u64,
    /// Length in bytes.
    pub size: u64,
}

impl TensorInfo {
    /// Weights in a row.
    #[must_use]
    pub fn columns(&self) -> u64 {
        self.dims.first().copied().unwrap_or(1)
    }

    /// Number of rows: the product of all dimensions but the first.
    #[must_use]
    pub fn rows(&self) -> u64 {
        // Reading the file has shown that the product fits.
        self.dims.iter().skip(1).copied().fold(1, u64::saturating_mul)
    }
}

impl Gguf {
    /// Reads the header of a file, holding at most 1 MiB of it besides the result.
    ///
    /// # Errors
    ///
    /// A [`GgufError`] that names the part of the file that is wrong.
    pub async fn read(source: &impl ReadAt) -> Result<Self, GgufError> {
        let mut cursor = Cursor::new(source);
        let version = read_version(&mut cursor).await?;

        cursor.field("tensor count");
        let tensor_count = cursor.u64().await?;
        cursor.field("metadata count");
        let entry_count = cursor.u64().await?;
        limit("tensor count", tensor_count, MAX_TENSORS)?;
        limit("metadata count", entry_count, MAX_KEYS)?;
        cursor.need(entry_count, LEAST_ENTRY)?;

        let mut metadata = Metadata::new();
        for number in 0..entry_count {
            cursor.field(format!("metadata key {number}"));
            let key = cursor.string(MAX_KEY).await?;
            cursor.field(key.as_str());
            let value = read_value(&mut cursor).await?;
            if metadata.insert(key.as_str(), value).is_some() {
                return Err(GgufError::Duplicate { field: "metadata key", name: key });
            }
        }
        let alignment = alignment(&metadata)?;

        cursor.field("tensor count");
        cursor.need(tensor_count, LEAST_TENSOR)?;
        let mut tensors = Vec::new();
        let mut index = HashMap::new();
        for number in 0..tensor_count {
            let tensor = read_tensor(&mut cursor, number, alignment).await?;
            if index.insert(tensor.name.clone(), tensors.len()).is_some() {
                return Err(GgufError::Duplicate { field: "tensor name", name: tensor.name });
            }
            tensors.push(tensor);
        }
        let data_offset = cursor.position().next_multiple_of(u64::from(alignment));
        place(&mut tensors, data_offset, source.size())?;
        Ok(Self { version, alignment, metadata, tensors, data_offset, index })
    }

    /// The header of what is not a GGUF file but an arena of tensors in memory, so that it can be loaded like one:
    /// offsets count from the start of the arena, of `size` bytes. There is no metadata.
    ///
    /// # Errors
    ///
    /// [`GgufError`] when two tensors share a name or bytes, or one passes the end of the arena.
    pub fn of_arena(mut tensors: Vec<TensorInfo>, size: u64) -> Result<Self, GgufError> {
        let mut index = HashMap::new();
        for (at, tensor) in tensors.iter().enumerate() {
            if index.insert(tensor.name.clone(), at).is_some() {
                return Err(GgufError::Duplicate { field: "tensor name", name: tensor.name.clone() });
            }
        }
        place(&mut tensors, 0, size)?;
        let (version, alignment, metadata) = (3, DEFAULT_ALIGNMENT, Metadata::new());
        Ok(Self { version, alignment, metadata, tensors, data_offset: 0, index })
    }

    /// The tensor of this name.
    #[must_use]
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.index.get(name).and_then(|&at| self.tensors.get(at))
    }
}

fn limit(field: &str, found: u64, limit: u64) -> Result<(), GgufError> {
    if found > limit {
        return Err(GgufError::Limit { field: field.to_owned(), found, limit });
    }
    Ok(())
}

async fn read_version<S: ReadAt>(cursor: &mut Cursor<'_, S>) -> Result<u32, GgufError> {
    cursor.field("magic");
    match cursor.bytes::<4>().await? {
        [b'G', b'G', b'U', b'F'] => {}
        [b'F', b'U', b'G', b'G'] => return Err(GgufError::BigEndian),
        found => return Err(GgufError::NotGguf { found }),
    }
    cursor.field("version");
    match cursor.u32().await? {
        version @ 2..=3 => Ok(version),
        // Writers of big-endian files keep the magic as it is and swap everything after it.
        version if (1..=0xffff).contains(&version.swap_bytes()) => Err(GgufError::BigEndian),
        found => Err(GgufError::Version { found }),
    }
}

/// Value types of GGUF by their number.
mod code {
    pub(super) const U8: u32 = 0;
    pub(super) const I8: u32 = 1;
    pub(super) const U16: u32 = 2;
    pub(super) const I16: u32 = 3;
    pub(super) const U32: u32 = 4;
    pub(super) const I32: u32 = 5;
    pub(super) const F32: u32 = 6;
    pub(super) const BOOL: u32 = 7;
    pub(super) const STRING: u32 = 8;
    pub(super) const ARRAY: u32 = 9;
    pub(super) const U64: u32 = 10;
    pub(super) const I64: u32 = 11;
    pub(super) const F64: u32 = 12;
}

async fn read_value<S: ReadAt>(cursor: &mut Cursor<'_, S>) -> Result<Value, GgufError> {
    Ok(match cursor.u32().await? {
        code::U8 => Value::U8(u8::from_le_bytes(cursor.bytes().await?)),
        code::I8 => Value::I8(i8::from_le_bytes(cursor.bytes().await?)),
        code::U16 => Value::U16(u16::from_le_bytes(cursor.bytes().await?)),
        code::I16 => Value::I16(i16::from_le_bytes(cursor.bytes().await?)),
        code::U32 => Value::U32(cursor.u32().await?),
        code::I32 => Value::I32(i32::from_le_bytes(cursor.bytes().await?)),
        code::F32 => Value::F32(f32::from_le_bytes(cursor.bytes().await?)),
        code::BOOL => {
            let [byte] = cursor.bytes().await?;
            Value::Bool(boolean(byte, cursor.name())?)
        }
        code::STRING => Value::String(cursor.string(MAX_STRING).await?),
        code::ARRAY => Value::Array(read_array(cursor).await?),
        code::U64 => Value::U64(cursor.u64().await?),
        code::I64 => Value::I64(i64::from_le_bytes(cursor.bytes().await?)),
        code::F64 => Value::F64(f64::from_le_bytes(cursor.bytes().await?)),
        found => return Err(unknown_value_type(cursor.name(), "value type", found)),
    })
}

async fn read_array<S: ReadAt>(cursor: &mut Cursor<'_, S>) -> Result<Array, GgufError> {
    let element = cursor.u32().await?;
    let count = cursor.u64().await?;
    Ok(match element {
        code::U8 => Array::U8(cursor.numbers(count, u8::from_le_bytes).await?),
        code::I8 => Array::I8(cursor.numbers(count, i8::from_le_bytes).await?),
        code::U16 => Array::U16(cursor.numbers(count, u16::from_le_bytes).await?),
        code::I16 => Array::I16(cursor.numbers(count, i16::from_le_bytes).await?),
        code::U32 => Array::U32(cursor.numbers(count, u32::from_le_bytes).await?),
        code::I32 => Array::I32(cursor.numbers(count, i32::from_le_bytes).await?),
        code::F32 => Array::F32(cursor.numbers(count, f32::from_le_bytes).await?),
        code::U64 => Array::U64(cursor.numbers(count, u64::from_le_bytes).await?),
        code::I64 => Array::I64(cursor.numbers(count, i64::from_le_bytes).await?),
        code::F64 => Array::F64(cursor.numbers(count, f64::from_le_bytes).await?),
        code::BOOL => {
            let bytes = cursor.numbers(count, |[byte]| byte).await?;
            Array::Bool(bytes.into_iter().map(|byte| boolean(byte, cursor.name())).collect::<Result<_, _>>()?)
        }
        code::STRING => {
            // A string takes at least its length. The list grows as strings turn up, so that a count alone
            // allocates nothing.
            cursor.need(count, 8)?;
            let mut strings = Vec::new();
            for _ in 0..count {
                strings.push(cursor.string(MAX_STRING).await?);
            }
            Array::String(strings)
        }
        code::ARRAY => {
            return Err(GgufError::Invalid {
                field: cursor.name().to_owned(),
                wanted: "an array of numbers, booleans or strings".into(),
                found: "an array of arrays, which this reader does not support".into(),
            });
        }
        found => return Err(unknown_value_type(cursor.name(), "array element type", found)),
    })
}

fn boolean(byte: u8, key: &str) -> Result<bool, GgufError> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        found => Err(GgufError::Invalid {
            field: key.to_owned(),
            wanted: "a boolean, 0 or 1".into(),
            found: found.to_string(),
        }),
    }
}

fn unknown_value_type(key: &str, what: &str, found: u32) -> GgufError {
    GgufError::Invalid {
        field: key.to_owned(),
        wanted: format!("a {what} from 0 to 12"),
        found: found.to_string(),
    }
}

fn alignment(metadata: &Metadata) -> Result<u32, GgufError> {
    const KEY: &str = "general.alignment";
    let alignment = metadata.u32(KEY)?.unwrap_or(DEFAULT_ALIGNMENT);
    if !alignment.is_power_of_two() {
        return Err(GgufError::Invalid {
            field: KEY.into(),
            wanted: "a power of two".into(),
            found: alignment.to_string(),
        });
    }
    Ok(alignment)
}

/// Reads one entry of the tensor list. Its `offset` is still relative to the start of tensor data.
async fn read_tensor<S: ReadAt>(
    cursor: &mut Cursor<'_, S>,
    number: u64,
    alignment: u32,
) -> Result<TensorInfo, GgufError> {
    cursor.field(format!("name of tensor {number}"));
    let name = cursor.string(MAX_NAME).await?;
    cursor.field(format!("tensor {name:?}"));
    let invalid = |wanted: String, found: String| GgufError::Invalid {
        field: format!("tensor {name:?}"),
        wanted,
        found,
    };

    let count = cursor.u32().await?;
    if !(1..=MAX_DIMS).contains(&count) {
        return Err(invalid(format!("1 to {MAX_DIMS} dimensions"), count.to_string()));
    }
    let dims = cursor.numbers(count.into(), u64::from_le_bytes).await?;
    let number_of_type = cursor.u32().await?;
    let kind = GgmlType::from_code(number_of_type).ok_or_else(|| {
        invalid("a tensor type that this reader knows".into(), format!("type number {number_of_type}"))
    })?;
    let offset = cursor.u64().await?;

    let rows = dims.iter().skip(1).try_fold(1u64, |rows, &dim| rows.checked_mul(dim));
    if dims.contains(&0) {
        return Err(invalid("dimensions of at least 1".into(), format!("{dims:?}")));
    }
    let columns = dims.first().copied().unwrap_or(1);
    let block = kind.block_size() as u64;
    if !columns.is_multiple_of(block) {
        return Err(invalid(
            format!("columns that are a multiple of {block}, the block of {kind}"),
            columns.to_string(),
        ));
    }
    let elements = rows.and_then(|rows| rows.checked_mul(columns));
    let size = kind.row_bytes(columns).zip(rows).and_then(|(row, rows)| row.checked_mul(rows));
    let (Some(_), Some(size)) = (elements, size) else {
        return Err(invalid("dimensions whose product fits 64 bits".into(), format!("{dims:?}")));
    };
    if !offset.is_multiple_of(alignment.into()) {
        return Err(invalid(format!("an offset aligned to {alignment}"), offset.to_string()));
    }
    Ok(TensorInfo { name, dims, kind, offset, size })
}

/// Makes the offsets absolute and checks that all byte ranges lie in the file and apart from each other.
fn place(tensors: &mut [TensorInfo], data_offset: u64, file_size: u64) -> Result<(), GgufError> {
    for tensor in tensors.iter_mut() {
        let offset = data_offset.checked_add(tensor.offset);
        let end = offset.and_then(|offset| offset.checked_add(tensor.size));
        let (Some(offset), Some(_)) = (offset, end.filter(|&end| end <= file_size)) else {
            let offset = offset.unwrap_or(u64::MAX);
            return Err(GgufError::Truncated {
                field: format!("data of tensor {:?}", tensor.name),
                offset,
                needed: tensor.size,
                available: file_size.saturating_sub(offset),
            });
        };
        tensor.offset = offset;
    }
    let mut sorted: Vec<&TensorInfo> = tensors.iter().collect();
    sorted.sort_by_key(|tensor| tensor.offset);
    for pair in sorted.windows(2) {
        let [first, second] = pair else { continue };
        if second.offset < first.offset + first.size {
            return Err(GgufError::Overlap {
                first: first.name.clone(),
                second: second.name.clone(),
                offset: second.offset,
            });
        }
    }
    Ok(())
}
