//! The reference of drafters: against the formulas worked out once more in f64, and against itself.

use redraft_drafter::DrafterFile;
use redraft_gguf::GgmlType;
use redraft_testing::reference::{DraftOutput, DraftRow, Drafter, Forward};
use redraft_testing::{KvType, Prng, TinyDrafter, Tolerance, assert_close};

fn load(tiny: &TinyDrafter) -> (DrafterFile, Drafter) {
    let file = tiny.to_file().unwrap();
    let target = Forward::load(&tiny.target.to_gguf().unwrap()).unwrap();
    let drafter = Drafter::load(&file, &target).unwrap();
    (file, drafter)
}

/// Drafters without and with the optional parts.
fn variants() -> Vec<(&'static str, TinyDrafter)> {
    vec![
        ("plain", TinyDrafter::default()),
        ("norm_output", TinyDrafter { norm_output: true, ..TinyDrafter::default() }),
        ("fc_norm", TinyDrafter { fc_norm: true, ..TinyDrafter::default() }),
        ("adapter", TinyDrafter { adapter_rank: Some(32), ..TinyDrafter::default() }),
        ("everything", TinyDrafter::with_everything()),
        ("q8_0", TinyDrafter { kind: GgmlType::Q8_0, ..TinyDrafter::with_everything() }),
    ]
}

/// Features and tokens of `rows` positions, like a target's but random.
fn inputs(tiny: &TinyDrafter, rows: usize) -> (Vec<f32>, Vec<u32>) {
    let mut prng = Prng::new(5);
    let features = prng.signed_values(rows * 3 * tiny.target.hidden, 2.0);
    let tokens = (0..rows).map(|_| u32::try_from(prng.below(tiny.target.vocab)).unwrap()).collect();
    (features, tokens)
}

/// A first-pass row.
fn first<'a>(token: u32, position: usize, chain: &'a [usize], feature: &'a [f32]) -> DraftRow<'a> {
    DraftRow { token, position, chain, second_pass: false, feature }
}

/// Equal bits of what a row yields, whatever its slot.
fn same(a: &DraftOutput, b: &DraftOutput) -> bool {
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    bits(&a.hidden) == bits(&b.hidden) && bits(&a.logits) == bits(&b.logits)
}

// ---- The formulas, in f64 ----

struct Weights<'a>(&'a DrafterFile);

impl Weights<'_> {
    fn values(&self, name: &str) -> Vec<f64> {
        let tensor = self.0.tensor(name).unwrap_or_else(|| panic!("no tensor {name}"));
        tensor.to_f32().unwrap().into_iter().map(f64::from).collect()
    }

    fn product(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let rows = self.values(name);
        rows.chunks_exact(x.len()).map(|row| row.iter().zip(x).map(|(a, b)| a * b).sum()).collect()
    }

    fn norm(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
        let scale = 1.0 / (mean + f64::from(self.0.config().rms_eps)).sqrt();
        x.iter().zip(self.values(name)).map(|(x, weight)| x * scale * weight).collect()
    }

    fn fused(&self, feature: &[f32]) -> Vec<f64> {
        let feature: Vec<f64> = feature.iter().copied().map(f64::from).collect();
        let normed = |(index, part)| self.norm(&format!("fc_norm.{index}.weight"), part);
        let parts = feature.chunks_exact(feature.len() / 3).enumerate();
        match self.0.config().fc_norm {
            true => self.product("fc.weight", &parts.flat_map(normed).collect::<Vec<_>>()),
            false => self.product("fc.weight", &feature),
        }
    }

    /// Hidden output and logits of a row that attends to itself alone, so that attention is its own value.
    fn alone(&self, embedding: &[f64], g: &[f64], second_pass: bool) -> (Vec<f64>, Vec<f64>) {
        let layer = |part: &str| format!("midlayer.{part}.weight");
        let config = self.0.config();
        let mut g = g.to_vec();
        if second_pass {
            add(&mut g, &self.values("reconsider.embedding"));
        }
        let mut x = self.norm(&layer("input_layernorm"), embedding);
        x.extend(self.norm(&layer("hidden_norm"), &g));
        let value = self.product(&layer("self_attn.v_proj"), &x);
        let (head_dim, group) = (config.head_dim as usize, (config.heads / config.kv_heads) as usize);
        let heads = (0..config.heads as usize).map(|head| head / group * head_dim);
        let mixed: Vec<f64> = heads.flat_map(|at| value[at..at + head_dim].to_vec()).collect();
        let mut h = g;
        add(&mut h, &self.product(&layer("self_attn.o_proj"), &mixed));
        let normed = self.norm(&layer("post_attention_layernorm"), &h);
        let gate = self.product(&layer("mlp.gate_proj"), &normed);
        let up = self.product(&layer("mlp.up_proj"), &normed);
        let inner: Vec<f64> =
            gate.iter().zip(&up).map(|(gate, up)| gate / (1.0 + (-gate).exp()) * up).collect();
        add(&mut h, &self.product(&layer("mlp.down_proj"), &inner));
        if second_pass && self.0.reconsider().rank.is_some() {
            let inner = self.product("reconsider.down.weight", &x);
            add(&mut h, &self.product("reconsider.up.weight", &inner));
        }
        let normed = self.norm("norm.weight", &h);
        let logits = self.product("lm_head.weight", &normed);
        (if config.norm_output { normed } else { h }, logits)
    }
}

fn add(x: &mut [f64], y: &[f64]) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
}

#[expect(clippy::cast_possible_truncation, reason = "compared with a tolerance")]
fn assert_near(what: &str, found: &[f32], expected: &[f64]) {
    let expected: Vec<f32> = expected.iter().map(|x| *x as f32).collect();
    assert_close(what, found, &expected, Tolerance::within(1e-4));
}

/// The embedding that a drafter uses.
fn embedding(tiny: &TinyDrafter, file: &DrafterFile, token: u32) -> Vec<f64> {
    let table = match file.tensor("embed_tokens.weight") {
        Some(own) => own.to_f32().unwrap(),
        None => {
            // As a reader of the target's file sees it.
            let tensor = tiny.target.tensors().into_iter().find(|t| t.name == "token_embd.weight").unwrap();
            let bytes = redraft_testing::quantize(tensor.kind, &tensor.values).unwrap();
            let mut values = vec![0.0; tensor.values.len()];
            redraft_gguf::dequantize(tensor.kind, &bytes, &mut values).unwrap();
            values
        }
    };
    table[token as usize * tiny.hidden..][..tiny.hidden].iter().copied().map(f64::from).collect()
}

#[test]
fn the_first_row_is_what_the_formulas_say() {
    for (what, tiny) in variants() {
        let (file, mut drafter) = load(&tiny);
        let (features, tokens) = inputs(&tiny, 1);
        let weights = Weights(&file);
        let output = drafter.extend(&features, &tokens).unwrap().remove(0);
        assert_eq!((output.slot, drafter.length()), (0, 1), "{what}");
        assert_eq!((output.hidden.len(), output.logits.len()), (tiny.hidden, tiny.draft_vocab), "{what}");
        let e = embedding(&tiny, &file, tokens[0]);
        let (hidden, logits) = weights.alone(&e, &weights.fused(&features), false);
        assert_near(&format!("{what}: hidden"), &output.hidden, &hidden);
        assert_near(&format!("{what}: logits"), &output.logits, &logits);
    }
}

#[test]
fn a_second_pass_without_other_rows_is_what_the_formulas_say() {
    for (what, tiny) in variants() {
        let (file, mut drafter) = load(&tiny);
        let g = Prng::new(3).signed_values(tiny.hidden, 2.0);
        let rows = [false, true].map(|second_pass| DraftRow { second_pass, ..first(7, 0, &[], &g) });
        let outputs = drafter.step(&rows).unwrap();
        let wide: Vec<f64> = g.iter().copied().map(f64::from).collect();
        for (output, second_pass) in outputs.iter().zip([false, true]) {
            let (hidden, logits) = Weights(&file).alone(&embedding(&tiny, &file, 7), &wide, second_pass);
            assert_near(&format!("{what}, second pass {second_pass}: hidden"), &output.hidden, &hidden);
            assert_near(&format!("{what}, second pass {second_pass}: logits"), &output.logits, &logits);
        }
        assert!(!same(&outputs[0], &outputs[1]), "{what}: the second pass is another one");
    }
}

// ---- The state ----

#[test]
fn pieces_give_the_same_rows_and_later_ones_change_nothing() {
    for (what, tiny) in variants() {
        let (_, mut drafter) = load(&tiny);
        let (mut features, mut tokens) = inputs(&tiny, 6);
        let width = 3 * tiny.target.hidden;
        let whole = drafter.extend(&features, &tokens).unwrap();
        assert_eq!(whole.iter().map(|output| output.slot).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5], "{what}");

        drafter.truncate(0);
        let mut pieces = drafter.extend(&features[..2 * width], &tokens[..2]).unwrap();
        // Rows of steps in between are forgotten.
        let feature = pieces[1].hidden.clone();
        drafter.step(&[first(9, 2, &[], &feature)]).unwrap();
        pieces.extend(drafter.extend(&features[2 * width..], &tokens[2..]).unwrap());
        assert!(whole.iter().zip(&pieces).all(|(a, b)| same(a, b) && a.slot == b.slot), "{what}: pieces");

        drafter.truncate(4);
        let again = drafter.extend(&features[4 * width..], &tokens[4..]).unwrap();
        assert!(same(&again[1], &whole[5]), "{what}: truncated and extended again");

        features[3 * width] += 1.0;
        tokens[4] ^= 1;
        drafter.truncate(0);
        let changed = drafter.extend(&features, &tokens).unwrap();
        for row in 0..6 {
            assert_eq!(
                same(&changed[row], &whole[row]),
                row < 3,
                "{what}: row {row} after a change of row 3"
            );
        }
    }
}

#[test]
fn rows_of_a_step_see_extended_rows_and_their_chain_only() {
    for (what, tiny) in variants() {
        let (_, mut drafter) = load(&tiny);
        let (features, tokens) = inputs(&tiny, 4);
        let root = drafter.extend(&features, &tokens).unwrap().remove(3);
        let position = 4;
        let children =
            drafter.step(&[first(10, position, &[], &root.hidden), first(11, position, &[], &root.hidden)]);
        let children = children.unwrap();
        assert_eq!((children[0].slot, children[1].slot), (4, 5), "{what}");
        let run = |drafter: &mut Drafter, chain: &[usize], parent: &DraftOutput| {
            drafter.step(&[first(12, position + 1, chain, &parent.hidden)]).unwrap().remove(0)
        };
        let below = run(&mut drafter, &[4], &children[0]);
        assert_eq!(below.slot, 6, "{what}");
        let alone = run(&mut drafter, &[], &children[0]);
        let other = run(&mut drafter, &[5], &children[0]);
        assert!(!same(&below, &alone) && !same(&below, &other), "{what}: the chain counts");

        // The same grandchild in a tree without the sibling.
        drafter.truncate(4);
        let only = drafter.step(&[first(10, position, &[], &root.hidden)]).unwrap().remove(0);
        assert!(same(&only, &children[0]), "{what}: siblings are not seen");
        assert!(same(&run(&mut drafter, &[4], &only), &below), "{what}: nor below");

        // Without the extended rows it is another one.
        drafter.truncate(2);
        let less = drafter.step(&[first(10, position, &[], &root.hidden)]).unwrap().remove(0);
        assert!(!same(&less, &only), "{what}: extended rows count");
        let moved = drafter.step(&[first(10, position + 9, &[], &root.hidden)]).unwrap().remove(0);
        assert!(!same(&moved, &less), "{what}: the position counts");
    }
}

/// Only differences of positions count: rows and their root moved together attend alike.
#[test]
fn positions_are_relative() {
    let (_, mut drafter) = load(&TinyDrafter::default());
    let mut ends = Vec::new();
    for start in [0, 50] {
        let feature = vec![0.5; 64];
        let parent = drafter.step(&[first(3, start, &[], &feature)]).unwrap().remove(0);
        ends.push(drafter.step(&[first(4, start + 1, &[parent.slot], &parent.hidden)]).unwrap().remove(0));
    }
    assert_close("moved by 50", &ends[1].logits, &ends[0].logits, Tolerance::within(1e-4));
}

#[test]
fn a_second_pass_with_nothing_learned_and_no_key_more_is_the_first() {
    for norm_output in [false, true] {
        let tiny = TinyDrafter { pass_embedding: false, norm_output, ..TinyDrafter::default() };
        let zero = {
            let mut parts = tiny.to_file().unwrap().into_parts();
            let mut r = parts.tensors["norm.weight"].clone();
            r.bytes.fill(0);
            parts.tensors.insert("reconsider.embedding".to_owned(), r);
            DrafterFile::new(parts).unwrap()
        };
        let target = Forward::load(&tiny.target.to_gguf().unwrap()).unwrap();
        for file in [tiny.to_file().unwrap(), zero] {
            let mut drafter = Drafter::load(&file, &target).unwrap();
            let (features, tokens) = inputs(&tiny, 3);
            let root = drafter.extend(&features, &tokens).unwrap().remove(2);
            let parent = drafter.step(&[first(20, 3, &[], &root.hidden)]).unwrap().remove(0);
            let chain = [parent.slot];
            let once = first(21, 4, &chain, &parent.hidden);
            let outputs = drafter.step(&[once, DraftRow { second_pass: true, ..once }]).unwrap();
            assert!(same(&outputs[0], &outputs[1]), "the same input, the same keys");
            // The real second pass: from its own output, seeing its own first-pass row.
            let own = [parent.slot, outputs[0].slot];
            let second = DraftRow { chain: &own, second_pass: true, feature: &outputs[0].hidden, ..once };
            let without = DraftRow { chain: &chain, ..second };
            let again = drafter.step(&[second, without]).unwrap();
            assert!(!same(&again[0], &outputs[0]), "it continues from its own output");
            assert!(!same(&again[0], &again[1]), "its own first-pass row counts");
        }
    }
}

#[test]
fn logits_are_of_the_normed_output() {
    for norm_output in [false, true] {
        let tiny = TinyDrafter { norm_output, ..TinyDrafter::default() };
        let (file, mut drafter) = load(&tiny);
        let (features, tokens) = inputs(&tiny, 2);
        let output = drafter.extend(&features, &tokens).unwrap().remove(1);
        let weights = Weights(&file);
        let hidden: Vec<f64> = output.hidden.iter().copied().map(f64::from).collect();
        let normed = if norm_output { hidden } else { weights.norm("norm.weight", &hidden) };
        assert_near("logits", &output.logits, &weights.product("lm_head.weight", &normed));
    }
}

#[test]
fn half_precision_keys_are_near() {
    let tiny = TinyDrafter::with_everything();
    let (features, tokens) = inputs(&tiny, 5);
    let full = load(&tiny).1.extend(&features, &tokens).unwrap();
    let half = load(&tiny).1.with_kv(KvType::F16).extend(&features, &tokens).unwrap();
    for (full, half) in full.iter().zip(&half) {
        assert!(!same(full, half), "keys were rounded");
        assert_close("half precision", &half.logits, &full.logits, Tolerance::within(2e-2).with_nmse(1e-5));
    }
}

#[test]
fn rows_of_the_head_are_tokens_of_the_target() {
    let tiny = TinyDrafter::default();
    let (file, drafter) = load(&tiny);
    for (row, id) in file.draft_ids().iter().enumerate() {
        assert_eq!(drafter.token(row), Some(*id));
    }
    assert_eq!(drafter.token(tiny.draft_vocab), None);
}

/// The whole way: captures of a real forward pass of the target, prompt and one accepted token.
#[test]
fn features_of_the_target_fit() {
    for tiny in [TinyDrafter::default(), TinyDrafter::with_everything()] {
        let (_, mut drafter) = load(&tiny);
        let layers = tiny.captures.map(|layer| layer as usize);
        let mut target = Forward::load(&tiny.target.to_gguf().unwrap()).unwrap().with_captures(&layers);
        let prompt = [1, 75, 76, 80];
        target.prefill(&prompt).unwrap();
        let hidden = tiny.target.hidden;
        let features: Vec<f32> = (0..prompt.len())
            .flat_map(|row| target.captures().iter().flat_map(move |c| c[row * hidden..][..hidden].to_vec()))
            .collect();
        let outputs = drafter.extend(&features, &[75, 76, 80, 90]).unwrap();
        let spread = |logits: &[f32]| {
            let (low, high) = logits.iter().fold((f32::MAX, f32::MIN), |(l, h), x| (l.min(*x), h.max(*x)));
            high - low
        };
        assert!(outputs.iter().all(|output| spread(&output.logits) > 4.0), "logits spread");
    }
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let tiny = TinyDrafter::default();
    let (_, mut drafter) = load(&tiny);
    let (features, tokens) = inputs(&tiny, 3);
    let message =
        |result: Result<Vec<DraftOutput>, redraft_testing::ReferenceError>| result.unwrap_err().to_string();
    assert!(message(drafter.extend(&features[1..], &tokens)).contains("features"));
    assert!(message(drafter.extend(&features, &[1, 2, 320])).contains("token 320"));
    assert_eq!(drafter.length(), 0);
    drafter.extend(&features, &tokens).unwrap();
    let feature = vec![0.0; 64];
    assert!(message(drafter.step(&[first(320, 3, &[], &feature)])).contains("token 320"));
    assert!(message(drafter.step(&[first(1, 3, &[], &feature[1..])])).contains("feature of row 0"));
    assert!(message(drafter.step(&[first(1, 3, &[3], &feature)])).contains("slot 3"));
    assert!(message(drafter.step(&[first(1, 3, &[2], &feature)])).contains("slot 2"));
    assert_eq!(drafter.keys_values().0.len(), 3 * 32, "only the extended rows");
}

#[test]
fn drafters_are_the_same_everywhere() {
    let hash =
        |tiny: TinyDrafter| format!("{:016x}", redraft_testing::fnv1a(&tiny.to_file().unwrap().write()));
    assert_eq!(hash(TinyDrafter::default()), "4d9bfae8bcaebae5");
    assert_eq!(hash(TinyDrafter::with_everything()), "5a735c6bde8bf42b");
}
