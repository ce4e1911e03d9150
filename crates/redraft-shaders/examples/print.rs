//! Prints the linked text of one kernel variant, or the labels of all; with `--browser` every variant as browsers get it,
//! one JSON object a line.

use redraft_shaders::{Target, kernels};

fn main() {
    let wanted = std::env::args().nth(1);
    for kernel in kernels() {
        match wanted.as_deref() {
            None => println!("{}", kernel.label),
            // The texts are ASCII without control characters but line ends, which Rust and JSON write alike.
            Some("--browser") => println!(
                "{{\"label\": {:?}, \"subgroups\": {}, \"f16\": {}, \"code\": {:?}}}",
                kernel.label,
                kernel.enables.contains(&"subgroups"),
                kernel.enables.contains(&"f16"),
                kernel.source(Target::Browser)
            ),
            Some(label) if label == kernel.label => println!("{}", kernel.source(Target::Native)),
            Some(_) => {}
        }
    }
}
