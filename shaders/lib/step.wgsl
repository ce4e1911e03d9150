// What changes from step to step, the same for every kernel of a forward pass.
struct Step {
    rows: u32,       // batch rows of this step
    source: u32,     // first row of the residual stream that is read (the output head reads only the last rows)
    tree_start: u32, // positions below it are in the KV slot of their own number, later ones where `slots` says
    pad0: u32,
}

@group(0) @binding(1) var<uniform> step: Step;
