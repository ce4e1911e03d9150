//! Weights in and out: a new drafter of a target, and drafter files.

use std::collections::BTreeMap;

use burn::module::Param;
use burn::tensor::{Device, Tensor, TensorData};
use redraft_drafter::{
    DrafterConfig, DrafterFile, Parts, ReconsiderSettings, TargetFingerprint, Tensor as FileTensor,
};
use redraft_gguf::GgmlType;

use super::{Alternative, Drafter};
use crate::error::TrainError;
use crate::prepare::floats;
use crate::random::Random;
use crate::target::Target;

/// Weight of a new drafter's last norm. At 1 its first guesses are as decided as the target's own and nearly all wrong:
/// the training loss of the first four steps was 17.6. After 36 steps (120 texts, two steps of unrolling) it was 5.48
/// from 0.3, 5.71 from 0.2 with 0.3 of the capture passed on, and 6.00 from 0.3 with nothing passed on.
const FIRST_SCALE: f32 = 0.3;

/// `[rows, columns]` with mean 0 and the deviation 1 / sqrt(columns), times `gain`.
#[expect(clippy::cast_possible_truncation, reason = "rounding to f32 is the point")]
fn drawn(random: &mut Random, rows: usize, columns: usize, gain: f64) -> Vec<f32> {
    let width = gain * (3.0 / columns as f64).sqrt();
    (0..rows * columns).map(|_| ((2.0 * random.unit() - 1.0) * width) as f32).collect()
}

fn matrix(values: Vec<f32>, rows: usize, device: &Device) -> Param<Tensor<2>> {
    let columns = values.len() / rows.max(1);
    Param::from_data(TensorData::new(values, [rows, columns]), device)
}

fn vector(values: Vec<f32>, device: &Device) -> Param<Tensor<1>> {
    let length = values.len();
    Param::from_data(TensorData::new(values, [length]), device)
}

/// The names that drafter files give the matrices and vectors, in the order of [`Drafter::fields`].
const NAMES: [&str; 13] = [
    "fc.weight",
    "midlayer.input_layernorm.weight",
    "midlayer.hidden_norm.weight",
    "midlayer.self_attn.q_proj.weight",
    "midlayer.self_attn.k_proj.weight",
    "midlayer.self_attn.v_proj.weight",
    "midlayer.self_attn.o_proj.weight",
    "midlayer.post_attention_layernorm.weight",
    "midlayer.mlp.gate_proj.weight",
    "midlayer.mlp.up_proj.weight",
    "midlayer.mlp.down_proj.weight",
    "norm.weight",
    "lm_head.weight",
];

impl Drafter {
    /// A drafter to be trained. The head starts as the target's rows of the draft vocabulary with the target's final
    /// norm folded in, `fc` passes the highest capture on, and everything that adds to it starts small: the first
    /// guess is what the target's own head makes of its late features.
    ///
    /// # Errors
    /// [`TrainError`] when the target's weights cannot be read.
    pub fn new(
        config: &DrafterConfig,
        draft_ids: &[u32],
        rank: usize,
        target: &Target,
        seed: u64,
        device: &Device,
    ) -> Result<Self, TrainError> {
        let [hidden, wide, ffn] = [config.hidden, config.target_hidden, config.ffn].map(|size| size as usize);
        let (queries, keys) = (config.queries() as usize, config.keys() as usize);
        let mut random = Random::new(seed);
        let mut draw = |rows, columns, gain| drawn(&mut random, rows, columns, gain);
        let mut fc = draw(hidden, 3 * wide, 0.3);
        if hidden == wide {
            for (row, line) in fc.chunks_exact_mut(3 * wide).enumerate() {
                line[2 * wide + row] += 1.0;
            }
        }
        let head = if hidden == wide {
            floats(target.folded_head_rows(draft_ids))?
        } else {
            draw(draft_ids.len(), hidden, 1.0)
        };
        let ones = |length: usize| vector(vec![1.0; length], device);
        let norms = if config.fc_norm { vec![ones(wide), ones(wide), ones(wide)] } else { Vec::new() };
        Ok(Self {
            fc_norm: norms,
            fc: matrix(fc, hidden, device),
            input_norm: ones(hidden),
            hidden_norm: ones(hidden),
            q: matrix(draw(queries, 2 * hidden, 1.0), queries, device),
            k: matrix(draw(keys, 2 * hidden, 1.0), keys, device),
            v: matrix(draw(keys, 2 * hidden, 1.0), keys, device),
            output: matrix(draw(hidden, queries, 0.5), hidden, device),
            ffn_norm: ones(hidden),
            gate: matrix(draw(ffn, hidden, 1.0), ffn, device),
            up: matrix(draw(ffn, hidden, 1.0), ffn, device),
            down: matrix(draw(hidden, ffn, 0.5), hidden, device),
            norm: vector(vec![FIRST_SCALE; hidden], device),
            head: matrix(head, draft_ids.len(), device),
            pass: vector(vec![0.0; hidden], device),
            adapter_down: matrix(draw(rank, 2 * hidden, 1.0), rank, device),
            adapter_up: matrix(vec![0.0; hidden * rank], hidden, device),
            alternative: Alternative::none(),
        })
    }

    /// Loads the weights of a drafter file; a second pass that it lacks starts at nothing.
    ///
    /// # Errors
    /// [`TrainError::Drafter`] when a tensor cannot be dequantised.
    pub fn from_file(
        file: &DrafterFile,
        rank: usize,
        seed: u64,
        device: &Device,
    ) -> Result<Self, TrainError> {
        let values = |name: &str| -> Result<Vec<f32>, TrainError> {
            let tensor = file
                .tensor(name)
                .ok_or_else(|| TrainError::Target { problem: format!("'s drafter has no tensor {name}") })?;
            tensor.to_f32().map_err(|source| TrainError::Tensor { name: name.to_owned(), source })
        };
        let config = file.config();
        let load = |name: &str, rows: u32| Ok::<_, TrainError>(matrix(values(name)?, rows as usize, device));
        let norm = |name: &str| Ok::<_, TrainError>(vector(values(name)?, device));
        let reconsider = file.reconsider();
        let hidden = config.hidden as usize;
        let (down, up) = match reconsider.rank {
            Some(rank) => {
                (load("reconsider.down.weight", rank)?, load("reconsider.up.weight", config.hidden)?)
            }
            None => {
                let mut random = Random::new(seed);
                let mut draw = |rows, columns, gain| drawn(&mut random, rows, columns, gain);
                let down = matrix(draw(rank, 2 * hidden, 1.0), rank, device);
                (down, matrix(vec![0.0; hidden * rank], hidden, device))
            }
        };
        let fc_norm = if config.fc_norm {
            (0..3).map(|index| norm(&format!("fc_norm.{index}.weight"))).collect::<Result<_, _>>()?
        } else {
            Vec::new()
        };
        Ok(Self {
            fc_norm,
            fc: load(NAMES[0], config.hidden)?,
            input_norm: norm(NAMES[1])?,
            hidden_norm: norm(NAMES[2])?,
            q: load(NAMES[3], config.queries())?,
            k: load(NAMES[4], config.keys())?,
            v: load(NAMES[5], config.keys())?,
            output: load(NAMES[6], config.hidden)?,
            ffn_norm: norm(NAMES[7])?,
            gate: load(NAMES[8], config.ffn)?,
            up: load(NAMES[9], config.ffn)?,
            down: load(NAMES[10], config.hidden)?,
            norm: norm(NAMES[11])?,
            head: load(NAMES[12], config.draft_vocab)?,
            pass: vector(reconsider.embedding.unwrap_or_else(|| vec![0.0; hidden]), device),
            adapter_down: down,
            adapter_up: up,
            alternative: Alternative::none(),
        })
    }

    /// The drafter as a file in f32; `second_pass` says whether what reconsideration trains is written. What only an
    /// alternative second pass has is not.
    ///
    /// # Errors
    /// [`TrainError::Drafter`] when the weights are not finite.
    pub fn to_file(
        &self,
        config: &DrafterConfig,
        draft_ids: &[u32],
        target: TargetFingerprint,
        second_pass: bool,
    ) -> Result<DrafterFile, TrainError> {
        let mut tensors = BTreeMap::new();
        let mut put = |name: &str, dims: &[usize], values: Vec<f32>| -> Result<(), TrainError> {
            let dims: Vec<u64> = dims.iter().map(|&dim| dim as u64).collect();
            let tensor = FileTensor::from_f32(GgmlType::F32, &dims, &values).map_err(|source| {
                redraft_drafter::DrafterError::Quantize { tensor: name.to_owned(), source }
            })?;
            tensors.insert(name.to_owned(), tensor);
            Ok(())
        };
        let matrices = [
            (0, &self.fc),
            (3, &self.q),
            (4, &self.k),
            (5, &self.v),
            (6, &self.output),
            (8, &self.gate),
            (9, &self.up),
            (10, &self.down),
            (12, &self.head),
        ];
        for (index, param) in matrices {
            let value = param.val();
            put(NAMES[index], &value.dims(), floats(value)?)?;
        }
        let vectors = [(1, &self.input_norm), (2, &self.hidden_norm), (7, &self.ffn_norm), (11, &self.norm)];
        for (index, param) in vectors {
            let value = param.val();
            put(NAMES[index], &value.dims(), floats(value)?)?;
        }
        for (index, param) in self.fc_norm.iter().enumerate() {
            let value = param.val();
            put(&format!("fc_norm.{index}.weight"), &value.dims(), floats(value)?)?;
        }
        if second_pass {
            let pass = self.pass.val();
            put("reconsider.embedding", &pass.dims(), floats(pass)?)?;
            for (name, param) in
                [("reconsider.down.weight", &self.adapter_down), ("reconsider.up.weight", &self.adapter_up)]
            {
                let value = param.val();
                put(name, &value.dims(), floats(value)?)?;
            }
        }
        let mapped = config.draft_vocab != config.vocab;
        Ok(DrafterFile::new(Parts {
            config: config.clone(),
            tensors,
            draft_ids: mapped.then(|| draft_ids.to_vec()),
            reconsider: ReconsiderSettings::default(),
            target: Some(target),
        })?)
    }
}
