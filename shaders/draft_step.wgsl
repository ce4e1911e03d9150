import package::lib::draft::{DraftParams, Round};

// Step parameters of the drafter's forward: those of the extend pass (params.step 0), or of the steps behind it.
//
// The extend pass has room for every row that a round can accept; its head reads the last one that was. Keys before
// round.length are in the slot of their own number in both.
// Geometry: one invocation.
@group(0) @binding(0) var<uniform> params: DraftParams;
@group(0) @binding(1) var<storage, read> round: Round;
@group(0) @binding(2) var<storage, read_write> steps: vec4<u32>; // Step of every kernel but those of the head
@group(0) @binding(3) var<storage, read_write> head_step: vec4<u32>; // Step of the head

@compute @workgroup_size(1)
fn main() {
    if (params.step == 0u) {
        steps = vec4<u32>(params.depth + 1u, 0u, round.length, 0u);
        head_step = vec4<u32>(1u, max(round.emitted, 1u) - 1u, round.length, 0u);
    } else {
        let rows = params.width + params.reconsider;
        steps = vec4<u32>(rows, 0u, round.length, 0u);
        head_step = vec4<u32>(rows, 0u, round.length, 0u);
    }
}
