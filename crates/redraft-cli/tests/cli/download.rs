//! `pull hf:…` against servers that cut, lie, refuse and change their minds.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::server::{Request, Server, cut, respond, serve};
use crate::{expect, redraft, text};

const REFERENCE: &str = "hf:owner/repo/dir/m.gguf";

/// Something that begins like GGUF and is long enough to be cut.
pub(crate) fn file(seed: u8) -> Vec<u8> {
    let mut bytes = b"GGUF".to_vec();
    bytes.extend((0..300_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8 ^ seed));
    bytes
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").unwrap();
        hex
    })
}

fn home() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn pull(home: &Path, server: &Server) -> Output {
    redraft(home, &["pull", REFERENCE]).env("HF_ENDPOINT", &server.url).output().unwrap()
}

fn cached(home: &Path) -> PathBuf {
    home.join("redraft/models/hub/owner/repo/dir/m.gguf")
}

fn part(home: &Path) -> PathBuf {
    cached(home).with_file_name("m.gguf.part")
}

/// Asserts success with the path of the cached file on standard output and `content` in it.
fn expect_file(output: &Output, home: &Path, content: &[u8]) {
    expect(output, 0, &[]);
    let printed = text(&output.stdout);
    assert_eq!(printed.trim_end(), cached(home).display().to_string(), "the path is the result");
    assert!(fs::read(cached(home)).unwrap() == content, "the file differs");
    assert!(!part(home).exists(), "the part is left behind");
}

#[test]
fn a_file_is_fetched_once_through_redirects_and_checked_every_time() {
    let home = home();
    let content = file(0);
    let hash = sha256(&content);
    let server = Server::start(move |_, request, stream| {
        if request.path == "/blob" {
            serve(stream, request, &file(0), "other-tag-of-the-store");
        } else {
            let headers = [("Location", "/blob"), ("X-Linked-Etag", &format!("\"{hash}\""))];
            respond(stream, "302 Found", &headers, b"moved");
        }
    });
    expect_file(&pull(home.path(), &server), home.path(), &content);
    assert_eq!(server.requests()[0].path, "/owner/repo/resolve/main/dir/m.gguf");
    assert_eq!(server.requests().len(), 2);

    expect_file(&pull(home.path(), &server), home.path(), &content);
    assert_eq!(server.requests().len(), 2, "a verified file was fetched again");

    let mut damaged = content.clone();
    damaged[1000] ^= 1;
    fs::write(cached(home.path()), damaged).unwrap();
    let output = pull(home.path(), &server);
    expect_file(&output, home.path(), &content);
    expect(&output, 0, &["damaged"]);
    assert_eq!(server.requests().len(), 4);
}

#[test]
fn a_cut_connection_is_continued_where_it_broke() {
    let home = home();
    let server = Server::start(|number, request, stream| match number {
        0 => cut(stream, request, &file(0), "tag", 100_000),
        1 => cut(stream, request, &file(0), "tag", 200_000),
        _ => serve(stream, request, &file(0), "tag"),
    });
    expect_file(&pull(home.path(), &server), home.path(), &file(0));
    let starts: Vec<_> = server.requests().iter().map(Request::from).collect();
    assert_eq!(starts, [None, Some(100_000), Some(200_000)]);
}

#[test]
fn a_later_run_continues_what_an_earlier_one_left() {
    let home = home();
    let server = Server::start(|number, request, stream| match number {
        0 => cut(stream, request, &file(0), "tag", 100_000),
        1..=3 => respond(stream, "503 Busy", &[], b""),
        _ => serve(stream, request, &file(0), "tag"),
    });
    expect(&pull(home.path(), &server), 1, &["503", "again"]);
    assert_eq!(fs::metadata(part(home.path())).unwrap().len(), 100_000);
    assert!(!cached(home.path()).exists());
    expect_file(&pull(home.path(), &server), home.path(), &file(0));
    assert_eq!(server.requests().last().unwrap().from(), Some(100_000));
}

#[test]
fn a_complete_part_is_only_renamed() {
    let home = home();
    let server = Server::start(|_, request, stream| serve(stream, request, &file(0), "tag"));
    fs::create_dir_all(part(home.path()).parent().unwrap()).unwrap();
    fs::write(part(home.path()), file(0)).unwrap();
    fs::write(part(home.path()).with_file_name("m.gguf.part.tag"), "tag").unwrap();
    expect_file(&pull(home.path(), &server), home.path(), &file(0));
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn halves_of_different_files_are_never_joined() {
    let home = home();
    let server = Server::start(|number, request, stream| match number {
        0 => cut(stream, request, &file(0), "old", 100_000),
        _ => serve(stream, request, &file(9), "new"),
    });
    expect_file(&pull(home.path(), &server), home.path(), &file(9));
    assert_eq!(server.requests().last().unwrap().from(), None);
}

#[test]
fn a_server_without_ranges_costs_a_fresh_start() {
    let home = home();
    let server = Server::start(|number, request, stream| match number {
        0 => cut(stream, request, &file(0), "tag", 100_000),
        _ => respond(stream, "200 OK", &[("ETag", "\"tag\"")], &file(0)),
    });
    expect_file(&pull(home.path(), &server), home.path(), &file(0));
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn a_range_that_begins_elsewhere_is_not_appended() {
    let home = home();
    let server = Server::start(|number, request, stream| match (number, request.from()) {
        (0, _) => cut(stream, request, &file(0), "tag", 100_000),
        (_, Some(_)) => {
            let range = format!("bytes 5-{}/{}", file(0).len() - 1, file(0).len());
            let headers = [("ETag", "\"tag\""), ("Content-Range", range.as_str())];
            respond(stream, "206 Partial Content", &headers, &file(0)[5..]);
        }
        _ => serve(stream, request, &file(0), "tag"),
    });
    expect_file(&pull(home.path(), &server), home.path(), &file(0));
}

#[test]
fn without_a_tag_nothing_is_continued() {
    let home = home();
    let server = Server::start(|number, _, stream| {
        let length = file(0).len().to_string();
        let end = if number == 0 { 100_000 } else { file(0).len() };
        respond(stream, "200 OK", &[("Content-Length", &length)], &file(0)[..end]);
    });
    expect_file(&pull(home.path(), &server), home.path(), &file(0));
    assert_eq!(server.requests()[1].from(), None);
}

#[test]
fn a_file_that_is_not_what_the_hub_announced_is_not_kept() {
    let home = home();
    let server = Server::start(|_, _, stream| {
        let tag = format!("\"{}\"", sha256(b"something else"));
        respond(stream, "200 OK", &[("X-Linked-Etag", &tag)], &file(0));
    });
    expect(&pull(home.path(), &server), 1, &["SHA-256", &sha256(&file(0)), &sha256(b"something else")]);
    assert!(!cached(home.path()).exists());
    assert!(!part(home.path()).exists(), "wrong bytes were kept");
}

#[test]
fn refusals_say_what_to_do() {
    for (status, words) in [
        ("404 Not Found", ["404", "spelling"]),
        ("410 Gone", ["410", "spelling"]),
        ("401 Unauthorized", ["401", "HF_TOKEN"]),
        ("403 Forbidden", ["403", "HF_TOKEN"]),
        ("418 Teapot", ["418", "later"]),
    ] {
        let home = home();
        let server = Server::start(move |_, _, stream| respond(stream, status, &[], b"{}"));
        expect(&pull(home.path(), &server), 1, &words);
        assert_eq!(server.requests().len(), 1, "{status} was retried");
        assert!(!cached(home.path()).exists());
    }
}

#[test]
fn what_is_no_model_is_refused_early() {
    let page = ("text/html; charset=utf-8", &b"<!DOCTYPE html><title>Log in</title>"[..]);
    let disguised = ("application/octet-stream", &b"<!DOCTYPE html>"[..]);
    let pointer = ("text/plain", &b"version https://git-lfs.github.com/spec/v1"[..]);
    for ((kind, body), words) in [
        (page, ["a web page", "login"]),
        (disguised, ["<!DO", "GGUF"]),
        (pointer, ["vers", "GGUF"]),
        (("application/octet-stream", b""), ["empty", "GGUF"]),
        (("application/octet-stream", b"GG"), ["empty", "GGUF"]),
    ] {
        let home = home();
        let server =
            Server::start(move |_, _, stream| respond(stream, "200 OK", &[("Content-Type", kind)], body));
        expect(&pull(home.path(), &server), 1, &words);
        assert!(!cached(home.path()).exists());
    }
}

#[test]
fn redirects_that_lead_nowhere_end() {
    for location in ["/again", "file:///etc/passwd", "", "relative"] {
        let home = home();
        let server =
            Server::start(move |_, _, stream| respond(stream, "302 Found", &[("Location", location)], b""));
        expect(&pull(home.path(), &server), 1, &["redirect"]);
        assert!(server.requests().len() < 20);
    }
}

#[test]
fn the_token_goes_to_the_hub_and_no_further() {
    let home = home();
    let store = Server::start(|_, request, stream| serve(stream, request, &file(0), "tag"));
    let location = format!("{}/blob", store.url);
    let hub =
        Server::start(move |_, _, stream| respond(stream, "302 Found", &[("Location", &location)], b""));
    let mut command = redraft(home.path(), &["pull", REFERENCE]);
    let output = command.env("HF_ENDPOINT", &hub.url).env("HF_TOKEN", "secret").output().unwrap();
    expect_file(&output, home.path(), &file(0));
    assert_eq!(hub.requests()[0].header("authorization"), Some("Bearer secret"));
    assert_eq!(store.requests()[0].header("authorization"), None);
}

#[test]
fn a_silent_server_is_given_up_with_the_part_kept() {
    let home = home();
    let server = Server::start(|number, request, stream| {
        if number == 0 {
            cut(stream, request, &file(0), "tag", 100_000);
        }
        std::thread::sleep(Duration::from_secs(60));
    });
    let mut command = redraft(home.path(), &["pull", REFERENCE]);
    command.env("HF_ENDPOINT", &server.url).env("HF_HUB_DOWNLOAD_TIMEOUT", "1");
    expect(&command.output().unwrap(), 1, &["nothing for too long", "again", "HF_HUB_DOWNLOAD_TIMEOUT"]);
    assert_eq!(fs::metadata(part(home.path())).unwrap().len(), 100_000);
}

#[cfg(unix)]
#[test]
fn ctrl_c_keeps_the_part() {
    let home = home();
    let server = Server::start(|_, request, stream| {
        cut(stream, request, &file(0), "tag", 100_000);
        std::thread::sleep(Duration::from_secs(60));
    });
    let mut command = redraft(home.path(), &["pull", REFERENCE]);
    command.env("HF_ENDPOINT", &server.url).stderr(std::process::Stdio::piped());
    let child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let arrived = || fs::metadata(part(home.path())).is_ok_and(|data| data.len() == 100_000);
    while !arrived() {
        std::thread::sleep(Duration::from_millis(20));
    }
    crate::interrupt(&child);
    expect(&child.wait_with_output().unwrap(), 130, &["interrupted"]);
    assert!(arrived(), "the part is gone");
}

#[test]
fn two_pulls_at_once_fetch_once() {
    let home = home();
    let server = Server::start(|_, request, stream| {
        std::thread::sleep(Duration::from_millis(800));
        serve(stream, request, &file(0), "tag");
    });
    let spawn = || {
        let mut command = redraft(home.path(), &["pull", REFERENCE]);
        command.env("HF_ENDPOINT", &server.url).stdout(std::process::Stdio::piped());
        command.stderr(std::process::Stdio::piped()).spawn().unwrap()
    };
    let both = [spawn(), spawn()];
    for child in both {
        expect_file(&child.wait_with_output().unwrap(), home.path(), &file(0));
    }
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn an_unreachable_or_misspelt_hub_is_named() {
    let home = home();
    expect(
        &redraft(home.path(), &["pull", REFERENCE]).output().unwrap(),
        1,
        &["no connection", "HF_ENDPOINT"],
    );
    let mut command = redraft(home.path(), &["pull", REFERENCE]);
    expect(&command.env("HF_ENDPOINT", "hub.example").output().unwrap(), 1, &["HF_ENDPOINT", "http://"]);
}

#[test]
fn settings_that_cannot_be_used_are_named() {
    let home = home();
    for model in [REFERENCE, "smollm2-135m"] {
        for (variable, value, words) in [
            ("HF_HUB_DOWNLOAD_TIMEOUT", "soon", ["'soon'", "whole number of seconds"]),
            ("HF_HUB_DOWNLOAD_TIMEOUT", "0", ["'0'", "1 to 3600"]),
            ("HF_HUB_DOWNLOAD_TIMEOUT", "-5", ["'-5'", "1 to 3600"]),
            ("HF_TOKEN", "hf_secret\tx", ["token", "beginning with hf_"]),
            ("HF_TOKEN", "hf_s\u{e9}cret", ["token", "beginning with hf_"]),
            ("HF_ENDPOINT", "hub.example", ["'hub.example'", "http://"]),
            ("HF_ENDPOINT", "https://", ["'https://'", "http://"]),
            ("HF_ENDPOINT", "https://hub example", ["'https://hub example'", "http://"]),
            ("HF_ENDPOINT", "https://hub.example?x", ["hub.example?x", "http://"]),
        ] {
            let output = redraft(home.path(), &["pull", model]).env(variable, value).output().unwrap();
            expect(&output, 1, &words);
            expect(&output, 1, &[variable]);
            let complaint = text(&output.stderr);
            assert!(!complaint.contains("cret"), "the token is shown: {complaint}");
            assert!(!complaint.contains("Python"), "a wrong setting is worked around: {complaint}");
        }
    }
}

#[test]
fn a_cache_that_cannot_be_written_is_named() {
    let home = home();
    let blocked = home.path().join("file");
    fs::write(&blocked, "").unwrap();
    let mut command = redraft(home.path(), &["pull", REFERENCE]);
    expect(&command.env("XDG_CACHE_HOME", &blocked).output().unwrap(), 1, &["cannot write", "m.gguf.lock"]);
}
