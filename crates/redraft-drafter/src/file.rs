//! A drafter in memory, checked.

use crate::config::DrafterConfig;
use crate::error::{DrafterError, Warning};
use crate::fingerprint::TargetFingerprint;
use crate::tensor::{self, Tensor, name};
use std::collections::BTreeMap;

pub(crate) mod container;
mod read;
mod write;

/// The key of the metadata block under which a file of this project says everything that is not a tensor.
const METADATA_KEY: &str = "redraft";
/// The version of what is under that key.
const VERSION: u32 = 1;
/// Offsets from a row of the head to its token.
const D2T: &str = "d2t";

/// What the gate and the merge of reconsideration were calibrated to.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ReconsiderSettings {
    /// Least uncertainty of a row that is worth a second pass, 0 to 1.
    pub gate_threshold: Option<f32>,
    /// Added to the log-probability of a refined candidate where scores are not calibrated.
    pub refined_offset: Option<f32>,
    /// Whether scores come from [`Reconsider::edges`] and the gate's gain from [`Reconsider::log_gain`].
    pub calibrated: bool,
}

/// Everything about reconsideration but the adapter's matrices; what a checkpoint without it lacks is absent.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reconsider {
    /// Gate and merge.
    pub settings: ReconsiderSettings,
    /// The pass embedding r that is added to the feature of a second pass, `[hidden]`.
    pub embedding: Option<Vec<f32>>,
    /// Rank of the second pass's adapter; a multiple of 32.
    pub rank: Option<u32>,
    /// Log of the chance that a candidate is accepted, `[2, 8, 4, 32]`: refined, depth, rank, log-probability.
    pub edges: Option<Vec<f32>>,
    /// Log of the gain of a second pass, `[8, 64]`: depth, uncertainty.
    pub log_gain: Option<Vec<f32>>,
    /// Log of the chance that a looked-up token is accepted, `[17]`: length of the match.
    pub lookup_edge: Option<Vec<f32>>,
}

/// The parts of a drafter, to be checked by [`DrafterFile::new`].
#[derive(Debug, Clone, PartialEq)]
pub struct Parts {
    /// The shape.
    pub config: DrafterConfig,
    /// Weights and tables under the names that [`DrafterFile::write`] gives them: `fc.weight`, `midlayer.…`,
    /// `norm.weight`, `lm_head.weight`, and what is optional.
    pub tensors: BTreeMap<String, Tensor>,
    /// Of every row of the head the token of the target, ascending; absent if all tokens have a row.
    pub draft_ids: Option<Vec<u32>>,
    /// Gate and merge.
    pub reconsider: ReconsiderSettings,
    /// The target that it was trained for.
    pub target: Option<TargetFingerprint>,
}

/// A drafter: its shape, its weights, and the target that it is for.
///
/// All of it is checked: every tensor that the shape calls for is there, of the right shape and finite, and no other
/// is.
#[derive(Debug, Clone, PartialEq)]
pub struct DrafterFile {
    config: DrafterConfig,
    tensors: BTreeMap<String, Tensor>,
    draft_ids: Vec<u32>,
    reconsider: Reconsider,
    target: Option<TargetFingerprint>,
}

impl DrafterFile {
    /// Checks the parts of a drafter.
    ///
    /// # Errors
    ///
    /// [`DrafterError`] names the tensor or the field that is wrong.
    pub fn new(parts: Parts) -> Result<Self, DrafterError> {
        let Parts { mut config, tensors, draft_ids, reconsider: settings, target } = parts;
        config.check()?;
        if let Some(target) = &target {
            check_fingerprint(&config, target)?;
            config.capture_layers = Some(target.capture_layers);
        }
        let rank = tensor::check(&config, &tensors)?;
        let draft_ids = check_draft_ids(&config, draft_ids)?;
        let values = |name: &str| -> Result<Option<Vec<f32>>, DrafterError> {
            let values = tensors.get(name).map(Tensor::to_f32).transpose();
            values.map_err(|source| DrafterError::Blocks { tensor: name.to_owned(), source })
        };
        let reconsider = Reconsider {
            settings,
            embedding: values(name::PASS)?,
            rank,
            edges: values(name::EDGES)?,
            log_gain: values(name::LOG_GAIN)?,
            lookup_edge: values(name::LOOKUP_EDGE)?,
        };
        check_reconsider(&reconsider)?;
        Ok(Self { config, tensors, draft_ids, reconsider, target })
    }

    /// The parts that [`Self::new`] takes.
    #[must_use]
    pub fn into_parts(self) -> Parts {
        let mapped = self.config.draft_vocab != self.config.vocab;
        Parts {
            config: self.config,
            tensors: self.tensors,
            draft_ids: mapped.then_some(self.draft_ids),
            reconsider: self.reconsider.settings,
            target: self.target,
        }
    }

    /// The shape.
    #[must_use]
    pub fn config(&self) -> &DrafterConfig {
        &self.config
    }

    /// Of every row of the head the token of the target; ascending.
    #[must_use]
    pub fn draft_ids(&self) -> &[u32] {
        &self.draft_ids
    }

    /// What reconsideration needs.
    #[must_use]
    pub fn reconsider(&self) -> Reconsider {
        self.reconsider.clone()
    }

    /// The target that the drafter was trained for, where the file says.
    #[must_use]
    pub fn target(&self) -> Option<&TargetFingerprint> {
        self.target.as_ref()
    }

    /// A tensor by the name that [`Self::write`] gives it.
    #[must_use]
    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.tensors.get(name)
    }

    /// All tensors, by name.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = (&str, &Tensor)> {
        self.tensors.iter().map(|(name, tensor)| (name.as_str(), tensor))
    }

    /// Captures other layers than the file says: checkpoints of some frameworks number them in another way than they
    /// claim.
    ///
    /// # Errors
    ///
    /// [`DrafterError::Invalid`] when they are not ascending.
    pub fn with_capture_layers(mut self, layers: [u32; 3]) -> Result<Self, DrafterError> {
        self.config.capture_layers = Some(layers);
        if let Some(target) = &mut self.target {
            target.capture_layers = layers;
        }
        self.config.check()?;
        Ok(self)
    }

    /// Feeds back the normed output, or the output itself, whatever the file says: a framework wrote the flag with
    /// another meaning for some months of 2026.
    #[must_use]
    pub fn with_norm_output(mut self, norm_output: bool) -> Self {
        self.config.norm_output = norm_output;
        self
    }

    /// Checks that the drafter is for this model.
    ///
    /// # Errors
    ///
    /// [`DrafterError::Target`] names what differs. A drafter without a fingerprint must fit in its sizes and captured
    /// layers and gives a warning.
    pub fn check_target(&self, model: &TargetFingerprint) -> Result<Vec<Warning>, DrafterError> {
        if let Some(target) = &self.target {
            return target.check(model);
        }
        let captures = self.config.captures(model.layers)?;
        for (field, expected, found) in [
            ("hidden", self.config.target_hidden.to_string(), model.hidden.to_string()),
            ("vocab", self.config.vocab.to_string(), model.vocab.to_string()),
            ("capture_layers", format!("{captures:?}"), format!("{:?}", model.capture_layers)),
        ] {
            if expected != found {
                return Err(DrafterError::Target { field, expected, found });
            }
        }
        Ok(vec![Warning::NoFingerprint])
    }
}

/// A fingerprint must be of a target that the configuration fits.
fn check_fingerprint(config: &DrafterConfig, target: &TargetFingerprint) -> Result<(), DrafterError> {
    for (field, wanted, found) in
        [("target.hidden", config.target_hidden, target.hidden), ("target.vocab", config.vocab, target.vocab)]
    {
        if wanted != found {
            return Err(DrafterError::invalid(field, format!("{wanted}, as the configuration says"), found));
        }
    }
    let stated = config.capture_layers.unwrap_or(target.capture_layers);
    if stated != target.capture_layers {
        let wanted = format!("{stated:?}, as the configuration says");
        return Err(DrafterError::invalid(
            "target.capture_layers",
            wanted,
            format!("{:?}", target.capture_layers),
        ));
    }
    DrafterConfig { capture_layers: Some(stated), ..config.clone() }.captures(target.layers).map(|_| ())
}

fn check_draft_ids(config: &DrafterConfig, ids: Option<Vec<u32>>) -> Result<Vec<u32>, DrafterError> {
    let Some(ids) = ids else {
        if config.draft_vocab != config.vocab {
            return Err(DrafterError::Missing {
                field: format!("tensor {D2T:?}"),
                hint: "a drafter of fewer tokens than its target needs the map between them",
            });
        }
        return Ok((0..config.vocab).collect());
    };
    if ids.len() as u64 != u64::from(config.draft_vocab) {
        let wanted = format!("{} tokens, the draft vocabulary", config.draft_vocab);
        return Err(DrafterError::invalid(D2T, wanted, ids.len()));
    }
    let mut least = 0;
    for (row, &id) in ids.iter().enumerate() {
        if id < least || id >= config.vocab {
            let wanted = format!("ascending tokens below {}, here at least {least}", config.vocab);
            return Err(DrafterError::invalid(format!("{D2T}[{row}]"), wanted, format!("token {id}")));
        }
        least = id + 1;
    }
    Ok(ids)
}

fn check_reconsider(reconsider: &Reconsider) -> Result<(), DrafterError> {
    let ReconsiderSettings { gate_threshold, refined_offset, calibrated } = reconsider.settings;
    if let Some(found) = gate_threshold.filter(|threshold| !(0.0..=1.0).contains(threshold)) {
        return Err(DrafterError::invalid("reconsider.gate_threshold", "a number from 0 to 1", found));
    }
    // Added to logs of probabilities: beyond this it drowns them.
    if let Some(found) = refined_offset.filter(|offset| !(-64.0..=64.0).contains(offset)) {
        return Err(DrafterError::invalid("reconsider.refined_offset", "a number from -64 to 64", found));
    }
    for (name, table) in [(name::EDGES, &reconsider.edges), (name::LOG_GAIN, &reconsider.log_gain)] {
        if calibrated && table.is_none() {
            return Err(DrafterError::Missing {
                field: format!("tensor {name:?}"),
                hint: "the metadata says that scores are calibrated",
            });
        }
    }
    for (name, table) in [(name::EDGES, &reconsider.edges), (name::LOOKUP_EDGE, &reconsider.lookup_edge)] {
        let above = table.iter().flatten().enumerate().find(|(_, value)| **value > 0.0);
        if let Some((index, value)) = above {
            return Err(DrafterError::invalid(
                format!("element {index} of tensor {name:?}"),
                "the log of a probability, at most 0",
                value,
            ));
        }
    }
    Ok(())
}
