//! How values become the bytes that the host keeps.
//!
//! A state handle names its codec in its type, so that two operators that share a snapshot can see whether they agree.

use crate::Error;

/// How values of a type become bytes and come back.
///
/// What `encode` wrote, `decode` must read, also in later versions of the operator: the bytes live in snapshots. When
/// the encoding changes, raise the state's schema version.
pub trait Codec<T> {
    /// Appends the encoded value to `bytes`.
    ///
    /// # Errors
    /// When the value cannot be encoded.
    fn encode(value: &T, bytes: &mut Vec<u8>) -> Result<(), Error>;

    /// Reads a value back from the bytes that `encode` appended.
    ///
    /// # Errors
    /// When the bytes are none that `encode` would have written.
    fn decode(bytes: &[u8]) -> Result<T, Error>;
}

/// The default: anything that serde knows, in the compact [postcard](https://postcard.jamesmunns.com) format.
#[derive(Debug)]
pub struct Postcard;

/// Puts what postcard writes behind what is there.
struct Appended<'a>(&'a mut Vec<u8>);

impl postcard::ser_flavors::Flavor for Appended<'_> {
    type Output = ();

    #[inline]
    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(byte);
        Ok(())
    }

    #[inline]
    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

impl<T: serde::Serialize + serde::de::DeserializeOwned> Codec<T> for Postcard {
    #[inline]
    fn encode(value: &T, bytes: &mut Vec<u8>) -> Result<(), Error> {
        Ok(postcard::serialize_with_flavor(value, Appended(bytes))?)
    }

    #[inline]
    fn decode(bytes: &[u8]) -> Result<T, Error> {
        let (value, rest) = postcard::take_from_bytes(bytes)?;
        if !rest.is_empty() {
            return Err(Error::new(format_args!("{} bytes are left over behind the value", rest.len())));
        }
        Ok(value)
    }
}

/// Numbers in as many bytes as they have, the lowest first: what other languages read most easily.
#[derive(Debug)]
pub struct LittleEndian;

/// Whole numbers in as many bytes as they have, such that the order of the bytes is that of the numbers: for the keys
/// of a map that is visited in order.
#[derive(Debug)]
pub struct Ordered;

/// Byte strings and text as they are.
#[derive(Debug)]
pub struct Raw;

fn exactly<const N: usize>(bytes: &[u8]) -> Result<[u8; N], Error> {
    bytes.try_into().map_err(|_| Error::new(format_args!("expected {N} bytes, found {}", bytes.len())))
}

macro_rules! little_endian {
    ($($number:ty)*) => { $(
        impl Codec<$number> for LittleEndian {
            #[inline]
            fn encode(value: &$number, bytes: &mut Vec<u8>) -> Result<(), Error> {
                bytes.extend_from_slice(&value.to_le_bytes());
                Ok(())
            }

            #[inline]
            fn decode(bytes: &[u8]) -> Result<$number, Error> {
                Ok(<$number>::from_le_bytes(exactly(bytes)?))
            }
        }
    )* };
}
little_endian!(u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 f32 f64);

macro_rules! ordered {
    ($($number:ty, $unsigned:ty, $flip:expr;)*) => { $(
        impl Codec<$number> for Ordered {
            #[inline]
            fn encode(value: &$number, bytes: &mut Vec<u8>) -> Result<(), Error> {
                // The sign bit turned round puts negative numbers before the others.
                bytes.extend_from_slice(&(value.cast_unsigned_bits() ^ $flip).to_be_bytes());
                Ok(())
            }

            #[inline]
            fn decode(bytes: &[u8]) -> Result<$number, Error> {
                Ok(<$number>::from_unsigned_bits(<$unsigned>::from_be_bytes(exactly(bytes)?) ^ $flip))
            }
        }

        impl Bits for $number {
            type Unsigned = $unsigned;

            fn cast_unsigned_bits(self) -> $unsigned {
                self as $unsigned
            }

            fn from_unsigned_bits(bits: $unsigned) -> Self {
                bits as $number
            }
        }
    )* };
}

/// A number as its bits, whether it has a sign or not.
trait Bits {
    type Unsigned;
    fn cast_unsigned_bits(self) -> Self::Unsigned;
    fn from_unsigned_bits(bits: Self::Unsigned) -> Self;
}

ordered! {
    u8, u8, 0;
    u16, u16, 0;
    u32, u32, 0;
    u64, u64, 0;
    u128, u128, 0;
    i8, u8, 1 << 7;
    i16, u16, 1 << 15;
    i32, u32, 1 << 31;
    i64, u64, 1 << 63;
    i128, u128, 1 << 127;
}

impl Codec<Vec<u8>> for Raw {
    fn encode(value: &Vec<u8>, bytes: &mut Vec<u8>) -> Result<(), Error> {
        bytes.extend_from_slice(value);
        Ok(())
    }

    fn decode(bytes: &[u8]) -> Result<Vec<u8>, Error> {
        Ok(bytes.to_vec())
    }
}

impl Codec<String> for Raw {
    fn encode(value: &String, bytes: &mut Vec<u8>) -> Result<(), Error> {
        bytes.extend_from_slice(value.as_bytes());
        Ok(())
    }

    fn decode(bytes: &[u8]) -> Result<String, Error> {
        Ok(str::from_utf8(bytes)?.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded<T, C: Codec<T>>(value: &T) -> Vec<u8> {
        let mut bytes = b"before".to_vec();
        C::encode(value, &mut bytes).unwrap();
        assert!(bytes.starts_with(b"before"), "encode appends");
        bytes.split_off(b"before".len())
    }

    fn round_trip<T: PartialEq + std::fmt::Debug, C: Codec<T>>(value: T) {
        assert_eq!(C::decode(&encoded::<T, C>(&value)).unwrap(), value);
    }

    proptest! {
        /// What a codec wrote it reads back.
        #[test]
        fn codecs_read_what_they_wrote(number in any::<i64>(), small in any::<u16>(), text in ".*", bytes: Vec<u8>) {
            round_trip::<_, Postcard>((number, small, text.clone(), bytes.clone()));
            round_trip::<_, LittleEndian>(number);
            round_trip::<_, LittleEndian>(small);
            round_trip::<_, Ordered>(number);
            round_trip::<_, Ordered>(small);
            round_trip::<_, Raw>(text);
            round_trip::<_, Raw>(bytes);
        }

        /// The bytes of `Ordered` compare as the numbers do.
        #[test]
        fn ordered_keeps_the_order(a in any::<i64>(), b in any::<i64>()) {
            prop_assert_eq!(a.cmp(&b), encoded::<_, Ordered>(&a).cmp(&encoded::<_, Ordered>(&b)));
        }
    }

    #[test]
    fn bytes_of_another_encoding_are_refused() {
        let error = <LittleEndian as Codec<i64>>::decode(b"abc").unwrap_err();
        assert_eq!(error.to_string(), "expected 8 bytes, found 3");
        let error = <Postcard as Codec<u8>>::decode(&[1, 2, 3]).unwrap_err();
        assert_eq!(error.to_string(), "2 bytes are left over behind the value");
        assert!(<Raw as Codec<String>>::decode(&[0xff]).is_err());
    }

    /// Snapshots hold these bytes, so they may not change.
    #[test]
    fn the_bytes_are_pinned() {
        assert_eq!(encoded::<i64, Postcard>(&-3), [5]);
        assert_eq!(encoded::<i64, LittleEndian>(&-3), [0xfd, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(encoded::<i64, Ordered>(&-3), [0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfd]);
    }
}
