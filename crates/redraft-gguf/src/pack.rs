//! The planar GPU formats, and how each file type is rewritten in one of them without losing a bit.
//!
//! A matrix `W[rows][columns]` has B = columns/32 blocks a row. Rows are grouped in panels of [`PANEL`]; the last
//! panel is filled up with zero rows. A packed matrix is two streams of `u32` words, both panel after panel, so
//! that matrices can be packed in pieces of whole panels. Quants: for panel p, block b and row r of the panel, `Q`
//! words at `((p*B + b)*8 + r)*Q`. In the table, "slot" is `(p*B + b)*8 + r` and j counts weights in a word.
//!
//! | format | from | Q | word c of a block holds | scales |
//! |---|---|---|---|---|
//! | `q4` | Q4_0, Q4_1 | 4 | weights 8c+j, 4 bits each, lowest first | slot: f16 d low, f16 m high; w = d·q + m |
//! | `q4k` | Q4_K | 4 | the same | 9B words a panel: word b·8+r: sc in bits 0–5, m in bits 8–13; word 8B+(b/8)·8+r: f16 d low, f16 dmin high; w = (d·sc)·q − (dmin·m) |
//! | `q8` | Q8_0, Q5_0, IQ4_NL | 8 | weights 4c+j, i8 each, lowest first | slot: f32 s; w = s·q |
//! | `q8x16` | Q6_K | 8 | the same | 2·slot: f32 of weights 0–15, f32 of weights 16–31 |
//! | `q8m` | Q5_1, Q5_K | 8 | the same, u8 | 2·slot: f32 s, f32 m; w = s·q + m |
//! | `f16` | F16 | 16 | weights 2c (low), 2c+1 | none |
//! | `bf16` | BF16 | 16 | the same | none |
//! | `f32` | F32 | 32 | weight c | none |
//!
//! The value of a weight has the same bits as [`dequantize`](crate::dequantize) gives, except that a zero of Q4_0
//! may have the other sign: ggml computes (q − 8)·d, which is −0 where q = 8 and d < 0, and d·q + m is +0 there.

use crate::error::PackError;
use crate::types::GgmlType;

mod blocks;
mod read;

pub use read::unpack_rows;

/// Rows of a panel.
pub const PANEL: usize = 8;

/// Weights of a block.
pub(crate) const BLOCK: usize = 32;

/// How a matrix lies in GPU memory. The module's table has the layouts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GpuFormat {
    /// 4-bit weights, f16 scale and minimum per 32.
    Q4,
    /// 4-bit weights, 6-bit scale and minimum per 32, f16 scales of those per 256.
    Q4K,
    /// 8-bit weights, f32 scale per 32.
    Q8,
    /// 8-bit weights, f32 scale per 16.
    Q8x16,
    /// 8-bit unsigned weights, f32 scale and minimum per 32.
    Q8m,
    /// IEEE half precision.
    F16,
    /// The upper half of f32.
    BF16,
    /// IEEE single precision.
    F32,
}

impl GpuFormat {
    /// All formats.
    pub const ALL: [Self; 8] =
        [Self::Q4, Self::Q4K, Self::Q8, Self::Q8x16, Self::Q8m, Self::F16, Self::BF16, Self::F32];

    /// The format that tensors of this type are rewritten in.
    ///
    /// # Errors
    ///
    /// [`PackError::Unsupported`] for types that are known by name only.
    pub fn for_type(kind: GgmlType) -> Result<Self, PackError> {
        Ok(match kind {
            GgmlType::Q4_0 | GgmlType::Q4_1 => Self::Q4,
            GgmlType::Q4K => Self::Q4K,
            GgmlType::Q8_0 | GgmlType::Q5_0 | GgmlType::Iq4Nl => Self::Q8,
            GgmlType::Q6K => Self::Q8x16,
            GgmlType::Q5_1 | GgmlType::Q5K => Self::Q8m,
            GgmlType::F16 => Self::F16,
            GgmlType::BF16 => Self::BF16,
            GgmlType::F32 => Self::F32,
            kind => {
                return Err(PackError::Unsupported { kind, supported: GgmlType::supported_names() });
            }
        })
    }

    /// The name of the format and of its shader module.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Q4 => "q4",
            Self::Q4K => "q4k",
            Self::Q8 => "q8",
            Self::Q8x16 => "q8x16",
            Self::Q8m => "q8m",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::F32 => "f32",
        }
    }

    /// What the columns of a matrix must be a multiple of: 32, or 256 where scales are shared over 256 weights.
    #[must_use]
    pub fn column_multiple(self) -> usize {
        if self == Self::Q4K { 256 } else { BLOCK }
    }

    /// Words of the quant stream that hold the 32 weights of one block: Q in the module's table.
    #[must_use]
    pub fn quant_words_per_block(self) -> usize {
        match self {
            Self::Q4 | Self::Q4K => 4,
            Self::Q8 | Self::Q8x16 | Self::Q8m => 8,
            Self::F16 | Self::BF16 => 16,
            Self::F32 => 32,
        }
    }

    /// Words of the scale stream that a panel takes, for rows of `blocks` blocks.
    #[must_use]
    pub fn scale_words_per_panel(self, blocks: usize) -> usize {
        let per_block = match self {
            Self::Q4 | Self::Q8 => PANEL,
            Self::Q4K => PANEL + 1,
            Self::Q8x16 | Self::Q8m => 2 * PANEL,
            Self::F16 | Self::BF16 | Self::F32 => 0,
        };
        blocks.saturating_mul(per_block)
    }

    /// Words of the quant stream and of the scale stream of a whole matrix.
    ///
    /// # Errors
    ///
    /// [`PackError::Columns`] when the columns are no multiple of [`Self::column_multiple`], or none;
    /// [`PackError::TooLarge`] when the size overflows.
    pub fn words(self, columns: usize, rows: usize) -> Result<(usize, usize), PackError> {
        let multiple = self.column_multiple();
        if columns == 0 || !columns.is_multiple_of(multiple) {
            return Err(PackError::Columns { kind: self.name(), columns, multiple });
        }
        let (blocks, panels) = (columns / BLOCK, rows.div_ceil(PANEL));
        let quants = (PANEL * self.quant_words_per_block()).checked_mul(blocks);
        quants
            .and_then(|words| words.checked_mul(panels))
            .zip(self.scale_words_per_panel(blocks).checked_mul(panels))
            .ok_or(PackError::TooLarge { rows, columns })
    }
}

/// Rewrites rows of a tensor in its GPU format, appending `ceil(rows / 8)` panels to the two streams (see the
/// module's table), and answers the format.
///
/// `bytes` are the rows as they lie in the file. To pack a tensor in pieces, pass a multiple of [`PANEL`] rows in
/// every piece but the last.
///
/// # Errors
///
/// [`PackError`] when the type is not supported, `columns` is no multiple of 32 and of the type's block, `bytes`
/// is not exactly `rows` rows, or a Q4_0 scale d is so large that −8d is no finite f16. The streams are then as
/// they were. Other infinite scales and NaNs pass through.
pub fn pack_rows(
    kind: GgmlType,
    columns: usize,
    rows: usize,
    bytes: &[u8],
    quants: &mut Vec<u32>,
    scales: &mut Vec<u32>,
) -> Result<GpuFormat, PackError> {
    let format = GpuFormat::for_type(kind)?;
    let (quant_words, scale_words) = format.words(columns, rows)?;
    let multiple = kind.block_size().max(BLOCK);
    if !columns.is_multiple_of(multiple) {
        return Err(PackError::Columns { kind: kind.name(), columns, multiple });
    }
    let too_large = PackError::TooLarge { rows, columns };
    let row_bytes = (columns / kind.block_size()).checked_mul(kind.block_bytes()).ok_or(too_large.clone())?;
    let wanted = row_bytes.checked_mul(rows).ok_or(too_large.clone())?;
    if bytes.len() != wanted {
        let (what, unit, found) = ("tensor data", "bytes", bytes.len());
        return Err(PackError::Length { what, unit, wanted, found, rows, columns });
    }

    let (quant_start, scale_start) = (quants.len(), scales.len());
    if quants.try_reserve(quant_words).is_err() || scales.try_reserve(scale_words).is_err() {
        return Err(too_large);
    }
    quants.resize(quant_start + quant_words, 0);
    scales.resize(scale_start + scale_words, 0);

    let blocks = columns / BLOCK;
    let panel_quants = blocks * PANEL * format.quant_words_per_block();
    let panel_scales = format.scale_words_per_panel(blocks);
    for (row, bytes) in bytes.chunks_exact(row_bytes).enumerate() {
        let panel = row / PANEL;
        let mut lane = Lane {
            quants: &mut quants[quant_start + panel * panel_quants..][..panel_quants],
            scales: &mut scales[scale_start + panel * panel_scales..][..panel_scales],
            blocks,
            row: row % PANEL,
        };
        if let Err(blocks::BadScale { block, scale }) = blocks::pack_row(kind, bytes, &mut lane) {
            quants.truncate(quant_start);
            scales.truncate(scale_start);
            return Err(PackError::Scale { kind, row, block, scale: scale.to_string() });
        }
    }
    Ok(format)
}

/// One row of a panel that is being written.
struct Lane<'a> {
    /// The panel's quants.
    quants: &'a mut [u32],
    /// The panel's scales.
    scales: &'a mut [u32],
    /// Blocks in a row.
    blocks: usize,
    /// The row within the panel.
    row: usize,
}

impl Lane<'_> {
    /// Writes the words of one block.
    fn words<const Q: usize>(&mut self, block: usize, words: [u32; Q]) {
        let at = (block * PANEL + self.row) * Q;
        self.quants[at..at + Q].copy_from_slice(&words);
    }

    /// Writes 32 weights of 4 bits.
    fn nibbles(&mut self, block: usize, weights: &[u8; BLOCK]) {
        let (eights, _) = weights.as_chunks::<8>();
        self.words::<4>(
            block,
            std::array::from_fn(|c| {
                eights[c].iter().rev().fold(0, |word, &weight| word << 4 | u32::from(weight))
            }),
        );
    }

    /// Writes 32 weights of 8 bits.
    fn bytes(&mut self, block: usize, weights: &[u8; BLOCK]) {
        let (fours, _) = weights.as_chunks::<4>();
        self.words::<8>(block, std::array::from_fn(|c| u32::from_le_bytes(fours[c])));
    }

    /// Writes the scale words of one block.
    fn scale<const N: usize>(&mut self, block: usize, words: [u32; N]) {
        let at = (block * PANEL + self.row) * N;
        self.scales[at..at + N].copy_from_slice(&words);
    }

    /// Writes the word that 8 blocks share in `q4k`.
    fn shared_scale(&mut self, eighth: usize, word: u32) {
        self.scales[self.blocks * PANEL + eighth * PANEL + self.row] = word;
    }
}
