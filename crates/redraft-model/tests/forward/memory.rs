//! The memory plan against what is really allocated.

use crate::support::{device, tiny};
use redraft_gguf::{Architecture, GgmlType, Gguf};
use redraft_model::{
    CaptureLayers, KvType, LoadOptions, Model, Path, Sampler, Speculator, SpeculatorOptions,
};
use redraft_testing::{RoleTypes, TinyDrafter, TinyModel};
use std::sync::Arc;

/// A file whose values and up projections have types of their own, as mixed quantisations have.
fn mixed() -> Vec<u8> {
    let model = TinyModel { layers: 1, ..TinyModel::default() };
    let mut tensors = model.tensors();
    for tensor in &mut tensors {
        if tensor.name.ends_with("attn_v.weight") || tensor.name.ends_with("ffn_up.weight") {
            tensor.kind = GgmlType::Q8_0;
        }
    }
    model.write(&tensors).expect("a valid tiny model")
}

#[test]
fn the_plan_is_what_is_allocated() {
    let odd = TinyModel {
        architecture: Architecture::Qwen2,
        hidden: 96,
        heads: 3,
        kv_heads: 1,
        head_dim: 32,
        ffn: 160,
        vocab: 331,
        tied: false,
        types: RoleTypes { head: GgmlType::F16, down: GgmlType::Q5_1, ..RoleTypes::default() },
        ..TinyModel::default()
    };
    let scaled = TinyModel { rope_factors: Some(vec![1.0; 8]), ..TinyModel::default() };
    for (what, file) in [
        ("default", tiny(TinyModel::default())),
        ("odd", tiny(odd)),
        ("rotary factors", tiny(scaled)),
        ("mixed types", mixed()),
    ] {
        for (path, kv, context, captures) in
            [(Path::Broadcast, KvType::F16, 512, vec![]), (Path::Shuffle, KvType::F32, 77, vec![0, 1])]
        {
            let gpu = device("memory", path);
            let gguf = pollster::block_on(Gguf::read(&file)).expect("a valid file");
            let options = LoadOptions {
                context: Some(context),
                kv,
                path: Some(path),
                captures: CaptureLayers::At(captures),
                skip_first_steps: true,
                ..LoadOptions::default()
            };
            let model = pollster::block_on(Model::load(Arc::clone(&gpu), &file, &gguf, &options, |_| {}))
                .expect("a loadable model");
            let plan = model.memory();
            let without = plan.total() - plan.sampling;
            assert_eq!(gpu.storage_made(), without, "{what}, {path:?}: the model; {plan}");
            let _sampler = pollster::block_on(Sampler::new(&model)).expect("memory");
            assert_eq!(gpu.storage_made(), plan.total(), "{what}, {path:?}: with the sampler; {plan}");
        }
    }
}

#[test]
fn the_plan_of_a_drafter_is_what_is_allocated() {
    let everything = TinyDrafter { kind: GgmlType::Q8_0, ..TinyDrafter::with_everything() };
    for (what, shape) in
        [("none", None), ("plain", Some(TinyDrafter::default())), ("everything", Some(everything))]
    {
        let target = shape.as_ref().map_or_else(TinyModel::default, |shape| shape.target.clone());
        let file = tiny(target);
        let captures = shape.as_ref().map_or_else(Vec::new, |shape| shape.captures.to_vec());
        for (path, kv, context) in [(Path::Broadcast, KvType::F16, 512), (Path::Shuffle, KvType::F32, 77)] {
            let gpu = device("memory.drafter", path);
            let gguf = pollster::block_on(Gguf::read(&file)).expect("a valid file");
            let options = LoadOptions {
                context: Some(context),
                kv,
                path: Some(path),
                captures: CaptureLayers::At(captures.clone()),
                skip_first_steps: true,
                ..LoadOptions::default()
            };
            let model = pollster::block_on(Model::load(Arc::clone(&gpu), &file, &gguf, &options, |_| {}))
                .expect("a loadable model");
            let sampler = pollster::block_on(Sampler::new(&model)).expect("memory");
            let drafter = shape.as_ref().map(|shape| shape.to_file().expect("a possible drafter"));
            let options = SpeculatorOptions { drafter: drafter.as_ref(), ..SpeculatorOptions::default() };
            let made = pollster::block_on(Speculator::new(&model, &sampler, &options)).expect("memory");
            let plan = made.memory(&model);
            // The drafter's batch is the tree's: the two buffers of its own that would hold it are given back at once.
            let given_back = if drafter.is_some() { (4 + 64) * 64 * 4 } else { 0 };
            assert_eq!(gpu.storage_made(), plan.total() + given_back, "{what}, {path:?}: {plan}");
        }
    }
}
