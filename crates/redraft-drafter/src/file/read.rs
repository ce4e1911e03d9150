//! From the bytes of a safetensors file.

use super::{D2T, DrafterFile, METADATA_KEY, Parts, ReconsiderSettings, VERSION};
use crate::config::{DrafterConfig, Stated, eagle};
use crate::error::DrafterError;
use crate::fingerprint::TargetFingerprint;
use crate::json::Object;
use crate::tensor::{Tensor, name, normalised, specs};
use redraft_gguf::GgmlType;
use safetensors::tensor::{Dtype, TensorView};
use safetensors::{SafeTensorError, SafeTensors};
use serde_json::Value;
use std::collections::BTreeMap;

/// Membership of the target's tokens in the draft vocabulary: what `d2t` says already.
const T2D: &str = "t2d";

impl DrafterFile {
    /// Reads a file that carries its configuration, as [`Self::write`] writes it.
    ///
    /// # Errors
    ///
    /// [`DrafterError`] names what is wrong.
    pub fn read(bytes: &[u8]) -> Result<Self, DrafterError> {
        read(bytes, None)
    }

    /// Reads an EAGLE-3 checkpoint, of which `config_json` is the `config.json`. What the file itself says about its
    /// target, about reconsideration and about block types still counts.
    ///
    /// # Errors
    ///
    /// [`DrafterError`] names what is wrong.
    pub fn read_with_config(bytes: &[u8], config_json: &str) -> Result<Self, DrafterError> {
        read(bytes, Some(config_json))
    }
}

impl TargetFingerprint {
    /// The fingerprint in the header of a safetensors file: its JSON text, without the length before it and the tensors
    /// behind. None where the file does not say what it is for, or is no drafter of this project.
    ///
    /// # Errors
    ///
    /// [`DrafterError`] when the text is no such header, or says something that cannot be.
    pub fn of_header(header: &[u8]) -> Result<Option<Self>, DrafterError> {
        const FIELD: &str = "safetensors header";
        let value =
            serde_json::from_slice(header).map_err(|source| DrafterError::Json { field: FIELD, source })?;
        let metadata = Object::new(FIELD, &value)?.object("__metadata__")?;
        let text = metadata.map(|metadata| metadata.str(METADATA_KEY)).transpose()?.flatten();
        text.map(Own::parse).transpose()?.map(|own| own.target()).transpose().map(Option::flatten)
    }
}

fn read(bytes: &[u8], config_json: Option<&str>) -> Result<DrafterFile, DrafterError> {
    let container = |source: SafeTensorError| DrafterError::Container { source };
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(container)?;
    let own = header.metadata().as_ref().and_then(|metadata| metadata.get(METADATA_KEY));
    let own = own.map(|text| Own::parse(text)).transpose()?;
    let stated = match config_json {
        Some(json) => Some(eagle::parse(json)?),
        None => own.as_ref().map(Own::config).transpose()?,
    };
    let Stated { mut config, fc_norm } = stated.ok_or_else(|| DrafterError::Missing {
        field: format!("metadata key {METADATA_KEY:?}"),
        hint: "the file does not carry a configuration, read it together with its config.json",
    })?;
    config.check()?;

    let views = SafeTensors::deserialize(bytes).map_err(container)?.tensors();
    let types = own.as_ref().map(Own::types).transpose()?.unwrap_or_default();
    let Sorted { tensors, d2t } = sort(&config, views, types)?;
    config.fc_norm = fc_norm.unwrap_or_else(|| name::FC_NORM.iter().any(|name| tensors.contains_key(*name)));
    let draft_ids = d2t.map(|view| draft_ids(&config, &view)).transpose()?;
    let (target, reconsider) = match &own {
        Some(own) => (own.target()?, own.reconsider()?),
        None => (None, ReconsiderSettings::default()),
    };
    DrafterFile::new(Parts { config, tensors, draft_ids, reconsider, target })
}

/// What a file of this project says about itself.
struct Own(Value);

impl Own {
    fn parse(text: &str) -> Result<Self, DrafterError> {
        const FIELD: &str = "metadata key \"redraft\"";
        let value =
            serde_json::from_str(text).map_err(|source| DrafterError::Json { field: FIELD, source })?;
        let own = Self(value);
        let object = own.object()?;
        if object.u32("version")? != Some(VERSION) {
            return Err(object.invalid("version", VERSION.to_string()));
        }
        object.only(&["version", "config", "types", "target", "reconsider"])?;
        Ok(own)
    }

    fn object(&self) -> Result<Object<'_>, DrafterError> {
        Object::new(METADATA_KEY, &self.0)
    }

    fn config(&self) -> Result<Stated, DrafterError> {
        let object = self.object()?;
        let config = object.object("config")?.ok_or_else(|| DrafterError::Missing {
            field: object.name("config"),
            hint: "the file does not carry a configuration, read it together with its config.json",
        })?;
        DrafterConfig::from_own(&config)
    }

    fn target(&self) -> Result<Option<TargetFingerprint>, DrafterError> {
        self.object()?.object("target")?.map(|target| TargetFingerprint::from_json(&target)).transpose()
    }

    fn reconsider(&self) -> Result<ReconsiderSettings, DrafterError> {
        let Some(object) = self.object()?.object("reconsider")? else {
            return Ok(ReconsiderSettings::default());
        };
        object.only(&["gate_threshold", "refined_offset", "calibrated"])?;
        Ok(ReconsiderSettings {
            gate_threshold: object.f32("gate_threshold")?,
            refined_offset: object.f32("refined_offset")?,
            calibrated: object.bool("calibrated")?.unwrap_or(false),
        })
    }

    /// The types of the tensors that are stored as bytes, by normalised name.
    fn types(&self) -> Result<BTreeMap<String, GgmlType>, DrafterError> {
        let mut types = BTreeMap::new();
        let Some(object) = self.object()?.object("types")? else { return Ok(types) };
        for (key, value) in object.iter() {
            let named = GgmlType::SUPPORTED.into_iter().filter(|kind| kind.block_size() > 1);
            let kind = named.clone().find(|kind| Some(kind.name()) == value.as_str()).ok_or_else(|| {
                object.invalid(key, named.map(GgmlType::name).collect::<Vec<_>>().join(", "))
            })?;
            if types.insert(normalised(key), kind).is_some() {
                return Err(object.invalid(key, "one type a tensor"));
            }
        }
        Ok(types)
    }
}

/// The tensors of a file by normalised name, and the map of the draft vocabulary.
struct Sorted<'a> {
    tensors: BTreeMap<String, Tensor>,
    d2t: Option<TensorView<'a>>,
}

fn sort<'a>(
    config: &DrafterConfig,
    views: Vec<(String, TensorView<'a>)>,
    mut types: BTreeMap<String, GgmlType>,
) -> Result<Sorted<'a>, DrafterError> {
    let specs = specs(config, Some(0));
    let mut sorted = Sorted { tensors: BTreeMap::new(), d2t: None };
    for (stored, view) in views {
        let name = normalised(&stored);
        let twice = match name.as_str() {
            T2D => false,
            D2T => sorted.d2t.replace(view).is_some(),
            _ if !specs.iter().any(|spec| spec.name == name) => {
                return Err(DrafterError::Unknown { tensor: stored });
            }
            _ => {
                let tensor = tensor(&name, &view, types.remove(&name))?;
                sorted.tensors.insert(name.clone(), tensor).is_some()
            }
        };
        if twice {
            return Err(DrafterError::invalid(format!("tensor {name:?}"), "one tensor of this name", "two"));
        }
    }
    match types.keys().next() {
        Some(name) => {
            let field = format!("{METADATA_KEY}.types.{name}");
            Err(DrafterError::invalid(field, "the name of a tensor", "the name of none in the file"))
        }
        None => Ok(sorted),
    }
}

/// One tensor; `blocks` is the type that the metadata names for it.
fn tensor(name: &str, view: &TensorView<'_>, blocks: Option<GgmlType>) -> Result<Tensor, DrafterError> {
    let mut dims: Vec<u64> = view.shape().iter().map(|dim| *dim as u64).collect();
    let wrong = |wanted: &str| DrafterError::Type {
        tensor: name.to_owned(),
        wanted: wanted.to_owned(),
        found: view.dtype().to_string(),
    };
    let kind = match (view.dtype(), blocks) {
        (Dtype::F32, None) => GgmlType::F32,
        (Dtype::F16, None) => GgmlType::F16,
        (Dtype::BF16, None) => GgmlType::BF16,
        (Dtype::U8, Some(kind)) => {
            // Stored as [rows, bytes of a row].
            let (block, bytes) = (kind.block_size() as u64, kind.block_bytes() as u64);
            match dims.as_mut_slice() {
                [_, columns] if columns.is_multiple_of(bytes) => *columns = *columns / bytes * block,
                _ => {
                    let field = format!("shape of tensor {name:?}");
                    let wanted = format!("[rows, bytes of whole {kind} blocks of {bytes}]");
                    return Err(DrafterError::invalid(field, wanted, format!("{dims:?}")));
                }
            }
            kind
        }
        (_, Some(_)) => return Err(wrong("U8, as the metadata names a block type for it")),
        (_, None) => {
            return Err(wrong("F32, F16 or BF16, or U8 with the type of its blocks in the metadata"));
        }
    };
    Ok(Tensor { kind, dims, bytes: view.data().to_vec() })
}

/// The tokens of the rows of the head, from offsets to the rows' own numbers.
fn draft_ids(config: &DrafterConfig, view: &TensorView<'_>) -> Result<Vec<u32>, DrafterError> {
    if view.dtype() != Dtype::I64 {
        let (wanted, found) = ("I64".to_owned(), view.dtype().to_string());
        return Err(DrafterError::Type { tensor: D2T.to_owned(), wanted, found });
    }
    let found: Vec<u64> = view.shape().iter().map(|dim| *dim as u64).collect();
    let wanted = vec![u64::from(config.draft_vocab)];
    if found != wanted {
        return Err(DrafterError::Shape { tensor: D2T.to_owned(), wanted, found });
    }
    let offsets = view.data().as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes));
    (0i64..)
        .zip(offsets)
        .map(|(row, offset)| {
            let id = row.checked_add(offset).and_then(|id| u32::try_from(id).ok());
            id.filter(|id| *id < config.vocab).ok_or_else(|| {
                let wanted = format!("the offset to a token below {}", config.vocab);
                DrafterError::invalid(format!("{D2T}[{row}]"), wanted, offset)
            })
        })
        .collect()
}
