//! `busload health`: asks a running server whether it serves, for the health checks of containers
//! and supervisors.

use std::time::Duration;

use super::{
    arguments::HealthArgs,
    http_client::{self, Target},
    print,
    resp_client::reachable,
};
use crate::{config::Config, failure::Failure};

/// Longest answer that is read; a server says one line.
const ANSWER_BYTES_MAX: u64 = 4096;
/// Path that says whether requests are served, and if not, why.
const READY: &str = "/readyz";
/// Path that answers while the process lives.
const ALIVE: &str = "/healthz";

/// Asks the server at the HTTP address of the configuration, and prints its answer.
pub fn health(arguments: &HealthArgs, config: &Config) -> Result<(), Failure> {
    let address = config.http.map(reachable).ok_or_else(|| {
        Failure::usage("no server could be asked; expected its HTTP address by --http")
    })?;
    let tls = config.tls.as_ref().map(|tls| tls.files());
    let server = Target { address, password: None, tls };
    let path = if arguments.live { ALIVE } else { READY };
    match ask(server, path, arguments.timeout) {
        Ok((200, said)) => {
            print(&format!("{said}\n"));
            Ok(())
        }
        Ok((_, said)) => Err(Failure::run(format!("the server at {}: {said}", server.url()))),
        Err(error) => Err(Failure::run(format!(
            "no server answers at {}: {error} (--http says where it is)",
            server.url()
        ))),
    }
}

/// Returns the status code and what the server says. Neither path asks for a password.
fn ask(server: Target<'_>, path: &str, timeout: Duration) -> std::io::Result<(u16, String)> {
    use std::io::Read;
    let answer = http_client::send_within(server, "GET", path, Some(timeout))?;
    let mut said = String::new();
    answer.body.take(ANSWER_BYTES_MAX).read_to_string(&mut said)?;
    let said = said.trim();
    Ok((answer.code, if said.is_empty() { format!("status {}", answer.code) } else { said.into() }))
}
