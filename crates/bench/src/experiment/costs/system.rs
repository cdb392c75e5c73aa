//! System calls, wake-ups of threads, and round trips over TCP on this machine.

use std::{
    io::{Read, Write, pipe},
    net::{Ipv4Addr, TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

use anyhow::{Context, Result};
use rustix::{
    event::{EventfdFlags, eventfd},
    fd::OwnedFd,
};

use super::{Operation, check, ns_per_operation};
use crate::machine::CpuList;

/// Bytes of a request and of a reply over TCP.
pub const MESSAGE_BYTES: u64 = 64;

/// An operation is a call: half of a write to a pipe and the read of it.
pub fn pipe_calls() -> Result<Operation> {
    let (mut reader, mut writer) = pipe().context("a pipe")?;
    let mut buffer = Vec::new();
    Ok(Box::new(move |batch, time_ns| {
        buffer.resize(batch, 1);
        let both = ns_per_operation(time_ns, || {
            writer.write_all(&buffer)?;
            Ok(reader.read_exact(&mut buffer)?)
        });
        Ok(both? / 2.0)
    }))
}

/// Numbers that two threads hand to each other, and how they wake up.
struct Exchange {
    numbers: Mutex<Vec<u64>>,
    there: OwnedFd,
    back: OwnedFd,
}

impl Exchange {
    fn numbers(&self) -> MutexGuard<'_, Vec<u64>> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds one to all numbers that come; ends when none do.
    fn answer(&self) -> Result<()> {
        loop {
            sleep(&self.there)?;
            let mut numbers = self.numbers();
            if numbers.is_empty() {
                return Ok(());
            }
            numbers.iter_mut().for_each(|number| *number += 1);
            drop(numbers);
            wake(&self.back)?;
        }
    }
}

fn wake(event: &OwnedFd) -> Result<()> {
    rustix::io::write(event, &1_u64.to_ne_bytes()).context("an eventfd")?;
    Ok(())
}

fn sleep(event: &OwnedFd) -> Result<()> {
    rustix::io::read(event, &mut [0; 8]).context("an eventfd")?;
    Ok(())
}

/// Ends the other thread when dropped.
struct Partner(Arc<Exchange>);

impl Drop for Partner {
    fn drop(&mut self) {
        self.0.numbers().clear();
        let _ = wake(&self.0.there);
    }
}

/// An operation hands numbers to a thread on these processors that sleeps: half of there and back.
pub fn wake_ups(cpus: &CpuList) -> Result<Operation> {
    let event = || eventfd(0, EventfdFlags::CLOEXEC).context("an eventfd");
    let exchange = Exchange { numbers: Mutex::default(), there: event()?, back: event()? };
    let exchange = Arc::new(exchange);
    let answering = Arc::clone(&exchange);
    cpus.with(|| Ok(thread::Builder::new().spawn(move || answering.answer())?))?;
    let partner = Partner(exchange);
    Ok(Box::new(move |batch, time_ns| {
        let exchange = &partner.0;
        let both = ns_per_operation(time_ns, || {
            let mut numbers = exchange.numbers();
            numbers.clear();
            numbers.resize(batch, 1);
            drop(numbers);
            wake(&exchange.there)?;
            sleep(&exchange.back)?;
            check(exchange.numbers().iter().filter(|number| **number == 2).count(), batch)
        });
        Ok(both? / 2.0)
    }))
}

/// An operation sends messages to a thread on these processors, and receives as many.
pub fn loopback(cpus: &CpuList) -> Result<Operation> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port")?;
    let mut client = TcpStream::connect(listener.local_addr()?).context("loopback")?;
    let (server, _) = listener.accept().context("loopback")?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    // It ends with the connection.
    cpus.with(|| Ok(thread::Builder::new().spawn(move || echo(&server))?))?;
    let mut buffer = Vec::new();
    Ok(Box::new(move |batch, time_ns| {
        buffer.resize(batch * usize::try_from(MESSAGE_BYTES)?, 1);
        ns_per_operation(time_ns, || {
            client.write_all(&buffer)?;
            Ok(client.read_exact(&mut buffer)?)
        })
    }))
}

fn echo(mut server: &TcpStream) -> Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        match server.read(&mut buffer)? {
            0 => return Ok(()),
            count => server.write_all(&buffer[..count])?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_comes_back_in_every_batch() {
        let any: CpuList = "any".parse().unwrap();
        let mut operations = [pipe_calls(), wake_ups(&any), loopback(&any)].map(Result::unwrap);
        for operation in &mut operations {
            for batch in [1_000, 1, 10] {
                assert!(0.0 < operation(batch, 100_000).unwrap());
            }
        }
    }

    #[test]
    fn a_partner_ends_with_its_operations() {
        let event = || eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let exchange = Exchange { numbers: Mutex::default(), there: event(), back: event() };
        let exchange = Arc::new(exchange);
        let answering = Arc::clone(&exchange);
        let thread = thread::spawn(move || answering.answer());
        exchange.numbers().push(1);
        drop(Partner(exchange));
        thread.join().unwrap().unwrap();
    }
}
