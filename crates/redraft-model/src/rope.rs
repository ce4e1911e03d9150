//! The rotary table and the order of rows that goes with it.

use redraft_gguf::{ModelConfig, RopeLayout};

/// Cosine and sine of every position's and pair's angle: `[positions][head_dim / 2]` of (cos, sin).
///
/// Computed in f64, because WGSL's own functions are specified only near zero. Pairs beyond the rotated dimensions
/// have angle 0. `factors`, one a rotated pair, divide the frequencies (Llama 3's `rope_freqs.weight`).
pub(crate) fn table(config: &ModelConfig, positions: u32, factors: Option<&[f32]>) -> Vec<[f32; 2]> {
    let half = config.head_dim / 2;
    let rotated = config.rope.dims / 2;
    let mut table = Vec::with_capacity(positions as usize * half as usize);
    for position in 0..positions {
        for pair in 0..half {
            let factor = factors.and_then(|f| f.get(pair as usize)).map_or(1.0, |f| f64::from(*f));
            let exponent = -2.0 * f64::from(pair) / f64::from(config.rope.dims);
            let frequency = config.rope.base.powf(exponent) / factor / config.rope.scaling.linear;
            let angle = if pair < rotated { f64::from(position) * frequency } else { 0.0 };
            #[expect(clippy::cast_possible_truncation, reason = "the kernels read f32")]
            table.push([angle.cos() as f32, angle.sin() as f32]);
        }
    }
    table
}

/// The two source rows, within a head, of its pair `pair`.
pub(crate) fn pair_rows(config: &ModelConfig, pair: u32, rotated: bool) -> [u32; 2] {
    let dims = config.rope.dims;
    match config.rope.layout {
        RopeLayout::HalfSplit if rotated && pair < dims / 2 => [pair, pair + dims / 2],
        _ => [2 * pair, 2 * pair + 1],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_split_pairs_cover_a_head() {
        let gguf = redraft_testing::TinyModel {
            architecture: redraft_gguf::Architecture::Qwen2,
            ..Default::default()
        };
        let bytes = gguf.to_gguf().expect("a valid tiny model");
        let file = pollster::block_on(redraft_gguf::Gguf::read(&bytes)).expect("a valid file");
        let config = ModelConfig::from_gguf(&file).expect("a valid model");
        let mut rows: Vec<_> =
            (0..config.head_dim / 2).flat_map(|pair| pair_rows(&config, pair, true)).collect();
        rows.sort_unstable();
        assert_eq!(rows, (0..config.head_dim).collect::<Vec<_>>(), "every row once");
    }
}
