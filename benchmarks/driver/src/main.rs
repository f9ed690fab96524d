//! Keeps requests in flight and counts their answers, as `drive` in `benchmarks/load.py` does, for
//! a fraction of the processor's time. See `benchmarks/compiled.py`, which runs it:
//!
//!     orbitmq-driver ADDRESS CONNECTIONS WINDOW SECONDS MOST [PID ...] < frames
//!
//! prints four numbers: the answers of the warm-up, those after it, the seconds these took, and
//! what the processes spent meanwhile, in ticks of the clock.

mod client;
mod epoll;

use std::error::Error;
use std::io::Read;
use std::time::{Duration, Instant};

use client::{Client, Frames};
use epoll::Epoll;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const PATIENCE_MS: i32 = 60_000;

/// Connections, each with its window full of requests.
struct Load {
    frames: Frames,
    clients: Vec<Client>,
    epoll: Epoll,
}

impl Load {
    fn new(address: &str, connections: usize, window: usize, frames: Frames) -> Result<Self> {
        let mut load = Load { frames, clients: Vec::new(), epoll: Epoll::new()? };
        for number in 0..connections {
            let mut client = Client::connect(address, window)?;
            load.epoll.add(client.socket(), number)?;
            client.refill(&mut load.frames)?;
            load.clients.push(client);
        }
        Ok(load)
    }

    /// Go on for so long, or until there were `most` answers (0: all); how many there were.
    fn run(&mut self, time: Duration, most: u64) -> Result<u64> {
        let (mut done, began) = (0, Instant::now());
        while began.elapsed() < time && !(0 < most && most <= done) {
            if let [only] = &mut self.clients[..] {
                done += only.turn(&mut self.frames)?; // it waits by itself
                continue;
            }
            for number in self.epoll.wait(PATIENCE_MS)? {
                done += self.clients[number].turn(&mut self.frames)?;
            }
        }
        Ok(done)
    }

    /// Wait for what is in flight.
    fn finish(&mut self) -> Result<()> {
        self.clients.iter_mut().try_for_each(Client::drain)
    }
}

/// What these processes have spent of the processors' time, in ticks.
fn ticks(pids: &[String]) -> Result<u64> {
    let mut sum = 0;
    for pid in pids {
        let line = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let (_, fields) = line.rsplit_once(')').ok_or("a process's figures are odd")?;
        for field in fields.split_whitespace().skip(11).take(2) {
            sum += field.parse::<u64>()?; // user's time, and the system's
        }
    }
    Ok(sum)
}

fn drive() -> Result<String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, connections, window, seconds, most, pids @ ..] = &arguments[..] else {
        return Err("say ADDRESS CONNECTIONS WINDOW SECONDS MOST [PID ...]".into());
    };
    let (window, most) = (window.parse()?, most.parse()?);
    let time = Duration::try_from_secs_f64(seconds.parse()?)?;
    let mut frames = Vec::new();
    std::io::stdin().read_to_end(&mut frames)?;
    let frames = Frames::new(&frames, window)?;
    let mut load = Load::new(address, connections.parse()?, window, frames)?;
    let warm_up = load.run(time / 2, most / 2)?;
    let (before, began) = (ticks(pids)?, Instant::now());
    let done = load.run(time, most)?;
    let (took, spent) = (began.elapsed().as_secs_f64(), ticks(pids)? - before);
    load.finish()?;
    Ok(format!("{warm_up} {done} {took} {spent}"))
}

fn main() -> std::process::ExitCode {
    match drive() {
        Ok(figures) => println!("{figures}"),
        Err(error) => {
            eprintln!("{error}");
            return std::process::ExitCode::FAILURE;
        }
    }
    std::process::ExitCode::SUCCESS
}
