// Eight weights of one row, adjacent along k.
struct Octet {
    lo: vec4<f32>, // k + 0 … k + 3
    hi: vec4<f32>, // k + 4 … k + 7
}
