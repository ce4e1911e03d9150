//! Checkpoints of other frameworks: their names, their configurations, their traps.

use crate::writer::File;
use redraft_drafter::DrafterFile;
use serde_json::{Value, json};

#[test]
fn a_plain_checkpoint_has_the_defaults_of_the_format() {
    let file = File::checkpoint().read().unwrap();
    let config = file.config();
    assert_eq!(config.head_dim, 16, "width over heads");
    assert_eq!(config.rope_theta.to_bits(), 10_000f32.to_bits(), "not the target's base");
    assert_eq!((config.target_hidden, config.draft_vocab), (64, 160));
    assert!(!config.norm_output && !config.fc_norm, "plain EAGLE-3");
    assert_eq!(config.capture_layers, None);
    assert_eq!(config.captures(28).unwrap(), [2, 14, 25]);
    assert_eq!(config.captures(16).unwrap(), [2, 8, 13]);
    assert!(config.captures(2).unwrap_err().to_string().contains("capture_layers"));
    assert!(file.target().is_none(), "it does not say");
}

fn captures(key: fn(&mut File, Value)) -> [u32; 3] {
    let mut file = File::checkpoint();
    key(&mut file, json!([1, 9, 12]));
    file.read().unwrap().config().captures(16).unwrap()
}

#[test]
fn captured_layers_are_numbered_by_input_at_the_top_and_by_output_below() {
    let top = |file: &mut File, ids| file.configure("eagle_aux_hidden_state_layer_ids", ids);
    let nested = |file: &mut File, ids| {
        file.configure("eagle_config", json!({ "eagle_aux_hidden_state_layer_ids": ids }));
    };
    assert_eq!(captures(top), [1, 9, 12]);
    assert_eq!(captures(nested), [2, 10, 13]);
    let both = |file: &mut File, ids: Value| {
        file.configure("eagle_config", json!({ "eagle_aux_hidden_state_layer_ids": [3, 4, 5] }));
        file.configure("eagle_aux_hidden_state_layer_ids", ids);
    };
    assert_eq!(captures(both), [1, 9, 12], "the top level wins");
    let file = File::checkpoint().read().unwrap().with_capture_layers([0, 3, 7]).unwrap();
    assert_eq!(file.config().captures(16).unwrap(), [0, 3, 7], "the override wins");
    assert!(file.with_capture_layers([3, 3, 7]).is_err(), "ascending");
}

#[test]
fn names_of_all_frameworks_are_the_same_drafter() {
    let plain = File::checkpoint().read().unwrap();
    let renamed = |rename: fn(&str) -> String| {
        let mut file = File::checkpoint();
        file.tensors.iter_mut().for_each(|tensor| tensor.name = rename(&tensor.name));
        file.read().unwrap()
    };
    assert_eq!(renamed(|name| name.replace("midlayer.", "layers.0.")), plain, "speculators");
    assert_eq!(renamed(|name| format!("model.{}", name.replace("midlayer.", "layers.0."))), plain, "NeMo");
    assert_eq!(renamed(|name| format!("model.{name}")), plain);
    let mut file = File::checkpoint();
    file.add("t2d", "BOOL", &[320], vec![1; 320]);
    assert_eq!(file.read().unwrap(), plain, "the mask says what d2t says");
}

#[test]
fn a_head_in_the_file_wins_over_the_flag() {
    let mut file = File::checkpoint();
    file.configure("tie_word_embeddings", json!(true));
    assert_eq!(file.read().unwrap(), File::checkpoint().read().unwrap());
}

#[test]
fn norms_before_the_fusion_are_found_by_their_tensors() {
    let mut file = File::checkpoint();
    for index in 0..3 {
        file.add(&format!("fc_norm.{index}.weight"), "F32", &[64], vec![0; 256]);
    }
    assert!(file.read().unwrap().config().fc_norm, "no flag");
    file.configure("fc_norm", json!(true));
    file.configure("norm_output", json!(true));
    let read = file.read().unwrap();
    assert!(read.config().fc_norm && read.config().norm_output);
    assert!(!read.with_norm_output(false).config().norm_output, "the override wins");
}

#[test]
fn nested_configurations_are_read() {
    let mut file = File::checkpoint();
    let mut inner = file.config.take().unwrap();
    inner.as_object_mut().unwrap().remove("draft_vocab_size");
    inner["rope_parameters"] = json!({ "rope_type": "default", "rope_theta": 1e6 });
    inner["head_dim"] = json!(16);
    inner["norm_before_residual"] = json!(false);
    inner["sliding_window"] = json!(2048);
    inner["use_sliding_window"] = json!(false);
    file.config = Some(json!({
        "speculators_model_type": "eagle3",
        "transformer_layer_config": inner,
        "draft_vocab_size": 160,
        "target_hidden_size": null,
    }));
    let read = file.read().unwrap();
    assert_eq!(read.config().rope_theta.to_bits(), 1e6f32.to_bits());
    assert_eq!(read.tensor("fc.weight"), File::checkpoint().read().unwrap().tensor("fc.weight"));
}

/// A checkpoint that was read with its configuration becomes a file that needs none.
#[test]
fn a_checkpoint_written_by_us_carries_its_configuration() {
    let file = File::checkpoint().read().unwrap();
    assert_eq!(DrafterFile::read(&file.write()).unwrap(), file);
}
