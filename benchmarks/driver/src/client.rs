//! One connection: requests from a buffer of frames, answers that are looked at and counted.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::Result;

const OK: &[u8] = b"\"code\":0,";
const PATIENCE: Duration = Duration::from_secs(300);
const BUFFER: usize = 256 << 10;
/// What stands before an answer's header: the lengths of what follows, and of the header.
const LENGTHS: usize = 8;

/// Requests to be sent again and again, in turn, as slices of one buffer.
pub struct Frames {
    bytes: Vec<u8>,
    starts: Vec<usize>,
    count: usize,
    next: usize,
}

impl Frames {
    /// Cuts `bytes` into frames, of which `window` at most are taken at once.
    pub fn new(bytes: &[u8], window: usize) -> Result<Self> {
        let (mut starts, mut at) = (vec![0], 0);
        while let Some(length) = bytes.get(at..).and_then(|rest| rest.first_chunk()) {
            at += 4 + u32::from_be_bytes(*length) as usize;
            starts.push(at);
        }
        let count = starts.len() - 1;
        if count == 0 || at != bytes.len() {
            return Err("standard input is not made of whole frames".into());
        }
        let turns = 1 + window.div_ceil(count);
        let starts = (0..turns)
            .flat_map(|turn| starts.iter().skip(1).map(move |at| turn * bytes.len() + at));
        let starts = std::iter::once(0).chain(starts).collect();
        Ok(Frames { bytes: bytes.repeat(turns), starts, count, next: 0 })
    }

    /// The next `count` requests, a window of them at most.
    fn take(&mut self, count: usize) -> &[u8] {
        let first = self.next;
        self.next = (first + count) % self.count;
        &self.bytes[self.starts[first]..self.starts[first + count]]
    }
}

/// A connection with a window of requests in flight.
pub struct Client {
    socket: TcpStream,
    address: String,
    window: usize,
    pending: usize,
    buffer: Vec<u8>,
    held: usize, // of the buffer, the beginning of an answer
    body: usize, // of an answer whose header was seen, what is still to come
}

impl Client {
    pub fn connect(address: &str, window: usize) -> Result<Self> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        let (address, buffer) = (address.to_owned(), vec![0; BUFFER]);
        Ok(Client { socket, address, window, pending: 0, buffer, held: 0, body: 0 })
    }

    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Fill the window.
    pub fn refill(&mut self, frames: &mut Frames) -> Result<()> {
        let missing = self.window - self.pending;
        if missing > 0 {
            self.pending = self.window;
            self.socket.write_all(frames.take(missing))?;
        }
        Ok(())
    }

    /// Read once, and ask for as much as was answered; how many answers are whole now.
    pub fn turn(&mut self, frames: &mut Frames) -> Result<u64> {
        let count = self.receive()?;
        self.refill(frames)?;
        Ok(count)
    }

    /// Wait for what is in flight.
    pub fn drain(&mut self) -> Result<()> {
        while self.pending > 0 {
            self.receive()?;
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<u64> {
        let received = self.socket.read(&mut self.buffer[self.held..])?;
        if received == 0 {
            return Err(format!("{} closed the connection", self.address).into());
        }
        let (end, goes_on) = (self.held + received, self.body > 0);
        let mut at = self.pass_body(0, end);
        let mut count = usize::from(goes_on && self.body == 0);
        while self.body == 0 {
            let Some(body) = self.body_of_answer(at, end)? else { break };
            at = self.pass_body(body, end);
            count += usize::from(self.body == 0);
        }
        self.buffer.copy_within(at..end, 0);
        self.held = end - at;
        self.pending = self.pending.checked_sub(count).ok_or("more answers than requests")?;
        Ok(count as u64)
    }

    /// Passes over the body of the answer that is being read, as far as it is there.
    fn pass_body(&mut self, at: usize, end: usize) -> usize {
        let there = self.body.min(end - at);
        self.body -= there;
        at + there
    }

    /// Where the body begins of the answer at `at`, if its header is there; a refusal is an error.
    fn body_of_answer(&mut self, at: usize, end: usize) -> Result<Option<usize>> {
        let Some(([a, b, c, d, _form, lengths @ ..], rest)) =
            self.buffer[at..end].split_first_chunk::<LENGTHS>()
        else {
            return Ok(None);
        };
        let whole = 4 + u32::from_be_bytes([*a, *b, *c, *d]) as usize;
        let length = LENGTHS + u32::from_be_bytes([0, lengths[0], lengths[1], lengths[2]]) as usize;
        if length > whole || length > BUFFER {
            return Err(format!(
                "{} sends no answers: a frame of {whole} bytes has a header of {length}",
                self.address
            )
            .into());
        }
        let Some(header) = rest.get(..length - LENGTHS) else { return Ok(None) };
        if !header.windows(OK.len()).any(|part| part == OK) {
            let header = String::from_utf8_lossy(header);
            return Err(format!("{} answered with an error: {header}", self.address).into());
        }
        self.body = whole - length;
        Ok(Some(at + length))
    }
}
