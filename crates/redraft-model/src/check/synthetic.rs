//! A model made of random numbers, as a GGUF file in memory.

use redraft_gguf::GgmlType;

const HIDDEN: u32 = 256;
const FFN: u32 = 512;
const HEADS: u32 = 4;
const KV_HEADS: u32 = 2;
const HEAD_DIM: u32 = 64;
pub(super) const LAYERS: u32 = 2;
const VOCAB: u32 = 272;
const CONTEXT: u32 = 128;
const ALIGNMENT: usize = 32;

/// SplitMix64 (Steele, Lea and Flood 2014): numbers that are the same everywhere.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In −1 … 1.
    pub(super) fn signed(&mut self) -> f32 {
        let top = i16::from_le_bytes([self.byte(), self.byte()]);
        f32::from(top) / 32768.0
    }

    fn byte(&mut self) -> u8 {
        self.bits().to_le_bytes()[7]
    }
}

/// Where the f16 scales of a block are, in bytes, and about how large a scale gives weights below 1/8.
fn scales(kind: GgmlType) -> &'static [(usize, f32)] {
    match kind {
        GgmlType::Q4_1 => &[(0, 0.01), (2, 0.08)],
        GgmlType::Q5_1 => &[(0, 0.005), (2, 0.08)],
        GgmlType::Q8_0 => &[(0, 0.001)],
        GgmlType::Q4K => &[(0, 0.0002), (2, 0.0015)],
        GgmlType::Q6K => &[(208, 0.00004)],
        _ => &[],
    }
}

/// Random rows in a file type: random quants under sane scales, or small random floats.
pub(super) fn rows(random: &mut Random, kind: GgmlType, columns: usize, rows: usize) -> Vec<u8> {
    let count = columns * rows;
    match kind {
        GgmlType::F32 => (0..count).flat_map(|_| (random.signed() / 8.0).to_le_bytes()).collect(),
        GgmlType::F16 => {
            (0..count).flat_map(|_| half::f16::from_f32(random.signed() / 8.0).to_le_bytes()).collect()
        }
        GgmlType::BF16 => {
            (0..count).flat_map(|_| half::bf16::from_f32(random.signed() / 8.0).to_le_bytes()).collect()
        }
        _ => {
            let mut bytes = Vec::new();
            for _ in 0..count / kind.block_size() {
                let mut block: Vec<u8> = (0..kind.block_bytes()).map(|_| random.byte()).collect();
                for (at, size) in scales(kind) {
                    // The minimum of Q4_1 and Q5_1 is added: it must be negative to centre the weights.
                    let sign = if *at == 2 && kind != GgmlType::Q4K { -1.0 } else { 1.0 };
                    let scale = half::f16::from_f32(sign * size * (1.0 + random.signed() / 2.0));
                    if let Some(place) = block.get_mut(*at..*at + 2) {
                        place.copy_from_slice(&scale.to_le_bytes());
                    }
                }
                bytes.extend(block);
            }
            bytes
        }
    }
}

/// The file. Its layers' matrices have one type, its token table (and head) another.
pub(super) fn file(matrices: GgmlType, table: GgmlType) -> Vec<u8> {
    let mut random = Random::new(5);
    let mut tensors: Vec<(String, GgmlType, u32, u32)> = vec![
        ("token_embd".to_owned(), table, HIDDEN, VOCAB),
        ("output_norm".to_owned(), GgmlType::F32, HIDDEN, 1),
    ];
    for layer in 0..LAYERS {
        let mut add = |name: &str, kind, columns, rows| {
            tensors.push((format!("blk.{layer}.{name}"), kind, columns, rows));
        };
        add("attn_norm", GgmlType::F32, HIDDEN, 1);
        add("attn_q", matrices, HIDDEN, HEADS * HEAD_DIM);
        add("attn_k", matrices, HIDDEN, KV_HEADS * HEAD_DIM);
        add("attn_v", matrices, HIDDEN, KV_HEADS * HEAD_DIM);
        add("attn_output", matrices, HEADS * HEAD_DIM, HIDDEN);
        add("ffn_norm", GgmlType::F32, HIDDEN, 1);
        add("ffn_gate", matrices, HIDDEN, FFN);
        add("ffn_up", matrices, HIDDEN, FFN);
        add("ffn_down", matrices, FFN, HIDDEN);
    }
    let mut out = b"GGUF".to_vec();
    out.extend(3u32.to_le_bytes());
    out.extend((tensors.len() as u64).to_le_bytes());
    let metadata = metadata();
    out.extend((metadata.len() as u64).to_le_bytes());
    for entry in metadata {
        out.extend(entry);
    }
    let mut data: Vec<u8> = Vec::new();
    for (name, kind, columns, count) in &tensors {
        let bytes = if *count == 1 {
            (0..*columns).flat_map(|_| (1.0 + random.signed() / 4.0).to_le_bytes()).collect()
        } else {
            rows(&mut random, *kind, *columns as usize, *count as usize)
        };
        text(&mut out, &format!("{name}.weight"));
        let dims: &[u32] = if *count == 1 { &[*columns] } else { &[*columns, *count] };
        out.extend(u32::try_from(dims.len()).unwrap_or(0).to_le_bytes());
        for dim in dims {
            out.extend(u64::from(*dim).to_le_bytes());
        }
        out.extend(kind.code().to_le_bytes());
        data.resize(data.len().next_multiple_of(ALIGNMENT), 0);
        out.extend((data.len() as u64).to_le_bytes());
        data.extend(bytes);
    }
    out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
    out.extend(data);
    out
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

fn metadata() -> Vec<Vec<u8>> {
    let entry = |key: &str, kind: u32, value: &[u8]| {
        let mut bytes = Vec::new();
        text(&mut bytes, key);
        bytes.extend(kind.to_le_bytes());
        bytes.extend(value);
        bytes
    };
    let mut name = Vec::new();
    text(&mut name, "llama");
    let mut entries = vec![
        entry("general.architecture", 8, &name),
        entry("llama.attention.layer_norm_rms_epsilon", 6, &1e-5f32.to_le_bytes()),
    ];
    for (key, value) in [
        ("block_count", LAYERS),
        ("embedding_length", HIDDEN),
        ("feed_forward_length", FFN),
        ("attention.head_count", HEADS),
        ("attention.head_count_kv", KV_HEADS),
        ("context_length", CONTEXT),
    ] {
        entries.push(entry(&format!("llama.{key}"), 4, &value.to_le_bytes()));
    }
    entries
}
