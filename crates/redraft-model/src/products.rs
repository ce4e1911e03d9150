//! The products of a forward pass: matrices loaded, and kernels bound to them for each tile.

use crate::forward::Product;
use crate::kernels::{PANEL_GROUP, Precision, ProductPipelines, TILES};
use crate::load::Build;
use crate::matrix::{Matrix, Part, RowSource};
use crate::range::{Fed, Meter};
use crate::{KvType, ModelError, Progress, rope};
use redraft_gguf::{PANEL, ReadAt};
use redraft_gpu::{Buffer, Slice};
use redraft_shaders::params::{GateUpParams, MatmulParams, QkvRopeParams};

/// Rows that a product reads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Input<'a> {
    pub(crate) x: &'a Buffer,
    /// What they were multiplied by, see [`crate::range`].
    pub(crate) scale: f32,
}

impl<'a> Input<'a> {
    /// Rows in f32.
    pub(crate) fn single(x: &'a Buffer) -> Self {
        Self { x, scale: 1.0 }
    }
}

impl<S: ReadAt, P: FnMut(Progress)> Build<'_, S, P> {
    /// Whether products multiply in f16.
    pub(crate) fn half(&self) -> bool {
        self.path.precision() == Precision::F16
    }

    /// What `of` says of rows that are in f16; in f32 they are as they are.
    pub(crate) fn fed(&self, of: impl FnOnce() -> Fed) -> Fed {
        if self.half() { of() } else { Fed::default() }
    }

    /// A product of the tensor `name` with rows of `x`, as `y` or added to it.
    pub(crate) async fn product_of(
        &mut self,
        name: &str,
        x: Input<'_>,
        add: bool,
        y: &Buffer,
    ) -> Result<Product, ModelError> {
        let tensor = self.tensor(name)?.clone();
        let rows = u32::try_from(tensor.rows()).map_err(|_| ModelError::Shape {
            what: "rows of a matrix",
            found: tensor.rows(),
            expected: "below 2^32",
        })?;
        let mut meter = Meter::new(self.half(), None);
        let matrix = self.loader.matrix(name, &[&tensor], &rows_of(0, rows), false, &mut meter).await?;
        self.matmul(&matrix, x, rows, add, y).await
    }

    /// Queries, keys and values of rows of `x`, and what is known of what attention mixes of the values.
    pub(crate) async fn qkv_rope(
        &mut self,
        layer: u32,
        fed: &Fed,
    ) -> Result<(Vec<Product>, Fed), ModelError> {
        let config = self.config;
        let half = config.head_dim / 2;
        let (q_pairs, kv_pairs) = (config.heads * half, config.kv_heads * half);
        let parts = [("q", config.heads, true), ("k", config.kv_heads, true), ("v", config.kv_heads, false)];
        let tensors = parts
            .iter()
            .map(|(part, ..)| self.tensor(&format!("blk.{layer}.attn_{part}.weight")).cloned())
            .collect::<Result<Vec<_>, _>>()?;
        // The pairs of Q, K and V in order, each as its two source rows.
        let pairs: Vec<[RowSource; 2]> = (0usize..)
            .zip(parts)
            .flat_map(|(tensor, (_, heads, rotated))| (0..heads).map(move |head| (tensor, head, rotated)))
            .flat_map(|(tensor, head, rotated)| (0..half).map(move |pair| (tensor, head, rotated, pair)))
            .map(|(tensor, head, rotated, pair)| {
                rope::pair_rows(config, pair, rotated)
                    .map(|row| RowSource { tensor, row: head * config.head_dim + row })
            })
            .collect();
        let (bias, value_bias) = self.bias(layer, &pairs).await?;
        let first_pairs = [0, q_pairs, q_pairs + kv_pairs, q_pairs + 2 * kv_pairs];
        // Neighbours of the same type share a matrix: one dispatch for most files.
        let mut products = Vec::new();
        let mut values = 0.0;
        let mut start = 0;
        while start < 3 {
            let end = (start + 1..3).find(|i| tensors[*i].kind != tensors[start].kind).unwrap_or(3);
            let range = first_pairs[start]..first_pairs[end];
            let own = pairs.get(range.start as usize..range.end as usize).unwrap_or_default();
            let list: Vec<_> = tensors.iter().collect();
            let order = in_panels(own);
            let shared: Vec<_> = list[start..end].to_vec();
            let order: Vec<_> =
                order.iter().map(|r| RowSource { tensor: r.tensor - start, row: r.row }).collect();
            let label = format!("blk.{layer}.qkv");
            let mut meter = Meter::new(self.half(), Some(&fed.gain));
            let matrix = self.loader.matrix(&label, &shared, &order, false, &mut meter).await?;
            if end == 3 {
                values = meter.bound(2 - start);
            }
            products.push(self.qkv_product(layer, &matrix, fed, range, &bias).await?);
            start = end;
        }
        Ok((products, self.fed(|| Fed::bounded(values + value_bias))))
    }

    /// The biases in the order of the pairs, zero where there are none, and the greatest of the values' own.
    async fn bias(&mut self, layer: u32, pairs: &[[RowSource; 2]]) -> Result<(Buffer, f64), ModelError> {
        let mut values = vec![0.0f32; if self.config.qkv_bias { pairs.len() * 2 } else { 2 }];
        let mut greatest = 0.0;
        if self.config.qkv_bias {
            let mut sources = Vec::new();
            for part in ["q", "k", "v"] {
                let tensor = self.tensor(&format!("blk.{layer}.attn_{part}.bias"))?.clone();
                sources.push(self.loader.vector(&tensor).await?);
            }
            for (value, row) in values.iter_mut().zip(pairs.iter().flatten()) {
                *value =
                    sources.get(row.tensor).and_then(|s| s.get(row.row as usize)).copied().unwrap_or(0.0);
            }
            let own = sources.last().into_iter().flatten();
            greatest = own.fold(0.0, |most, bias| f64::max(most, f64::from(bias.abs())));
        }
        Ok((self.gpu.storage("bias", &values).await?, greatest))
    }

    async fn qkv_product(
        &self,
        layer: u32,
        matrix: &Matrix,
        fed: &Fed,
        pairs: std::ops::Range<u32>,
        bias: &Buffer,
    ) -> Result<Product, ModelError> {
        let config = self.config;
        let half = config.head_dim / 2;
        let b = self.buffers;
        let (keys, values) = b.kv.get(layer as usize).ok_or(ModelError::Shape {
            what: "layer",
            found: u64::from(layer),
            expected: "one of the model",
        })?;
        let params = |part: &Part| QkvRopeParams {
            pairs: part.rows / 2,
            blocks: matrix.blocks,
            first_pair: pairs.start + part.first / 2,
            q_pairs: config.heads * half,
            kv_pairs: config.kv_heads * half,
            half,
            bias: u32::from(config.qkv_bias),
            kv32: u32::from(self.kv == KvType::F32),
            scale: undone(fed.scale, matrix),
            weight_scale: matrix.weight_scale,
            pad0: 0,
            pad1: 0,
        };
        // The last panels of the last part are padding: count real pairs.
        let count = pairs.end - pairs.start;
        let clip = |mut p: QkvRopeParams| {
            p.pairs = p.pairs.min(count - (p.first_pair - pairs.start));
            p
        };
        let rest =
            [bias.whole(), self.rope.whole(), b.rows.whole(), b.q.whole(), keys.whole(), values.whole()];
        self.product("qkv_rope", matrix, &b.x, |part| clip(params(part)), &rest).await
    }

    /// `silu(G x) U x` of rows of `x`, and what is known of it.
    pub(crate) async fn gate_up(&mut self, layer: u32, fed: &Fed) -> Result<(Product, Fed), ModelError> {
        let gate = self.tensor(&format!("blk.{layer}.ffn_gate.weight"))?.clone();
        let up = self.tensor(&format!("blk.{layer}.ffn_up.weight"))?.clone();
        let pairs: Vec<_> =
            (0..self.config.ffn).map(|row| [0, 1].map(|tensor| RowSource { tensor, row })).collect();
        let order = in_panels(&pairs);
        let widen = gate.kind != up.kind;
        let label = format!("blk.{layer}.gate_up");
        let mut meter = Meter::new(self.half(), Some(&fed.gain));
        let matrix = self.loader.matrix(&label, &[&gate, &up], &order, widen, &mut meter).await?;
        let gated = self.fed(|| Fed::bounded(meter.gated_bound()));
        let ffn = self.config.ffn;
        // Two packed rows make one column of the result.
        let params = |part: &Part| {
            let first = part.first / 2;
            GateUpParams {
                rows: (part.rows / 2).min(ffn - first),
                blocks: matrix.blocks,
                first,
                stride: ffn,
                scale: undone(fed.scale, &matrix),
                weight_scale: matrix.weight_scale,
                y_scale: gated.scale,
                pad0: 0,
            }
        };
        let b = self.buffers;
        let product = self.product("gate_up", &matrix, &b.x, params, &[b.act.whole()]).await?;
        Ok((product, gated))
    }

    /// A product that is added to the residual stream.
    pub(crate) async fn residual(&mut self, name: &str, x: Input<'_>) -> Result<Product, ModelError> {
        let b = self.buffers;
        self.product_of(name, x, true, &b.h).await
    }

    /// Logits of rows of `x`.
    pub(crate) async fn head(&self, table: &Matrix, fed: &Fed) -> Result<Product, ModelError> {
        let b = self.buffers;
        let params = |part: &Part| MatmulParams {
            rows: part.rows,
            blocks: table.blocks,
            first: part.first,
            stride: self.config.vocab,
            add: 0,
            scale: undone(fed.scale, table),
            weight_scale: table.weight_scale,
            pad0: 0,
        };
        self.product_at("matmul", table, &b.head_step, &b.x, params, &[b.logits.whole()]).await
    }

    async fn matmul(
        &self,
        matrix: &Matrix,
        input: Input<'_>,
        stride: u32,
        add: bool,
        y: &Buffer,
    ) -> Result<Product, ModelError> {
        let params = |part: &Part| MatmulParams {
            rows: part.rows,
            blocks: matrix.blocks,
            first: part.first,
            stride,
            add: u32::from(add),
            scale: undone(input.scale, matrix),
            weight_scale: matrix.weight_scale,
            pad0: 0,
        };
        self.product("matmul", matrix, input.x, params, &[y.whole()]).await
    }

    async fn product<T: bytemuck::Pod>(
        &self,
        kernel: &str,
        matrix: &Matrix,
        x: &Buffer,
        params: impl Fn(&Part) -> T,
        rest: &[Slice<'_>],
    ) -> Result<Product, ModelError> {
        self.product_at(kernel, matrix, &self.buffers.step, x, params, rest).await
    }

    /// Binds a product kernel: parameters, step, activations, weights, and `rest`.
    async fn product_at<T: bytemuck::Pod>(
        &self,
        kernel: &str,
        matrix: &Matrix,
        step: &Buffer,
        x: &Buffer,
        params: impl Fn(&Part) -> T,
        rest: &[Slice<'_>],
    ) -> Result<Product, ModelError> {
        let pipelines = ProductPipelines::new(self.gpu, kernel, matrix.format.name(), self.path).await?;
        let mut parts = Vec::new();
        for part in &matrix.parts {
            let params = self.gpu.uniform(&format!("{kernel}.params"), &params(part)).await?;
            let mut slices = vec![params.whole(), step.whole(), x.whole(), part.buffer.whole()];
            slices.extend_from_slice(rest);
            let panels = (part.rows as usize).div_ceil(PANEL).next_multiple_of(PANEL_GROUP);
            let panels = u32::try_from(panels).unwrap_or(u32::MAX);
            let [a, b, c, d] = &pipelines.0;
            let groups = TILES.map(|(rows, _)| panels / self.path.panels(rows));
            parts.push([
                (self.gpu.bind(a, &slices).await?, groups[0]),
                (self.gpu.bind(b, &slices).await?, groups[1]),
                (self.gpu.bind(c, &slices).await?, groups[2]),
                (self.gpu.bind(d, &slices).await?, groups[3]),
            ]);
        }
        Ok(Product { parts })
    }
}

/// What sums are multiplied by where activations and weights were scaled: powers of two, so without rounding.
fn undone(scale: f32, matrix: &Matrix) -> f32 {
    1.0 / (scale * matrix.weight_scale)
}

pub(crate) fn rows_of(tensor: usize, rows: u32) -> Vec<RowSource> {
    (0..rows).map(|row| RowSource { tensor, row }).collect()
}

/// Pairs in panels: eight first rows, then the eight second rows. The last panels repeat the last pair where there
/// are fewer than eight; the kernels drop it.
fn in_panels(pairs: &[[RowSource; 2]]) -> Vec<RowSource> {
    let mut order = Vec::with_capacity(pairs.len() * 2);
    for group in pairs.chunks(PANEL) {
        for which in 0..2 {
            for lane in 0..PANEL {
                order.extend(group.get(lane).or(group.last()).map(|pair| pair[which]));
            }
        }
    }
    order
}
