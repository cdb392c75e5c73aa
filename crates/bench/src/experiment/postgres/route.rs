//! Ways to the database: directly, and through a proxy that adds distance.

use std::{
    net::{SocketAddr, ToSocketAddrs},
    time::Duration,
};

use anyhow::{Context, Result};
use rustix::process::Pid;
use tokio_postgres::{Client, Config, config::Host};

use super::{
    arguments::distance_text,
    database::{Database, config_of},
    direct::connect,
};
use crate::{
    cli::bail_usage,
    clock::now_ns,
    delay_proxy::DelayProxy,
    limits::{PINGS, PINGS_TIME},
    stats::{float, median},
};

/// Time after which a request of busload is given up where its default may be too short.
const TIMEOUT: &str = "timeout=30s";

/// The database at a distance.
pub struct Route {
    /// The round trip time that is added.
    pub distance: Duration,
    /// The server and its database, without a password.
    pub url: String,
    /// Address for the driver.
    pub config: Config,
    proxy: Option<DelayProxy>,
}

impl Route {
    pub fn open(database: &Database, distance: Duration) -> Result<Self> {
        let (url, config) = (database.url.clone(), database.config.clone());
        if distance.is_zero() {
            return Ok(Self { distance, url, config, proxy: None });
        }
        let proxy = DelayProxy::start(server_of(&config)?, distance)?;
        let url = with_address(&url, proxy.address()).context("the URL of Postgres")?;
        let config = config_of(&url)?;
        Ok(Self { distance, url, config, proxy: Some(proxy) })
    }

    /// Returns the thread of the proxy.
    pub fn proxy(&self) -> Option<Pid> {
        self.proxy.as_ref().map(DelayProxy::thread_id)
    }

    /// Returns the option that busload's table needs at a large distance.
    pub fn timeout(&self) -> Option<&'static str> {
        (Duration::from_millis(100) < self.distance).then_some(TIMEOUT)
    }

    /// Measures what the proxy adds to its distance: a statement through it beside the same one
    /// asked directly, in turns. Returns a note.
    pub fn measure(&self, database: &Database) -> Result<Option<String>> {
        if self.proxy.is_none() {
            return Ok(None);
        }
        let count = (PINGS_TIME.as_nanos() / self.distance.as_nanos()).clamp(5, PINGS);
        let [direct, through] = database.on_admin(async |direct| {
            let through = connect(&self.config).await?;
            let mut times_us = [Vec::new(), Vec::new()];
            for _ in 0..count {
                times_us[0].push(ping_us(direct).await?);
                times_us[1].push(ping_us(&through).await?);
            }
            Ok(times_us.map(|times| median(times).unwrap_or_default()))
        })?;
        let added = through - direct - self.distance.as_secs_f64() * 1e6;
        let text = distance_text(self.distance);
        Ok(Some(format!(
            "distance {text}: a ping takes {direct:.0} us directly and {through:.0} us through the \
             proxy, {added:.0} us more than the distance (medians of {count})"
        )))
    }
}

async fn ping_us(client: &Client) -> Result<f64> {
    let started_ns = now_ns();
    client.batch_execute("SELECT 1").await?;
    Ok(float(now_ns() - started_ns) / 1e3)
}

/// Returns the address of the only server that a configuration names.
fn server_of(config: &Config) -> Result<SocketAddr> {
    let [Host::Tcp(host)] = config.get_hosts() else {
        bail_usage!("--distance needs the URL of one server with a host and a port");
    };
    let port = config.get_ports().first().copied().unwrap_or(5432);
    let mut addresses = (host.as_str(), port).to_socket_addrs().context("the host of Postgres")?;
    addresses.next().with_context(|| format!("{host} has no address"))
}

/// Returns a URL with another host and port.
fn with_address(url: &str, address: SocketAddr) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let user = authority.rsplit_once('@').map(|(user, _)| format!("{user}@")).unwrap_or_default();
    Some(format!("{scheme}://{user}{address}{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_gets_another_address_and_keeps_the_rest() {
        let address = "127.0.0.1:7".parse().unwrap();
        for (url, wanted) in [
            ("postgres://me@db:5433/x", "postgres://me@127.0.0.1:7/x"),
            ("postgresql://db", "postgresql://127.0.0.1:7"),
            (
                "postgres://a%40b@[::1]/x?connect_timeout=5",
                "postgres://a%40b@127.0.0.1:7/x?connect_timeout=5",
            ),
            ("postgres://me@db?options=a", "postgres://me@127.0.0.1:7?options=a"),
        ] {
            assert_eq!(with_address(url, address).as_deref(), Some(wanted));
        }
    }

    #[test]
    fn only_one_server_with_an_address_can_be_far() {
        let server = |url: &str| server_of(&url.parse().unwrap());
        assert_eq!(server("postgres://me@127.0.0.1:5433/x").unwrap().to_string(), "127.0.0.1:5433");
        assert_eq!(server("postgres://127.0.0.1/x").unwrap().port(), 5432);
        assert!(server("postgres://127.0.0.1,127.0.0.2/x").is_err());
        assert!(server("postgres:///x?host=/run/postgresql").is_err());
    }
}
