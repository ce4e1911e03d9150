//! Single kernels against their formulas in f64 on the CPU, at odd sizes.

mod half;
mod qkv_rope;

use redraft_gguf::{GgmlType, GpuFormat, PANEL, pack_rows, unpack_rows};
use redraft_gpu::{AdapterChoice, Buffer, BufferUse, Gpu, GpuOptions};
use redraft_shaders::params::{
    AttentionParams, CaptureParams, EmbedParams, GateUpParams, MatmulParams, RmsNormParams, Step,
};
use redraft_testing::{Prng, Tolerance, assert_close, quantize, ran_on_gpu};

/// Sums of a few hundred terms near 1.
const CLOSE: Tolerance = Tolerance::within(1e-4);

fn open(test: &str, strict: bool) -> Gpu {
    // With bounds checks: what an unchecked kernel would read by mistake becomes zero and shows.
    let options = GpuOptions { strict, checked: true, ..GpuOptions::default() };
    let gpu = pollster::block_on(Gpu::open(&AdapterChoice::Auto, &options)).expect("an adapter");
    ran_on_gpu(test, &gpu.report().name, strict);
    gpu
}

fn values(seed: u64, count: usize) -> Vec<f32> {
    Prng::new(seed).signed_values(count, 1.0)
}

fn small(value: usize) -> u32 {
    u32::try_from(value).expect("small")
}

struct Bench(Gpu);

impl Bench {
    fn uniform<T: bytemuck::Pod>(&self, contents: &T) -> Buffer {
        pollster::block_on(self.0.uniform("test", contents)).expect("memory")
    }

    fn storage<T: bytemuck::Pod>(&self, contents: &[T]) -> Buffer {
        pollster::block_on(self.0.storage("test", contents)).expect("memory")
    }

    fn room(&self, floats: usize) -> Buffer {
        pollster::block_on(self.0.buffer("test", floats as u64 * 4, BufferUse::Storage)).expect("memory")
    }

    fn run(&self, name: &str, flags: &[&str], buffers: &[&Buffer], groups: [u32; 3]) {
        let pipeline = pollster::block_on(self.0.kernel(name, flags)).expect("a kernel");
        let slices: Vec<_> = buffers.iter().map(|buffer| buffer.whole()).collect();
        let dispatch = pollster::block_on(self.0.bind(&pipeline, &slices)).expect("fitting buffers");
        self.0.submit::<redraft_gpu::GpuError>(|pass| pass.run(&dispatch, groups), &[]).expect("a device");
    }

    fn floats(&self, buffer: &Buffer, count: usize) -> Vec<f32> {
        let bytes = pollster::block_on(self.0.fetch(buffer.slice(0, count as u64 * 4))).expect("readable");
        bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().expect("four bytes"))).collect()
    }
}

fn step(rows: usize) -> Step {
    Step { rows: small(rows), source: 0, tree_start: u32::MAX, pad0: 0 }
}

/// Packed as `pack_rows` gives it, each panel's quants before its scales, padded to groups of four panels.
fn packed(kind: GgmlType, columns: usize, rows: usize, weights: &[f32]) -> (GpuFormat, Vec<u32>, Vec<f32>) {
    let bytes = quantize(kind, weights).expect("whole blocks");
    let (mut quants, mut scales) = (Vec::new(), Vec::new());
    let format = pack_rows(kind, columns, rows, &bytes, &mut quants, &mut scales).expect("packable");
    let exact = unpack_rows(format, columns, rows, &quants, &scales).expect("unpackable");
    let panels = rows.div_ceil(PANEL);
    let (quant, scale) = (quants.len() / panels, scales.len() / panels);
    let mut words = Vec::new();
    for panel in 0..panels {
        words.extend(&quants[panel * quant..(panel + 1) * quant]);
        words.extend(&scales[panel * scale..(panel + 1) * scale]);
    }
    words.resize((quant + scale) * panels.next_multiple_of(4), 0);
    (format, words, exact)
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

#[expect(clippy::cast_possible_truncation, reason = "expected values are compared in f32")]
fn single(value: f64) -> f32 {
    value as f32
}

#[test]
fn matmul() {
    for (path, strict) in [("broadcast", false), ("plain", true)] {
        let bench = Bench(open("kernels.matmul", strict));
        for (rows, columns, batch) in [(1, 32, 1), (7, 96, 2), (33, 32, 4), (257, 64, 7)] {
            let (tile, count) = match batch {
                1 if path == "plain" => ("m1", 4),
                1 => ("m1", 2),
                2 => ("m2", 4),
                4 => ("m4", 4),
                _ => ("m8", 4),
            };
            let (format, words, weights) = packed(GgmlType::Q8_0, columns, rows, &values(1, rows * columns));
            let x = values(2, 8 * columns);
            let stride = rows + 3;
            let params = MatmulParams {
                rows: small(rows),
                blocks: small(columns / 32),
                first: 2,
                stride: small(stride),
                add: 1,
                scale: 1.0,
                weight_scale: 1.0,
                pad0: 0,
            };
            let before = values(3, 8 * stride);
            let y = bench.storage(&before);
            let buffers = [
                &bench.uniform(&params),
                &bench.uniform(&step(batch)),
                &bench.storage(&x),
                &bench.storage(&words),
                &y,
            ];
            let panels = rows.div_ceil(PANEL).next_multiple_of(4);
            bench.run("matmul", &[format.name(), tile, path], &buffers, [small(panels / count), 1, 1]);
            let mut expected = before.clone();
            for m in 0..batch {
                for n in 0..rows {
                    let sum =
                        dot(&weights[n * columns..(n + 1) * columns], &x[m * columns..(m + 1) * columns]);
                    expected[m * stride + 2 + n] += single(sum);
                }
            }
            let found = bench.floats(&y, batch * stride);
            assert_close(
                &format!("{path} {rows}x{columns}, {batch} rows"),
                &found,
                &expected[..batch * stride],
                CLOSE,
            );
        }
    }
}

#[test]
fn gate_up() {
    let bench = Bench(open("kernels.gate_up", false));
    for (rows, columns) in [(7usize, 64usize), (33, 32)] {
        // Even panels hold the gate, odd panels the same rows of the up projection.
        let order: Vec<usize> = (0..rows.div_ceil(8))
            .flat_map(|group| (0..16).map(move |lane| (group, lane)))
            .map(|(group, lane)| (group * 8 + lane % 8).min(rows - 1) * 2 + lane / 8)
            .collect();
        let both = values(4, rows * 2 * columns);
        let ordered: Vec<f32> =
            order.iter().flat_map(|row| both[row * columns..(row + 1) * columns].iter().copied()).collect();
        let (format, words, weights) = packed(GgmlType::F32, columns, order.len(), &ordered);
        let x = values(5, 8 * columns);
        let (first, stride) = (3, rows + 5);
        let params = GateUpParams {
            rows: small(rows),
            blocks: small(columns / 32),
            first: small(first),
            stride: small(stride),
            scale: 1.0,
            weight_scale: 1.0,
            y_scale: 1.0,
            pad0: 0,
        };
        let y = bench.room(8 * stride);
        let buffers = [
            &bench.uniform(&params),
            &bench.uniform(&step(2)),
            &bench.storage(&x),
            &bench.storage(&words),
            &y,
        ];
        let panels = order.len().div_ceil(PANEL).next_multiple_of(4);
        bench.run("gate_up", &[format.name(), "m2", "broadcast"], &buffers, [small(panels / 4), 1, 1]);
        let mut expected = vec![0.0; 2 * stride];
        for m in 0..2 {
            for n in 0..rows {
                let product = |which: usize| {
                    let at = (n / 8 * 16 + which * 8 + n % 8) * columns;
                    dot(&weights[at..at + columns], &x[m * columns..(m + 1) * columns])
                };
                let (gate, up) = (product(0), product(1));
                expected[m * stride + first + n] = single(gate / (1.0 + (-gate).exp()) * up);
            }
        }
        assert_close(&format!("{rows}x{columns}"), &bench.floats(&y, 2 * stride), &expected, CLOSE);
    }
}

#[test]
fn rms_norm() {
    for (path, strict) in [("broadcast", false), ("plain", true), ("slices", true)] {
        let bench = Bench(open("kernels.rms_norm", strict));
        for (columns, rows) in [(8, 1), (40, 3), (1760, 2)] {
            let h = values(6, (rows + 1) * columns);
            let gain = values(7, columns);
            let params = RmsNormParams::dense(small(columns), 1e-5);
            let y = bench.room(rows * columns);
            let shifted = Step { source: 1, ..step(rows) };
            let buffers = [
                &bench.uniform(&params),
                &bench.uniform(&shifted),
                &bench.storage(&h),
                &bench.storage(&gain),
                &y,
            ];
            bench.run("rms_norm", &[path], &buffers, [small(rows), 1, 1]);
            let mut expected = Vec::new();
            for row in h[columns..].chunks(columns) {
                let mean = dot(row, row) / f64::from(small(columns)) + 1e-5;
                expected.extend(
                    row.iter().zip(&gain).map(|(h, g)| single(f64::from(*h) / mean.sqrt() * f64::from(*g))),
                );
            }
            assert_close(
                &format!("{path} {rows}x{columns}"),
                &bench.floats(&y, rows * columns),
                &expected,
                CLOSE,
            );
        }
    }
}

#[test]
fn embed_and_capture() {
    let bench = Bench(open("kernels.embed", false));
    let (columns, tokens) = (96, 37);
    let (format, words, table) = packed(GgmlType::Q8_0, columns, tokens, &values(8, tokens * columns));
    let rows: Vec<[u32; 4]> = [36, 0, 9].map(|token| [token, 0, 0, 0]).to_vec();
    let params = EmbedParams { blocks: small(columns / 32), first: 0, count: small(tokens), pad0: 0 };
    let h = bench.room(3 * columns);
    let step = bench.uniform(&step(3));
    let buffers = [&bench.uniform(&params), &step, &bench.storage(&rows), &bench.storage(&words), &h];
    bench.run("embed", &[format.name()], &buffers, [2, 3, 1]);
    let expected: Vec<f32> = [36, 0, 9]
        .iter()
        .flat_map(|token| table[token * columns..(token + 1) * columns].iter().copied())
        .collect();
    assert_close("embed", &bench.floats(&h, 3 * columns), &expected, Tolerance::EXACT);
    let captures = bench.room(5 * columns);
    let params = CaptureParams { columns: small(columns), first: small(2 * columns), pad0: 0, pad1: 0 };
    bench.run("capture", &[], &[&bench.uniform(&params), &step, &h, &captures], [2, 3, 1]);
    let found = bench.floats(&captures, 5 * columns);
    assert_close("capture", &found[2 * columns..], &expected, Tolerance::EXACT);
}

/// Heads, key heads, head size, position of the only row.
const ATTENTION: [(usize, usize, usize, usize); 5] =
    [(1, 1, 8, 0), (3, 1, 16, 6), (4, 2, 24, 33), (2, 2, 64, 64), (2, 1, 256, 257)];

fn attention_on(path: &str, strict: bool) {
    let bench = Bench(open("kernels.attention", strict));
    for (heads, kv_heads, size, position) in ATTENTION {
        let (half, slots) = (size / 2, position + 1);
        let scale = 1.0 / f32::sqrt(f32::from(u16::try_from(size).expect("small")));
        let q = values(9, heads * size);
        let keys = values(10, slots * kv_heads * size);
        let held = values(11, slots * kv_heads * size);
        let params = AttentionParams {
            heads: small(heads),
            group: small(heads / kv_heads),
            half: small(half),
            kv_pairs: small(kv_heads * half),
            stride: small(slots),
            depth: 1,
            scale,
            y_scale: 1.0,
        };
        let y = bench.room(heads * size);
        let rows = [[0, small(position), small(position), 0]];
        let shared = [
            &bench.uniform(&params),
            &bench.uniform(&step(1)),
            &bench.storage(&rows),
            &bench.storage(&[0u32]),
        ];
        let (q_buffer, keys_buffer, values_buffer) =
            (bench.storage(&q), bench.storage(&keys), bench.storage(&held));
        if path == "windows" {
            let rest = [&q_buffer, &keys_buffer, &values_buffer, &y];
            bench.run("attention", &["kv32", "y32"], &[&shared[..], &rest].concat(), [small(heads), 1, 1]);
        } else {
            let scores = bench.room(heads * slots);
            let first = [&q_buffer, &keys_buffer, &scores];
            let groups = [small(slots.div_ceil(8)), small(heads), 1];
            bench.run("attention_scores", &["kv32", path], &[&shared[..], &first].concat(), groups);
            let second = [&scores, &values_buffer, &y];
            let groups = [small(heads), 1, small(size.div_ceil(64))];
            bench.run("attention_values", &["kv32", path], &[&shared[..], &second].concat(), groups);
        }
        let mut expected = Vec::new();
        for head in 0..heads {
            let own = |all: &[f32], t: usize| {
                let at = (t * kv_heads + head * kv_heads / heads) * size;
                all[at..at + size].to_vec()
            };
            let scores: Vec<f64> = (0..slots)
                .map(|t| dot(&q[head * size..(head + 1) * size], &own(&keys, t)) * f64::from(scale))
                .collect();
            let greatest = scores.iter().copied().fold(f64::MIN, f64::max);
            let weights: Vec<f64> = scores.iter().map(|score| (score - greatest).exp()).collect();
            let sum: f64 = weights.iter().sum();
            for d in 0..size {
                let mixed: f64 = (0..slots).map(|t| weights[t] * f64::from(own(&held, t)[d])).sum();
                expected.push(single(mixed / sum));
            }
        }
        let what = format!("{path}: {heads} heads of {size} at {position}");
        assert_close(&what, &bench.floats(&y, heads * size), &expected, CLOSE);
    }
}

#[test]
fn attention_by_rows() {
    attention_on("broadcast", false);
    attention_on("plain", true);
}

#[test]
fn attention_by_windows() {
    attention_on("windows", true);
}
