//! Reads packed matrices back: the CPU twin of the readers in the shaders.

use super::{BLOCK, GpuFormat, PANEL};
use crate::error::PackError;
use half::f16;

/// The weights of a packed matrix, `[rows][columns]`, in the arithmetic that the shaders use.
///
/// # Errors
///
/// [`PackError`] when the columns do not divide into blocks or a stream is not exactly as long as
/// [`GpuFormat::words`] says.
pub fn unpack_rows(
    format: GpuFormat,
    columns: usize,
    rows: usize,
    quants: &[u32],
    scales: &[u32],
) -> Result<Vec<f32>, PackError> {
    let words = format.words(columns, rows)?;
    for (what, wanted, found) in [("quants", words.0, quants.len()), ("scales", words.1, scales.len())] {
        if wanted != found {
            return Err(PackError::Length { what, unit: "words", wanted, found, rows, columns });
        }
    }
    // The quants are there and take at least an eighth of this.
    let mut out = Vec::with_capacity(rows * columns);
    let blocks = columns / BLOCK;
    let panel_quants = blocks * PANEL * format.quant_words_per_block();
    let panel_scales = format.scale_words_per_panel(blocks);
    for row in 0..rows {
        let panel = row / PANEL;
        let lane = Lane {
            quants: &quants[panel * panel_quants..][..panel_quants],
            scales: &scales[panel * panel_scales..][..panel_scales],
            blocks,
            row: row % PANEL,
        };
        for block in 0..blocks {
            out.extend(lane.block(format, block));
        }
    }
    Ok(out)
}

/// One row of a panel.
struct Lane<'a> {
    quants: &'a [u32],
    scales: &'a [u32],
    blocks: usize,
    row: usize,
}

impl Lane<'_> {
    fn block(&self, format: GpuFormat, block: usize) -> [f32; BLOCK] {
        let slot = block * PANEL + self.row;
        let quants = &self.quants[slot * format.quant_words_per_block()..];
        let nibble = |j: usize| (quants[j / 8] >> (j % 8 * 4) & 15) as f32;
        let byte = |j: usize| quants[j / 4].to_le_bytes()[j % 4];
        let halfword = |j: usize| {
            let [a, b, c, d] = quants[j / 2].to_le_bytes();
            if j.is_multiple_of(2) { u16::from_le_bytes([a, b]) } else { u16::from_le_bytes([c, d]) }
        };
        let signed = |j: usize| f32::from(byte(j).cast_signed());
        let float = |at: usize| f32::from_bits(self.scales[at]);
        match format {
            GpuFormat::Q4 => {
                let [d, m] = halves(self.scales[slot]);
                std::array::from_fn(|j| d * nibble(j) + m)
            }
            GpuFormat::Q4K => {
                let [d, dmin] = halves(self.scales[(self.blocks + block / 8) * PANEL + self.row]);
                let word = self.scales[slot];
                let (scale, min) = (d * (word & 63) as f32, dmin * (word >> 8 & 63) as f32);
                std::array::from_fn(|j| scale * nibble(j) - min)
            }
            GpuFormat::Q8 => std::array::from_fn(|j| float(slot) * signed(j)),
            GpuFormat::Q8x16 => std::array::from_fn(|j| float(slot * 2 + j / 16) * signed(j)),
            GpuFormat::Q8m => {
                let (scale, min) = (float(slot * 2), float(slot * 2 + 1));
                std::array::from_fn(|j| scale * f32::from(byte(j)) + min)
            }
            GpuFormat::F16 => std::array::from_fn(|j| f16::from_bits(halfword(j)).to_f32()),
            GpuFormat::BF16 => std::array::from_fn(|j| f32::from_bits(u32::from(halfword(j)) << 16)),
            GpuFormat::F32 => std::array::from_fn(|j| f32::from_bits(quants[j])),
        }
    }
}

/// The two f16 of a word, low half first.
fn halves(word: u32) -> [f32; 2] {
    let [a, b, c, d] = word.to_le_bytes();
    [[a, b], [c, d]].map(|bytes| f16::from_le_bytes(bytes).to_f32())
}
