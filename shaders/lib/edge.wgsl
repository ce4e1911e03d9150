import package::lib::draft::DraftParams;

// The log-probability of an edge: the drafter's own, or what it turned out to mean on held-out text.
@group(0) @binding(0) var<uniform> params: DraftParams;
@group(0) @binding(1) var<storage, read> tables: array<f32>; // edges, gains, lookup

fn edge_at(logq: f32, rank: u32, depth: u32, refined: u32) -> f32 {
    if (params.calibrated == 1u) {
        // Bins of a quarter: the product is exact, so every device finds the same bin.
        let bin = min(u32(clamp(-logq * 4.0, 0.0, 31.0)), 31u);
        return tables[((refined * 8u + min(depth, 8u) - 1u) * 4u + min(rank, 3u)) * 32u + bin];
    }
    return min(logq + select(0.0, params.refined_offset, refined == 1u), 0.0);
}
