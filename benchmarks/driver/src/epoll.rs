//! Waiting for many sockets at once, as Linux does it: the standard library cannot.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::io::{Error, Result};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const CLOSE_ON_EXEC: c_int = 0o2_000_000;
const ADD: c_int = 1;
const READABLE: u32 = 1;
const AT_ONCE: usize = 256;

#[derive(Clone, Copy, Default)]
#[cfg_attr(target_arch = "x86_64", repr(C, packed))]
#[cfg_attr(not(target_arch = "x86_64"), repr(C))]
struct Event {
    events: u32,
    number: u64,
}

extern "C" {
    fn epoll_create1(flags: c_int) -> c_int;
    fn epoll_ctl(epoll: c_int, operation: c_int, socket: c_int, event: *mut Event) -> c_int;
    fn epoll_wait(epoll: c_int, events: *mut Event, most: c_int, milliseconds: c_int) -> c_int;
}

/// Sockets by number, of which those are told that have something to be read.
pub struct Epoll {
    epoll: OwnedFd,
    events: [Event; AT_ONCE],
}

impl Epoll {
    pub fn new() -> Result<Self> {
        // SAFETY: the descriptor is new, and nobody else's.
        let epoll = unsafe { OwnedFd::from_raw_fd(checked(epoll_create1(CLOSE_ON_EXEC))?) };
        Ok(Epoll { epoll, events: [Event::default(); AT_ONCE] })
    }

    pub fn add(&self, socket: &TcpStream, number: usize) -> Result<()> {
        let mut event = Event { events: READABLE, number: number as u64 };
        // SAFETY: both descriptors are open, and the event is only read during the call.
        checked(unsafe {
            epoll_ctl(self.epoll.as_raw_fd(), ADD, socket.as_raw_fd(), &raw mut event)
        })?;
        Ok(())
    }

    /// The numbers of sockets that can be read, none after so many milliseconds.
    pub fn wait(&mut self, milliseconds: c_int) -> Result<impl Iterator<Item = usize> + '_> {
        let (most, events) = (AT_ONCE as c_int, self.events.as_mut_ptr());
        // SAFETY: there is room for so many events.
        let count =
            checked(unsafe { epoll_wait(self.epoll.as_raw_fd(), events, most, milliseconds) })?;
        Ok(self.events[..count as usize].iter().map(|event| event.number as usize))
    }
}

fn checked(result: c_int) -> Result<c_int> {
    if result < 0 {
        return Err(Error::last_os_error());
    }
    Ok(result)
}
