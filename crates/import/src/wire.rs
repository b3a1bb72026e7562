//! Reads protobuf messages: fields of varints, 4 or 8 bytes, and byte strings.
//!
//! Format: <https://protobuf.dev/programming-guides/encoding/>. Chakra needs three messages, so a reader of 80 lines
//! takes the place of a code generator.

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32(u32),
}

/// The bytes are no message: they end too early, or a field has a type that does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// The fields of a message, one after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

/// Takes a varint from the front.
pub(super) fn varint(bytes: &mut &[u8]) -> Result<u64, Malformed> {
    let mut value = 0u64;
    for shift in (0..70).step_by(7) {
        let (&byte, rest) = bytes.split_first().ok_or(Malformed)?;
        *bytes = rest;
        if shift == 63 && byte > 1 {
            return Err(Malformed);
        }
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(Malformed)
}

/// Takes this many bytes from the front.
pub(super) fn take<'a>(bytes: &mut &'a [u8], count: u64) -> Result<&'a [u8], Malformed> {
    let count = usize::try_from(count).ok().filter(|count| *count <= bytes.len()).ok_or(Malformed)?;
    let (taken, rest) = bytes.split_at(count);
    *bytes = rest;
    Ok(taken)
}

fn array<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], Malformed> {
    take(bytes, N as u64)?.try_into().map_err(|_| Malformed)
}

impl<'a> Fields<'a> {
    /// The number and the value of the next field; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<(u32, Value<'a>)>, Malformed> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let tag = varint(&mut self.0)?;
        let number = u32::try_from(tag >> 3).map_err(|_| Malformed)?;
        let value = match tag & 7 {
            0 => Value::Varint(varint(&mut self.0)?),
            1 => Value::Fixed64(u64::from_le_bytes(array(&mut self.0)?)),
            2 => {
                let length = varint(&mut self.0)?;
                Value::Bytes(take(&mut self.0, length)?)
            }
            5 => Value::Fixed32(u32::from_le_bytes(array(&mut self.0)?)),
            _ => return Err(Malformed),
        };
        Ok(Some((number, value)))
    }
}

/// Adds the numbers of a repeated field, packed or single.
pub(super) fn numbers(value: Value<'_>, into: &mut Vec<u64>) -> Result<(), Malformed> {
    match value {
        Value::Varint(number) => into.push(number),
        Value::Bytes(mut packed) => {
            while !packed.is_empty() {
                into.push(varint(&mut packed)?);
            }
        }
        Value::Fixed64(_) | Value::Fixed32(_) => return Err(Malformed),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_and_cut_ones_are_not() {
        let bytes = [0x08, 0x96, 0x01, 0x12, 2, b'o', b'k', 0x1d, 1, 0, 0, 0, 0x21, 2, 0, 0, 0, 0, 0, 0, 0];
        let mut fields = Fields(&bytes);
        assert_eq!(fields.next(), Ok(Some((1, Value::Varint(150)))));
        assert_eq!(fields.next(), Ok(Some((2, Value::Bytes(b"ok")))));
        assert_eq!(fields.next(), Ok(Some((3, Value::Fixed32(1)))));
        assert_eq!(fields.next(), Ok(Some((4, Value::Fixed64(2)))));
        assert_eq!(fields.next(), Ok(None));
        for end in 0..bytes.len() {
            let mut fields = Fields(&bytes[..end]);
            let whole = loop {
                match fields.next() {
                    Ok(Some(_)) => {}
                    Ok(None) => break true,
                    Err(Malformed) => break false,
                }
            };
            assert_eq!(whole, [0, 3, 7, 12].contains(&end), "{end}");
        }
        let mut long: &[u8] = &[0xff; 11];
        assert_eq!(varint(&mut long), Err(Malformed));
        let mut most: &[u8] = &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        assert_eq!(varint(&mut most), Ok(u64::MAX));
    }
}
