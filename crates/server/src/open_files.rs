//! Divides the open files that the system allows among connections and caches.

use std::{fs, path::Path};

use crate::{config::Config, http::CONNECTION_COUNT_LIMIT, machine::raise_open_files};

/// Files open beside connections and caches: segments, listeners, standard streams.
const BESIDE: u64 = 64;
/// Most files that one cache keeps open, if the process may open twice as many.
const OF_ONE_CACHE: u64 = 4096;
/// Caches get one file in `CACHES_SHARE` where files are scarce.
const CACHES_SHARE: u64 = 4;
/// HTTP gets one in `HTTP_SHARE` of the files that caches leave where files are scarce.
const HTTP_SHARE: u64 = 8;

/// Most connections that are served at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connections {
    /// Connections of Redis clients.
    pub clients: u32,
    /// Connections of the HTTP front.
    pub http: u32,
}

/// Returns how many connections to serve: those of the configuration, or fewer if the system does
/// not allow enough open files, since further ones would be accepted only to be closed.
pub fn fit(config: &Config) -> Connections {
    let wanted = Connections {
        clients: config.settings.clients_max,
        http: if config.http.is_some() { CONNECTION_COUNT_LIMIT } else { 0 },
    };
    let requests = |requests: usize| u64::try_from(requests).expect("a count has at most 64 bits");
    let by_pattern = config.stores.iter().map(|stores| &stores.chunks);
    let tables = config.chunks.iter().chain(by_pattern);
    let caches = tables.map(|table| OF_ONE_CACHE + requests(table.requests_max)).sum::<u64>();
    let Some(limit) = raise_open_files(wanted.files() + caches) else { return wanted };
    // Most caches need far fewer files, so they get no more than their share.
    let connections = wanted.within(limit - caches.min(limit / CACHES_SHARE));
    if connections != wanted {
        log::warn!(
            "{} clients and {} connections of HTTP need {} open files, the limit is {limit} \
             (ulimit -n): at most {} clients and {} connections of HTTP are served",
            wanted.clients,
            wanted.http,
            wanted.files() + caches,
            connections.clients,
            connections.http
        );
    }
    connections
}

/// Raises the limit of open files, if it can, so that all files of a log's directory can be open at
/// the same time, as they are while a log is read.
pub fn fit_log(directory: &Path) {
    let count = fs::read_dir(directory).map_or(0, |entries| entries.count() as u64);
    raise_open_files(count + BESIDE);
}

impl Connections {
    fn files(self) -> u64 {
        u64::from(self.clients) + u64::from(self.http) + BESIDE
    }

    /// Returns the connections that fit into this many files, at least one of each kind.
    fn within(self, limit: u64) -> Self {
        if self.files() <= limit {
            return self;
        }
        let count = |files: u64| u32::try_from(files.max(1)).unwrap_or(u32::MAX);
        let http = self.http.min(count(limit / HTTP_SHARE));
        let clients = count(limit.saturating_sub(BESIDE + u64::from(http)));
        Self { clients: self.clients.min(clients), http }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn within(limit: u64) -> (u32, u32) {
        let connections = Connections { clients: 10_000, http: 4096 }.within(limit);
        (connections.clients, connections.http)
    }

    #[test]
    fn where_there_are_too_few_files_everybody_has_fewer() {
        assert_eq!(within(u64::MAX), (10_000, 4096));
        assert_eq!(within(10_000 + 4096 + BESIDE), (10_000, 4096));
        assert_eq!(within(10_000 + 4096 + BESIDE - 1), (10_000, 1769));
        assert_eq!(within(4096), (4096 - 512 - 64, 512));
        assert_eq!(within(1024), (1024 - 128 - 64, 128));
        assert_eq!(within(0), (1, 1));
        for limit in (100..20_000).step_by(77) {
            let (clients, http) = within(limit);
            assert!(
                u64::from(clients) + u64::from(http) + BESIDE <= limit,
                "{limit}: {clients}, {http}"
            );
        }
    }

    #[test]
    fn few_clients_leave_http_what_it_wants() {
        let few = Connections { clients: 100, http: 512 };
        assert_eq!(few.within(700), few);
        assert_eq!(few.within(600), Connections { clients: 100, http: 75 });
    }
}
