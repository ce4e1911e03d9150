//! The element types of ggml: numbers, names, and how many bytes a block of weights takes.

use std::fmt;

/// The type of a tensor's elements.
///
/// Types that only have a name here (those without a [`GpuFormat`](crate::GpuFormat)) can be listed but not
/// dequantised or repacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the variants are the names that ggml gives its types")]
pub enum GgmlType {
    F32,
    F16,
    BF16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q4K,
    Q5K,
    Q6K,
    Iq4Nl,
    Q8_1,
    Q2K,
    Q3K,
    Q8K,
    Iq2Xxs,
    Iq2Xs,
    Iq3Xxs,
    Iq1S,
    Iq3S,
    Iq2S,
    Iq4Xs,
    I8,
    I16,
    I32,
    I64,
    F64,
    Iq1M,
    Tq1_0,
    Tq2_0,
    Mxfp4,
    Nvfp4,
    Q1_0,
}

/// One row per type: the type, its number in files, its name, weights in a block, bytes of a block.
const TABLE: [(GgmlType, u32, &str, usize, usize); 34] = [
    (GgmlType::F32, 0, "F32", 1, 4),
    (GgmlType::F16, 1, "F16", 1, 2),
    (GgmlType::BF16, 30, "BF16", 1, 2),
    (GgmlType::Q4_0, 2, "Q4_0", 32, 18),
    (GgmlType::Q4_1, 3, "Q4_1", 32, 20),
    (GgmlType::Q5_0, 6, "Q5_0", 32, 22),
    (GgmlType::Q5_1, 7, "Q5_1", 32, 24),
    (GgmlType::Q8_0, 8, "Q8_0", 32, 34),
    (GgmlType::Q4K, 12, "Q4_K", 256, 144),
    (GgmlType::Q5K, 13, "Q5_K", 256, 176),
    (GgmlType::Q6K, 14, "Q6_K", 256, 210),
    (GgmlType::Iq4Nl, 20, "IQ4_NL", 32, 18),
    (GgmlType::Q8_1, 9, "Q8_1", 32, 36),
    (GgmlType::Q2K, 10, "Q2_K", 256, 84),
    (GgmlType::Q3K, 11, "Q3_K", 256, 110),
    (GgmlType::Q8K, 15, "Q8_K", 256, 292),
    (GgmlType::Iq2Xxs, 16, "IQ2_XXS", 256, 66),
    (GgmlType::Iq2Xs, 17, "IQ2_XS", 256, 74),
    (GgmlType::Iq3Xxs, 18, "IQ3_XXS", 256, 98),
    (GgmlType::Iq1S, 19, "IQ1_S", 256, 50),
    (GgmlType::Iq3S, 21, "IQ3_S", 256, 110),
    (GgmlType::Iq2S, 22, "IQ2_S", 256, 82),
    (GgmlType::Iq4Xs, 23, "IQ4_XS", 256, 136),
    (GgmlType::I8, 24, "I8", 1, 1),
    (GgmlType::I16, 25, "I16", 1, 2),
    (GgmlType::I32, 26, "I32", 1, 4),
    (GgmlType::I64, 27, "I64", 1, 8),
    (GgmlType::F64, 28, "F64", 1, 8),
    (GgmlType::Iq1M, 29, "IQ1_M", 256, 56),
    (GgmlType::Tq1_0, 34, "TQ1_0", 256, 54),
    (GgmlType::Tq2_0, 35, "TQ2_0", 256, 66),
    (GgmlType::Mxfp4, 39, "MXFP4", 32, 17),
    (GgmlType::Nvfp4, 40, "NVFP4", 64, 36),
    (GgmlType::Q1_0, 41, "Q1_0", 128, 18),
];

impl GgmlType {
    /// The types that can be dequantised and repacked.
    pub const SUPPORTED: [Self; 12] = [
        Self::F32,
        Self::F16,
        Self::BF16,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q8_0,
        Self::Q4K,
        Self::Q5K,
        Self::Q6K,
        Self::Iq4Nl,
    ];

    /// The type that files call by this number, if it is known.
    #[must_use]
    pub fn from_code(code: u32) -> Option<Self> {
        TABLE.iter().find(|row| row.1 == code).map(|row| row.0)
    }

    fn row(self) -> &'static (Self, u32, &'static str, usize, usize) {
        // The table is in the order of the variants (tested), so that the lookup cannot miss.
        &TABLE[self as usize]
    }

    /// The number that files call this type by.
    #[must_use]
    pub fn code(self) -> u32 {
        self.row().1
    }

    /// The name that ggml prints, such as `Q4_K`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().2
    }

    /// Weights in one block.
    #[must_use]
    pub fn block_size(self) -> usize {
        self.row().3
    }

    /// Bytes of one block.
    #[must_use]
    pub fn block_bytes(self) -> usize {
        self.row().4
    }

    /// Bytes of a row of `columns` weights; `None` when it is no whole number of blocks, or overflows.
    #[must_use]
    pub fn row_bytes(self, columns: u64) -> Option<u64> {
        let block = self.block_size() as u64;
        (columns.is_multiple_of(block)).then(|| columns / block)?.checked_mul(self.block_bytes() as u64)
    }

    /// The names of [`Self::SUPPORTED`], comma-separated, for messages.
    pub(crate) fn supported_names() -> String {
        Self::SUPPORTED.map(Self::name).join(", ")
    }
}

impl fmt::Display for GgmlType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::{GgmlType, TABLE};

    #[test]
    fn table_is_in_variant_order_and_codes_are_unique() {
        for (index, row) in TABLE.iter().enumerate() {
            assert_eq!(row.0 as usize, index, "{} is out of order", row.2);
            assert_eq!(GgmlType::from_code(row.1), Some(row.0), "the code of {} is shared", row.2);
        }
        assert_eq!(GgmlType::from_code(4), None, "Q4_2 was removed from ggml");
    }

    #[test]
    fn row_bytes_refuses_partial_blocks_and_overflow() {
        assert_eq!(GgmlType::Q4K.row_bytes(512), Some(288));
        assert_eq!(GgmlType::Q4K.row_bytes(32), None);
        assert_eq!(GgmlType::F32.row_bytes(u64::MAX), None);
    }
}
