//! JSON objects read key by key, so that an error names the path of the key.

use crate::error::DrafterError;
use serde_json::{Map, Value};

/// An object and where it stands.
#[derive(Clone)]
pub(crate) struct Object<'a> {
    path: String,
    map: &'a Map<String, Value>,
}

/// How a value looks in a message: short, whatever a file puts there.
fn shown(value: &Value) -> String {
    const MOST: usize = 60;
    let text = value.to_string();
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

impl<'a> Object<'a> {
    pub(crate) fn new(path: impl Into<String>, value: &'a Value) -> Result<Self, DrafterError> {
        let path = path.into();
        match value {
            Value::Object(map) => Ok(Self { path, map }),
            other => Err(DrafterError::invalid(path, "an object", shown(other))),
        }
    }

    /// The full name of a key.
    pub(crate) fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.path)
    }

    pub(crate) fn invalid(&self, key: &str, wanted: impl Into<String>) -> DrafterError {
        let found = self.get(key).map_or_else(|| "nothing".to_owned(), shown);
        DrafterError::invalid(self.name(key), wanted, found)
    }

    /// The value of a key; null counts as absent.
    pub(crate) fn get(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    /// Keys and values.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'a String, &'a Value)> {
        self.map.iter()
    }

    fn typed<T>(
        &self,
        key: &str,
        wanted: &str,
        convert: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, DrafterError> {
        self.get(key).map(|value| convert(value).ok_or_else(|| self.invalid(key, wanted))).transpose()
    }

    pub(crate) fn u32(&self, key: &str) -> Result<Option<u32>, DrafterError> {
        self.typed(key, "a whole number below 2^32", u32_of)
    }

    pub(crate) fn f32(&self, key: &str) -> Result<Option<f32>, DrafterError> {
        #[expect(clippy::cast_possible_truncation, reason = "rounded, and checked to be finite after that")]
        self.typed(key, "a finite number", |value| value.as_f64().map(|v| v as f32).filter(|v| v.is_finite()))
    }

    pub(crate) fn bool(&self, key: &str) -> Result<Option<bool>, DrafterError> {
        self.typed(key, "true or false", Value::as_bool)
    }

    pub(crate) fn str(&self, key: &str) -> Result<Option<&'a str>, DrafterError> {
        self.typed(key, "a text", Value::as_str)
    }

    /// Three whole numbers.
    pub(crate) fn triple(&self, key: &str) -> Result<Option<[u32; 3]>, DrafterError> {
        self.typed(key, "a list of three layers: other numbers of captures are not implemented", |value| {
            let list: Option<Vec<u32>> = value.as_array()?.iter().map(u32_of).collect();
            list?.try_into().ok()
        })
    }

    pub(crate) fn object(&self, key: &str) -> Result<Option<Self>, DrafterError> {
        self.get(key).map(|value| Self::new(self.name(key), value)).transpose()
    }

    /// Refuses keys outside `known`.
    pub(crate) fn only(&self, known: &[&str]) -> Result<(), DrafterError> {
        match self.map.keys().find(|key| !known.contains(&key.as_str())) {
            Some(key) => Err(self.invalid(key, format!("only the keys {}", known.join(", ")))),
            None => Ok(()),
        }
    }
}

fn u32_of(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|v| u32::try_from(v).ok())
}
