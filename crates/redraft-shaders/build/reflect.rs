//! What the host must know of a kernel, read from naga's IR: bindings, struct layouts, overrides, workgroup size.

use super::manifest::Entry;
use naga::back::pipeline_constants::process_overrides;
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use naga::{
    AddressSpace, ArraySize, Expression, Handle, Literal, Module, Scalar, ScalarKind, ShaderStage,
    StorageAccess, Type, TypeInner,
};

/// The host-visible side of a variant.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reflection {
    /// Sorted by index.
    pub bindings: Vec<Binding>,
    /// With override defaults.
    pub workgroup_size: [u32; 3],
    /// In declaration order.
    pub overrides: Vec<Override>,
    /// Structs that mirror host structs.
    pub structs: Vec<StructLayout>,
}

/// One buffer binding of group 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Binding {
    /// `@binding` index.
    pub index: u32,
    /// WGSL name.
    pub name: String,
    /// Variant name of the generated `BindingKind`.
    pub kind: &'static str,
    /// Smallest buffer range that may be bound, in bytes.
    pub min_size: u32,
    /// Whether the manifest asks for a dynamic offset.
    pub dynamic: bool,
}

/// A pipeline-overridable constant.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Override {
    /// WGSL name.
    pub name: String,
    /// Variant name of the generated `OverrideKind`.
    pub kind: &'static str,
    /// Default, as WebGPU takes it.
    pub default: f64,
}

/// Layout of a WGSL struct and the host struct it must equal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StructLayout {
    /// Name in WGSL.
    pub wgsl_name: String,
    /// Name in the host's `params` module.
    pub host_name: String,
    /// Size in bytes, tail padding included.
    pub size: u32,
    /// Members in order.
    pub fields: Vec<Field>,
}

/// One member of a struct.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Field {
    /// Name, equal on both sides.
    pub name: String,
    /// Offset in bytes.
    pub offset: u32,
    /// The Rust type of the same shape, where there is one.
    pub host_type: Option<String>,
}

/// Parses and validates linked WGSL with no more capabilities than its extensions give.
pub(crate) fn validate(wgsl: &str, enables: &[String]) -> Result<(Module, ModuleInfo), String> {
    let enabled = |extension: &str| enables.iter().any(|e| e == extension);
    let mut capabilities = Capabilities::SHADER_FLOAT16_IN_FLOAT32;
    capabilities.set(Capabilities::SHADER_FLOAT16, enabled("f16"));
    capabilities.set(Capabilities::SUBGROUP, enabled("subgroups"));
    // The only extension naga knows by name is f16; on the same line, so that line numbers stay true.
    let directive = if enabled("f16") { "enable f16; " } else { "" };
    let text = format!("{directive}{wgsl}");
    let path = "linked.wgsl";
    let module = naga::front::wgsl::parse_str(&text)
        .map_err(|e| format!("naga:\n{}", e.emit_to_string_with_path(&text, path)))?;
    let info = Validator::new(ValidationFlags::all(), capabilities)
        .validate(&module)
        .map_err(|e| format!("naga:\n{}", e.emit_to_string_with_path(&text, path)))?;
    Ok((module, info))
}

/// Reflects a validated, linted module.
pub(crate) fn reflect(module: &Module, info: &ModuleInfo, entry: &Entry) -> Result<Reflection, String> {
    let (resolved, _) =
        process_overrides(module, info, Some((ShaderStage::Compute, "main")), &Default::default())
            .map_err(|e| format!("overrides do not resolve to their defaults: {e}"))?;
    let workgroup_size = resolved.entry_points.first().map(|e| e.workgroup_size).ok_or("no entry point")?;
    Ok(Reflection {
        bindings: bindings(module, entry),
        workgroup_size,
        overrides: overrides(module, &resolved)?,
        structs: structs(module, entry)?,
    })
}

fn bindings(module: &Module, entry: &Entry) -> Vec<Binding> {
    let mut found: Vec<_> = module
        .global_variables
        .iter()
        .filter_map(|(_, variable)| {
            let kind = match variable.space {
                AddressSpace::Uniform => "Uniform",
                AddressSpace::Storage { access } if access.contains(StorageAccess::STORE) => "ReadWrite",
                AddressSpace::Storage { .. } => "ReadOnly",
                _ => return None,
            };
            let name = variable.name.clone()?;
            Some(Binding {
                index: variable.binding?.binding,
                kind,
                min_size: module.types[variable.ty].inner.size(module.to_ctx()),
                dynamic: entry.dynamic.contains(&name),
                name,
            })
        })
        .collect();
    found.sort_by_key(|b| b.index);
    found
}

fn overrides(module: &Module, resolved: &Module) -> Result<Vec<Override>, String> {
    let default_of = |name: &str| {
        resolved
            .constants
            .iter()
            .find(|(_, c)| c.name.as_deref() == Some(name))
            .and_then(|(_, c)| number(&resolved.global_expressions[c.init]))
    };
    module
        .overrides
        .iter()
        .map(|(_, value)| {
            let name = value.name.clone().unwrap_or_default();
            let kind = match module.types[value.ty].inner {
                TypeInner::Scalar(Scalar { kind, width: 4 }) => match kind {
                    ScalarKind::Uint => "U32",
                    ScalarKind::Sint => "I32",
                    ScalarKind::Float => "F32",
                    _ => return Err(format!("override `{name}` has an unsupported type")),
                },
                TypeInner::Scalar(Scalar::BOOL) => "Bool",
                _ => return Err(format!("override `{name}` has an unsupported type")),
            };
            let default = default_of(&name)
                .or_else(|| number(&module.global_expressions[value.init?]))
                .ok_or_else(|| format!("the default of override `{name}` is no number"))?;
            Ok(Override { name, kind, default })
        })
        .collect()
}

fn number(expression: &Expression) -> Option<f64> {
    match *expression {
        Expression::Literal(literal) => match literal {
            Literal::U32(v) => Some(v.into()),
            Literal::I32(v) => Some(v.into()),
            Literal::F32(v) => Some(v.into()),
            Literal::Bool(v) => Some(f64::from(u8::from(v))),
            _ => None,
        },
        _ => None,
    }
}

fn structs(module: &Module, entry: &Entry) -> Result<Vec<StructLayout>, String> {
    let mut layouts = Vec::new();
    if let Some(host) = &entry.params {
        let ty = module
            .global_variables
            .iter()
            .find(|(_, v)| v.binding.is_some_and(|b| b.binding == 0))
            .map(|(_, v)| v.ty)
            .ok_or("the manifest names `params`, but there is no binding 0")?;
        let layout = layout(module, ty, host, entry)
            .ok_or("the manifest names `params`, but binding 0 is no struct")?;
        layouts.push(layout);
    }
    for (wgsl, host) in &entry.structs {
        let found = module.types.iter().find(|(_, ty)| ty.name.as_deref() == Some(wgsl));
        // A variant may have stripped it; a struct that no variant has is reported by the caller.
        layouts.extend(found.and_then(|(ty, _)| layout(module, ty, host, entry)));
    }
    Ok(layouts)
}

fn layout(module: &Module, ty: Handle<Type>, host: &str, entry: &Entry) -> Option<StructLayout> {
    let TypeInner::Struct { members, span } = &module.types[ty].inner else {
        return None;
    };
    let fields = members
        .iter()
        .map(|member| Field {
            name: member.name.clone().unwrap_or_default(),
            offset: member.offset,
            host_type: host_type(module, member.ty, entry),
        })
        .collect();
    Some(StructLayout {
        wgsl_name: module.types[ty].name.clone().unwrap_or_default(),
        host_name: host.to_owned(),
        size: *span,
        fields,
    })
}

/// The Rust type that a host struct must use for a member, or `None` where only the offset can be checked.
fn host_type(module: &Module, ty: Handle<Type>, entry: &Entry) -> Option<String> {
    let scalar = |scalar: Scalar| match (scalar.kind, scalar.width) {
        (ScalarKind::Uint, 4) => Some("u32"),
        (ScalarKind::Sint, 4) => Some("i32"),
        (ScalarKind::Float, 4) => Some("f32"),
        _ => None,
    };
    let ty = &module.types[ty];
    match ty.inner {
        TypeInner::Scalar(s) | TypeInner::Atomic(s) => scalar(s).map(str::to_owned),
        TypeInner::Vector { size, scalar: s } => Some(format!("[{}; {}]", scalar(s)?, size as u8)),
        TypeInner::Array { base, size: ArraySize::Constant(count), stride }
            if module.types[base].inner.size(module.to_ctx()) == stride =>
        {
            Some(format!("[{}; {count}]", host_type(module, base, entry)?))
        }
        TypeInner::Struct { .. } => {
            entry.structs.get(ty.name.as_deref()?).map(|host| format!("crate::params::{host}"))
        }
        _ => None,
    }
}
