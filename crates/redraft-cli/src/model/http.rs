//! HTTP as the hub needs it: redirects followed by hand, because the file's hash is announced on the first hop and
//! the token must not travel to the last.

use std::io::Read;
use std::time::Duration;

use ureq::Agent;
use ureq::http::{HeaderMap, Response};
use ureq::tls::{RootCerts, TlsConfig};

use super::download::DownloadError;
use super::hash;
use super::reference::HubRef;

const DEFAULT_ENDPOINT: &str = "https://huggingface.co";
const MAX_REDIRECTS: usize = 8;

/// A client of one hub.
#[derive(Debug)]
pub(crate) struct Client {
    agent: Agent,
    endpoint: String,
    token: Option<String>,
}

/// The answer to one request, after redirects.
pub(super) struct Reply {
    pub(super) status: u16,
    /// What identifies the content: the hub's hash of it, else the server's entity tag.
    pub(super) validator: Option<String>,
    /// SHA-256 that the hub announced.
    pub(super) sha256: Option<String>,
    /// Size of the whole file, if known.
    pub(super) total: Option<u64>,
    /// First byte of the body within the file.
    pub(super) start: u64,
    pub(super) html: bool,
    pub(super) body: Box<dyn Read>,
}

impl Client {
    /// Reads `HF_ENDPOINT` (base URL), `HF_TOKEN` and `HF_HUB_DOWNLOAD_TIMEOUT` (seconds without a byte), which are
    /// the hub's own names for these settings, and the usual proxy variables.
    pub(crate) fn from_env() -> Result<Self, DownloadError> {
        let endpoint = setting("HF_ENDPOINT")?.unwrap_or_else(|| DEFAULT_ENDPOINT.into());
        if !is_endpoint(&endpoint) {
            return Err(DownloadError::Setting {
                variable: "HF_ENDPOINT",
                found: format!("'{endpoint}'"),
                expected: "a URL as in https://huggingface.co, beginning with http:// or https://",
            });
        }
        let token = setting("HF_TOKEN")?.map(|token| token.trim().to_owned()).filter(|t| !t.is_empty());
        if token.as_ref().is_some_and(|token| !token.bytes().all(|byte| byte.is_ascii_graphic())) {
            return Err(DownloadError::Setting {
                variable: "HF_TOKEN",
                found: "a text with spaces or other characters that no token has".into(),
                expected: "a token as the hub shows it, beginning with hf_",
            });
        }
        let seconds = match setting("HF_HUB_DOWNLOAD_TIMEOUT")? {
            None => 30,
            Some(text) => {
                text.trim().parse().ok().filter(|seconds| (1..=3600).contains(seconds)).ok_or_else(|| {
                    DownloadError::Setting {
                        variable: "HF_HUB_DOWNLOAD_TIMEOUT",
                        found: format!("'{text}'"),
                        expected: "a whole number of seconds from 1 to 3600",
                    }
                })?
            }
        };
        let patience = Some(Duration::from_secs(seconds));
        let config = Agent::config_builder()
            .max_redirects(0)
            .max_redirects_will_error(false)
            .http_status_as_error(false)
            .timeout_resolve(patience)
            .timeout_connect(Some(Duration::from_secs(seconds.min(15))))
            .timeout_recv_response(patience)
            .timeout_per_read(patience)
            .user_agent(concat!("redraft/", env!("CARGO_PKG_VERSION")))
            .tls_config(tls_config())
            .build();
        Ok(Self { agent: config.new_agent(), endpoint: endpoint.trim_end_matches('/').into(), token })
    }

    /// Where the hub serves `hub`.
    pub(crate) fn url(&self, hub: &HubRef) -> String {
        let HubRef { repository, revision, file } = hub;
        format!("{}/{repository}/resolve/{}/{}", self.endpoint, encode(revision), encode(file))
    }

    /// Requests `url` from byte `from` on.
    pub(super) fn get(&self, url: &str, from: u64) -> Result<Reply, DownloadError> {
        let mut target = url.to_owned();
        let (mut linked_tag, mut linked_size) = (None, None);
        for _ in 0..=MAX_REDIRECTS {
            let response = self.request(&target, from)?;
            let headers = response.headers();
            linked_tag = linked_tag.or_else(|| header(headers, "x-linked-etag").map(bare_tag));
            linked_size = linked_size.or_else(|| header(headers, "x-linked-size")?.parse().ok());
            if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
                return Ok(reply(response, linked_tag, linked_size));
            }
            let location = header(headers, "location").unwrap_or_default();
            target = join(&target, location).ok_or_else(|| DownloadError::Redirect {
                url: url.into(),
                reason: format!("'{location}' is not a location to go to from {target}"),
            })?;
        }
        Err(DownloadError::Redirect {
            url: url.into(),
            reason: format!("more than {MAX_REDIRECTS} redirects"),
        })
    }

    fn request(&self, url: &str, from: u64) -> Result<Response<ureq::Body>, DownloadError> {
        let mut request = self.agent.get(url);
        if from > 0 {
            request = request.header("range", format!("bytes={from}-"));
        }
        if let Some(token) = &self.token
            && origin(url) == origin(&self.endpoint)
        {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        request.call().map_err(|error| match error {
            // A host that does not answer at all will not do so in two seconds either: not worth a retry.
            ureq::Error::Timeout(phase @ (ureq::Timeout::Connect | ureq::Timeout::Resolve)) => {
                DownloadError::Connection { url: url.into(), reason: format!("timeout ({phase})") }
            }
            ureq::Error::Timeout(_) => DownloadError::Timeout { url: url.into() },
            other => DownloadError::Connection { url: url.into(), reason: other.to_string() },
        })
    }
}

/// An environment variable; empty counts as unset.
fn setting(variable: &'static str) -> Result<Option<String>, DownloadError> {
    match std::env::var(variable) {
        Ok(value) => Ok(Some(value).filter(|value| !value.is_empty())),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => {
            Err(DownloadError::Setting { variable, found: "not UTF-8 text".into(), expected: "text" })
        }
    }
}

/// Whether paths can be appended to `url`: http or https, a host, neither query nor fragment.
fn is_endpoint(url: &str) -> bool {
    let scheme = url.starts_with("http://") || url.starts_with("https://");
    let parsed = url.parse::<ureq::http::Uri>();
    scheme
        && !url.contains(['?', '#'])
        && parsed.is_ok_and(|uri| uri.host().is_some_and(|host| !host.is_empty()))
}

fn reply(response: Response<ureq::Body>, linked_tag: Option<String>, linked_size: Option<u64>) -> Reply {
    let status = response.status().as_u16();
    let headers = response.headers();
    let (mut start, mut total) = (0, None);
    if let Some((first, size)) = header(headers, "content-range").and_then(parse_content_range) {
        (start, total) = (first, size);
    } else if status == 200 {
        total = header(headers, "content-length").and_then(|v| v.parse().ok());
    }
    Reply {
        status,
        sha256: linked_tag.clone().filter(|tag| hash::is_sha256(tag)).map(|tag| tag.to_ascii_lowercase()),
        validator: linked_tag.or_else(|| header(headers, "etag").map(bare_tag)),
        // What the hub says of the file counts before what this response says of itself: a short body is then noticed.
        total: linked_size.or(total),
        start,
        html: header(headers, "content-type")
            .is_some_and(|v| v.to_ascii_lowercase().starts_with("text/html")),
        body: Box::new(response.into_body().into_with_config().limit(u64::MAX).reader()),
    }
}

fn header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

/// An entity tag without `W/` and quotes.
fn bare_tag(tag: &str) -> String {
    tag.trim_start_matches("W/").trim_matches('"').to_owned()
}

/// `bytes FIRST-LAST/SIZE` or `bytes */SIZE` as (first, size).
fn parse_content_range(value: &str) -> Option<(u64, Option<u64>)> {
    let (range, size) = value.strip_prefix("bytes ")?.split_once('/')?;
    let first = if range == "*" { 0 } else { range.split_once('-')?.0.parse().ok()? };
    Some((first, size.parse().ok()))
}

/// Scheme and authority of a URL.
fn origin(url: &str) -> Option<&str> {
    let authority = url.find("://")? + 3;
    let end = url.get(authority..)?.find(['/', '?', '#']).map_or(url.len(), |i| i + authority);
    url.get(..end)
}

/// Where `location`, found at `base`, leads. A step from https down to http is refused.
fn join(base: &str, location: &str) -> Option<String> {
    let secure = base.starts_with("https://");
    if location.starts_with("https://") || (location.starts_with("http://") && !secure) {
        return Some(location.into());
    }
    if let Some(rest) = location.strip_prefix("//") {
        return Some(format!("{}://{rest}", if secure { "https" } else { "http" }));
    }
    location.starts_with('/').then(|| Some(format!("{}{location}", origin(base)?))).flatten()
}

/// Percent-encodes what may not stand in a URL path; `/` stays.
fn encode(path: &str) -> String {
    let mut text = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

#[cfg(any(windows, target_vendor = "apple"))]
fn tls_config() -> TlsConfig {
    TlsConfig::builder()
        .provider(ureq::tls::TlsProvider::NativeTls)
        .root_certs(RootCerts::PlatformVerifier)
        .build()
}

/// The system's certificates, so that company proxies work; Mozilla's list where the system has none.
#[cfg(not(any(windows, target_vendor = "apple")))]
fn tls_config() -> TlsConfig {
    const BUNDLES: [&str; 4] = [
        "/etc/ssl/certs/ca-certificates.crt",
        "/etc/pki/tls/certs/ca-bundle.crt",
        "/etc/ssl/ca-bundle.pem",
        "/etc/ssl/cert.pem",
    ];
    let named = std::env::var_os("SSL_CERT_FILE").map(std::path::PathBuf::from);
    let found = named.into_iter().chain(BUNDLES.map(Into::into)).find_map(|file| std::fs::read(file).ok());
    let certificates: Vec<_> = found
        .iter()
        .flat_map(|pem| ureq::tls::parse_pem(pem))
        .filter_map(|item| match item {
            Ok(ureq::tls::PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    let roots = if certificates.is_empty() { RootCerts::WebPki } else { RootCerts::from(certificates) };
    TlsConfig::builder().root_certs(roots).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_are_joined_and_never_leave_https() {
        assert_eq!(join("https://a/b", "https://c/d").as_deref(), Some("https://c/d"));
        assert_eq!(join("https://a/b?x", "/d").as_deref(), Some("https://a/d"));
        assert_eq!(join("http://a:1/b", "//c/d").as_deref(), Some("http://c/d"));
        assert_eq!(join("https://a/b", "http://c/d"), None);
        assert_eq!(join("https://a/b", "file:///etc/passwd"), None);
        assert_eq!(join("https://a/b", ""), None);
    }

    #[test]
    fn the_token_stays_with_the_host_it_is_for() {
        assert_eq!(origin("https://hub.example/x"), origin("https://hub.example"));
        assert_ne!(origin("https://hub.example.evil/x"), origin("https://hub.example"));
        assert_ne!(origin("https://hub.example:1/x"), origin("https://hub.example"));
    }

    #[test]
    fn content_ranges_are_read() {
        assert_eq!(parse_content_range("bytes 5-9/10"), Some((5, Some(10))));
        assert_eq!(parse_content_range("bytes */10"), Some((0, Some(10))));
        assert_eq!(parse_content_range("bytes 5-9/*"), Some((5, None)));
        assert_eq!(parse_content_range("lines 5-9/10"), None);
    }

    #[test]
    fn urls_are_encoded() {
        assert_eq!(encode("a b/ü(1).gguf"), "a%20b/%C3%BC%281%29.gguf");
    }
}
