//! The oracle against published figures of the reference model: another engine's f32 forward.

use redraft_gguf::{Architecture, GgmlType};
use redraft_testing::reference::{Forward, argmax};
use redraft_testing::{
    KvType, RoleTypes, TinyModel, Tolerance, assert_close, declared_skip, model_path, shared_data,
};
use serde::Deserialize;

#[derive(Deserialize)]
struct Reference {
    prompts: Vec<Prompt>,
}

#[derive(Deserialize)]
struct Prompt {
    prompt_ids: Vec<u32>,
    first_step_top5: Top,
    greedy_ids: Vec<u32>,
    margins: Vec<f32>,
}

#[derive(Deserialize)]
struct Top {
    ids: Vec<u32>,
    logits: Vec<f32>,
}

/// Steps compared for each prompt: enough to leave the prompt, few enough for a test of seconds.
const STEPS: usize = 16;
/// Below this gap of the two best logits, arithmetic in another order may choose the other token.
const NEAR_TIE: f32 = 0.05;

fn inputs(what: &str) -> Option<(Forward, Vec<Prompt>)> {
    let reference = shared_data(env!("CARGO_MANIFEST_DIR"), "reference/smollm2_reference.json", what)?;
    let model = model_path(what)?;
    let reference: Reference = serde_json::from_slice(&std::fs::read(reference).unwrap()).unwrap();
    assert_eq!(reference.prompts.len(), 5, "the reference has five prompts");
    Some((Forward::load(&std::fs::read(model).unwrap()).unwrap(), reference.prompts))
}

#[test]
fn first_logits_greedy_ids_and_margins_equal_the_reference() {
    let Some((mut model, prompts)) = inputs("golden: first logits, greedy ids and margins") else { return };
    let mut steps = 0;
    for (index, prompt) in prompts.iter().enumerate() {
        model.truncate(0);
        let mut logits = model.prefill(&prompt.prompt_ids).unwrap();
        let found: Vec<f32> = prompt.first_step_top5.ids.iter().map(|&id| logits[id as usize]).collect();
        let what = format!("prompt {index}, first top-5 logits");
        assert_close(&what, &found, &prompt.first_step_top5.logits, Tolerance::within(1e-3));
        let fifth = *prompt.first_step_top5.logits.last().unwrap();
        let above = logits.iter().filter(|&&logit| logit > fifth + 1e-3).count();
        assert!(above <= 4, "prompt {index}: {above} logits are above the fifth best");
        for (step, (&id, &margin)) in prompt.greedy_ids.iter().zip(&prompt.margins).take(STEPS).enumerate() {
            if margin < NEAR_TIE {
                break;
            }
            assert_eq!(argmax(&logits), id, "prompt {index}, step {step}: greedy id");
            let found = top_gap(&logits);
            assert!(
                (found - margin).abs() < 2e-3,
                "prompt {index}, step {step}: margin {found}, not {margin}"
            );
            logits = model.step(id).unwrap();
            steps += 1;
        }
    }
    assert!(steps >= 3 * STEPS, "only {steps} steps compared: the data has changed");
}

/// The data's description states what f16 keys and values cost: at most 0.034 on a logit, rms 0.0044.
#[test]
fn f16_keys_and_values_cost_what_the_data_states() {
    let what = "golden: f16 keys and values";
    let Some((mut exact, prompts)) = inputs(what) else { return };
    let Some(prompt) = prompts.first() else { return declared_skip(what, "no prompt") };
    let ids: Vec<u32> = prompt.prompt_ids.iter().chain(&prompt.greedy_ids[..2]).copied().collect();
    let expected = exact.prefill(&ids).unwrap();
    exact.truncate(0);
    let mut rounded = exact.with_kv(KvType::F16);
    let found = rounded.prefill(&ids).unwrap();
    assert_close("f16 keys and values", &found, &expected, Tolerance::within(0.034));
    assert_ne!(found, expected, "rounding must change something");
}

fn top_gap(logits: &[f32]) -> f32 {
    let mut sorted = logits.to_vec();
    sorted.sort_by(f32::total_cmp);
    sorted[sorted.len() - 1] - sorted[sorted.len() - 2]
}

/// Name, model, and log-probabilities of some tokens.
type Case = (&'static str, TinyModel, [(u32, f32); 6]);

/// Log-probabilities that llama.cpp gives after these tokens: the package xllamacpp 2026.10.11549 on the files
/// of the generator, all tensors and the KV cache in f32, no flash attention. From the likeliest token to the
/// least likely. The largest difference over all 320 tokens of each model was 1e-5.
#[test]
fn tiny_models_of_every_shape_equal_llama_cpp() {
    const TOKENS: [u32; 15] = [1, 80, 75, 299, 33, 310, 4, 100, 262, 90, 2, 1, 50, 60, 70];
    let base = TinyModel { types: RoleTypes::all(GgmlType::F32), ..TinyModel::default() };
    let seed = |seed| TinyModel { seed, ..base.clone() };
    let factors = (1_u8..=8).map(f32::from).collect();
    let wide = TinyModel { hidden: 96, heads: 6, kv_heads: 3, head_dim: 32, ffn: 160, layers: 3, ..seed(1) };
    let cases: [Case; 5] = [
        (
            "tied",
            seed(3),
            [
                (67, -1.86954),
                (147, -1.97747),
                (309, -3.90037),
                (4, -6.93827),
                (161, -9.60339),
                (1, -16.36948),
            ],
        ),
        (
            "half-split with biases, separate head",
            TinyModel { architecture: Architecture::Qwen2, tied: false, ..seed(2) },
            [
                (268, -2.56469),
                (154, -2.69342),
                (238, -3.73897),
                (181, -6.44364),
                (284, -8.90114),
                (265, -15.44237),
            ],
        ),
        (
            "linear RoPE scaling",
            TinyModel { rope_linear: Some(4.0), ..seed(3) },
            [
                (301, -1.30453),
                (279, -2.3787),
                (154, -3.69143),
                (52, -7.1249),
                (162, -9.46448),
                (259, -14.88668),
            ],
        ),
        (
            "RoPE factors",
            TinyModel { rope_factors: Some(factors), ..seed(3) },
            [
                (25, -1.29858),
                (188, -2.46379),
                (169, -4.06658),
                (261, -6.95917),
                (265, -9.52853),
                (1, -16.61348),
            ],
        ),
        (
            "heads wider than the stream",
            wide,
            [
                (40, -1.27245),
                (81, -1.63752),
                (31, -4.18276),
                (69, -7.04295),
                (111, -9.52835),
                (11, -15.12856),
            ],
        ),
    ];
    for (name, model, expected) in cases {
        let mut forward = Forward::load(&model.to_gguf().unwrap()).unwrap();
        let logits = forward.prefill(&TOKENS).unwrap();
        let normaliser = logits.iter().map(|&logit| f64::from(logit).exp()).sum::<f64>().ln();
        for (token, expected) in expected {
            let found = f64::from(logits[token as usize]) - normaliser;
            let distance = (found - f64::from(expected)).abs();
            assert!(distance < 5e-5, "{name}: log-probability of {token} is {found}, not {expected}");
        }
        assert_eq!(argmax(&logits), expected[0].0, "{name}: the likeliest token");
    }
}
