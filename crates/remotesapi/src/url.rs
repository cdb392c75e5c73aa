//! URLs of downloads, formatted and parsed.
//!
//! ```text
//!  http://host:6381/dolt/v1/TABLE/files/VERSION/ID         a classic table file
//!  http://host:6381/dolt/v1/TABLE/files/VERSION/ID.darc    an archive
//!  http://host:6381/dolt/v1/TABLE/records/BUNDLE           records of chunks, concatenated
//!                                               ?key=KEY   if the server asks for passwords
//! ```
//!
//! Clients name the file that they write by the end of the path. VERSION is 16 hexadecimal digits
//! that change when the object of this name has other bytes. BUNDLE is base64url of an 8-byte check
//! of the records' lengths and checksums, which tells a bundle that was encoded differently from
//! the advertised one, and of 20 bytes for each chunk.

use std::sync::Arc;

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use busload_dolt::{ChunkAddress, FileId, FileKind, TableFile};
use busload_peers::{Owner, View};

use crate::stats::RemotesapiStats;

/// Prefix of all paths of downloads.
pub const PREFIX: &str = "/dolt/v1";
/// Suffix of the path of an archive.
const ARCHIVE_SUFFIX: &str = ".darc";
/// Length of [`BundleId::check`] in bytes.
const CHECK_BYTES: usize = 8;

/// Resource that a URL names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resource {
    /// A whole table file.
    File(FileName),
    /// A bundle of encoded chunks.
    Records(BundleId),
}

/// One version of a table file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileName {
    pub id: FileId,
    pub kind: FileKind,
    /// Version of the object, see [`busload_dolt::TableFile::version`].
    pub version: u64,
}

/// Identity of an encoded chunk bundle: the records of its chunks, concatenated.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BundleId {
    /// Hash of the lengths and checksums of the records.
    pub check: [u8; CHECK_BYTES],
    /// Chunks in the order of their records.
    pub addresses: Vec<ChunkAddress>,
}

impl Resource {
    /// Returns the path of its URL.
    pub fn path(&self, table: &str) -> String {
        match self {
            Self::File(name) => format!("{PREFIX}/{table}/files/{}", name.text()),
            Self::Records(bundle) => format!("{PREFIX}/{table}/records/{}", bundle.text()),
        }
    }
}

impl FileName {
    /// Returns the name of an open file.
    pub fn of(file: &TableFile) -> Self {
        Self { id: file.id, kind: file.kind, version: file.version() }
    }

    fn text(&self) -> String {
        let suffix = if self.kind == FileKind::Archive { ARCHIVE_SUFFIX } else { "" };
        format!("{:016x}/{}{suffix}", self.version, self.id)
    }

    /// Parses the last two components of a path.
    pub fn parse(version: &str, name: &str) -> Option<Self> {
        let is_hexadecimal = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if version.len() != 16 || !version.bytes().all(is_hexadecimal) {
            return None;
        }
        let (kind, id) = match name.strip_suffix(ARCHIVE_SUFFIX) {
            Some(id) => (FileKind::Archive, id),
            None => (FileKind::Classic, name),
        };
        Some(Self { id: id.parse().ok()?, kind, version: u64::from_str_radix(version, 16).ok()? })
    }
}

impl BundleId {
    fn text(&self) -> String {
        let addresses = self.addresses.iter().flat_map(|address| address.0);
        let bytes: Vec<u8> = self.check.into_iter().chain(addresses).collect();
        BASE64_URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Parses the last component of a path.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).ok()?;
        let (check, addresses) = bytes.split_first_chunk()?;
        let (addresses, rest) = addresses.as_chunks();
        let addresses: Vec<_> = addresses.iter().copied().map(ChunkAddress).collect();
        (rest.is_empty() && !addresses.is_empty()).then_some(Self { check: *check, addresses })
    }
}

/// Builder of the URLs of one table. A table file is downloaded from the peer that owns it, a
/// bundle from the server that encoded it.
#[derive(Clone, Debug)]
pub struct UrlBuilder {
    /// Scheme and authority under which the client reaches the server.
    pub base: String,
    pub table: String,
    /// Key that the URLs carry, if the server asks for a password.
    pub key: Option<String>,
    /// Owners of table files, as they were when the request came.
    pub peers: Arc<View>,
    pub stats: Arc<RemotesapiStats>,
}

impl UrlBuilder {
    /// Returns the URL under which a resource can be downloaded.
    pub fn url(&self, resource: &Resource) -> String {
        let mut url = self.base_of(resource).to_owned() + &resource.path(&self.table);
        if let Some(key) = &self.key {
            url += "?key=";
            url += key;
        }
        url
    }

    fn base_of(&self, resource: &Resource) -> &str {
        let Resource::File(name) = resource else { return &self.base };
        match self.peers.owner(&self.table, &name.id.0) {
            Owner::Me => &self.base,
            Owner::Peer(url) => {
                self.stats.count_peer_url();
                url
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, time::Duration};

    use busload_peers::Membership;

    use super::*;

    const ID: &str = "4r0lqmqprihmm1ok8d7b93l2i5lfl2ug";

    #[test]
    fn file_urls_name_their_files() {
        for (kind, suffix) in [(FileKind::Classic, ""), (FileKind::Archive, ".darc")] {
            let name = FileName { id: ID.parse().unwrap(), kind, version: 0xab };
            let path = Resource::File(name).path("db");
            assert_eq!(path, format!("/dolt/v1/db/files/00000000000000ab/{ID}{suffix}"));
            assert_eq!(FileName::parse("00000000000000ab", &format!("{ID}{suffix}")), Some(name));
        }
    }

    #[test]
    fn names_have_one_spelling() {
        let version = "00000000000000ab";
        for (version, name) in [
            ("ab", ID),
            ("00000000000000AB", ID),
            ("+0000000000000ab", ID),
            (version, "manifest"),
            (version, ""),
            (version, ".darc"),
            (version, "4R0LQMQPRIHMM1OK8D7B93L2I5LFL2UG"),
            (version, "4r0lqmqprihmm1ok8d7b93l2i5lfl2ug.darc.darc"),
        ] {
            assert_eq!(FileName::parse(version, name), None, "{version}/{name}");
        }
    }

    #[test]
    fn bundle_urls_name_their_bundles() {
        let bundle = BundleId {
            check: *b"12345678",
            addresses: vec![ChunkAddress([7; 20]), ChunkAddress([9; 20])],
        };
        let path = Resource::Records(bundle.clone()).path("db");
        let text = path.strip_prefix("/dolt/v1/db/records/").unwrap();
        assert_eq!(BundleId::parse(text), Some(bundle));
        for bad in ["", "MTIzNDU2Nzg", &text[1..], "*", &format!("{text}=")] {
            assert_eq!(BundleId::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_url_has_base_path_and_key() {
        let id = ID.parse().unwrap();
        let file = Resource::File(FileName { id, kind: FileKind::Archive, version: 1 });
        let path = format!("/dolt/v1/db/files/0000000000000001/{ID}.darc");
        for (base, key, suffix) in
            [("http://host:6381", None, ""), ("https://host", Some("abc"), "?key=abc")]
        {
            let key = key.map(str::to_owned);
            let urls = builder(base, key, Arc::default());
            assert_eq!(urls.url(&file), format!("{base}{path}{suffix}"));
        }
    }

    #[test]
    fn files_are_downloaded_from_their_owners_and_bundles_from_here() {
        let mut membership = Membership::new("http://a:6381");
        let peers = ["a", "b", "c"].map(|peer| format!("http://{peer}:6381"));
        membership.handle_listed(peers.clone(), Duration::ZERO).unwrap();
        let base = "https://cache.example.com";
        let urls = builder(base, Some("abc".to_owned()), Arc::clone(membership.view()));
        let mut bases = BTreeSet::new();
        let mut of_peers = 0;
        for byte in 0..100 {
            let id = FileId([byte; 20]);
            let file = Resource::File(FileName { id, kind: FileKind::Classic, version: 1 });
            let expected = match membership.owner("db", &id.0) {
                Owner::Me => base,
                Owner::Peer(url) => {
                    of_peers += 1;
                    url
                }
            };
            assert_eq!(urls.url(&file), format!("{expected}{}?key=abc", file.path("db")));
            bases.insert(expected.to_owned());
        }
        assert_eq!(bases.into_iter().collect::<Vec<_>>(), [&peers[1], &peers[2], base]);
        assert_eq!(urls.stats.peer_urls(), of_peers);
        let addresses = vec![ChunkAddress([7; 20])];
        let bundle = Resource::Records(BundleId { check: *b"12345678", addresses });
        assert!(urls.url(&bundle).starts_with(base), "it is encoded here");
    }

    fn builder(base: &str, key: Option<String>, peers: Arc<View>) -> UrlBuilder {
        let (base, table) = (base.to_owned(), "db".to_owned());
        UrlBuilder { base, table, key, peers, stats: Arc::default() }
    }
}
