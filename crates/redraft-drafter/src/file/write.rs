//! To the bytes of a safetensors file.

use super::container::{Stored, container};
use super::{D2T, DrafterFile, METADATA_KEY, VERSION};
use serde_json::{Map, Value, json};

impl DrafterFile {
    /// The file: EAGLE-3's names, and everything else as one JSON text in the metadata block. Reading it gives an equal
    /// drafter, and writing that the same bytes.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let metadata = Map::from_iter([(METADATA_KEY.to_owned(), self.metadata().to_string().into())]);
        container(self.stored(), metadata)
    }

    fn stored(&self) -> Vec<Stored<'_>> {
        let mut stored: Vec<Stored<'_>> =
            self.tensors.iter().map(|(name, tensor)| Stored::new(name, tensor)).collect();
        stored.extend(self.stored_ids());
        stored
    }

    /// `d2t`: of every row of the head the offset from its number to its token.
    pub(crate) fn stored_ids(&self) -> Option<Stored<'_>> {
        let config = &self.config;
        (config.draft_vocab != config.vocab).then(|| {
            let offsets = (0i64..).zip(&self.draft_ids).map(|(row, id)| i64::from(*id) - row);
            let bytes = offsets.flat_map(i64::to_le_bytes).collect::<Vec<_>>().into();
            Stored { name: D2T, dtype: "I64", align: 8, shape: vec![config.draft_vocab.into()], bytes }
        })
    }

    /// The target alone, for files whose configuration stands elsewhere: key and text of a metadata block.
    pub(crate) fn stored_target(&self) -> Option<(&'static str, String)> {
        let target = self.target.as_ref()?.to_json();
        Some((METADATA_KEY, json!({ "version": VERSION, "target": target }).to_string()))
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
