//! The wire format of Protocol Buffers, as far as OTLP metrics need it: a writer of messages, and a reader of fields.
//!
//! By hand: five kinds of fields are a page of code, and a crate with generated types would be five crates more. The tests decode every request with the published definitions.
//! The format: <https://protobuf.dev/programming-guides/encoding/>.

const FIXED64: u32 = 1;
const LENGTH_DELIMITED: u32 = 2;

/// The fields of a message.
#[derive(Debug, Default)]
pub struct Message(Vec<u8>);

impl Message {
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the fields of another message.
    pub fn append(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// A field of type `bool`, `int64` or an enumeration.
    pub fn integer(&mut self, field: u32, value: i64) {
        self.key(field, 0);
        self.varint(value.cast_unsigned());
    }

    /// A field of type `fixed64`.
    pub fn fixed64(&mut self, field: u32, value: u64) {
        self.key(field, FIXED64);
        self.0.extend(value.to_le_bytes());
    }

    pub fn double(&mut self, field: u32, value: f64) {
        self.fixed64(field, value.to_bits());
    }

    pub fn text(&mut self, field: u32, text: &str) {
        self.bytes(field, text.as_bytes());
    }

    /// A field that is a message.
    pub fn message(&mut self, field: u32, fill: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        fill(&mut inner);
        self.bytes(field, &inner.0);
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.key(field, LENGTH_DELIMITED);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
    }

    fn key(&mut self, field: u32, wire_type: u32) {
        self.varint(u64::from(field << 3 | wire_type));
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.0.push(value.to_le_bytes()[0]);
    }
}

/// A field of a message that was received.
#[derive(Debug, PartialEq, Eq)]
pub enum Field<'b> {
    Integer(u64),
    Bytes(&'b [u8]),
}

/// The field with this number; `None` also if the message is damaged, or the field is of another type.
pub fn field(mut message: &[u8], number: u64) -> Option<Field<'_>> {
    while !message.is_empty() {
        let key = take_varint(&mut message)?;
        let field = match key & 7 {
            0 => Some(Field::Integer(take_varint(&mut message)?)),
            1 => take(&mut message, 8).map(|_| None)?,
            2 => {
                let len = take_varint(&mut message)?;
                Some(Field::Bytes(take(&mut message, len)?))
            }
            5 => take(&mut message, 4).map(|_| None)?,
            _ => return None,
        };
        if key >> 3 == number {
            return field;
        }
    }
    None
}

fn take<'b>(message: &mut &'b [u8], len: u64) -> Option<&'b [u8]> {
    let (taken, rest) = message.split_at_checked(usize::try_from(len).ok()?)?;
    *message = rest;
    Some(taken)
}

fn take_varint(message: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *take(message, 1)?.first()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_of_the_specification() {
        let mut message = Message::default();
        message.integer(1, 150);
        message.text(2, "testing");
        message.message(3, |inner| inner.integer(1, 150));
        let expected = b"\x08\x96\x01\x12\x07testing\x1a\x03\x08\x96\x01";
        assert_eq!(message.into_bytes(), expected);
        let mut message = Message::default();
        message.integer(1, -2);
        assert_eq!(message.into_bytes(), b"\x08\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01");
    }

    #[test]
    fn fields_are_found_and_damaged_messages_have_none() {
        let message = b"\x08\x96\x01\x12\x07testing\x1d\x00\x00\x00\x00\x20\x05";
        assert_eq!(field(message, 1), Some(Field::Integer(150)));
        assert_eq!(field(message, 2), Some(Field::Bytes(b"testing")));
        assert_eq!((field(message, 3), field(message, 4)), (None, Some(Field::Integer(5))));
        for damaged in [
            &b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01a"[..],
            b"\x08",
            b"<html>",
            b"{\"a\": 1}",
            &[0xff; 30],
        ] {
            assert_eq!(field(damaged, 2), None, "{damaged:?}");
        }
    }
}
