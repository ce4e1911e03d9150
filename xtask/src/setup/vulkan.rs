//! A Vulkan driver: the machine's own when there is one, else Mesa's, which computes on the CPU where no GPU is.

use std::fs;
use std::path::{Path, PathBuf};

use super::apt;
use crate::Outcome;
use crate::process::{Cmd, which};

const PACKAGES: [&str; 2] = ["libvulkan1", "mesa-vulkan-drivers"];
/// Before this major version Mesa computes, but it is not what redraft is tested with; Debian 12 has 22 and, in its
/// backports, 25.
const OLDEST_MESA: u32 = 24;

/// Makes sure that an adapter can be found; does nothing on systems whose graphics interface is built in.
pub(crate) fn set_up() -> Outcome {
    if !cfg!(target_os = "linux") {
        return Ok(());
    }
    let drivers = drivers();
    let Some(lack) = lack(loader(), &drivers) else { return Ok(()) };
    eprintln!("{lack}: installing {}", PACKAGES.join(" and "));
    match install() {
        // A driver of a kind not known here may still serve; `redraft devices` will tell.
        Err(error) if loader() && !drivers.is_empty() => {
            eprintln!("warning: {lack}, and Mesa could not be installed: {error}\n{}", by_hand());
            Ok(())
        }
        Err(error) => Err(format!("{lack}, and it could not be installed: {error}\n{}", by_hand())),
        Ok(()) if loader() && !self::drivers().is_empty() => Ok(()),
        Ok(()) => {
            Err(format!("{} are installed, yet there is no driver; {}", PACKAGES.join(" and "), by_hand()))
        }
    }
}

/// What keeps this machine from having an adapter.
fn lack(loader: bool, drivers: &[PathBuf]) -> Option<&'static str> {
    if !loader {
        Some("no Vulkan loader (libvulkan.so.1)")
    } else if drivers.is_empty() {
        Some("no Vulkan driver (no driver file in the icd.d folders)")
    } else if gpu() {
        None
    } else if !drivers.iter().any(|file| computes_on_the_cpu(file)) {
        Some("no GPU, and no Vulkan driver that does without")
    } else if drivers.iter().all(|file| owned_by_mesa(file)) && old_mesa() {
        Some("no GPU, and a Mesa older than redraft is tested with")
    } else {
        None
    }
}

fn install() -> Outcome {
    let os = fs::read_to_string("/etc/os-release").unwrap_or_default();
    apt::update()?;
    let versions = apt::versions("mesa-vulkan-drivers")?;
    let Some(plan) = choose(&versions, &os) else {
        return Err("apt offers no package mesa-vulkan-drivers".to_owned());
    };
    let release = match plan {
        Plan::Plain => None,
        Plan::From(release) => Some(release),
        Plan::AddBackports(codename) => match apt::add_backports(&codename) {
            Ok(()) => Some(format!("{codename}-backports")),
            Err(error) => {
                eprintln!(
                    "warning: {error}\nthe release's own Mesa is installed, older than redraft is tested with"
                );
                None
            }
        },
    };
    apt::install(&PACKAGES, release.as_deref())
}

/// Where to install Mesa from.
#[derive(Debug, PartialEq)]
enum Plan {
    /// From what apt prefers by itself.
    Plain,
    /// From a release that apt knows but does not prefer.
    From(String),
    /// From the backports of this release, which apt does not know yet.
    AddBackports(String),
}

fn choose(versions: &[(String, String)], os_release: &str) -> Option<Plan> {
    let field = |name: &str| {
        let value = os_release.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))?;
        Some(value.trim_matches('"'))
    };
    let fresh = |version: &str| major(version).is_some_and(|major| major >= OLDEST_MESA);
    let backports = |release: &str| release.ends_with("-backports");
    let plain = versions.iter().any(|(version, release)| fresh(version) && !backports(release));
    let from = versions.iter().find(|(version, release)| fresh(version) && backports(release));
    match (field("ID"), field("VERSION_CODENAME"), from) {
        _ if versions.is_empty() => None,
        _ if plain => Some(Plan::Plain),
        (_, _, Some((_, release))) => Some(Plan::From(release.clone())),
        (Some("debian"), Some(codename), None) => Some(Plan::AddBackports(codename.to_owned())),
        // Elsewhere the release's own package is the best there is.
        _ => Some(Plan::Plain),
    }
}

/// `25` of `25.0.7-2~bpo12+1` and of `1:25.0.7`.
fn major(version: &str) -> Option<u32> {
    let version = version.split_once(':').map_or(version, |(_, version)| version);
    version.split('.').next()?.parse().ok()
}

/// Whether a driver file names Mesa's lavapipe or SwiftShader.
fn computes_on_the_cpu(file: &Path) -> bool {
    fs::read_to_string(file).is_ok_and(|json| json.contains("libvulkan_lvp") || json.contains("swiftshader"))
}

fn old_mesa() -> bool {
    apt::installed("mesa-vulkan-drivers").and_then(|v| major(&v)).is_some_and(|m| m < OLDEST_MESA)
}

fn owned_by_mesa(file: &Path) -> bool {
    let search = Cmd::new("dpkg-query").arg("--search").arg(file);
    search.read().is_ok_and(|owner| owner.starts_with("mesa-vulkan-drivers"))
}

/// Whether the kernel offers a GPU.
fn gpu() -> bool {
    let render = fs::read_dir("/dev/dri").is_ok_and(|mut nodes| {
        nodes.any(|node| node.is_ok_and(|node| node.file_name().to_string_lossy().starts_with("renderD")))
    });
    render || ["/dev/nvidiactl", "/dev/dxg"].iter().any(|device| Path::new(device).exists())
}

/// The driver descriptions that the Vulkan loader would read.
fn drivers() -> Vec<PathBuf> {
    for variable in ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"] {
        if let Some(files) = std::env::var_os(variable) {
            return std::env::split_paths(&files).filter(|path| path.exists()).collect();
        }
    }
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".local/share/vulkan/icd.d"));
    let folders = ["/usr/share", "/usr/local/share", "/etc"].map(|top| Path::new(top).join("vulkan/icd.d"));
    let files = |folder| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let json = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "json");
    home.into_iter().chain(folders).flat_map(files).filter(json).collect()
}

/// Whether the dynamic linker finds the Vulkan loader.
fn loader() -> bool {
    let ldconfig = which("ldconfig").unwrap_or_else(|| "/sbin/ldconfig".into());
    match Cmd::new(ldconfig).arg("--print-cache").read() {
        Ok(cache) => cache.contains("libvulkan.so.1"),
        // No linker cache (musl systems): look where libraries lie.
        Err(_) => ["/usr/lib", "/lib"].iter().any(|folder| Path::new(folder).join("libvulkan.so.1").exists()),
    }
}

fn by_hand() -> String {
    format!(
        "redraft needs a Vulkan driver: install your GPU's, or Mesa {OLDEST_MESA} or later, whose lavapipe needs no GPU \
         (Debian and Ubuntu: {}; Fedora: mesa-vulkan-drivers vulkan-loader; Arch: vulkan-swrast vulkan-icd-loader)",
        PACKAGES.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn versions(rows: &[(&str, &str)]) -> Vec<(String, String)> {
        rows.iter().map(|(version, release)| ((*version).to_owned(), (*release).to_owned())).collect()
    }

    #[test]
    fn chooses_the_release_before_backports_and_backports_before_old() {
        let debian = "PRETTY_NAME=\"Debian\"\nID=debian\nVERSION_CODENAME=bookworm\n";
        let ubuntu = "ID=ubuntu\nVERSION_CODENAME=jammy\n";
        let old = ("22.3.6-1+deb12u2", "bookworm");
        let backport = ("25.0.7-2~bpo12+1", "bookworm-backports");
        let cases = [
            (versions(&[old]), debian, Some(Plan::AddBackports("bookworm".to_owned()))),
            (versions(&[backport, old]), debian, Some(Plan::From("bookworm-backports".to_owned()))),
            (versions(&[("25.0.7-2", "trixie")]), debian, Some(Plan::Plain)),
            (versions(&[("23.2.1-1ubuntu3", "jammy-updates")]), ubuntu, Some(Plan::Plain)),
            (versions(&[]), debian, None),
        ];
        for (versions, os, expected) in cases {
            assert_eq!(choose(&versions, os), expected, "{versions:?}");
        }
    }

    #[test]
    fn reads_major_versions() {
        assert_eq!(major("25.0.7-2~bpo12+1"), Some(25));
        assert_eq!(major("1:24.3"), Some(24));
        assert_eq!(major("unknown"), None);
    }
}
