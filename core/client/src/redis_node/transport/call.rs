//! Encodes calls in Redis's protocol (RESP2) into a buffer of bytes. Owns the writing of arguments;
//! allocates nothing once the buffer has grown.

use redis::Cmd;

/// Calls that are to be written, in order.
#[derive(Default)]
pub(crate) struct Outgoing {
    pub(super) bytes: Vec<u8>,
    /// The number of calls, each of which has one reply.
    pub(super) calls: usize,
}

impl Outgoing {
    /// Puts a call behind the others.
    pub(crate) fn call(&mut self, call: &Call) {
        self.calls += 1;
        call.write_to(&mut self.bytes);
    }

    /// The same for a call that is rarely made and was built by redis-rs.
    pub(crate) fn command(&mut self, command: &Cmd) {
        self.calls += 1;
        command.write_packed_command(&mut self.bytes);
    }

    /// How many calls there are.
    pub(crate) fn calls(&self) -> usize {
        self.calls
    }
}

impl From<&Cmd> for Outgoing {
    fn from(command: &Cmd) -> Self {
        let mut outgoing = Self::default();
        outgoing.command(command);
        outgoing
    }
}

/// A call: its name and its arguments, in order.
#[derive(Default)]
pub(crate) struct Call {
    count: u64,
    arguments: Vec<u8>,
}

impl Call {
    /// Starts another call in the memory of this one.
    pub(crate) fn begin(&mut self, name: &str) -> &mut Self {
        self.count = 0;
        self.arguments.clear();
        self.arg(name)
    }

    pub(crate) fn arg(&mut self, text: &str) -> &mut Self {
        self.joined([text])
    }

    /// Adds one argument that consists of several texts.
    pub(crate) fn joined<const N: usize>(&mut self, texts: [&str; N]) -> &mut Self {
        let length: usize = texts.iter().map(|text| text.len()).sum();
        self.count += 1;
        write_header(&mut self.arguments, b'$', length as u64);
        for text in texts {
            self.arguments.extend_from_slice(text.as_bytes());
        }
        self.arguments.extend_from_slice(b"\r\n");
        self
    }

    pub(crate) fn number(&mut self, number: u64) -> &mut Self {
        let mut digits = itoa::Buffer::new();
        self.arg(digits.format(number))
    }

    pub(crate) fn count(&mut self, number: usize) -> &mut Self {
        self.number(number as u64)
    }

    /// The whole call, behind what `bytes` holds.
    fn write_to(&self, bytes: &mut Vec<u8>) {
        write_header(bytes, b'*', self.count);
        bytes.extend_from_slice(&self.arguments);
    }
}

/// The line that says how many bytes or parts follow.
fn write_header(bytes: &mut Vec<u8>, kind: u8, size: u64) {
    let digit = |number: u64| b"0123456789"[(number % 10) as usize];
    match size {
        // The usual sizes, in one write.
        0..10 => bytes.extend_from_slice(&[kind, digit(size), b'\r', b'\n']),
        10..100 => {
            bytes.extend_from_slice(&[kind, digit(size / 10), digit(size), b'\r', b'\n']);
        }
        _ => {
            bytes.push(kind);
            bytes.extend_from_slice(itoa::Buffer::new().format(size).as_bytes());
            bytes.extend_from_slice(b"\r\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_call_begins_anew_in_the_same_room() {
        let mut call = Call::default();
        call.begin("EVALSHA").arg("abc").number(u64::MAX);
        call.begin("SET").joined(["a", "", "b"]).count(0);
        let mut bytes = b"+".to_vec();
        call.write_to(&mut bytes);
        assert_eq!(bytes, b"+*3\r\n$3\r\nSET\r\n$2\r\nab\r\n$1\r\n0\r\n");
    }

    proptest! {
        #[test]
        fn it_says_what_the_library_would(
            name in "[A-Z]{1,10}",
            arguments in prop::collection::vec((any::<String>(), any::<u64>()), 0..20),
        ) {
            let (mut ours, mut theirs) = (Call::default(), redis::cmd(&name));
            ours.begin(&name);
            for (text, number) in &arguments {
                ours.arg(text).number(*number);
                theirs.arg(text).arg(*number);
            }
            let mut bytes = Vec::new();
            ours.write_to(&mut bytes);
            prop_assert_eq!(bytes, theirs.get_packed_command());
        }
    }
}
