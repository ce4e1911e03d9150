//! Target and drafter against the reference: the same numbers, text by text and row by row.

use burn::tensor::{Device, Int, Tensor, TensorData};
use redraft_gguf::Architecture;
use redraft_testing::reference::{DraftRow, Drafter as Reference, Forward};
use redraft_testing::{TinyDrafter, TinyModel, Tolerance, assert_close};
use redraft_train::drafter::{Drafter, Frame};
use redraft_train::prepare::teach;
use redraft_train::target::Target;
use redraft_train::train::batch::Batch;
use redraft_train::train::unroll::unroll;

use crate::support::{corpus, samples, tiny};

/// Logits, captures, the target's choice and how sure it is of it.
#[test]
fn the_target_is_the_reference() {
    let qwen = TinyModel { architecture: Architecture::Qwen2, tied: false, ..TinyModel::default() };
    let scaled = TinyModel { rope_linear: Some(2.0), ..TinyModel::default() };
    for (name, model) in [("llama", TinyModel::default()), ("qwen2", qwen), ("linear RoPE", scaled)] {
        let (tiny, device) = (tiny(&model), Device::flex());
        let target = Target::load(&tiny.file, [0, 1, 2], 64, &device).expect("a target");
        let texts = samples(7);
        let whole: Vec<Vec<u32>> =
            texts.iter().map(|text| [text.prompt.as_slice(), &text.response].concat()).collect();
        let given: Vec<(&[u32], usize)> =
            whole.iter().zip(&texts).map(|(all, text)| (all.as_slice(), text.prompt.len())).collect();
        let records = teach(&target, &given, 60, &device).expect("records");
        for (record, (tokens, prompt)) in records.iter().zip(&given) {
            let mut reference = Forward::load(&tiny.bytes).expect("a reference").with_captures(&[0, 1, 2]);
            let (mut features, mut choice, mut certainty) = (Vec::new(), Vec::new(), Vec::new());
            let mut logits = Vec::new();
            for (position, &token) in tokens.iter().enumerate() {
                let all = reference.step(token).expect("a step");
                features.extend(reference.captures().concat());
                if position + 1 >= *prompt {
                    let best = (0..all.len()).max_by(|a, b| all[*a].total_cmp(&all[*b])).expect("a token");
                    choice.push(u32::try_from(best).expect("an id"));
                    certainty.push(1.0 / all.iter().map(|logit| (logit - all[best]).exp()).sum::<f32>());
                }
                logits.extend(all);
            }
            assert_close(name, &record.features, &features, Tolerance::F32.with_absolute(1e-5));
            assert_eq!(record.choice[prompt - 1..], choice, "{name}: choice");
            let sure = &record.certainty[prompt - 1..];
            assert_close(name, sure, &certainty, Tolerance::F32.with_absolute(1e-5));
            let rows = record.hidden.len() / 64;
            let hidden = Tensor::<2>::from_data(TensorData::new(record.hidden.clone(), [rows, 64]), &device);
            let found: Vec<f32> = target.logits(hidden).into_data().try_to_vec().expect("floats");
            assert_close(name, &found, &logits, Tolerance::F32.with_absolute(1e-4));
        }
    }
}

/// Token by token with a cache: the same hidden states as the whole text at once, after texts were dropped too.
#[test]
fn steps_are_the_whole_text() {
    let (tiny, device) = (tiny(&TinyModel::default()), Device::flex());
    let target = Target::load(&tiny.file, [0, 1, 2], 16, &device).expect("a target");
    let ids: Vec<i64> = (0..24).map(|id| 5 + id * 7 % 300).collect();
    let tokens = Tensor::<2, Int>::from_data(TensorData::new(ids, [3, 8]), &device);
    let whole = target.forward(tokens.clone()).hidden;
    let mut cache = target.cache(3, 8);
    for position in 0..8 {
        let mut column: Tensor<1, Int> = tokens.clone().narrow(1, position, 1).squeeze_dim(1);
        let mut wanted: Tensor<2> = whole.clone().narrow(1, position, 1).squeeze_dim(1);
        if position >= 5 {
            let kept = Tensor::<1, Int>::from_ints([2, 0], &device);
            if position == 5 {
                cache.select(&kept);
            }
            column = column.select(0, kept.clone());
            wanted = wanted.select(0, kept);
        }
        let found: Vec<f32> = target.step(&mut cache, column).into_data().try_to_vec().expect("floats");
        let wanted: Vec<f32> = wanted.into_data().try_to_vec().expect("floats");
        assert_close("hidden", &found, &wanted, Tolerance::F32.with_absolute(1e-5));
    }
}

/// Every row of every step, first and second pass, against the reference drafter run as drafting runs it: true features
/// up to the row, then the drafter's own outputs.
#[test]
fn unrolled_rows_are_drafted_rows() {
    let plain = TinyDrafter { adapter_rank: Some(32), ..TinyDrafter::default() };
    let normed = TinyDrafter { norm_output: true, fc_norm: true, kv_heads: 4, ..plain.clone() };
    for (name, made) in [("EAGLE-3", plain), ("EAGLE-3.1", normed)] {
        let (tiny, device) = (tiny(&made.target), Device::flex());
        let corpus = corpus(&tiny, name, 12);
        let file = made.to_file().expect("a drafter");
        let target = Target::load(&tiny.file, made.captures, 1, &device).expect("a target");
        let drafter = Drafter::from_file(&file, 32, 0, &device).expect("the drafter");
        let frame = Frame::new(file.config().clone(), target.embedding(), 64, &device);
        let ids = file.draft_ids().to_vec();
        let mut draft_index = vec![None; 320];
        for (index, &id) in (0_u32..).zip(&ids) {
            draft_index[id as usize] = Some(index);
        }
        let steps = 4;
        let texts = [3, 5, 0];
        let head = target.head_rows(&ids);
        let batch = Batch::load(&corpus, &texts, steps, &draft_index, &head, &device).expect("a batch");
        let outputs = unroll(&drafter, &frame, &batch, true);
        assert_eq!(outputs.len(), steps, "{name}: all steps have rows");
        let mut compared = 0;
        for (step, (rows, output)) in batch.steps.iter().zip(&outputs).enumerate() {
            let places: Vec<i64> = rows.rows.clone().try_into_vec_as().expect("integers");
            let first: Vec<f32> =
                drafter.logits(output.first.clone()).into_data().try_to_vec().expect("floats");
            let second = output.second.clone().expect("second passes");
            let second: Vec<f32> = drafter.logits(second).into_data().try_to_vec().expect("floats");
            let (from, held) =
                if step == 0 { (0, batch.rows) } else { (batch.first, batch.rows - batch.first - step) };
            for (place, (first, second)) in
                places.iter().zip(first.chunks_exact(160).zip(second.chunks_exact(160)))
            {
                let place = usize::try_from(*place).expect("a place");
                let (text, row) = (texts[place / held], place % held + from);
                let entry = &corpus.manifest().samples[text];
                assert!(row + 1 >= entry.prompt, "{name}: row {row} drafts behind the prompt");
                let record = corpus.record(text).expect("a record");
                let mut reference = Reference::load(&file, &Forward::load(&tiny.bytes).expect("a target"))
                    .expect("a drafter");
                let features = &record.features[..(row + 1) * 192];
                let mut last =
                    reference.extend(features, &entry.tokens[1..row + 2]).expect("rows").pop().expect("one");
                let mut chain = Vec::new();
                for further in 1..=step {
                    let feature = last.hidden.clone();
                    let (token, position) = (entry.tokens[row + 1 + further], row + further);
                    let row =
                        DraftRow { token, position, chain: &chain, second_pass: false, feature: &feature };
                    last = reference.step(&[row]).expect("a row").remove(0);
                    chain.push(last.slot);
                }
                let what = format!("{name}, step {step}, text {text}, row {row}");
                assert_close(&what, first, &last.logits, Tolerance::F32.with_absolute(2e-4));
                let feature = last.hidden.clone();
                let (token, position) = (entry.tokens[row + 1 + step], row + step);
                let again = DraftRow { token, position, chain: &chain, second_pass: true, feature: &feature };
                let again = reference.step(&[again]).expect("a row").remove(0);
                assert_close(&what, second, &again.logits, Tolerance::F32.with_absolute(2e-4));
                compared += 1;
            }
        }
        assert!(compared > 60, "{name}: {compared} rows compared");
    }
}
