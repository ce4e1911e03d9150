// What the kernels of a draft round share. CPU twins: redraft_decode::draft.
//
// A round's tree grows in a pool of nodes. Node 0 is the root: the last emitted token, at position `round.length`. Every
// evaluated row has a row id: step * WIDTH + row of the step; row id 0 is the root's row of the extend pass.

struct DraftParams {
    step: u32,           // which drafter forward of the round: 0 the extend pass, then 1 …
    width: u32,          // k: frontier rows of a step
    children: u32,       // c: children kept of a first pass
    reconsider: u32,     // R: second-pass rows of a step
    refined: u32,        // E: candidates taken of a second pass
    depth: u32,          // of the deepest node
    nodes: u32,          // N: nodes that are verified
    gate: u32,           // 0 off, 1 by the table of gains, 2 random
    expand_refined: u32, // 1: refined nodes may enter the next frontier
    control: u32,        // 1: candidates come from the first pass instead (the top-k control)
    calibrated: u32,     // 1: edges come from the table
    refined_offset: f32, // added to a refined candidate's log-probability where they do not
    gate_threshold: f32, // least uncertainty of a hesitant node
    min_match: u32,      // shortest suffix that lookup continues; 0: no lookup
    lookup_block: u32,   // first node of the lookup block
    pool: u32,           // nodes of the pool
    scratch: u32,        // first slot of the drafter's cache for the rows of steps
    no_recurrence: u32,  // 1: a second pass reads what the first one read, not what it said
    spare_slot: u32,     // slot of the target's cache that padding rows write
    pad0: u32,
}

struct Node {
    token: u32,
    parent: u32,
    depth: u32,
    score: f32,         // sum of the edges' log-probabilities
    flags: u32,
    source: u32,        // row id whose output is this node's feature
    row: u32,           // row id of its own first pass, NONE before it
    first_child: u32,   // its block of `children` first-pass candidates, 0 before there is one
    refined_child: u32, // its block of `refined` second-pass candidates, 0 before there is one
}

// What a round leaves behind; the host reads it back whole.
struct Round {
    length: u32,      // tokens in the target's cache
    root: u32,        // the token after them
    limit: u32,       // tokens the answer may still emit
    stop: u32,        // 0 goes on, 1 end of sequence, 2 limit, 3 a logit that is not finite
    start: u32,       // length before the round
    emitted: u32,     // tokens emitted: accepted ones and the target's own
    drafted: u32,     // nodes verified
    reconsidered: u32,
    refined: u32,     // refined candidates added
    duplicates: u32,  // refined candidates that were children already
    looked_up: u32,   // nodes added by lookup
    greatest: u32,    // key of the greatest logit where it was not finite
    faults: u32,      // rows of the drafter whose logits were not finite
    path: array<u32, 17>,    // accepted rows, the root's first
    tokens: array<u32, 17>,  // emitted
    origins: array<u32, 17>, // of each: 0 the target's own, 1 drafted, 2 refined, 3 looked up
}

const WIDTH = 16u;
const TOP = 8u;
const NONE = 0xffffffffu;
// Row id under which the root's input of the extend pass is kept.
const ROOT_INPUT = 256u;

const ALIVE = 1u;
const CHAIN = 2u; // on the greedy chain
const REFINED = 4u;
const LOOKUP = 8u;

// Rows of the target's batch, padded: MAX_ROWS of redraft-model.
const ROWS = 64u;

// Entries of `tables`: log-probabilities of edges [refined][depth][rank][bin], log gains [depth][bin], lookup [length].
const EDGES = 2048u;
const GAINS = 512u;

fn block_of(step: u32, width: u32, children: u32, reconsider: u32, refined: u32) -> u32 {
    if (step == 0u) {
        return 1u;
    }
    return 1u + children + (step - 1u) * (width * children + reconsider * refined);
}
