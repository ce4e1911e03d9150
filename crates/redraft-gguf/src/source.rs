//! Where bytes come from.

use crate::error::ReadError;

/// A source of bytes of known size that can be read at any offset: a slice, a file, a range of a download.
#[expect(async_fn_in_trait, reason = "browser sources are not Send, and callers await in place")]
pub trait ReadAt {
    /// Bytes in the source.
    fn size(&self) -> u64;

    /// Fills `into` with the bytes from `offset` (in bytes from the start of the source) on.
    ///
    /// # Errors
    ///
    /// When the range passes the end of the source, or the source fails; `into` then holds nothing of use.
    async fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), ReadError>;
}

impl ReadAt for [u8] {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    async fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), ReadError> {
        let outside = ReadError::OutOfRange { offset, length: into.len() as u64, size: self.len() as u64 };
        let start = usize::try_from(offset).ok();
        let bytes = start.and_then(|start| self.get(start..)?.get(..into.len())).ok_or(outside)?;
        into.copy_from_slice(bytes);
        Ok(())
    }
}

impl ReadAt for Vec<u8> {
    fn size(&self) -> u64 {
        self.as_slice().size()
    }

    async fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), ReadError> {
        self.as_slice().read_at(offset, into).await
    }
}

impl<T: ReadAt + ?Sized> ReadAt for &T {
    fn size(&self) -> u64 {
        (**self).size()
    }

    async fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), ReadError> {
        (**self).read_at(offset, into).await
    }
}

#[cfg(test)]
mod tests {
    use super::ReadAt;
    use crate::ReadError;

    #[test]
    fn slices_read_inside_and_refuse_outside() {
        let bytes: &[u8] = &[1, 2, 3, 4];
        let mut two = [0; 2];
        pollster::block_on(bytes.read_at(2, &mut two)).unwrap();
        assert_eq!(two, [3, 4]);
        for offset in [3, 4, 5, u64::MAX] {
            let error = pollster::block_on(bytes.to_vec().read_at(offset, &mut two)).unwrap_err();
            assert!(matches!(error, ReadError::OutOfRange { size: 4, .. }), "offset {offset}: {error}");
        }
    }
}
