//! The key–value part of a GGUF file.

use crate::error::GgufError;
use std::collections::HashMap;

/// One metadata value.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "each variant is the value type that GGUF gives the same name")]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    U64(u64),
    I64(i64),
    F32(f32),
    F64(f64),
    Bool(bool),
    String(String),
    Array(Array),
}

/// An array value, by the type of its elements. Arrays of arrays are not read.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "each variant is the value type that GGUF gives the same name")]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    Bool(Vec<bool>),
    String(Vec<String>),
}

impl Value {
    /// The name of the value's type, such as `u32` or `array of string`.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::U8(_) => "u8",
            Self::I8(_) => "i8",
            Self::U16(_) => "u16",
            Self::I16(_) => "i16",
            Self::U32(_) => "u32",
            Self::I32(_) => "i32",
            Self::U64(_) => "u64",
            Self::I64(_) => "i64",
            Self::F32(_) => "f32",
            Self::F64(_) => "f64",
            Self::Bool(_) => "bool",
            Self::String(_) => "string",
            Self::Array(array) => array.type_name(),
        }
    }

    /// The value as an integer, when it is one of any width.
    fn integer(&self) -> Option<i128> {
        Some(match *self {
            Self::U8(v) => v.into(),
            Self::I8(v) => v.into(),
            Self::U16(v) => v.into(),
            Self::I16(v) => v.into(),
            Self::U32(v) => v.into(),
            Self::I32(v) => v.into(),
            Self::U64(v) => v.into(),
            Self::I64(v) => v.into(),
            _ => return None,
        })
    }
}

impl Array {
    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::U8(v) => v.len(),
            Self::I8(v) => v.len(),
            Self::U16(v) => v.len(),
            Self::I16(v) => v.len(),
            Self::U32(v) => v.len(),
            Self::I32(v) => v.len(),
            Self::U64(v) => v.len(),
            Self::I64(v) => v.len(),
            Self::F32(v) => v.len(),
            Self::F64(v) => v.len(),
            Self::Bool(v) => v.len(),
            Self::String(v) => v.len(),
        }
    }

    /// Whether there is no element.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The name of the array's type, such as `array of f32`.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::U8(_) => "array of u8",
            Self::I8(_) => "array of i8",
            Self::U16(_) => "array of u16",
            Self::I16(_) => "array of i16",
            Self::U32(_) => "array of u32",
            Self::I32(_) => "array of i32",
            Self::U64(_) => "array of u64",
            Self::I64(_) => "array of i64",
            Self::F32(_) => "array of f32",
            Self::F64(_) => "array of f64",
            Self::Bool(_) => "array of bool",
            Self::String(_) => "array of string",
        }
    }

    /// The elements as `i32`, from any integer width; the error is the first element that does not fit.
    fn i32s(&self) -> Option<Result<Vec<i32>, i128>> {
        fn narrow<T: Copy + Into<i128>>(values: &[T]) -> Result<Vec<i32>, i128> {
            values.iter().map(|&v| v.into()).map(|v: i128| i32::try_from(v).map_err(|_| v)).collect()
        }
        Some(match self {
            Self::U8(v) => narrow(v),
            Self::I8(v) => narrow(v),
            Self::U16(v) => narrow(v),
            Self::I16(v) => narrow(v),
            Self::U32(v) => narrow(v),
            Self::I32(v) => Ok(v.clone()),
            Self::U64(v) => narrow(v),
            Self::I64(v) => narrow(v),
            Self::F32(_) | Self::F64(_) | Self::Bool(_) | Self::String(_) => return None,
        })
    }
}

/// The metadata of a file: unique keys with values, in the order of the file.
///
/// The typed getters answer `Ok(None)` for an absent key and an error that names the key when the value is of
/// another type. Integers convert between widths when they fit.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Metadata {
    entries: Vec<(String, Value)>,
    index: HashMap<String, usize>,
}

impl Metadata {
    /// Metadata without keys.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.index.get(key).and_then(|&at| self.entries.get(at)).map(|(_, value)| value)
    }

    /// Keys and values in the order of the file.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// Number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Sets a key; a key that is present keeps its place and its old value is handed back.
    pub fn insert(&mut self, key: impl Into<String>, value: Value) -> Option<Value> {
        let key = key.into();
        if let Some((_, old)) = self.index.get(&key).and_then(|&at| self.entries.get_mut(at)) {
            return Some(std::mem::replace(old, value));
        }
        self.index.insert(key.clone(), self.entries.len());
        self.entries.push((key, value));
        None
    }

    fn integer<T: TryFrom<i128>>(&self, key: &str, wanted: &'static str) -> Result<Option<T>, GgufError> {
        self.typed(key, wanted, |value| {
            let integer = value.integer().ok_or_else(|| value.type_name().to_owned())?;
            T::try_from(integer).map_err(|_| format!("the {} {integer}", value.type_name()))
        })
    }

    /// Looks a key up and converts its value; the conversion's error is what was found instead.
    fn typed<'a, T>(
        &'a self,
        key: &str,
        wanted: &'static str,
        convert: impl FnOnce(&'a Value) -> Result<T, String>,
    ) -> Result<Option<T>, GgufError> {
        self.get(key)
            .map(|value| {
                convert(value).map_err(|found| GgufError::ValueType { key: key.to_owned(), wanted, found })
            })
            .transpose()
    }

    /// An integer.
    ///
    /// # Errors
    ///
    /// [`GgufError::ValueType`] when the value is no integer or does not fit.
    pub fn u32(&self, key: &str) -> Result<Option<u32>, GgufError> {
        self.integer(key, "an integer that fits u32")
    }

    /// An integer.
    ///
    /// # Errors
    ///
    /// [`GgufError::ValueType`] when the value is no integer or does not fit.
    pub fn u64(&self, key: &str) -> Result<Option<u64>, GgufError> {
        self.integer(key, "an integer that fits u64")
    }

    /// A floating-point number; an `f64` is rounded.
    ///
    /// # Errors
    ///
    /// [`GgufError::ValueType`] when the value is no `f32` or `f64`.
    pub fn f32(&self, key: &str) -> Result<Option<f32>, GgufError> {
        self.typed(key, "f32", |value| match value {
            Value::F32(v) => Ok(*v),
            #[expect(
                clippy::cast_possible_truncation,
                reason = "rounding is what the documentation promises"
            )]
            Value::F64(v) => Ok(*v as f32),
            other => Err(other.type_name().to_owned()),
        })
    }

    /// A floating-point number, from `f32` or `f64`.
    ///
    /// # Errors
    ///
    /// [`GgufError::ValueType`] when the value is no `f32` or `f64`.
    pub fn f64(&self, key: &str) -> Result<Option<f64>, GgufError> {
        self.typed(key, "f64", |value| match value {
            Value::F32(v) => Ok(f64::from(*v)),
            Value::F64(v) => Ok(*v),
            other => Err(other.type_name().to_owned()),
        })
    }

    /// A text.
    ///
    /// # Errors
    ///
    /// [`GgufError::ValueType`] when the value is no string.
    pub fn str(&self, key: &str) -> Result<Option<&str>, GgufError> {
        self.typed(key, "string", |value| match value {
            Value::String(v) => Ok(v.as_str()),
            other => Err(other.type_name().to_owned()),
        })
    }

    /// A truth value.
    ///
    /// # Errors
    ///
    /// [`GgufError::ValueType`] when the value is no `bool`.
    pub fn bool(&self, key: &str) -> Result<Option<bool>, GgufError> {
        self.typed(key, "bool", |value| match value {
            Value::Bool(v) => Ok(*v),
            other => Err(other.type_name().to_owned()),
        })
    }

    /// A list of texts.
    ///
    /// # Errors
    ///
    /// [`GgufError::ValueType`] when the value is no array of strings.
    pub fn strings(&self, key: &str) -> Result<Option<&[String]>, GgufError> {
        self.typed(key, "array of string", |value| match value {
            Value::Array(Array::String(v)) => Ok(v.as_slice()),
            other => Err(other.type_name().to_owned()),
        })
    }

    /// A list of numbers.
    ///
    /// # Errors
    ///
    /// [`GgufError::ValueType`] when the value is no array of `f32`.
    pub fn f32s(&self, key: &str) -> Result<Option<&[f32]>, GgufError> {
        self.typed(key, "array of f32", |value| match value {
            Value::Array(Array::F32(v)) => Ok(v.as_slice()),
            other => Err(other.type_name().to_owned()),
        })
    }

    /// A list of integers, from an array of any integer width.
    ///
    /// # Errors
    ///
    /// [`GgufError::ValueType`] when the value is no array of integers, or one of them does not fit.
    pub fn i32s(&self, key: &str) -> Result<Option<Vec<i32>>, GgufError> {
        self.typed(key, "array of integers that fit i32", |value| match value {
            Value::Array(array) => array
                .i32s()
                .ok_or_else(|| array.type_name().to_owned())?
                .map_err(|found| format!("the element {found}")),
            other => Err(other.type_name().to_owned()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Array, Metadata, Value};

    fn sample() -> Metadata {
        let mut metadata = Metadata::new();
        metadata.insert("big", Value::U64(1 << 40));
        metadata.insert("small", Value::I64(7));
        metadata.insert("negative", Value::I8(-1));
        metadata.insert("real", Value::F64(0.5));
        metadata.insert("text", Value::String("x".into()));
        metadata.insert("kinds", Value::Array(Array::U8(vec![1, 2])));
        metadata.insert("wide", Value::Array(Array::I64(vec![1, 1 << 40])));
        metadata
    }

    #[test]
    fn integers_convert_when_they_fit() {
        let metadata = sample();
        assert_eq!(metadata.u32("small").unwrap(), Some(7));
        assert_eq!(metadata.u64("big").unwrap(), Some(1 << 40));
        assert_eq!(metadata.i32s("kinds").unwrap(), Some(vec![1, 2]));
        assert_eq!(metadata.f32("real").unwrap(), Some(0.5));
        assert_eq!(metadata.u32("absent").unwrap(), None);
    }

    #[test]
    fn wrong_types_name_the_key_what_was_wanted_and_what_was_found() {
        let metadata = sample();
        let messages = [
            (metadata.u32("big").unwrap_err(), ["big", "u32", "1099511627776"]),
            (metadata.u32("negative").unwrap_err(), ["negative", "u32", "-1"]),
            (metadata.u32("text").unwrap_err(), ["text", "integer", "string"]),
            (metadata.f32("small").unwrap_err(), ["small", "f32", "i64"]),
            (metadata.bool("small").unwrap_err(), ["small", "bool", "i64"]),
            (metadata.str("kinds").unwrap_err(), ["kinds", "string", "array of u8"]),
            (metadata.strings("kinds").unwrap_err(), ["kinds", "array of string", "array of u8"]),
            (metadata.f32s("kinds").unwrap_err(), ["kinds", "array of f32", "array of u8"]),
            (metadata.i32s("wide").unwrap_err(), ["wide", "i32", "1099511627776"]),
        ];
        for (error, words) in messages {
            for word in words {
                assert!(error.to_string().contains(word), "{word:?} is not in: {error}");
            }
        }
    }

    #[test]
    fn order_is_the_order_of_insertion_and_replacing_keeps_the_place() {
        let mut metadata = sample();
        assert_eq!(metadata.insert("small", Value::U8(9)), Some(Value::I64(7)));
        let keys: Vec<_> = metadata.iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["big", "small", "negative", "real", "text", "kinds", "wide"]);
        assert_eq!(metadata.u32("small").unwrap(), Some(9));
    }
}
