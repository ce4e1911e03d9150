//! Reads the header of a file front to back through a window, and counts what is left before believing a length.

use crate::error::GgufError;
use crate::source::ReadAt;

/// Bytes of the file that are held at once.
const WINDOW: usize = 1 << 20;

/// Most bytes that metadata and tensor list may take. The largest vocabularies need some 20 MiB; past this a
/// file would only be a way to fill the memory, as parsed strings take more room than their bytes.
const MAX_HEADER: u64 = 256 << 20;

/// A position in the header, with the part of it that is held in memory.
pub(crate) struct Cursor<'a, S> {
    source: &'a S,
    /// Offset in the file of `window[0]`.
    start: u64,
    window: Vec<u8>,
    /// Position of the next byte in `window`; at most `window.len()`.
    at: usize,
    /// What is being read, for messages.
    field: String,
}

impl<'a, S: ReadAt> Cursor<'a, S> {
    pub(crate) fn new(source: &'a S) -> Self {
        Self { source, start: 0, window: Vec::new(), at: 0, field: String::new() }
    }

    /// Names what is read next.
    pub(crate) fn field(&mut self, field: impl Into<String>) {
        self.field = field.into();
    }

    /// The name of what is being read.
    pub(crate) fn name(&self) -> &str {
        &self.field
    }

    /// Offset of the next byte in the file.
    pub(crate) fn position(&self) -> u64 {
        self.start + self.at as u64
    }

    /// Bytes from here to the end of the file.
    pub(crate) fn remaining(&self) -> u64 {
        self.source.size().saturating_sub(self.position())
    }

    /// Checks that `count` items of at least `bytes` bytes each can still follow, before anything is allocated.
    pub(crate) fn need(&self, count: u64, bytes: u64) -> Result<(), GgufError> {
        let needed = count.saturating_mul(bytes);
        let available = self.remaining();
        if needed > available {
            let offset = self.position();
            return Err(GgufError::Truncated { field: self.field.clone(), offset, needed, available });
        }
        let end = self.position() + needed;
        if end > MAX_HEADER {
            let field = format!("{}: bytes of metadata and tensor list", self.field);
            return Err(GgufError::Limit { field, found: end, limit: MAX_HEADER });
        }
        Ok(())
    }

    /// The next `length` bytes, at most [`WINDOW`].
    async fn take(&mut self, length: usize) -> Result<&[u8], GgufError> {
        if self.window.len() - self.at < length {
            self.need(1, length as u64)?;
            self.start = self.position();
            self.at = 0;
            let held = usize::try_from(self.remaining()).map_or(WINDOW, |left| left.min(WINDOW));
            self.window.resize(held, 0);
            if let Err(source) = self.source.read_at(self.start, &mut self.window).await {
                self.window.clear();
                return Err(GgufError::Read { field: self.field.clone(), source });
            }
        }
        let from = self.at;
        self.at += length;
        Ok(&self.window[from..from + length])
    }

    /// The next `N` bytes.
    pub(crate) async fn bytes<const N: usize>(&mut self) -> Result<[u8; N], GgufError> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N).await?);
        Ok(out)
    }

    pub(crate) async fn u32(&mut self) -> Result<u32, GgufError> {
        Ok(u32::from_le_bytes(self.bytes().await?))
    }

    pub(crate) async fn u64(&mut self) -> Result<u64, GgufError> {
        Ok(u64::from_le_bytes(self.bytes().await?))
    }

    /// `count` numbers of `N` bytes.
    pub(crate) async fn numbers<T, const N: usize>(
        &mut self,
        count: u64,
        from: impl Fn([u8; N]) -> T,
    ) -> Result<Vec<T>, GgufError> {
        self.need(count, N as u64)?;
        let mut left = self.length(count)?;
        // The bytes are known to be there, so this is bounded by the size of the file.
        let mut out = Vec::with_capacity(left);
        while left > 0 {
            let chunk = left.min(WINDOW / N);
            out.extend(self.take(chunk * N).await?.as_chunks().0.iter().map(|&bytes| from(bytes)));
            left -= chunk;
        }
        Ok(out)
    }

    /// A length-prefixed text of at most `limit` bytes.
    pub(crate) async fn string(&mut self, limit: u64) -> Result<String, GgufError> {
        let length = self.u64().await?;
        if length > limit {
            let field = format!("{}: length of a string", self.field);
            return Err(GgufError::Limit { field, found: length, limit });
        }
        let bytes = self.numbers(length, |[byte]| byte).await?;
        String::from_utf8(bytes).map_err(|error| GgufError::Invalid {
            field: self.field.clone(),
            wanted: "text in UTF-8".into(),
            found: format!("an invalid byte at {} of {length}", error.utf8_error().valid_up_to()),
        })
    }

    /// A count of things that are in the file as a count of things in memory.
    fn length(&self, count: u64) -> Result<usize, GgufError> {
        usize::try_from(count).map_err(|_| GgufError::Limit {
            field: self.field.clone(),
            found: count,
            limit: usize::MAX as u64,
        })
    }
}
