//! Adapters: listing and choosing.

use crate::GpuError;
use std::str::FromStr;

/// Which adapter to use.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum AdapterChoice {
    /// The fastest kind: discrete, then integrated, then software; Vulkan, Metal or DX12 before OpenGL.
    #[default]
    Auto,
    /// Place in the list that [`adapters`] gives.
    Index(usize),
    /// A part of the name or the backend's name, in any case.
    Name(String),
}

impl AdapterChoice {
    /// Whether it means the adapter at `index` of the list; [`AdapterChoice::Auto`] means every usable one, of which the
    /// first is taken.
    #[must_use]
    pub fn matches(&self, index: usize, report: &AdapterReport) -> bool {
        match self {
            Self::Auto => report.unusable.is_none(),
            Self::Index(wanted) => index == *wanted,
            Self::Name(part) => {
                let part = part.to_lowercase();
                report.name.to_lowercase().contains(&part) || report.backend == part
            }
        }
    }
}

impl FromStr for AdapterChoice {
    type Err = std::convert::Infallible;

    /// `auto`, a number, or a part of a name.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text.trim() {
            "" | "auto" => Self::Auto,
            name => name.parse().map_or_else(|_| Self::Name(name.to_owned()), Self::Index),
        })
    }
}

impl std::fmt::Display for AdapterChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Auto => f.write_str("on this machine"),
            Self::Index(index) => write!(f, "with index {index}"),
            Self::Name(name) => write!(f, "whose name contains \"{name}\""),
        }
    }
}

/// What an adapter offers beyond core WebGPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdapterFeatures {
    /// `shader-f16`.
    pub f16: bool,
    /// Least and greatest number of lanes in a subgroup, where subgroups can be used.
    pub subgroups: Option<(u32, u32)>,
    /// Timestamps at pass boundaries.
    pub timestamps: bool,
    /// Compiled pipelines can be stored.
    pub pipeline_cache: bool,
}

/// The limits that matter here, in bytes or invocations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdapterLimits {
    /// Largest buffer.
    pub max_buffer: u64,
    /// Largest storage binding.
    pub max_binding: u64,
    /// Largest uniform binding.
    pub max_uniform_binding: u64,
    /// Invocations of a workgroup.
    pub max_workgroup_invocations: u32,
    /// Storage buffers of a kernel.
    pub max_storage_buffers: u32,
    /// Workgroup memory.
    pub max_workgroup_memory: u32,
}

/// One adapter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdapterReport {
    /// The driver's name for it.
    pub name: String,
    /// `vulkan`, `metal`, `dx12`, `gl` or `browser`.
    pub backend: &'static str,
    /// `discrete`, `integrated`, `virtual`, `cpu` or `other`.
    pub device_type: &'static str,
    /// Driver and version.
    pub driver: String,
    /// Optional features.
    pub features: AdapterFeatures,
    /// Limits.
    pub limits: AdapterLimits,
    /// Why redraft cannot use it, if so.
    pub unusable: Option<String>,
}

/// All adapters of this machine, best first; places in this list are what [`AdapterChoice::Index`] counts.
pub async fn adapters() -> Vec<AdapterReport> {
    let instance = instance(false);
    enumerate(&instance).await.iter().map(report).collect()
}

/// `strict` hides what WebGPU does not have, so that a native run sees what a browser would.
pub(crate) fn instance(strict: bool) -> wgpu::Instance {
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    // No validation of indirect calls: there are none, and the check costs a dispatch each.
    descriptor.flags =
        if strict { wgpu::InstanceFlags::STRICT_WEBGPU_COMPLIANCE } else { wgpu::InstanceFlags::empty() };
    descriptor.backends = wgpu::Backends::all() - wgpu::Backends::NOOP;
    wgpu::Instance::new(descriptor)
}

async fn enumerate(instance: &wgpu::Instance) -> Vec<wgpu::Adapter> {
    let mut list = instance.enumerate_adapters(wgpu::Backends::all()).await;
    if list.is_empty() {
        // Browsers enumerate nothing and give one adapter on request.
        list.extend(instance.request_adapter(&wgpu::RequestAdapterOptions::default()).await.ok());
    }
    list.sort_by_key(|adapter| rank(&adapter.get_info()));
    list
}

fn rank(info: &wgpu::AdapterInfo) -> (u8, u8) {
    let api = match info.backend {
        wgpu::Backend::Vulkan | wgpu::Backend::Metal | wgpu::Backend::BrowserWebGpu => 0,
        wgpu::Backend::Dx12 => 1,
        _ => 2,
    };
    let kind = match info.device_type {
        wgpu::DeviceType::DiscreteGpu => 0,
        wgpu::DeviceType::IntegratedGpu => 1,
        wgpu::DeviceType::VirtualGpu => 2,
        wgpu::DeviceType::Other => 3,
        wgpu::DeviceType::Cpu => 4,
    };
    // OpenGL drivers report their type badly, so the interface counts first.
    (api, kind)
}

pub(crate) fn backend_name(backend: wgpu::Backend) -> &'static str {
    match backend {
        wgpu::Backend::Vulkan => "vulkan",
        wgpu::Backend::Metal => "metal",
        wgpu::Backend::Dx12 => "dx12",
        wgpu::Backend::Gl => "gl",
        wgpu::Backend::BrowserWebGpu => "browser",
        wgpu::Backend::Noop => "noop",
    }
}

pub(crate) fn report(adapter: &wgpu::Adapter) -> AdapterReport {
    let info = adapter.get_info();
    let limits = adapter.limits();
    let features = adapter.features();
    let mut report = AdapterReport {
        name: info.name.clone(),
        backend: backend_name(info.backend),
        device_type: match info.device_type {
            wgpu::DeviceType::DiscreteGpu => "discrete",
            wgpu::DeviceType::IntegratedGpu => "integrated",
            wgpu::DeviceType::VirtualGpu => "virtual",
            wgpu::DeviceType::Cpu => "cpu",
            wgpu::DeviceType::Other => "other",
        },
        driver: format!("{} {}", info.driver, info.driver_info).trim().to_owned(),
        features: AdapterFeatures {
            f16: features.contains(wgpu::Features::SHADER_F16),
            subgroups: features
                .contains(wgpu::Features::SUBGROUP)
                .then_some((info.subgroup_min_size, info.subgroup_max_size)),
            timestamps: features.contains(wgpu::Features::TIMESTAMP_QUERY),
            pipeline_cache: features.contains(wgpu::Features::PIPELINE_CACHE),
        },
        limits: AdapterLimits {
            max_buffer: limits.max_buffer_size,
            max_binding: limits.max_storage_buffer_binding_size,
            max_uniform_binding: limits.max_uniform_buffer_binding_size,
            max_workgroup_invocations: limits.max_compute_invocations_per_workgroup,
            max_storage_buffers: limits.max_storage_buffers_per_shader_stage,
            max_workgroup_memory: limits.max_compute_workgroup_storage_size,
        },
        unusable: None,
    };
    report.unusable = unusable(&report.limits);
    report
}

/// WebGPU's own minimum limits suffice; OpenGL adapters can be below them.
fn unusable(limits: &AdapterLimits) -> Option<String> {
    let required = [
        ("storage buffers a kernel", u64::from(limits.max_storage_buffers), 8),
        ("invocations a workgroup", u64::from(limits.max_workgroup_invocations), 64),
        ("bytes a storage binding", limits.max_binding, 128 << 20),
        ("bytes a uniform binding", limits.max_uniform_binding, 16 << 10),
        ("bytes of workgroup memory", u64::from(limits.max_workgroup_memory), 16 << 10),
    ];
    required
        .into_iter()
        .find(|(_, has, needs)| has < needs)
        .map(|(what, has, needs)| format!("it offers {has} {what}, {needs} are needed"))
}

/// The chosen adapter.
pub(crate) async fn choose(
    choice: &AdapterChoice,
    strict: bool,
) -> Result<(wgpu::Adapter, AdapterReport), GpuError> {
    let list = enumerate(&instance(strict)).await;
    if let (true, AdapterChoice::Index(index)) = (strict, choice) {
        return conforming(*index, list).await;
    }
    let reports: Vec<_> = list.iter().map(report).collect();
    let found = reports
        .iter()
        .enumerate()
        .find(|(index, report)| choice.matches(*index, report))
        .map(|(index, _)| index);
    let mut pairs = list.into_iter().zip(reports.iter().cloned());
    let Some((adapter, report)) = found.and_then(|index| pairs.nth(index)) else {
        let found = reports.iter().map(|r| format!("{} ({})", r.name, r.backend)).collect::<Vec<_>>();
        return Err(GpuError::NoAdapter {
            wanted: choice.to_string(),
            found: if found.is_empty() { "none".to_owned() } else { found.join(", ") },
        });
    };
    if let Some(reason) = &report.unusable {
        return Err(GpuError::Unusable { adapter: report.name.clone(), reason: reason.clone() });
    }
    Ok((adapter, report))
}

/// The adapter at `index` of the list that users see, among the conforming ones. Those may be fewer, so their places in
/// the list differ.
async fn conforming(
    index: usize,
    list: Vec<wgpu::Adapter>,
) -> Result<(wgpu::Adapter, AdapterReport), GpuError> {
    let all = adapters().await;
    let Some(wanted) = all.get(index) else {
        let found = all.iter().map(|r| format!("{} ({})", r.name, r.backend)).collect::<Vec<_>>();
        return Err(GpuError::NoAdapter {
            wanted: AdapterChoice::Index(index).to_string(),
            found: if found.is_empty() { "none".to_owned() } else { found.join(", ") },
        });
    };
    let same = |other: &AdapterReport| {
        (&other.name, other.backend, &other.driver) == (&wanted.name, wanted.backend, &wanted.driver)
    };
    // Several cards of one kind keep their order.
    let before = all.iter().take(index).filter(|other| same(other)).count();
    let found = list.into_iter().map(|adapter| (report(&adapter), adapter)).filter(|(found, _)| same(found));
    let unusable = |reason| GpuError::Unusable { adapter: wanted.name.clone(), reason };
    match { found }.nth(before) {
        Some((AdapterReport { unusable: Some(reason), .. }, _)) => Err(unusable(reason)),
        Some((report, adapter)) => Ok((adapter, report)),
        None => Err(unusable("its driver does not conform to WebGPU, which strict use asks for".to_owned())),
    }
}
