//! `busload reload`: has a running server read its configuration again.

use busload_resp::reply::Reply;

use super::{print, resp_client::RespClient};
use crate::{config::Config, failure::Failure};

/// Asks the server at the first Redis address of the configuration, and prints what has changed.
/// Fails with what has not.
pub fn reload(config: &Config) -> Result<(), Failure> {
    let mut client = RespClient::connect(config)?;
    match client.call(&[b"CONFIG", b"RELOAD"])? {
        Reply::Error(error) => {
            let error = String::from_utf8_lossy(&error);
            Err(client.failed(&error.strip_prefix("ERR ").unwrap_or(&error)))
        }
        Reply::Bulk(said) | Reply::Verbatim { text: said, .. } => {
            print(&format!("{}\n", String::from_utf8_lossy(&said)));
            Ok(())
        }
        _ => Err(client.failed(&"its answer to CONFIG RELOAD is no text: no busload?")),
    }
}
