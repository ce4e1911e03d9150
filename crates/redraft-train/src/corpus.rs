//! Training text on disk, with what the target makes of it: features, final hidden states, its own choice.
//!
//! `corpus.json` lists the samples. `features.bin` has one record a token, in the order of the samples: three captures
//! and the final hidden state after the norm (f16, 4 · hidden of them), the id of the target's likeliest next token
//! (u32) and its probability (f32; 0 where it was not computed: inside prompts). Records are appended sample by sample,
//! so that the file may end anywhere: what is incomplete is computed again.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use half::f16;
use half::slice::HalfFloatSliceExt as _;
use redraft_drafter::TargetFingerprint;
use serde::{Deserialize, Serialize};

use crate::data::{Sample, Split};
use crate::error::TrainError;

const VERSION: u32 = 1;

/// What `corpus.json` holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    version: u32,
    /// The target that the features are of.
    pub target: TargetFingerprint,
    /// Tokens that the drafter proposes, ascending.
    pub draft_ids: Vec<u32>,
    /// Share of the answers' tokens that are among them.
    pub coverage: f64,
    /// The samples.
    pub samples: Vec<Entry>,
}

/// A sample in a corpus.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Tokens of prompt and answer.
    pub tokens: Vec<u32>,
    /// How many of them are the prompt.
    pub prompt: usize,
    /// What it is used for.
    pub split: Split,
}

/// What the target makes of one sample.
#[derive(Clone, Debug)]
pub struct Record {
    /// `[tokens, 3 · hidden]`.
    pub features: Vec<f32>,
    /// `[tokens, hidden]`, after the final norm.
    pub hidden: Vec<f32>,
    /// The likeliest next token behind each token, `[tokens]`.
    pub choice: Vec<u32>,
    /// Its probability, `[tokens]`.
    pub certainty: Vec<f32>,
}

/// A directory with a corpus.
#[derive(Debug)]
pub struct Corpus {
    directory: PathBuf,
    manifest: Manifest,
    starts: Vec<u64>, // of each sample in tokens; one more for the end
    ready: usize,     // samples with all their records
}

impl Manifest {
    /// The manifest of new samples.
    #[must_use]
    pub fn new(
        target: TargetFingerprint,
        draft_ids: Vec<u32>,
        coverage: f64,
        samples: Vec<Sample>,
        held_out: f64,
    ) -> Self {
        let entry = |sample: Sample| {
            let (split, prompt) = (sample.split(held_out), sample.prompt.len());
            let mut tokens = sample.prompt;
            tokens.extend(sample.response);
            Entry { tokens, prompt, split }
        };
        Self {
            version: VERSION,
            target,
            draft_ids,
            coverage,
            samples: samples.into_iter().map(entry).collect(),
        }
    }

    /// Bytes of a token's record.
    fn stride(&self) -> usize {
        self.target.hidden as usize * 8 + 8
    }
}

impl Corpus {
    /// Opens a corpus.
    ///
    /// # Errors
    /// [`TrainError::State`] when there is none or it is damaged.
    pub fn open(directory: &Path) -> Result<Self, TrainError> {
        let path = directory.join("corpus.json");
        let broken = |problem: String| TrainError::State {
            path: path.clone(),
            problem,
            hint: "`redraft-train prepare` makes a corpus",
        };
        let text = std::fs::read(&path).map_err(|error| broken(error.to_string()))?;
        let manifest: Manifest = serde_json::from_slice(&text).map_err(|error| broken(error.to_string()))?;
        if manifest.version != VERSION {
            return Err(broken(format!("version {}, expected {VERSION}", manifest.version)));
        }
        if manifest.samples.iter().any(|entry| entry.prompt == 0 || entry.prompt >= entry.tokens.len()) {
            return Err(broken("a sample without prompt or answer".to_owned()));
        }
        let mut starts = vec![0];
        let mut end = 0;
        for entry in &manifest.samples {
            end += entry.tokens.len() as u64;
            starts.push(end);
        }
        let records = match std::fs::metadata(directory.join("features.bin")) {
            Ok(file) => file.len() / manifest.stride() as u64,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
            Err(error) => return Err(TrainError::io(directory.join("features.bin"))(error)),
        };
        let ready = starts.iter().skip(1).take_while(|end| **end <= records).count();
        Ok(Self { directory: directory.to_owned(), manifest, starts, ready })
    }

    /// Writes the manifest of a new corpus, or goes on with the one that is there if it says the same, or the same and
    /// fewer samples: then the new ones come behind, with the draft vocabulary left as it is.
    ///
    /// # Errors
    /// [`TrainError::State`] when the directory holds another corpus.
    pub fn create(directory: &Path, mut manifest: Manifest) -> Result<Self, TrainError> {
        std::fs::create_dir_all(directory).map_err(TrainError::io(directory))?;
        let path = directory.join("corpus.json");
        if path.exists() {
            let there = Self::open(directory)?;
            let grows = manifest.samples.starts_with(&there.manifest.samples);
            if there.manifest.target != manifest.target || !grows {
                return Err(TrainError::State {
                    path,
                    problem: "of another target or other text".to_owned(),
                    hint: "give another --out, or remove the directory",
                });
            }
            manifest.draft_ids = there.manifest.draft_ids;
        }
        let text = serde_json::to_vec(&manifest).map_err(|error| TrainError::Framework {
            what: "writing corpus.json",
            message: error.to_string(),
        })?;
        write_atomically(&path, &text)?;
        Self::open(directory)
    }

    /// Samples and vocabulary.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// How many samples, from the first, have all their records.
    #[must_use]
    pub fn ready(&self) -> usize {
        self.ready
    }

    /// Indices of the samples of a split that have their records.
    #[must_use]
    pub fn indices(&self, split: Split) -> Vec<usize> {
        let ready = self.manifest.samples.iter().enumerate().take(self.ready);
        ready.filter(|(_, entry)| entry.split == split).map(|(index, _)| index).collect()
    }

    /// Appends the records of the next samples.
    ///
    /// # Errors
    /// [`TrainError::Io`]; what was written in part is ignored later.
    pub fn append(&mut self, records: &[Record]) -> Result<(), TrainError> {
        let path = self.directory.join("features.bin");
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(TrainError::io(&path))?;
        let start = self.starts[self.ready] * self.manifest.stride() as u64;
        file.set_len(start).map_err(TrainError::io(&path))?;
        file.seek(SeekFrom::Start(start)).map_err(TrainError::io(&path))?;
        let mut bytes = Vec::new();
        for (record, entry) in records.iter().zip(&self.manifest.samples[self.ready..]) {
            debug_assert_eq!(record.choice.len(), entry.tokens.len(), "records of a sample");
            self.encode(record, &mut bytes)?;
        }
        file.write_all(&bytes).map_err(TrainError::io(&path))?;
        file.sync_data().map_err(TrainError::io(&path))?;
        self.ready += records.len();
        Ok(())
    }

    fn encode(&self, record: &Record, bytes: &mut Vec<u8>) -> Result<(), TrainError> {
        let hidden = self.manifest.target.hidden as usize;
        let mut line = vec![f16::ZERO; 4 * hidden];
        let rows = record.features.chunks_exact(3 * hidden).zip(record.hidden.chunks_exact(hidden));
        for ((features, last), (choice, certainty)) in rows.zip(record.choice.iter().zip(&record.certainty)) {
            line[..3 * hidden].convert_from_f32_slice(features);
            line[3 * hidden..].convert_from_f32_slice(last);
            if let Some(value) = line.iter().find(|value| !value.is_finite()) {
                return Err(TrainError::Target {
                    problem: format!("has features that f16 cannot hold ({value})"),
                });
            }
            bytes.extend(line.iter().flat_map(|value| value.to_le_bytes()));
            bytes.extend(choice.to_le_bytes());
            bytes.extend(certainty.to_le_bytes());
        }
        Ok(())
    }

    /// Reads the records of a sample.
    ///
    /// # Errors
    /// [`TrainError::State`] when it has none yet.
    pub fn record(&self, index: usize) -> Result<Record, TrainError> {
        let path = self.directory.join("features.bin");
        if index >= self.ready {
            return Err(TrainError::State {
                path,
                problem: format!("no features of sample {index}"),
                hint: "`redraft-train prepare` goes on where it stopped",
            });
        }
        let (stride, hidden) = (self.manifest.stride(), self.manifest.target.hidden as usize);
        let count = self.manifest.samples[index].tokens.len();
        let mut file = File::open(&path).map_err(TrainError::io(&path))?;
        file.seek(SeekFrom::Start(self.starts[index] * stride as u64)).map_err(TrainError::io(&path))?;
        let mut bytes = vec![0; count * stride];
        file.read_exact(&mut bytes).map_err(TrainError::io(&path))?;
        let mut record = Record {
            features: vec![0.0; count * 3 * hidden],
            hidden: vec![0.0; count * hidden],
            choice: Vec::with_capacity(count),
            certainty: Vec::with_capacity(count),
        };
        let mut halves = vec![f16::ZERO; 4 * hidden];
        for (row, line) in bytes.chunks_exact(stride).enumerate() {
            let (numbers, rest) = line.split_at(8 * hidden);
            for (half, pair) in halves.iter_mut().zip(numbers.chunks_exact(2)) {
                *half = f16::from_le_bytes([pair[0], pair[1]]);
            }
            halves[..3 * hidden].convert_to_f32_slice(&mut record.features[row * 3 * hidden..][..3 * hidden]);
            halves[3 * hidden..].convert_to_f32_slice(&mut record.hidden[row * hidden..][..hidden]);
            record.choice.push(u32::from_le_bytes([rest[0], rest[1], rest[2], rest[3]]));
            record.certainty.push(f32::from_le_bytes([rest[4], rest[5], rest[6], rest[7]]));
        }
        Ok(record)
    }
}

/// Writes a file so that it is either the old one or the new one, whenever the process ends.
///
/// # Errors
/// [`TrainError::Io`].
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), TrainError> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(directory).map_err(TrainError::io(directory))?;
    file.write_all(bytes).map_err(TrainError::io(path))?;
    file.as_file().sync_all().map_err(TrainError::io(path))?;
    file.persist(path).map_err(|error| TrainError::io(path)(error.error))?;
    Ok(())
}
