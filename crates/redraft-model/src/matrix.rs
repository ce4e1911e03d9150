//! Weight matrices on the GPU: read row by row in any order, packed, uploaded, dropped.

use crate::{ModelError, Progress};
use redraft_gguf::{GgmlType, GpuFormat, PANEL, ReadAt, TensorInfo, dequantize, pack_rows};
use redraft_gpu::{Buffer, BufferUse, Gpu};

use crate::kernels::PANEL_GROUP;
use crate::range::Meter;

/// Bytes of a tensor that are read at once.
const WINDOW: usize = 1 << 20;
/// Packed bytes that are uploaded at once, and how often the device is waited for, so that staging stays small.
const UPLOAD: usize = 1 << 20;
const FLUSH: u64 = 16 << 20;

/// A matrix, or the part of one that fits a binding.
#[derive(Debug)]
pub(crate) struct Part {
    /// `[panels][quant words, then scale words]`, see `shaders/lib/weights.wgsl`.
    pub(crate) buffer: Buffer,
    /// First packed row.
    pub(crate) first: u32,
    /// Packed rows, not counting padding.
    pub(crate) rows: u32,
}

/// A weight matrix on the GPU.
#[derive(Debug)]
pub(crate) struct Matrix {
    pub(crate) format: GpuFormat,
    /// Blocks of 32 along k.
    pub(crate) blocks: u32,
    pub(crate) parts: Vec<Part>,
    /// What f16 kernels multiply weights by that are kept as floats.
    pub(crate) weight_scale: f32,
}

/// Where a packed row comes from: which of the tensors, and which of its rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowSource {
    pub(crate) tensor: usize,
    pub(crate) row: u32,
}

/// Loads tensors through a window, so that rows can be taken in any local order.
struct RowReader<'a> {
    tensor: &'a TensorInfo,
    row_bytes: usize,
    window: Vec<u8>,
    first: u64,
}

impl<'a> RowReader<'a> {
    fn new(tensor: &'a TensorInfo) -> Result<Self, ModelError> {
        let rows = tensor.rows().max(1);
        let row_bytes =
            usize::try_from(tensor.size / rows).map_err(|_| shape("bytes of a row", tensor.size))?;
        Ok(Self { tensor, row_bytes, window: Vec::new(), first: 0 })
    }

    /// The bytes of a row.
    async fn row(&mut self, source: &impl ReadAt, row: u64) -> Result<&[u8], ModelError> {
        let held = (self.window.len() / self.row_bytes.max(1)) as u64;
        if row < self.first || row >= self.first + held {
            let left = self.tensor.rows().saturating_sub(row);
            let count = left.min((WINDOW / self.row_bytes.max(1)).max(1) as u64);
            let bytes = usize::try_from(count).unwrap_or(0) * self.row_bytes;
            self.window.resize(bytes, 0);
            let offset = self.tensor.offset + row * self.row_bytes as u64;
            source
                .read_at(offset, &mut self.window)
                .await
                .map_err(|source| ModelError::Read { tensor: self.tensor.name.clone(), source })?;
            self.first = row;
        }
        let at = usize::try_from(row - self.first).unwrap_or(usize::MAX).saturating_mul(self.row_bytes);
        self.window.get(at..at.saturating_add(self.row_bytes)).ok_or_else(|| shape("tensor rows", row))
    }
}

fn shape(what: &'static str, found: u64) -> ModelError {
    ModelError::Shape { what, found, expected: "within the tensor" }
}

/// Each panel's quants, then its scales, from the two streams of `pack_rows`.
pub(crate) fn interleave(panels: usize, quants: &[u32], scales: &[u32]) -> Vec<u32> {
    let (quant, scale) = (quants.len() / panels.max(1), scales.len() / panels.max(1));
    let mut words = Vec::with_capacity(quants.len() + scales.len());
    for panel in 0..panels {
        words.extend_from_slice(quants.get(panel * quant..(panel + 1) * quant).unwrap_or_default());
        words.extend_from_slice(scales.get(panel * scale..(panel + 1) * scale).unwrap_or_default());
    }
    words
}

/// Where matrices go and who hears of it.
pub(crate) struct Loader<'a, S, P> {
    pub(crate) gpu: &'a Gpu,
    pub(crate) source: &'a S,
    pub(crate) progress: P,
    pub(crate) done: u64,
    pub(crate) total: u64,
    pub(crate) unflushed: u64,
}

impl<S: ReadAt, P: FnMut(Progress)> Loader<'_, S, P> {
    /// Reports `bytes` more bytes of the file as loaded.
    pub(crate) fn advance(&mut self, bytes: u64) {
        self.done += bytes;
        (self.progress)(Progress { phase: crate::Phase::Weights, done: self.done, total: self.total });
    }

    async fn upload(&mut self, buffer: &Buffer, offset: u64, words: &[u32]) -> Result<(), ModelError> {
        let bytes: &[u8] = bytemuck::cast_slice(words);
        self.gpu.write(buffer.slice(offset, bytes.len() as u64), bytes);
        self.unflushed += bytes.len() as u64;
        if self.unflushed >= FLUSH {
            self.gpu.flush().await?;
            self.unflushed = 0;
        }
        Ok(())
    }

    /// Packs the rows that `order` names into one matrix. All tensors must have as many columns and, unless
    /// `widen`, the same type; with `widen` they are stored as f32, without loss. `meter` sees each row.
    pub(crate) async fn matrix(
        &mut self,
        label: &str,
        tensors: &[&TensorInfo],
        order: &[RowSource],
        widen: bool,
        meter: &mut Meter<'_>,
    ) -> Result<Matrix, ModelError> {
        let first = tensors.first().ok_or_else(|| shape("tensors", 0))?;
        let kind = if widen { GgmlType::F32 } else { first.kind };
        let columns = usize::try_from(first.columns()).map_err(|_| shape("columns", first.columns()))?;
        let pack_error =
            |tensor: &TensorInfo, source| ModelError::Pack { tensor: tensor.name.clone(), source };
        let format = GpuFormat::for_type(kind).map_err(|e| pack_error(first, e))?;
        let blocks = columns / 32;
        let panel_words =
            blocks * PANEL * format.quant_words_per_block() + format.scale_words_per_panel(blocks);
        let panels = order.len().div_ceil(PANEL);
        // Parts hold whole groups of panels and fit a binding.
        let most = self.gpu.max_binding() / (panel_words as u64 * 4);
        let per_part = usize::try_from(most).unwrap_or(usize::MAX) / PANEL_GROUP * PANEL_GROUP;
        if per_part == 0 {
            return Err(ModelError::Shape {
                what: "columns of a matrix",
                found: columns as u64,
                expected: "few enough for 32 rows to fit a storage binding",
            });
        }
        let mut readers = tensors.iter().map(|t| RowReader::new(t)).collect::<Result<Vec<_>, _>>()?;
        let mut parts = Vec::new();
        for (index, rows) in order.chunks(per_part * PANEL).enumerate() {
            let held = rows.len().div_ceil(PANEL).next_multiple_of(PANEL_GROUP);
            let bytes = held as u64 * panel_words as u64 * 4;
            let name = if panels > per_part { format!("{label}.{index}") } else { label.to_owned() };
            let buffer = self.gpu.buffer(&name, bytes, BufferUse::Storage).await?;
            let chunk = (UPLOAD / (panel_words * 4)).max(1) * PANEL;
            let mut offset = 0;
            for rows in rows.chunks(chunk) {
                let words = self.pack(tensors, &mut readers, rows, kind, columns, meter).await?;
                self.upload(&buffer, offset, &words).await?;
                offset += words.len() as u64 * 4;
            }
            let as_u32 = |value: usize| u32::try_from(value).map_err(|_| shape("rows", value as u64));
            parts.push(Part { buffer, first: as_u32(index * per_part * PANEL)?, rows: as_u32(rows.len())? });
        }
        let blocks = u32::try_from(blocks).map_err(|_| shape("columns", columns as u64))?;
        Ok(Matrix { format, blocks, parts, weight_scale: meter.weight_scale() })
    }

    /// The panels of some rows, each with its quants and then its scales.
    async fn pack(
        &mut self,
        tensors: &[&TensorInfo],
        readers: &mut [RowReader<'_>],
        rows: &[RowSource],
        kind: GgmlType,
        columns: usize,
        meter: &mut Meter<'_>,
    ) -> Result<Vec<u32>, ModelError> {
        let mut bytes = Vec::new();
        let mut read = 0;
        let mut wide = Vec::new();
        for row in rows {
            let (Some(tensor), Some(reader)) = (tensors.get(row.tensor), readers.get_mut(row.tensor)) else {
                return Err(shape("tensors", row.tensor as u64));
            };
            let raw = reader.row(self.source, u64::from(row.row)).await?;
            read += raw.len() as u64;
            meter.take(*row, tensor, raw, kind)?;
            if tensor.kind == kind {
                bytes.extend_from_slice(raw);
            } else {
                wide.resize(columns, 0.0);
                dequantize(tensor.kind, raw, &mut wide)
                    .map_err(|source| ModelError::Pack { tensor: tensor.name.clone(), source })?;
                bytes.extend(wide.iter().flat_map(|w| w.to_le_bytes()));
            }
        }
        let (mut quants, mut scales) = (Vec::new(), Vec::new());
        let name = || tensors.first().map(|t| t.name.clone()).unwrap_or_default();
        pack_rows(kind, columns, rows.len(), &bytes, &mut quants, &mut scales)
            .map_err(|source| ModelError::Pack { tensor: name(), source })?;
        let panels = rows.len().div_ceil(PANEL);
        let words = interleave(panels, &quants, &scales);
        self.advance(read);
        Ok(words)
    }

    /// A vector, or a whole small tensor, in f32.
    pub(crate) async fn vector(&mut self, tensor: &TensorInfo) -> Result<Vec<f32>, ModelError> {
        let size = usize::try_from(tensor.size).map_err(|_| shape("bytes", tensor.size))?;
        let count = tensor.rows() * tensor.columns();
        let mut raw = vec![0; size];
        self.source
            .read_at(tensor.offset, &mut raw)
            .await
            .map_err(|source| ModelError::Read { tensor: tensor.name.clone(), source })?;
        let mut values = vec![0.0; usize::try_from(count).map_err(|_| shape("elements", count))?];
        dequantize(tensor.kind, &raw, &mut values)
            .map_err(|source| ModelError::Pack { tensor: tensor.name.clone(), source })?;
        self.advance(tensor.size);
        Ok(values)
    }
}
