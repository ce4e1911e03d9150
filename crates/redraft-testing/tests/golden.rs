//! The oracle against published figures of the reference model: another engine's f32 forward.
#![expect(missing_docs, reason = "a test binary has no public items to document")]

use redraft_testing::reference::{Forward, argmax};
use redraft_testing::{KvType, Tolerance, assert_close, declared_skip, model_path, shared_data};
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
