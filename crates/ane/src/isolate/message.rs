//! Messages between the processes.
//!
//! A frame is the mark `ferrane1`, a length, and as many bytes. Numbers in it are eight bytes,
//! little-endian; byte strings and texts are preceded by their length. Reading refuses malformed
//! messages, and allocates memory as bytes arrive, regardless of the length in the frame.

use std::io::{self, Read, Write};

use ferrane_device::{Error, ErrorKind, Layout, Port, Procedure, Result};
use ferrane_mil::DataType;

const MARK: &[u8; 8] = b"ferrane1";

/// The kind of a message; the first number in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    Compile,
    Load,
    Prepare,
    Evaluate,
    Unload,
    Reload,
    /// The sender ignores the answer, but every message has one.
    Forget,
}

pub(super) const QUESTIONS: [Question; 7] = [
    Question::Compile,
    Question::Load,
    Question::Prepare,
    Question::Evaluate,
    Question::Unload,
    Question::Reload,
    Question::Forget,
];

/// Writes a frame with this body.
pub(super) fn send(to: &mut impl Write, body: &[u8]) -> io::Result<()> {
    to.write_all(MARK)?;
    to.write_all(&(body.len() as u64).to_le_bytes())?;
    to.write_all(body)?;
    to.flush()
}

/// Reads a frame; `None` if the other side has ended between two frames.
pub(super) fn receive(from: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let bad = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_string());
    let mut head = Vec::new();
    from.by_ref().take(16).read_to_end(&mut head)?;
    if head.is_empty() {
        return Ok(None);
    }
    let length = head.strip_prefix(MARK).and_then(|rest| rest.try_into().ok()).map(u64::from_le_bytes);
    let length = length.ok_or_else(|| bad("this is no message"))?;
    let mut body = Vec::new();
    from.by_ref().take(length).read_to_end(&mut body)?;
    if body.len() as u64 == length { Ok(Some(body)) } else { Err(bad("a message ends early")) }
}

/// A message under construction.
#[derive(Default)]
pub(super) struct Writing(pub(super) Vec<u8>);

impl Writing {
    pub(super) fn question(question: Question) -> Writing {
        let mut message = Writing::default();
        message.number(QUESTIONS.iter().position(|q| *q == question).unwrap_or(QUESTIONS.len()) as u64);
        message
    }

    pub(super) fn number(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn maybe(&mut self, number: Option<u64>) {
        self.number(u64::from(number.is_some()));
        self.number(number.unwrap_or(0));
    }

    fn numbers(&mut self, numbers: &[usize]) {
        self.number(numbers.len() as u64);
        numbers.iter().for_each(|n| self.number(*n as u64));
    }

    fn ports(&mut self, ports: &[Port]) {
        self.number(ports.len() as u64);
        for Port { name, symbol, layout } in ports {
            self.bytes(name.as_bytes());
            self.number(u64::from(*symbol));
            self.bytes(layout.dtype.name().as_bytes());
            self.numbers(&layout.shape);
            self.numbers(&layout.strides);
            self.number(layout.allocation as u64);
        }
    }

    pub(super) fn procedures(&mut self, procedures: &[Procedure]) {
        self.number(procedures.len() as u64);
        for procedure in procedures {
            self.bytes(procedure.name.as_bytes());
            self.number(u64::from(procedure.id));
            [&procedure.inputs, &procedure.outputs, &procedure.states].into_iter().for_each(|ports| self.ports(ports));
        }
    }

    /// An answer: a message or an error.
    pub(super) fn answer(result: Result<Writing>) -> Writing {
        let mut message = Writing::default();
        match result {
            Ok(body) => {
                message.number(1);
                message.0.extend_from_slice(&body.0);
            }
            Err(error) => {
                message.number(0);
                message.bytes(error.kind().code().as_bytes());
                message.bytes(error.message().as_bytes());
                message.bytes(error.domain().unwrap_or_default().as_bytes());
                message.maybe(error.raw_code().map(|code| code as u64));
                message.maybe(error.status().map(u64::from));
                message.bytes(error.port().unwrap_or_default().as_bytes());
            }
        }
        message
    }
}

/// A message that is being parsed.
pub(super) struct Reading<'a>(pub(super) &'a [u8]);

fn odd() -> Error {
    Error::new(ErrorKind::System, "a message of the other process cannot be understood")
}

impl<'a> Reading<'a> {
    pub(super) fn question(&mut self) -> Result<Question> {
        let number = self.number()?;
        usize::try_from(number).ok().and_then(|n| QUESTIONS.get(n)).copied().ok_or_else(odd)
    }

    pub(super) fn number(&mut self) -> Result<u64> {
        let (number, rest) = self.0.split_first_chunk().ok_or_else(odd)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*number))
    }

    fn size(&mut self) -> Result<usize> {
        usize::try_from(self.number()?).map_err(|_| odd())
    }

    /// A number of elements, each of at least eight bytes.
    pub(super) fn count(&mut self) -> Result<usize> {
        let count = self.size()?;
        if count > self.0.len() / 8 { Err(odd()) } else { Ok(count) }
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8]> {
        let length = self.size()?;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or_else(odd)?;
        self.0 = rest;
        Ok(bytes)
    }

    pub(super) fn text(&mut self) -> Result<String> {
        String::from_utf8(self.bytes()?.to_vec()).map_err(|_| odd())
    }

    fn maybe(&mut self) -> Result<Option<u64>> {
        let (is_there, number) = (self.number()?, self.number()?);
        Ok((is_there == 1).then_some(number))
    }

    fn numbers(&mut self) -> Result<Vec<usize>> {
        (0..self.count()?).map(|_| self.size()).collect()
    }

    fn ports(&mut self) -> Result<Vec<Port>> {
        (0..self.count()?).map(|_| self.port()).collect()
    }

    fn port(&mut self) -> Result<Port> {
        let (name, symbol) = (self.text()?, u32::try_from(self.number()?).map_err(|_| odd())?);
        let dtype = self.text()?;
        let dtype = DataType::ALL.iter().find(|(_, n)| *n == dtype).map(|(ty, _)| *ty).ok_or_else(odd)?;
        let (shape, strides, allocation) = (self.numbers()?, self.numbers()?, self.size()?);
        let layout = Layout { dtype, shape, strides, allocation };
        layout.check()?;
        Ok(Port { name, symbol, layout })
    }

    pub(super) fn procedures(&mut self) -> Result<Vec<Procedure>> {
        (0..self.count()?).map(|_| self.procedure()).collect()
    }

    fn procedure(&mut self) -> Result<Procedure> {
        let (name, id) = (self.text()?, u32::try_from(self.number()?).map_err(|_| odd())?);
        Ok(Procedure { name, id, inputs: self.ports()?, outputs: self.ports()?, states: self.ports()? })
    }

    /// The contents of an answer, or its error.
    pub(super) fn answer(mut self) -> Result<Reading<'a>> {
        match self.number()? {
            1 => Ok(self),
            0 => Err(self.error()?),
            _ => Err(odd()),
        }
    }

    fn error(mut self) -> Result<Error> {
        let code = self.text()?;
        let kind = ErrorKind::ALL.iter().find(|kind| kind.code() == code).copied().ok_or_else(odd)?;
        let mut error = Error::new(kind, self.text()?);
        let (domain, raw) = (self.text()?, self.maybe()?);
        let status = self.maybe()?.and_then(|status| u32::try_from(status).ok());
        if let Some(raw) = raw {
            error = error.with_raw(domain, raw as i64, status);
        }
        let port = self.text()?;
        self.end()?;
        Ok(if port.is_empty() { error } else { error.with_port(port) })
    }

    /// Checks that nothing is left.
    pub(super) fn end(self) -> Result<()> {
        if self.0.is_empty() { Ok(()) } else { Err(odd()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn procedure() -> Procedure {
        let port = |name: &str| {
            let layout = Layout::with_row_alignment(DataType::Fp16, &[1, 4, 1, 8], 64).unwrap();
            Port { name: name.into(), symbol: 3, layout }
        };
        Procedure {
            name: "main".into(),
            id: 1,
            inputs: vec![port("x"), port("a")],
            outputs: vec![port("y")],
            states: vec![],
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let mut message = Writing::question(Question::Reload);
        message.procedures(&[procedure()]);
        message.bytes(b"bytes");
        let mut pipe = Vec::new();
        send(&mut pipe, &message.0).unwrap();
        send(&mut pipe, b"").unwrap();
        let mut pipe = &pipe[..];
        let body = receive(&mut pipe).unwrap().unwrap();
        let mut reading = Reading(&body);
        assert_eq!(reading.question().unwrap(), Question::Reload);
        assert_eq!(reading.procedures().unwrap(), [procedure()]);
        assert_eq!(reading.bytes().unwrap(), b"bytes");
        reading.end().unwrap();
        assert_eq!(receive(&mut pipe).unwrap().unwrap(), b"");
        assert!(receive(&mut pipe).unwrap().is_none());

        let text = "ANEProgramProcessRequestDirect() Failed with status=0x1d : statusType=0x9: Program Inference error";
        let error = Error::from_raw("com.apple.appleneuralengine", 8, text).with_port("x");
        let answer = Writing::answer(Err(error));
        let read = Reading(&answer.0).answer().map(|_| ()).unwrap_err();
        assert_eq!((read.kind(), read.raw_code(), read.status()), (ErrorKind::Evaluate, Some(8), Some(0x1d)));
        assert_eq!((read.domain(), read.port()), (Some("com.apple.appleneuralengine"), Some("x")));
    }

    #[test]
    fn hostile_bytes_are_errors() {
        for &kind in ErrorKind::ALL {
            let answer = Writing::answer(Err(Error::new(kind, "why")));
            assert_eq!(Reading(&answer.0).answer().map(|_| ()).unwrap_err().kind(), kind);
        }
        let mut message = Writing::default();
        message.procedures(&[procedure()]);
        // Every truncated message, and every message with a changed number.
        for end in 0..message.0.len() {
            assert!(Reading(&message.0[..end]).procedures().is_err(), "{end}");
        }
        for at in 0..message.0.len() {
            for value in [0x7f, 0xff] {
                let mut odd = message.0.clone();
                odd[at] = value;
                if let Ok(procedures) = Reading(&odd).procedures() {
                    let ports = procedures.iter().flat_map(Procedure::ports);
                    ports.for_each(|p| p.layout.check().unwrap());
                }
            }
        }
        let frame = |head: &[u8], length: u64, body: &[u8]| [head, &length.to_le_bytes(), body].concat();
        assert!(receive(&mut &frame(MARK, u64::MAX, b"x")[..]).is_err());
        assert!(receive(&mut &frame(MARK, 3, b"xy")[..]).is_err());
        assert!(receive(&mut &frame(b"hello wo", 1, b"x")[..]).is_err());
        assert!(receive(&mut &MARK[..5]).is_err());
    }
}
