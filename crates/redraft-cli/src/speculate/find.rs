//! The drafter of a model where none was named: looked for in the standard places.

use std::path::{Path, PathBuf};

use pollster::block_on;
use redraft::{DrafterSearch, FileSource, FoundDrafter, Gguf, ModelConfig};

use crate::error::CliError;
use crate::model::{self, ModelRef, cache};
use crate::output;

/// The drafter of `model` in the standard places, if there is one. The model is fetched if it is not there yet and any
/// drafter is.
pub(crate) fn default_drafter(model: &ModelRef) -> Result<Option<PathBuf>, CliError> {
    let Some(file) = file_of(model) else { return Ok(None) };
    if !search(&file).any() {
        return Ok(None);
    }
    let file = match model {
        _ if file.is_file() => file,
        // Those who load it say so, after the arguments were checked.
        ModelRef::Path(_) => return Ok(None),
        ModelRef::Named(_) | ModelRef::Hub(_) => model::resolve(model)?,
    };
    // What is wrong with the model is told by those who load it.
    let Some((gguf, config)) = read(&file) else { return Ok(None) };
    Ok(find(model, &file, &gguf, &config).map(|found| found.path))
}

/// The drafter of a model whose file was read already. Damaged candidates are warned of and passed over.
pub(crate) fn find(model: &ModelRef, file: &Path, gguf: &Gguf, config: &ModelConfig) -> Option<FoundDrafter> {
    let name = match model {
        ModelRef::Named(named) => Some(named.name),
        ModelRef::Path(_) | ModelRef::Hub(_) => None,
    };
    let found = search(file).find(gguf, config, name.as_slice(), output::warning);
    if let Some(found) = &found {
        log::info!("drafter {}", found.path.display());
    }
    found
}

fn search(file: &Path) -> DrafterSearch {
    DrafterSearch::standard(file, cache::root().as_deref())
}

/// Where the model's file is, or will be.
fn file_of(model: &ModelRef) -> Option<PathBuf> {
    match model {
        ModelRef::Path(path) => Some(path.clone()),
        ModelRef::Named(named) => Some(cache::models().ok()?.join(named.cached_as)),
        ModelRef::Hub(hub) => cache::hub_path(hub).ok(),
    }
}

fn read(file: &Path) -> Option<(Gguf, ModelConfig)> {
    let gguf = block_on(Gguf::read(&FileSource::open(file).ok()?)).ok()?;
    let config = ModelConfig::from_gguf(&gguf).ok()?;
    Some((gguf, config))
}
