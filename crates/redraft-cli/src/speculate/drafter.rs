//! Drafter files: which one a path means, and reading it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use pollster::block_on;
use redraft::{DrafterError, DrafterFile};

use crate::error::CliError;
use crate::files::{self, failed};
use crate::model::hash;
use crate::output;

/// Largest drafter in bytes: several times that of an 8B model in f32.
const LIMIT: u64 = 8 << 30;
/// The weights of a checkpoint.
const CHECKPOINT: &str = "model.safetensors";
/// Largest config.json.
const CONFIG_LIMIT: u64 = 1 << 20;

/// A drafter that was read, and what identifies its file.
#[derive(Debug)]
pub(crate) struct DrafterInput {
    pub(crate) file: DrafterFile,
    /// SHA-256 of the weights' file.
    pub(crate) sha256: String,
    /// Where it lies.
    pub(crate) path: String,
}

/// Reads the drafter at `path`: a safetensors file that says its shape itself or has a config.json beside it, a folder
/// with the two, or a GGUF file.
pub(crate) fn read(path: &Path) -> Result<DrafterInput, CliError> {
    let weights = if path.is_dir() { weights_in(path)? } else { path.to_owned() };
    let bytes = files::read(&weights, LIMIT)?;
    let sha256 = hash::bytes(&bytes);
    let config = weights.with_file_name("config.json");
    let read = match bytes.starts_with(b"GGUF") {
        true => block_on(DrafterFile::read_gguf(&bytes)),
        false => DrafterFile::read(&bytes),
    };
    let file = match read {
        Err(DrafterError::Missing { field, .. }) if is_configuration(&field) && config.is_file() => {
            let json = String::from_utf8(files::read(&config, CONFIG_LIMIT)?)
                .map_err(|error| failed(&config, io::Error::other(error.utf8_error().to_string())))?;
            DrafterFile::read_with_config(&bytes, &json)
        }
        other => {
            // A checkpoint's own config.json is expected to count; next to a file of another name lies another model's.
            if other.is_ok() && config.is_file() && (path.is_dir() || weights.ends_with(CHECKPOINT)) {
                output::warning(format_args!(
                    "{} is not looked at: {} says its shape itself",
                    config.display(),
                    weights.display()
                ));
            }
            other
        }
    };
    let path = weights.display().to_string();
    match file {
        Ok(file) => Ok(DrafterInput { file, sha256, path }),
        Err(source) => Err(CliError::Drafter { path, source: Box::new(source) }),
    }
}

impl DrafterInput {
    /// Tells that second passes are wanted of a drafter that was never trained for them.
    pub(crate) fn note_second_passes(&self) {
        let reconsider = self.file.reconsider();
        if reconsider.embedding.is_none() && reconsider.rank.is_none() {
            output::note(format_args!(
                "note: drafter {} has no trained second pass; reconsidering with it costs rows and rescues little, \
                 --speculate tree does without",
                self.path
            ));
        }
    }
}

/// Whether what is missing is what a config.json can say.
fn is_configuration(field: &str) -> bool {
    field.starts_with("metadata key") || field == "redraft.config"
}

/// The weights in the folder of a checkpoint.
fn weights_in(folder: &Path) -> Result<PathBuf, CliError> {
    let usual = folder.join(CHECKPOINT);
    if usual.is_file() {
        return Ok(usual);
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(|source| failed(folder, source))? {
        let path = entry.map_err(|source| failed(folder, source))?.path();
        if path.extension().is_some_and(|extension| extension == "safetensors") {
            found.push(path);
        }
    }
    match <[PathBuf; 1]>::try_from(found) {
        Ok([only]) => Ok(only),
        Err(found) => {
            let reason = match found.len() {
                0 => {
                    "the folder has no safetensors file; a drafter's weights are expected in model.safetensors"
                }
                _ => "the folder has several safetensors files and no model.safetensors; name the file",
            };
            Err(failed(folder, io::Error::other(reason)))
        }
    }
}

#[cfg(test)]
mod tests {
    use redraft_testing::TinyDrafter;

    use super::*;

    /// As the training frameworks write it.
    const CONFIG: &str = r#"{"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
        "intermediate_size": 96, "rms_norm_eps": 1e-5, "vocab_size": 320, "draft_vocab_size": 160,
        "rope_theta": 10000.0, "eagle_aux_hidden_state_layer_ids": [0, 1, 2]}"#;

    /// The file without its metadata, as training frameworks write it.
    fn bare(bytes: &[u8]) -> Vec<u8> {
        let length = usize::try_from(u64::from_le_bytes(*bytes.first_chunk().unwrap())).unwrap();
        let mut header: serde_json::Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
        header.as_object_mut().unwrap().remove("__metadata__");
        let mut header = serde_json::to_vec(&header).unwrap();
        header.resize(length.next_multiple_of(8), b' ');
        [&(header.len() as u64).to_le_bytes()[..], &header, &bytes[8 + length..]].concat()
    }

    #[test]
    fn a_file_says_its_shape_itself_or_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let drafter = TinyDrafter::default().to_file().unwrap();
        let own = folder.path().join("own.safetensors");
        fs::write(&own, drafter.write()).unwrap();
        let read_own = read(&own).unwrap();
        assert_eq!(read_own.file, drafter);
        assert_eq!(read_own.sha256.len(), 64);
        // One file in a folder is the one that is meant.
        assert_eq!(read(folder.path()).unwrap().file, drafter);

        let weights = folder.path().join("model.safetensors");
        fs::write(&weights, bare(&drafter.write())).unwrap();
        assert!(matches!(read(&weights), Err(CliError::Drafter { .. })), "nothing says its shape");
        fs::write(folder.path().join("config.json"), CONFIG).unwrap();
        for path in [&weights, folder.path()] {
            let file = read(path).unwrap().file;
            assert_eq!(file.config(), drafter.config());
            assert_eq!(file.draft_ids(), drafter.draft_ids());
        }
        // A configuration beside a file that has its own is another model's.
        fs::write(folder.path().join("config.json"), "{}").unwrap();
        assert_eq!(read(&own).unwrap().file, drafter);
    }

    #[test]
    fn folders_without_one_file_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let reason = |path: &Path| read(path).unwrap_err().to_string();
        assert!(reason(folder.path()).contains("no safetensors file"));
        fs::write(folder.path().join("a.safetensors"), "").unwrap();
        assert!(reason(folder.path()).contains("safetensors header"));
        fs::write(folder.path().join("b.safetensors"), "").unwrap();
        assert!(reason(folder.path()).contains("several"));
        assert!(reason(&folder.path().join("absent")).contains("cannot read"));
        #[cfg(unix)]
        assert!(reason(Path::new("/dev/zero")).contains("no regular file"));
    }
}
