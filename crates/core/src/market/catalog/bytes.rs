//! Reads numbers and texts of the packed catalogue.
//!
//! In:  bytes, which may be damaged or hostile.
//! Out: values, or a [`DecodeError`] with the name of the field. Damaged bytes cause no panic and no large allocation.
//! Not here: the meaning of the fields (`embedded`).

use super::error::DecodeError;

/// The bytes that are not read yet.
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

impl<'a> Bytes<'a> {
    pub(super) fn take(&mut self, count: usize, field: &'static str) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(DecodeError::Ends { field })?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], DecodeError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(DecodeError::Ends { field })?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(super) fn u8(&mut self, field: &'static str) -> Result<u8, DecodeError> {
        Ok(self.array::<1>(field)?[0])
    }

    pub(super) fn u16_le(&mut self, field: &'static str) -> Result<u16, DecodeError> {
        Ok(u16::from_le_bytes(self.array(field)?))
    }

    pub(super) fn u32_le(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.array(field)?))
    }

    pub(super) fn number(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        let mut value = 0_u64;
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.u8(field)?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return u32::try_from(value).map_err(|_| DecodeError::Range { field });
            }
        }
        Err(DecodeError::Range { field })
    }

    pub(super) fn size(&mut self, field: &'static str) -> Result<usize, DecodeError> {
        self.number(field).map(|number| number as usize)
    }

    pub(super) fn text(&mut self, field: &'static str) -> Result<&'a str, DecodeError> {
        let count = self.size(field)?;
        std::str::from_utf8(self.take(count, field)?).map_err(|_| DecodeError::Range { field })
    }

    pub(super) fn list<T>(
        &mut self,
        field: &'static str,
        mut item: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        // The capacity is limited by the number of bytes left, so a hostile count cannot allocate much memory.
        let count = self.size(field)?;
        let mut items = Vec::with_capacity(count.min(self.0.len()));
        for _ in 0..count {
            items.push(item(self)?);
        }
        Ok(items)
    }
}
