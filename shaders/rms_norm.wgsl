import package::lib::step::step;

// y[m] = h[source + m] / sqrt(mean(h^2) + eps) * gain.
//
// plain, broadcast: the squares are summed as eight interleaved sums (k mod 8), then
//   ((0+1)+(2+3))+((4+5)+(6+7)); in broadcast each lane keeps one of them, in plain each invocation all eight.
// slices: 64 interleaved sums, then a binary tree in workgroup memory. For GPUs.
// slices16: the same; y is scaled and rounded to f16.
// Lineage: every invocation of a row summing the whole row alone costs eight times the loads of broadcast.
struct RmsNormParams {
    columns: u32, // multiple of 8
    eps: f32,
    h_stride: u32, // elements from one row of h to the next
    h_first: u32,  // element of a row of h that is column 0
    y_stride: u32, // the same for y
    y_first: u32,
    y_scale: f32, // slices16: a power of two that y is multiplied by before it is rounded
    pad0: u32,
}

@group(0) @binding(0) var<uniform> params: RmsNormParams;
@group(0) @binding(2) var<storage, read> h: array<f32>; // [batch][h_stride]
@group(0) @binding(3) var<storage, read> gain: array<f32>; // [columns]
@if(!slices16) @group(0) @binding(4) var<storage, read_write> y: array<f32>; // [batch][y_stride]
@if(slices16) @group(0) @binding(4) var<storage, read_write> y: array<f16>; // the same, scaled

@if(plain || broadcast) const WORKGROUP = 8u;
@if(slices || slices16) const WORKGROUP = 64u;

@if(slices || slices16) var<workgroup> partial: array<f32, 64>;

@if(plain) fn sum_of_squares(base: u32, local: u32) -> f32 {
    var lo = vec4<f32>();
    var hi = vec4<f32>();
    for (var k = 0u; k < params.columns; k += 8u) {
        let at = base + k;
        let a = vec4<f32>(h[at], h[at + 1u], h[at + 2u], h[at + 3u]);
        let b = vec4<f32>(h[at + 4u], h[at + 5u], h[at + 6u], h[at + 7u]);
        lo = fma(a, a, lo);
        hi = fma(b, b, hi);
    }
    return ((lo.x + lo.y) + (lo.z + lo.w)) + ((hi.x + hi.y) + (hi.z + hi.w));
}
@if(broadcast) fn sum_of_squares(base: u32, local: u32) -> f32 {
    var sum = 0.0;
    for (var k = local; k < params.columns; k += 8u) {
        let a = h[base + k];
        sum = fma(a, a, sum);
    }
    sum += subgroupShuffleXor(sum, 1u);
    sum += subgroupShuffleXor(sum, 2u);
    return sum + subgroupShuffleXor(sum, 4u);
}
@if(slices || slices16) fn sum_of_squares(base: u32, local: u32) -> f32 {
    var sum = 0.0;
    for (var k = local; k < params.columns; k += 64u) {
        let a = h[base + k];
        sum = fma(a, a, sum);
    }
    partial[local] = sum;
    for (var width = 32u; width > 0u; width /= 2u) {
        workgroupBarrier();
        if (local < width) {
            partial[local] += partial[local + width];
        }
    }
    workgroupBarrier();
    return partial[0];
}

@if(!slices16) fn stored(value: f32) -> f32 {
    return value;
}
@if(slices16) fn stored(value: f32) -> f16 {
    return f16(value * params.y_scale);
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let base = (step.source + group.x) * params.h_stride + params.h_first;
    let mean = sum_of_squares(base, local) / f32(params.columns);
    let scale = 1.0 / sqrt(mean + params.eps);
    let out = group.x * params.y_stride + params.y_first;
    for (var k = local; k < params.columns; k += WORKGROUP) {
        y[out + k] = stored(h[base + k] * scale * gain[k]);
    }
}
