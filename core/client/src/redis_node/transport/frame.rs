//! Parses replies of Redis's protocol (RESP2) from bytes. Owns the limits on their size and depth;
//! knows no command.

use redis::{RedisError, RedisResult, Value};
use smallvec::SmallVec;

/// What the beginning of the received bytes contains.
#[derive(Debug, PartialEq)]
pub(super) enum Frame {
    /// A whole reply, and how many bytes it took.
    Whole(Reply, usize),
    /// The beginning of a reply.
    Partial,
}

/// A reply. The scripts reply numbers: these are read without an allocation for each.
#[derive(Debug, PartialEq)]
pub(crate) enum Reply {
    /// An array of nothing but numbers.
    Numbers(Numbers),
    Other(Value),
}

pub(crate) type Numbers = SmallVec<[i64; 4]>;

impl From<Reply> for Value {
    fn from(reply: Reply) -> Self {
        match reply {
            Reply::Numbers(numbers) => Self::Array(numbers.into_iter().map(Self::Int).collect()),
            Reply::Other(value) => value,
        }
    }
}

/// Reads the reply at the beginning of `bytes`.
pub(super) fn read(bytes: &[u8]) -> RedisResult<Frame> {
    let mut reader = Reader { bytes, at: 0 };
    if let Some(numbers) = reader.numbers()? {
        return Ok(Frame::Whole(Reply::Numbers(numbers), reader.at));
    }
    reader.at = 0;
    let value = reader.value(0)?;
    Ok(value.map_or(Frame::Partial, |value| Frame::Whole(Reply::Other(value), reader.at)))
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    /// An array of one or more numbers; `None` if it is something else, or not all there.
    fn numbers(&mut self) -> RedisResult<Option<Numbers>> {
        if self.bytes.first() != Some(&b'*') {
            return Ok(None);
        }
        let Some(line) = self.line()? else {
            return Ok(None);
        };
        let length = length(&line[1..])?.unwrap_or(0);
        let mut numbers = Numbers::new();
        while numbers.len() < length {
            if self.bytes.get(self.at) != Some(&b':') {
                return Ok(None);
            }
            let Some(line) = self.line()? else {
                return Ok(None);
            };
            numbers.push(number(&line[1..])?);
        }
        Ok((length > 0).then_some(numbers))
    }

    /// The next value; `None` if it is not all there.
    fn value(&mut self, depth: usize) -> RedisResult<Option<Value>> {
        let start = self.at;
        // Decided by the first byte: a server of another protocol may never end a line.
        if self.bytes.get(start).is_some_and(|kind| !b"+-:$*".contains(kind)) {
            return Err(garbled());
        }
        let Some(line) = self.line()? else {
            return Ok(None);
        };
        let Some((kind, rest)) = line.split_first() else {
            return Err(garbled());
        };
        Ok(Some(match kind {
            b'+' if rest == b"OK" => Value::Okay,
            b'+' => Value::SimpleString(String::from_utf8_lossy(rest).into_owned()),
            // Rare; redis-rs knows the meaning of the error codes.
            b'-' => redis::parse_redis_value(&self.bytes[start..self.at])?,
            b':' => Value::Int(number(rest)?),
            b'$' => match length(rest)? {
                None => Value::Nil,
                Some(length) => match self.bulk(length)? {
                    Some(bytes) => Value::BulkString(bytes),
                    None => return Ok(None),
                },
            },
            b'*' => match length(rest)? {
                None => Value::Nil,
                Some(_) if depth == DEEPEST => return Err(garbled()),
                Some(length) => match self.array(length, depth)? {
                    Some(items) => Value::Array(items),
                    None => return Ok(None),
                },
            },
            _ => return Err(garbled()),
        }))
    }

    /// The bytes up to the end of the line; moves behind it.
    fn line(&mut self) -> RedisResult<Option<&[u8]>> {
        let rest = &self.bytes[self.at..];
        let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
            return Ok(None);
        };
        let [line @ .., b'\r'] = &rest[..end] else {
            return Err(garbled());
        };
        self.at += end + 1;
        Ok(Some(line))
    }

    fn bulk(&mut self, length: usize) -> RedisResult<Option<Vec<u8>>> {
        let rest = &self.bytes[self.at..];
        let Some(end) = length.checked_add(2) else {
            return Err(garbled());
        };
        if rest.len() < end {
            return Ok(None);
        }
        let [bytes @ .., b'\r', b'\n'] = &rest[..end] else {
            return Err(garbled());
        };
        let bytes = bytes.to_vec();
        self.at += end;
        Ok(Some(bytes))
    }

    fn array(&mut self, length: usize, depth: usize) -> RedisResult<Option<Vec<Value>>> {
        // A length is only claimed, so no memory is reserved for it.
        let mut items = Vec::with_capacity(length.min(16));
        for _ in 0..length {
            match self.value(depth + 1)? {
                Some(item) => items.push(item),
                None => return Ok(None),
            }
        }
        Ok(Some(items))
    }
}

fn number(digits: &[u8]) -> RedisResult<i64> {
    let (sign, digits) = match digits {
        [b'-', digits @ ..] => (-1, digits),
        digits => (1, digits),
    };
    let add = |sum: i64, digit: &u8| match digit {
        b'0'..=b'9' => sum.checked_mul(10)?.checked_add(sign * i64::from(digit - b'0')),
        _ => None,
    };
    let number = if digits.is_empty() { None } else { digits.iter().try_fold(0, add) };
    number.ok_or_else(garbled)
}

/// A length; `None` for a missing value (-1).
fn length(digits: &[u8]) -> RedisResult<Option<usize>> {
    match number(digits)? {
        -1 => Ok(None),
        length => usize::try_from(length).map(Some).map_err(|_| garbled()),
    }
}

fn garbled() -> RedisError {
    (redis::ErrorKind::Parse, "not Redis's protocol").into()
}

/// The deepest permitted nesting of arrays; the library's replies have none.
const DEEPEST: usize = 8;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn whole(bytes: &[u8]) -> Value {
        match read(bytes) {
            Ok(Frame::Whole(reply, length)) if length == bytes.len() => reply.into(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn values_of_every_kind_are_read() {
        assert_eq!(whole(b"+OK\r\n"), Value::Okay);
        assert_eq!(whole(b"+PONG\r\n"), Value::SimpleString("PONG".into()));
        assert_eq!(whole(b":-42\r\n"), Value::Int(-42));
        assert_eq!(whole(b":-9223372036854775808\r\n"), Value::Int(i64::MIN));
        assert_eq!(whole(b"$-1\r\n"), Value::Nil);
        assert_eq!(whole(b"*-1\r\n"), Value::Nil);
        assert_eq!(whole(b"$4\r\na\r\nb\r\n"), Value::BulkString(b"a\r\nb".to_vec()));
        assert_eq!(
            whole(b"*2\r\n:1\r\n*1\r\n$0\r\n\r\n"),
            Value::Array(vec![Value::Int(1), Value::Array(vec![Value::BulkString(Vec::new())])])
        );
        let Value::ServerError(error) = whole(b"-NOSCRIPT No matching script.\r\n") else {
            panic!("an error");
        };
        assert_eq!(error.code(), "NOSCRIPT");
    }

    #[test]
    fn what_is_no_reply_is_refused() {
        for bytes in [
            &b"HTTP/1.1 400 Bad Request\r\n"[..],
            b"\r\n",
            b"+OK\n",
            b":x\r\n",
            b":\r\n",
            b":-\r\n",
            b":9223372036854775808\r\n",
            b"*1\r\n:1x\r\n",
            b"$-2\r\n",
            b"$2\r\nabcd",
            b"$99999999999999999999\r\n",
            b"%1\r\n",
            b"\x15\x03",
            b"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
        ] {
            assert!(read(bytes).is_err(), "{:?}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn a_length_that_is_only_said_takes_no_memory() {
        assert_eq!(read(b"*9223372036854775807\r\n").unwrap(), Frame::Partial);
        assert_eq!(read(b"$9223372036854775805\r\n").unwrap(), Frame::Partial);
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<i64>().prop_map(Value::Int),
            prop::collection::vec(any::<u8>(), 0..20).prop_map(Value::BulkString),
            Just(Value::Nil),
            Just(Value::Okay),
        ];
        leaf.prop_recursive(3, 20, 5, |inner| {
            prop::collection::vec(inner, 0..5).prop_map(Value::Array)
        })
    }

    fn write(value: &Value, bytes: &mut Vec<u8>) {
        match value {
            Value::Int(number) => bytes.extend(format!(":{number}\r\n").bytes()),
            Value::Okay => bytes.extend(b"+OK\r\n"),
            Value::BulkString(text) => {
                bytes.extend(format!("${}\r\n", text.len()).bytes());
                bytes.extend(text);
                bytes.extend(b"\r\n");
            }
            Value::Array(items) => {
                bytes.extend(format!("*{}\r\n", items.len()).bytes());
                for item in items {
                    write(item, bytes);
                }
            }
            _ => bytes.extend(b"$-1\r\n"),
        }
    }

    proptest! {
        #[test]
        fn a_reply_is_read_as_it_was_written_and_not_before(
            value in value(), behind in prop::collection::vec(any::<u8>(), 0..10),
        ) {
            let mut bytes = Vec::new();
            write(&value, &mut bytes);
            for end in 0..bytes.len() {
                prop_assert_eq!(read(&bytes[..end]).unwrap(), Frame::Partial);
            }
            let length = bytes.len();
            bytes.extend(behind);
            match read(&bytes).unwrap() {
                Frame::Whole(reply, taken) => {
                    prop_assert_eq!(Value::from(reply), value);
                    prop_assert_eq!(taken, length);
                }
                Frame::Partial => prop_assert!(false, "it was all there"),
            }
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
        }
    }
}
