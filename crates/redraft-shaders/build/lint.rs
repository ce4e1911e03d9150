//! House rules over naga's IR, beyond what WGSL itself demands.

use naga::{AddressSpace, Block, Module, Statement, StorageAccess, TypeInner};

/// The most storage buffers a kernel may bind: `maxStorageBuffersPerShaderStage` of every WebGPU adapter.
pub(crate) const MAX_STORAGE_BUFFERS: usize = 8;

/// What the manifest says about the kernel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// Whether binding 0 is a host struct.
    pub params: bool,
    /// Whether barriers are allowed.
    pub barriers: bool,
}

/// Checks all rules; an empty answer means the module keeps them.
pub(crate) fn check(module: &Module, rules: &Rules) -> Vec<String> {
    let mut complaints = Vec::new();
    entry_point(module, &mut complaints);
    bindings(module, rules, &mut complaints);
    helper_pointers(module, &mut complaints);
    overrides(module, &mut complaints);
    if !rules.barriers {
        barriers(module, &mut complaints);
    }
    complaints
}

fn entry_point(module: &Module, complaints: &mut Vec<String>) {
    let names: Vec<_> = module.entry_points.iter().map(|e| &e.name).collect();
    let compute = |e: &naga::EntryPoint| e.stage == naga::ShaderStage::Compute;
    if names != ["main"] || !module.entry_points.iter().all(compute) {
        complaints.push(format!("expected one compute entry point named `main`, found {names:?}"));
    }
}

/// The order of a binding's kind in the list: parameters, inputs, outputs.
fn rank(space: AddressSpace) -> Option<u8> {
    match space {
        AddressSpace::Uniform => Some(0),
        AddressSpace::Storage { access } if access.contains(StorageAccess::STORE) => Some(2),
        AddressSpace::Storage { .. } => Some(1),
        _ => None,
    }
}

fn bindings(module: &Module, rules: &Rules, complaints: &mut Vec<String>) {
    let mut found = Vec::new();
    for (_, variable) in module.global_variables.iter() {
        let Some(binding) = variable.binding else {
            continue;
        };
        let name = variable.name.as_deref().unwrap_or("<unnamed>");
        if binding.group != 0 {
            complaints.push(format!("binding `{name}` is in group {}, expected group 0", binding.group));
        }
        match rank(variable.space) {
            Some(rank) => found.push((binding.binding, rank, name)),
            None => complaints.push(format!("binding `{name}` is neither a uniform nor a storage buffer")),
        }
    }
    found.sort_unstable();
    for (expected, (index, _, name)) in found.iter().enumerate() {
        if u32::try_from(expected) != Ok(*index) {
            complaints.push(format!(
                "binding `{name}` has index {index}, expected {expected}: indices run from 0 without gaps \
                 (a binding that the variant never uses is stripped)"
            ));
            break;
        }
    }
    if rules.params && found.first().is_none_or(|(_, rank, _)| *rank != 0) {
        complaints.push("binding 0 is not a uniform, but the manifest names `params`".to_owned());
    }
    for pair in found.windows(2) {
        if let [(_, before, earlier), (_, after, later)] = pair
            && before > after
        {
            complaints.push(format!(
                "binding `{later}` comes after `{earlier}`; the order is uniform, read, read_write"
            ));
        }
    }
    let storage = found.iter().filter(|(_, rank, _)| *rank != 0).count();
    if storage > MAX_STORAGE_BUFFERS {
        complaints
            .push(format!("{storage} storage buffers, at most {MAX_STORAGE_BUFFERS} work on every adapter"));
    }
}

/// Pointers into workgroup or storage memory need a language feature that naga lacks.
fn helper_pointers(module: &Module, complaints: &mut Vec<String>) {
    for (_, function) in module.functions.iter() {
        for argument in &function.arguments {
            let space = match module.types[argument.ty].inner {
                TypeInner::Pointer { space, .. } | TypeInner::ValuePointer { space, .. } => space,
                _ => continue,
            };
            if !matches!(space, AddressSpace::Function | AddressSpace::Private) {
                complaints.push(format!(
                    "helper `{}` takes `{}` as a pointer into {space:?} memory; pass an index instead",
                    function.name.as_deref().unwrap_or("<unnamed>"),
                    argument.name.as_deref().unwrap_or("<unnamed>"),
                ));
            }
        }
    }
}

/// Defaults live in the file, so that every kernel can be built and tested without a host.
fn overrides(module: &Module, complaints: &mut Vec<String>) {
    for (_, value) in module.overrides.iter() {
        let name = value.name.as_deref().unwrap_or("<unnamed>");
        if value.init.is_none() {
            complaints.push(format!("override `{name}` has no default value"));
        }
        if value.id.is_some() {
            complaints.push(format!("override `{name}` has an @id; the host sets overrides by name"));
        }
    }
}

fn barriers(module: &Module, complaints: &mut Vec<String>) {
    let helpers = module.functions.iter().map(|(_, function)| function);
    let entries = module.entry_points.iter().map(|entry| &entry.function);
    for function in helpers.chain(entries) {
        if has_barrier(&function.body) {
            complaints.push(format!(
                "function `{}` has a barrier; set `barriers = true` in kernels.toml if it is meant \
                 (barriers cost dearly on software adapters)",
                function.name.as_deref().unwrap_or("main"),
            ));
        }
    }
}

fn has_barrier(block: &Block) -> bool {
    block.iter().any(|statement| match statement {
        Statement::ControlBarrier(_)
        | Statement::MemoryBarrier(_)
        | Statement::WorkGroupUniformLoad { .. } => true,
        Statement::Block(inner) => has_barrier(inner),
        Statement::If { accept, reject, .. } => has_barrier(accept) || has_barrier(reject),
        Statement::Loop { body, continuing, .. } => has_barrier(body) || has_barrier(continuing),
        Statement::Switch { cases, .. } => cases.iter().any(|case| has_barrier(&case.body)),
        _ => false,
    })
}
