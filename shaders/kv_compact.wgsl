import package::lib::draft::Round;

// Keys and values of the accepted rows move up to the slots of their positions.
//
// Rows of a path ascend and row j of it lies at slot start + path[j], not below start + j; so each invocation, which owns a
// column of the cache, may move its words one after the other in place.
// Geometry: grid (words / 64).
struct CompactParams {
    words: u32, // 32-bit words of a slot
    pad0: u32,
    pad1: u32,
    pad2: u32,
}

@group(0) @binding(0) var<uniform> params: CompactParams;
@group(0) @binding(1) var<storage, read> round: Round;
@group(0) @binding(2) var<storage, read_write> keys: array<u32>; // [slots][words]
@group(0) @binding(3) var<storage, read_write> values: array<u32>; // the same

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= params.words) {
        return;
    }
    for (var j = 1u; j < round.emitted; j++) {
        let from_row = round.path[j];
        if (from_row != j) {
            let source = (round.start + from_row) * params.words + id.x;
            let target_word = (round.start + j) * params.words + id.x;
            keys[target_word] = keys[source];
            values[target_word] = values[source];
        }
    }
}
