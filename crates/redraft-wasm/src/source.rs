//! A file that JavaScript reads.

use js_sys::{Function, Promise, Uint8Array};
use redraft::{ReadAt, ReadError};
use std::io;
use wasm_bindgen::{JsCast as _, JsValue};
use wasm_bindgen_futures::JsFuture;

/// Bytes behind a function `(offset, length) => Promise<Uint8Array>`.
pub(crate) struct JsSource {
    size: u64,
    read: Function,
}

impl JsSource {
    /// `size` in bytes; `None` if it is no size of a file.
    pub(crate) fn new(size: f64, read: Function) -> Option<Self> {
        // Up to 2^53 every whole number is one of f64.
        let whole = (0.0..=9_007_199_254_740_992.0).contains(&size) && size.fract() == 0.0;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a whole number below 2^53"
        )]
        whole.then(|| Self { size: size as u64, read })
    }

    async fn bytes(&self, offset: u64, length: usize) -> Result<Uint8Array, JsValue> {
        #[expect(clippy::cast_precision_loss, reason = "offsets in a file of at most 2^53 bytes")]
        let (offset, length) = (JsValue::from_f64(offset as f64), JsValue::from_f64(length as f64));
        let promise = self.read.call2(&JsValue::NULL, &offset, &length)?;
        JsFuture::from(Promise::resolve(&promise)).await?.dyn_into()
    }
}

impl ReadAt for JsSource {
    fn size(&self) -> u64 {
        self.size
    }

    async fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), ReadError> {
        let length = into.len() as u64;
        if offset.checked_add(length).is_none_or(|end| end > self.size) {
            return Err(ReadError::OutOfRange { offset, length, size: self.size });
        }
        let failed = |source| ReadError::Io { offset, length, source };
        let bytes = self
            .bytes(offset, into.len())
            .await
            .map_err(|error| failed(io::Error::other(crate::error::message_of(&error))))?;
        if bytes.length() as usize != into.len() {
            return Err(failed(io::Error::other(format!("only {} bytes came", bytes.length()))));
        }
        bytes.copy_to(into);
        Ok(())
    }
}
