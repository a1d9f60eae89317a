//! A call in Redis's protocol (RESP2), put together as the bytes that go out. Owns the writing of arguments;
//! allocates nothing once it has grown.

/// A call: its name and its arguments, in order.
#[derive(Default)]
pub(super) struct Call {
    count: u64,
    arguments: Vec<u8>,
}

impl Call {
    /// Begins another call with the room of this one.
    pub(super) fn begin(&mut self, name: &str) -> &mut Self {
        self.count = 0;
        self.arguments.clear();
        self.arg(name)
    }

    pub(super) fn arg(&mut self, text: &str) -> &mut Self {
        self.joined([text])
    }

    /// One argument that is made of several texts.
    pub(super) fn joined<const N: usize>(&mut self, texts: [&str; N]) -> &mut Self {
        let length: usize = texts.iter().map(|text| text.len()).sum();
        self.header(b'$', length as u64);
        for text in texts {
            self.arguments.extend_from_slice(text.as_bytes());
        }
        self.end_argument()
    }

    pub(super) fn number(&mut self, number: u64) -> &mut Self {
        let mut digits = itoa::Buffer::new();
        self.arg(digits.format(number))
    }

    pub(super) fn count(&mut self, number: usize) -> &mut Self {
        self.number(number as u64)
    }

    /// The whole call, behind what `bytes` holds.
    pub(super) fn write_to(&self, bytes: &mut Vec<u8>) {
        let mut digits = itoa::Buffer::new();
        bytes.push(b'*');
        bytes.extend_from_slice(digits.format(self.count).as_bytes());
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(&self.arguments);
    }

    fn header(&mut self, kind: u8, length: u64) {
        let mut digits = itoa::Buffer::new();
        self.count += 1;
        self.arguments.push(kind);
        self.arguments.extend_from_slice(digits.format(length).as_bytes());
        self.arguments.extend_from_slice(b"\r\n");
    }

    fn end_argument(&mut self) -> &mut Self {
        self.arguments.extend_from_slice(b"\r\n");
        self
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
