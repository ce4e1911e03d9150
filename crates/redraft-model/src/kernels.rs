//! Which kernel variants a model runs.

use crate::ModelError;
use redraft_gpu::{Capabilities, Gpu, Pipeline};
use std::sync::Arc;

/// The family of kernels, chosen by what the adapter is and has, never by timing.
///
/// `Plain` and `Broadcast` sum a row in one order, `Slices` and `Shuffle` in another; within each pair results are
/// equal bit for bit.
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
}

impl Path {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Plain, Self::Broadcast, Self::Slices, Self::Shuffle];

    /// The family for an adapter.
    #[must_use]
    pub fn of(capabilities: Capabilities) -> Self {
        let subgroups = capabilities.subgroup.is_some_and(|lanes| lanes >= 8);
        match (capabilities.cpu, subgroups) {
            (true, false) => Self::Plain,
            (true, true) => Self::Broadcast,
            (false, false) => Self::Slices,
            (false, true) => Self::Shuffle,
        }
    }

    /// Whether an adapter can run it.
    #[must_use]
    pub fn supported_by(self, capabilities: Capabilities) -> bool {
        match self {
            Self::Plain | Self::Slices => true,
            Self::Broadcast | Self::Shuffle => capabilities.subgroup.is_some_and(|lanes| lanes >= 8),
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
        }
    }

    /// Whether rows are summed by single invocations, on the CPU.
    #[must_use]
    pub fn whole_rows(self) -> bool {
        matches!(self, Self::Plain | Self::Broadcast)
    }

    /// The variant of `rms_norm`.
    pub(crate) fn norm(self) -> &'static str {
        if self.whole_rows() { self.name() } else { "slices" }
    }
}

/// Batch rows of a tile, smallest first, with their flag and the weight panels an invocation owns.
pub(crate) const TILES: [(u32, &str, u32); 4] = [(1, "m1", 2), (2, "m2", 4), (4, "m4", 4), (8, "m8", 4)];

/// Panels of a matrix are padded to this many, the most that an invocation owns.
pub(crate) const PANEL_GROUP: usize = 4;

/// Which tiles cover `rows` rows: index into [`TILES`] and number of tiles, one dispatch. More than four rows are whole
/// tiles of eight, so that a layer is as many dispatches for any number of rows; what a tile has too many are rows of
/// padding, for which every buffer has room.
pub(crate) fn tiles(rows: u32) -> (usize, u32) {
    match rows {
        0 | 1 => (0, 1),
        2 => (1, 1),
        3 | 4 => (2, 1),
        _ => (3, rows.div_ceil(8)),
    }
}

/// The four tile variants of a product kernel.
pub(crate) struct ProductPipelines(pub(crate) [Arc<Pipeline>; 4]);

impl ProductPipelines {
    pub(crate) async fn new(gpu: &Gpu, name: &str, format: &str, path: Path) -> Result<Self, ModelError> {
        let [a, b, c, d] = TILES.map(|(_, flag, _)| flag);
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
        for rows in 1..=130u32 {
            let (tile, count) = tiles(rows);
            let covered = TILES[tile].0 * count;
            assert!(covered >= rows && covered <= rows.next_multiple_of(8), "{rows} rows: {covered}");
            assert!(count == 1 || covered - rows < TILES[tile].0, "{rows} rows: an empty tile");
        }
    }
}
