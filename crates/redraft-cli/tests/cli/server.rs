//! A small HTTP server that misbehaves as told.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// One request.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) path: String,
    headers: Vec<(String, String)>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }

    /// Start of the byte range that is asked for.
    pub(crate) fn from(&self) -> Option<usize> {
        self.header("range")?.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
    }
}

/// A server on a free port of the loopback interface. It lives as long as the test process.
pub(crate) struct Server {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    /// Answers each connection with `answer(number of the request, request, stream)`.
    pub(crate) fn start(answer: impl Fn(usize, &Request, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&requests);
        let answer = Arc::new(answer);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (log, answer) = (Arc::clone(&log), Arc::clone(&answer));
                std::thread::spawn(move || {
                    let mut stream = stream.unwrap();
                    let Some(request) = read_request(&stream) else { return };
                    let number = {
                        let mut log = log.lock().unwrap();
                        log.push(request.clone());
                        log.len() - 1
                    };
                    answer(number, &request, &mut stream);
                });
            }
        });
        Self { url, requests }
    }

    /// What was asked so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

fn read_request(stream: &TcpStream) -> Option<Request> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next()?.ok()?;
    let path = first.split(' ').nth(1)?.to_owned();
    let headers = lines
        .map_while(Result::ok)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_once(": ").map(|(n, v)| (n.to_owned(), v.to_owned())))
        .collect();
    Some(Request { path, headers })
}

/// Writes a response; the client may have gone, which is no matter.
pub(crate) fn respond(stream: &mut TcpStream, status: &str, headers: &[(&str, &str)], body: &[u8]) {
    let mut head = format!("HTTP/1.1 {status}\r\nConnection: close\r\n");
    if !headers.iter().any(|(name, _)| *name == "Content-Length") {
        head.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
}

/// Serves `file` properly, ranges included, with `tag` as its entity tag.
pub(crate) fn serve(stream: &mut TcpStream, request: &Request, file: &[u8], tag: &str) {
    let tag = format!("\"{tag}\"");
    match request.from() {
        None => respond(stream, "200 OK", &[("ETag", &tag)], file),
        Some(from) if from >= file.len() => {
            let range = format!("bytes */{}", file.len());
            respond(stream, "416 Range Not Satisfiable", &[("ETag", &tag), ("Content-Range", &range)], b"");
        }
        Some(from) => {
            let range = format!("bytes {from}-{}/{}", file.len() - 1, file.len());
            respond(
                stream,
                "206 Partial Content",
                &[("ETag", &tag), ("Content-Range", &range)],
                &file[from..],
            );
        }
    }
}

/// Promises the whole of `file` from `from` on and closes after `until`.
pub(crate) fn cut(stream: &mut TcpStream, request: &Request, file: &[u8], tag: &str, until: usize) {
    let tag = format!("\"{tag}\"");
    let from = request.from().unwrap_or(0);
    let range = format!("bytes {from}-{}/{}", file.len() - 1, file.len());
    let length = (file.len() - from).to_string();
    let status = if from > 0 { "206 Partial Content" } else { "200 OK" };
    let mut headers = vec![("ETag", tag.as_str()), ("Content-Length", length.as_str())];
    if from > 0 {
        headers.push(("Content-Range", &range));
    }
    respond(stream, status, &headers, &file[from..until.max(from)]);
}
