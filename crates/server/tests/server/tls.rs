//! TLS on all fronts: encryption, client certificates, and certificates that are replaced.

#![allow(clippy::disallowed_methods, reason = "tests are at the edge")]

use std::{
    fs,
    io::{self, Read, Write},
    net::{IpAddr, TcpStream},
    path::{Path, PathBuf},
    sync::Arc,
};

use busload_resp::reply::Reply;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustix::process::Signal;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use tempfile::TempDir;

use crate::support::{
    Client, Ended, Server, busload,
    client::{command, connect},
    eventually, run,
};

type TlsClient = Client<StreamOwned<ClientConnection, TcpStream>>;

/// An authority, and files that it signs.
pub struct Authority {
    directory: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    pub fn new() -> Self {
        let mut parameters = CertificateParams::default();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap());
        let (directory, issuer) = (tempfile::tempdir().unwrap(), issuer.unwrap());
        fs::write(directory.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { directory, issuer }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Writes a new certificate and its key to NAME.pem and NAME.key.
    fn issue(&self, name: &str) {
        self.issue_for(name, []);
    }

    /// The same for a server that is reached at these addresses, too.
    pub fn issue_for(&self, name: &str, hosts: impl IntoIterator<Item = IpAddr>) {
        let key = KeyPair::generate().unwrap();
        let hosts = hosts.into_iter().map(|host| host.to_string());
        let hosts: Vec<_> = hosts.chain(["localhost".to_owned()]).collect();
        let parameters = CertificateParams::new(hosts).unwrap();
        let certificate = parameters.signed_by(&key, &self.issuer).unwrap();
        fs::write(self.path(&format!("{name}.pem")), certificate.pem()).unwrap();
        fs::write(self.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
    }

    /// Returns the flags of a server, or of a command that asks it.
    pub fn flags(&self) -> Vec<String> {
        let (cert, key) = (self.text("server.pem"), self.text("server.key"));
        ["--tls-cert", &cert, "--tls-key", &key].map(str::to_owned).to_vec()
    }

    fn serve(&self, more: &[&str]) -> Server {
        self.issue("server");
        let flags = self.flags();
        let flags: Vec<&str> =
            flags.iter().map(String::as_str).chain(more.iter().copied()).collect();
        Server::start(&self.path("d"), &flags)
    }

    /// Settings of a client that trusts the authority, and shows the certificate NAME.
    fn client_config(&self, name: Option<&str>, protocols: &[&[u8]]) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match name {
            None => builder.with_no_client_auth(),
            Some(name) => {
                let chain = CertificateDer::from_pem_file(self.path(&format!("{name}.pem")));
                let key = PrivateKeyDer::from_pem_file(self.path(&format!("{name}.key")));
                builder.with_client_auth_cert(vec![chain.unwrap()], key.unwrap()).unwrap()
            }
        };
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Arc::new(config)
    }

    fn stream(
        &self,
        server: &Server,
        front: &str,
        name: Option<&str>,
        protocols: &[&[u8]],
    ) -> StreamOwned<ClientConnection, TcpStream> {
        let config = self.client_config(name, protocols);
        let host = ServerName::try_from("localhost").unwrap();
        let tls = ClientConnection::new(config, host).unwrap();
        StreamOwned::new(tls, connect(server.address(front)))
    }

    fn client(&self, server: &Server) -> TlsClient {
        Client::over(self.stream(server, "resp", None, &[]))
    }

    /// Connects with the certificate NAME.
    pub fn known_client(&self, server: &Server, name: &str) -> TlsClient {
        Client::over(self.stream(server, "resp", Some(name), &[]))
    }

    /// Gets a page over HTTP/1.1, or the error of TLS.
    fn page(&self, server: &Server, name: Option<&str>, path: &str) -> io::Result<String> {
        let mut stream = self.stream(server, "http", name, &[b"http/1.1"]);
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut page = String::new();
        stream.read_to_string(&mut page)?;
        Ok(page)
    }

    fn metric(&self, server: &Server, name: &str) -> f64 {
        self.metric_shown_to(None, server, name)
    }

    /// Returns a metric that the server shows to a client with this certificate.
    pub fn metric_shown_to(&self, client: Option<&str>, server: &Server, name: &str) -> f64 {
        let page = self.page(server, client, "/metrics").unwrap();
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {page}")).parse().unwrap()
    }

    /// Runs a command with the files of the server.
    fn ask(&self, server: &Server, words: &[&str]) -> Ended {
        let mut command = busload();
        command.args(words).args(self.flags());
        for front in ["resp", "http"] {
            command.arg(format!("--{front}")).arg(server.address(front).to_string());
        }
        Ended::of(command.output().unwrap())
    }
}

/// Returns the certificate that the server shows to a new client.
fn shown(client: &TlsClient) -> CertificateDer<'static> {
    client.stream.conn.peer_certificates().unwrap()[0].clone()
}

fn certificate(path: &Path) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(path).unwrap()
}

#[test]
fn redis_clients_are_served_over_tls_and_without_it_not() {
    let authority = Authority::new();
    for net_threads in ["0", "1"] {
        let server = authority.serve(&["--net-threads", net_threads]);
        let mut client = authority.client(&server);
        let key = format!("large{net_threads}");
        let large: String =
            (0..5_000_000_u32).map(|at| char::from(b'a' + (at % 26) as u8)).collect();
        assert_eq!(client.text(&["SET", &key, &large]), "OK");
        assert!(client.text(&["GET", &key]) == large);
        // A long pipeline: requests and replies cross in many records.
        let pipeline: Vec<u8> =
            (0..5_000).flat_map(|at| command(&["INCRBY", "sum", &at.to_string()])).collect();
        client.send(&pipeline);
        let mut sums = Vec::new();
        for _ in 0..5_000 {
            sums.push(client.receive().unwrap());
        }
        assert!(matches!(sums[..], [Reply::Integer(_), ..]));
        client.call(&["DEL", "sum"]);

        let mut plain = server.client();
        plain.send(&command(&["GET", &key]));
        // An alert of TLS is no reply, and nothing else comes.
        assert!(plain.receive().is_err());
        eventually("the failure is counted", || {
            authority.metric(&server, "busload_tls_failures_total") == 1.0
        });
        assert!(2.0 <= authority.metric(&server, "busload_tls_handshakes_total"));
        let expiry = "busload_tls_certificate_expiry_timestamp_seconds";
        assert!(1e9 < authority.metric(&server, expiry));
        assert!(server.stop().success());
    }
}

#[test]
fn http_speaks_both_versions_over_tls() {
    let authority = Authority::new();
    let server = authority.serve(&[]);
    let page = authority.page(&server, None, "/healthz").unwrap();
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    for (offered, chosen) in
        [(&[&b"h2"[..], b"http/1.1"][..], &b"h2"[..]), (&[b"http/1.1"], b"http/1.1")]
    {
        let mut stream = authority.stream(&server, "http", None, offered);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock).unwrap();
        }
        assert_eq!(stream.conn.alpn_protocol(), Some(chosen));
    }
    // Without TLS there is no answer.
    let mut plain = connect(server.address("http"));
    plain.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"));
}

#[test]
fn a_client_needs_a_certificate_of_the_authorities_where_they_are_set() {
    let authority = Authority::new();
    authority.issue("client");
    let ca = authority.text("ca.pem");
    // Clients with certificates are known, so no password is needed.
    let server = authority.serve(&["--tls-client-ca", &ca, "--resp", "0.0.0.0:0"]);
    let mut known = Client::over(authority.stream(&server, "resp", Some("client"), &[]));
    assert_eq!(known.text(&["PING"]), "PONG");
    assert!(authority.page(&server, Some("client"), "/healthz").unwrap().contains("200"));

    let other = Authority::new();
    other.issue("client");
    let config = |name: Option<&str>| match name {
        None => authority.client_config(None, &[]),
        Some(_) => {
            let mut roots = RootCertStore::empty();
            roots.add(authority.issuer.der().clone()).unwrap();
            let chain = vec![certificate(&other.path("client.pem"))];
            let key = PrivateKeyDer::from_pem_file(other.path("client.key")).unwrap();
            let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
            let builder = builder.with_safe_default_protocol_versions().unwrap();
            Arc::new(
                builder.with_root_certificates(roots).with_client_auth_cert(chain, key).unwrap(),
            )
        }
    };
    for name in [None, Some("of another authority")] {
        for front in ["resp", "http"] {
            let host = ServerName::try_from("localhost").unwrap();
            let tls = ClientConnection::new(config(name), host).unwrap();
            let mut stream = StreamOwned::new(tls, connect(server.address(front)));
            let request =
                if front == "resp" { "PING\r\n" } else { "GET /healthz HTTP/1.0\r\n\r\n" };
            // TLS 1.3 clients learn of the refusal with the first answer.
            let sent = stream.write_all(request.as_bytes());
            let mut answer = [0; 100];
            let refused =
                sent.is_err() || stream.read(&mut answer).map_or(true, |count| count == 0);
            assert!(refused, "{name:?} {front}");
        }
    }
    assert_eq!(known.text(&["PING"]), "PONG");
}

#[test]
fn a_reload_changes_the_certificate_of_new_connections_and_keeps_the_old_ones() {
    let authority = Authority::new();
    let mut server = authority.serve(&[]);
    let mut before = authority.client(&server);
    assert_eq!(before.text(&["SET", "k", "v"]), "OK");
    let first = certificate(&authority.path("server.pem"));
    assert_eq!(shown(&before), first);

    authority.issue("server");
    server.signal(Signal::HUP);
    server.wait_for_text("is used for new connections");
    let second = certificate(&authority.path("server.pem"));
    assert_ne!(first, second);
    let mut after = authority.client(&server);
    assert_eq!(after.text(&["GET", "k"]), "v");
    assert_eq!(shown(&after), second);
    assert_eq!(before.text(&["GET", "k"]), "v");

    // Half of a renewal: the old one stays, and the log says why.
    let key = KeyPair::generate().unwrap();
    fs::write(authority.path("server.key"), key.serialize_pem()).unwrap();
    server.signal(Signal::HUP);
    let line = server.wait_for_text("the configuration stays as it was");
    assert!(line.contains("server.key"), "{line}");
    let mut third = authority.client(&server);
    assert_eq!(third.text(&["PING"]), "PONG");
    assert_eq!(shown(&third), second);
}

#[test]
fn commands_ask_a_server_with_tls_by_its_files_and_trust_no_other() {
    let authority = Authority::new();
    let ca = authority.text("ca.pem");
    let server = authority.serve(&["--tls-client-ca", &ca]);
    let made = authority.ask(&server, &["snapshot"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    let top = authority.ask(&server, &["top", "--once"]);
    assert_eq!(top.code, Some(0), "{top:?}");
    let health = authority.ask(&server, &["health"]);
    assert_eq!(health.code, Some(0), "{health:?}");
    // The server goes on with the certificate it has read.
    authority.issue("server");
    let refused = authority.ask(&server, &["top", "--once"]);
    assert!(refused.failed(1).contains("another certificate"), "{refused:?}");
}

#[test]
fn a_start_with_files_that_are_no_certificate_is_refused_by_name() {
    let authority = Authority::new();
    authority.issue("server");
    let (pem, key) = (authority.text("server.pem"), authority.text("server.key"));
    let refused = run(&["check", "--tls-cert", &key, "--tls-key", &key]);
    assert!(refused.failed(2).contains("server.key: no certificate in it"), "{refused:?}");
    let refused = run(&["check", "--tls-cert", &pem]);
    assert!(refused.failed(2).contains("expected tls_key"), "{refused:?}");
    let peers = ["check", "--peers", "https://localhost:1", "--peer-self", "https://localhost:1"];
    let refused = run(&[&peers[..], &["--peer-ca", &key]].concat());
    assert!(refused.failed(2).contains("peer_ca: "), "{refused:?}");
    let ok = run(&["check", "--tls-cert", &pem, "--tls-key", &key]);
    assert_eq!(ok.code, Some(0), "{ok:?}");
}
