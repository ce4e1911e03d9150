//! Which kernel variants a model runs.

use crate::ModelError;
use redraft_gpu::{Capabilities, Gpu, Pipeline};
use std::sync::Arc;

/// What a model's products multiply in. Sums over blocks of weights, the residual stream, norms, attention and sampling
/// are f32 in either, keys and values what [`KvType`](crate::KvType) says, and a drafter computes in f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Precision {
    /// 32-bit floats. Runs on every adapter.
    #[default]
    F32,
    /// 16-bit floats, for adapters with `shader-f16`. Logits differ from those of f32 in their third digit or so; rows
    /// and speculation are as exact.
    F16,
}

/// The family of kernels, chosen by what the adapter is and has and by what is asked for, never by timing.
///
/// `Plain` and `Broadcast` sum a row in one order, `Slices` and `Shuffle` in another, `Slices16` and `Shuffle16` in a
/// third; within each pair results are equal bit for bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Path {
    /// One invocation sums whole rows; no subgroups. For software adapters as browsers show them.
    Plain,
    /// The same sums, activations shared by subgroup broadcast. For software adapters.
    Broadcast,
    /// Eight invocations sum a row and meet in workgroup memory. For GPUs without subgroups.
    Slices,
    /// The same sums, meeting by subgroup shuffles. For GPUs.
    Shuffle,
    /// As `Slices`, each block of 32 weights summed in f16. For GPUs with f16 and without subgroups.
    Slices16,
    /// The same sums as `Slices16`, meeting by subgroup shuffles. For GPUs with f16.
    Shuffle16,
}

impl Path {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Plain, Self::Broadcast, Self::Slices, Self::Shuffle, Self::Slices16, Self::Shuffle16];

    /// The family for an adapter. Those in f16 are all for GPUs: software adapters widen each f16 to compute with it.
    #[must_use]
    pub fn of(capabilities: Capabilities, precision: Precision) -> Self {
        let subgroups = capabilities.subgroup.is_some_and(|lanes| lanes >= 8);
        match (precision, capabilities.cpu, subgroups) {
            (Precision::F32, true, false) => Self::Plain,
            (Precision::F32, true, true) => Self::Broadcast,
            (Precision::F32, false, false) => Self::Slices,
            (Precision::F32, false, true) => Self::Shuffle,
            (Precision::F16, _, false) => Self::Slices16,
            (Precision::F16, _, true) => Self::Shuffle16,
        }
    }

    /// What it multiplies in.
    #[must_use]
    pub fn precision(self) -> Precision {
        match self {
            Self::Plain | Self::Broadcast | Self::Slices | Self::Shuffle => Precision::F32,
            Self::Slices16 | Self::Shuffle16 => Precision::F16,
        }
    }

    /// The family that needs as much of subgroups and multiplies in `precision`.
    #[must_use]
    pub fn with_precision(self, precision: Precision) -> Self {
        match (self, precision) {
            (Self::Plain | Self::Slices, Precision::F16) => Self::Slices16,
            (Self::Broadcast | Self::Shuffle, Precision::F16) => Self::Shuffle16,
            (Self::Slices16, Precision::F32) => Self::Slices,
            (Self::Shuffle16, Precision::F32) => Self::Shuffle,
            (own, _) => own,
        }
    }

    /// Whether an adapter can run it.
    #[must_use]
    pub fn supported_by(self, capabilities: Capabilities) -> bool {
        let subgroups = capabilities.subgroup.is_some_and(|lanes| lanes >= 8);
        match self {
            Self::Plain | Self::Slices => true,
            Self::Broadcast | Self::Shuffle => subgroups,
            Self::Slices16 => capabilities.f16,
            Self::Shuffle16 => capabilities.f16 && subgroups,
        }
    }

    /// Its name in kernel labels.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Broadcast => "broadcast",
            Self::Slices => "slices",
            Self::Shuffle => "shuffle",
            Self::Slices16 => "slices16",
            Self::Shuffle16 => "shuffle16",
        }
    }

    /// Whether rows are summed by single invocations, on the CPU.
    #[must_use]
    pub fn whole_rows(self) -> bool {
        matches!(self, Self::Plain | Self::Broadcast)
    }

    /// Weight panels that an invocation of a tile of so many batch rows owns: `PANELS` of `shaders/lib/product.wgsl`.
    #[must_use]
    pub fn panels(self, rows: u32) -> u32 {
        if rows == 1 && self != Self::Plain { 2 } else { 4 }
    }

    /// The variant of `rms_norm`.
    pub(crate) fn norm(self) -> &'static str {
        match self {
            Self::Plain | Self::Broadcast => self.name(),
            Self::Slices | Self::Shuffle => "slices",
            Self::Slices16 | Self::Shuffle16 => "slices16",
        }
    }

    /// The variant of what `attention` writes.
    pub(crate) fn mixed(self) -> &'static str {
        match self.precision() {
            Precision::F32 => "y32",
            Precision::F16 => "y16",
        }
    }
}

/// Batch rows of a tile, smallest first, with their flag.
pub(crate) const TILES: [(u32, &str); 4] = [(1, "m1"), (2, "m2"), (4, "m4"), (8, "m8")];

/// Panels of a matrix are padded to this many, the most that an invocation owns.
pub(crate) const PANEL_GROUP: usize = 4;

/// A set of tiles: those whose results agree bit for bit on the adapter at hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tiles(u8);

impl Default for Tiles {
    fn default() -> Self {
        Self::ALL
    }
}

impl Tiles {
    /// Every tile there is.
    pub const ALL: Self = Self(0b1111);

    /// The tiles of these numbers of batch rows; those that do not exist are ignored. `None` if no tile is left.
    #[must_use]
    pub fn of(sizes: &[u32]) -> Option<Self> {
        let bits = (0..TILES.len()).filter(|i| sizes.contains(&TILES[*i].0)).fold(0, |bits, i| bits | 1 << i);
        (bits != 0).then_some(Self(bits))
    }

    pub(crate) fn only(index: usize) -> Self {
        Self(1 << index.min(TILES.len() - 1))
    }

    fn has(self, index: usize) -> bool {
        self.0 >> index & 1 == 1
    }

    /// Batch rows of the tiles, ascending.
    pub fn sizes(self) -> impl Iterator<Item = u32> {
        TILES.into_iter().enumerate().filter(move |(index, _)| self.has(*index)).map(|(_, (size, ..))| size)
    }

    /// Those in both; none in common leaves `self`, as a model needs some tile.
    pub(crate) fn and(self, other: Self) -> Self {
        if self.0 & other.0 == 0 { self } else { Self(self.0 & other.0) }
    }

    /// Which tiles cover `rows` rows: index into [`TILES`] and number of tiles, one dispatch. It is the smallest that
    /// holds all rows, else as many of the largest as it takes, so that a layer is as many dispatches for any number of
    /// rows. What the last tile has too many are rows of padding, for which every buffer has room.
    pub(crate) fn cover(self, rows: u32) -> (usize, u32) {
        let own = || (0..TILES.len()).filter(|index| self.has(*index));
        match own().find(|index| TILES[*index].0 >= rows) {
            Some(index) => (index, 1),
            None => own().next_back().map_or((0, rows), |index| (index, rows.div_ceil(TILES[index].0))),
        }
    }

    /// The largest set of tiles that equal each other, given which pairs do; of several, the one with the smallest
    /// tile, which plain decoding runs.
    pub(crate) fn agreeing(equal: impl Fn(usize, usize) -> bool) -> Self {
        let group = |first: usize| {
            (0..TILES.len()).filter(|index| equal(first, *index)).fold(0u8, |bits, index| bits | 1 << index)
        };
        let sets = (0..TILES.len()).map(|first| group(first) | 1 << first);
        // Of equal keys `max_by_key` takes the last, so the smallest tile comes last.
        Self(sets.rev().max_by_key(|bits| bits.count_ones()).unwrap_or(1))
    }
}

/// What was found of the tiles of a kernel family on an adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TileReport {
    /// The tiles in use: of those asked for the ones that agree.
    pub used: Tiles,
    /// The tiles whose results are the same; all of them if they were not compared.
    pub agreeing: Tiles,
    /// Whether they were compared with each other.
    pub compared: bool,
}

impl TileReport {
    /// Batch rows of the tiles whose results differ from those of the agreeing ones.
    pub fn differing(self) -> impl Iterator<Item = u32> {
        (0..TILES.len()).filter(move |index| !self.agreeing.has(*index)).map(|index| TILES[index].0)
    }

    /// Whether at least two tiles agree. If not, several rows are as many runs of one tile: still exact, but no cheaper
    /// than one after the other, so that verifying several at once does not pay.
    #[must_use]
    pub fn agree(self) -> bool {
        self.agreeing.sizes().count() > 1
    }
}

impl std::fmt::Display for TileReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let list = |sizes: Vec<u32>| sizes.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        let (used, out) = (list(self.used.sizes().collect()), list(self.differing().collect()));
        match (self.compared, out.is_empty()) {
            (false, _) => write!(f, "tiles of {used} rows, not compared"),
            (true, true) => write!(f, "tiles of {used} rows agree"),
            (true, false) if self.agree() => {
                write!(f, "tiles of {used} rows agree; those of {out} differ and are left out")
            }
            (true, false) => write!(f, "no two tiles agree; only that of {used} rows is used"),
        }
    }
}

/// The four tile variants of a product kernel.
pub(crate) struct ProductPipelines(pub(crate) [Arc<Pipeline>; 4]);

impl ProductPipelines {
    pub(crate) async fn new(gpu: &Gpu, name: &str, format: &str, path: Path) -> Result<Self, ModelError> {
        let [a, b, c, d] = TILES.map(|(_, flag)| flag);
        Ok(Self([
            gpu.kernel(name, &[format, a, path.name()]).await?,
            gpu.kernel(name, &[format, b, path.name()]).await?,
            gpu.kernel(name, &[format, c, path.name()]).await?,
            gpu.kernel(name, &[format, d, path.name()]).await?,
        ]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_cover_every_row_within_the_padding() {
        for sizes in [&[1, 2, 4, 8][..], &[1, 2, 4], &[1], &[8], &[2, 8], &[1, 4]] {
            let tiles = Tiles::of(sizes).expect("some tile");
            assert_eq!(tiles.sizes().collect::<Vec<_>>(), sizes, "sizes");
            for rows in 1..=64u32 {
                let (tile, count) = tiles.cover(rows);
                let (size, covered) = (TILES[tile].0, TILES[tile].0 * count);
                assert!(sizes.contains(&size), "{rows} rows in {sizes:?}: a tile of {size}");
                assert!(covered >= rows && covered <= rows.next_multiple_of(8), "{rows} rows: {covered}");
                assert!(count == 1 || covered - rows < size, "{rows} rows: an empty tile");
            }
        }
        assert_eq!(Tiles::of(&[3, 16]), None, "no such tiles");
    }

    #[test]
    fn families_follow_from_the_adapter_and_the_precision() {
        let adapter = |cpu, subgroup, f16| Capabilities { cpu, subgroup, f16 };
        for (cpu, subgroup, single, half) in [
            (true, None, Path::Plain, Path::Slices16),
            (true, Some(4), Path::Plain, Path::Slices16),
            (true, Some(8), Path::Broadcast, Path::Shuffle16),
            (false, None, Path::Slices, Path::Slices16),
            (false, Some(32), Path::Shuffle, Path::Shuffle16),
        ] {
            for f16 in [false, true] {
                let capabilities = adapter(cpu, subgroup, f16);
                assert_eq!(Path::of(capabilities, Precision::F32), single, "{capabilities:?}");
                assert!(single.supported_by(capabilities), "{capabilities:?}");
                assert_eq!(Path::of(capabilities, Precision::F16), half, "{capabilities:?}");
                assert_eq!(half.supported_by(capabilities), f16, "{capabilities:?}");
            }
            assert_eq!(single.with_precision(Precision::F16), half, "{single:?}");
        }
        for path in Path::ALL {
            for precision in [Precision::F32, Precision::F16] {
                assert_eq!(path.with_precision(precision).precision(), precision, "{path:?}");
            }
            assert_eq!(path.with_precision(path.precision()), path, "{path:?}");
        }
    }

    #[test]
    fn the_largest_group_that_agrees_is_kept() {
        for (results, kept) in [
            ([1, 1, 1, 1], &[1, 2, 4, 8][..]),
            ([1, 1, 1, 2], &[1, 2, 4]),
            ([1, 2, 2, 2], &[2, 4, 8]),
            ([1, 1, 2, 2], &[1, 2]),
            ([1, 2, 1, 2], &[1, 4]),
            ([1, 2, 3, 4], &[1]),
        ] {
            let used = Tiles::agreeing(|a, b| results[a] == results[b]);
            assert_eq!(used.sizes().collect::<Vec<_>>(), kept, "{results:?}");
            let report = TileReport { used, agreeing: used, compared: true };
            assert_eq!(report.agree(), kept.len() > 1, "{results:?}");
            assert_eq!(report.differing().count(), 4 - kept.len(), "{results:?}");
        }
        let two = Tiles::of(&[1, 4]).expect("tiles");
        let odd = TileReport { used: two, agreeing: two, compared: true };
        assert_eq!(odd.to_string(), "tiles of 1, 4 rows agree; those of 2, 8 differ and are left out");
        let none = TileReport { used: Tiles::only(0), agreeing: Tiles::only(0), compared: true };
        assert_eq!(none.to_string(), "no two tiles agree; only that of 1 rows is used");
    }
}
