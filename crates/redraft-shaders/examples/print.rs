//! Prints the linked text of one kernel variant, or the labels of all.

use redraft_shaders::{Target, kernels};

fn main() {
    let label = std::env::args().nth(1);
    for kernel in kernels() {
        if label.as_deref() == Some(kernel.label) {
            println!("{}", kernel.source(Target::Native));
        } else if label.is_none() {
            println!("{}", kernel.label);
        }
    }
}
