//! Traces that a server sends to a collector of OpenTelemetry, over its real protocol.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::mpsc::{Receiver, Sender, channel},
    thread,
};

use busload_chunks::ChunkAddress;
use busload_proto::v1::{GetChunkRequest, chunks_client::ChunksClient};
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest, common::v1::any_value::Value, trace::v1::Span,
};
use prost::Message;
use rustix::process::Signal;
use tempfile::tempdir;
use tonic::transport::Endpoint;

use crate::support::{
    Server, TIMEOUT, busload,
    client::command,
    eventually,
    fixtures::{listed, table},
    run, serve,
};

const STORE: &str = "real-classic";

/// A collector that takes what it is sent.
struct Collector {
    address: SocketAddr,
    spans: Receiver<(String, Span)>,
}

impl Collector {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, spans) = channel();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let sender = sender.clone();
                thread::spawn(move || while take(stream.as_ref().unwrap(), &sender).is_some() {});
            }
        });
        Self { address, spans }
    }

    /// Returns the flags of a server that sends it all traces.
    fn flags(&self) -> [String; 4] {
        let endpoint = format!("http://{}", self.address);
        ["--otel-endpoint", &endpoint, "--otel-sample", "100%"].map(str::to_owned)
    }

    /// Waits for so many spans.
    fn spans(&self, count: usize) -> Vec<(String, Span)> {
        (0..count).map(|_| self.spans.recv_timeout(TIMEOUT).unwrap()).collect()
    }
}

/// Takes one request of a connection; `None` at its end.
fn take(mut stream: &TcpStream, sender: &Sender<(String, Span)>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| 0 < *read)?;
    assert!(line.starts_with("POST /v1/traces HTTP/1.1"), "{line}");
    while line.trim() != "" {
        line.clear();
        reader.read_line(&mut line).unwrap();
        let (name, value) = line.split_once(':').unwrap_or_default();
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    for resource in ExportTraceServiceRequest::decode(&*body).unwrap().resource_spans {
        let of = resource.resource.unwrap().attributes;
        let service = of.iter().find(|of| of.key == "service.name").unwrap().value.clone();
        let Some(Value::StringValue(service)) = service.unwrap().value else { panic!("no name") };
        for span in resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
            sender.send((service.clone(), span)).unwrap();
        }
    }
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n";
    stream.write_all(format!("{head}\r\n").as_bytes()).unwrap();
    Some(())
}

fn attribute(span: &Span, name: &str) -> Value {
    let found = span.attributes.iter().find(|attribute| attribute.key == name);
    let found = found.unwrap_or_else(|| panic!("no {name} in {span:?}"));
    found.value.clone().unwrap().value.unwrap()
}

fn strings(values: &[String]) -> Vec<&str> {
    values.iter().map(String::as_str).collect()
}

#[test]
fn requests_link_to_the_batches_that_carry_them_and_no_span_has_a_key() {
    for wiring in ["0", "1"] {
        let collector = Collector::start();
        let directory = tempdir().unwrap();
        let table = table("db", STORE, "disk_free=0");
        let mut flags = collector.flags().to_vec();
        flags.extend(
            ["--net-threads", wiring, "--table", &table, "--otel-service", "cache"]
                .map(str::to_owned),
        );
        let server = Server::start(directory.path(), &strings(&flags));
        let addresses: Vec<String> = listed(STORE).into_iter().map(|chunk| chunk.address).collect();
        let asked = &addresses[..addresses.len().min(64)];
        let mut client = server.client();
        let pipeline: Vec<u8> = asked
            .iter()
            .flat_map(|address| command(&["STRLEN", &format!("db:{address}")]))
            .collect();
        client.send(&pipeline);
        asked.iter().for_each(|_| drop(client.receive().unwrap()));
        // A shutdown sends what is left.
        assert_eq!(server.stop().code(), Some(0));

        let mut requests: Vec<Span> = Vec::new();
        let mut batches: HashMap<Vec<u8>, Span> = HashMap::new();
        while let Ok((service, span)) = collector.spans.try_recv() {
            assert_eq!(service, "cache");
            let shown = format!("{span:?}");
            assert!(asked.iter().all(|address| !shown.contains(&**address)), "{shown}");
            match span.name.as_str() {
                "STRLEN db" => requests.push(span),
                "batch read db" => drop(batches.insert(span.span_id.clone(), span)),
                other => panic!("a span named {other}"),
            }
        }
        // What was in memory already has no span, but the first request had to wait.
        assert!(!requests.is_empty() && !batches.is_empty());
        let mut carried: HashMap<&[u8], usize> = HashMap::new();
        for request in &requests {
            assert_eq!(attribute(request, "busload.outcome"), Value::StringValue("ok".into()));
            assert!(matches!(attribute(request, "busload.queue_us"), Value::IntValue(0..)));
            let [link] = &request.links[..] else { panic!("one batch: {request:?}") };
            let batch = &batches[&link.span_id];
            assert!(batch.links.iter().any(|link| link.span_id == request.span_id), "{batch:?}");
            assert!(batch.start_time_unix_nano <= request.end_time_unix_nano);
            *carried.entry(&batch.span_id).or_default() += 1;
        }
        for batch in batches.values() {
            let entries = attribute(batch, "busload.entries");
            let carried = carried[&*batch.span_id];
            assert_eq!(entries, Value::IntValue(i64::try_from(carried).unwrap()), "{batch:?}");
            assert_eq!(attribute(batch, "busload.outcome"), Value::StringValue("served".into()));
        }
    }
}

#[test]
fn spans_arrive_while_the_server_runs_and_are_counted() {
    let collector = Collector::start();
    let directory = tempdir().unwrap();
    let mut flags = collector.flags().to_vec();
    flags.extend(["--table".to_owned(), table("db", STORE, "disk_free=0")]);
    let server = Server::start(directory.path(), &strings(&flags));
    let address = &listed(STORE)[0].address;
    server.client().call(&["GET", &format!("db:{address}")]);
    let spans = collector.spans(2);
    assert!(spans.iter().all(|(service, _)| service == "busload"), "{spans:?}");
    eventually("both spans are counted as sent", || {
        server.metric("busload_otel_spans_sent_total") == 2.0
    });
    assert_eq!(server.metric("busload_otel_spans_dropped_total"), 0.0);
}

#[test]
fn a_collector_that_does_not_answer_holds_nothing_up() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    let directory = tempdir().unwrap();
    let table = table("db", STORE, "disk_free=0");
    let flags = ["--otel-endpoint", &endpoint, "--otel-sample", "100%", "--table", &table];
    let mut command = serve(directory.path(), &flags);
    // The exporter itself waits longer than the test.
    command.env("OTEL_EXPORTER_OTLP_TIMEOUT", (5 * TIMEOUT).as_millis().to_string());
    let mut server = Server::try_start(command).unwrap();
    let mut client = server.client();
    for chunk in listed(STORE).iter().take(20) {
        client.call(&["GET", &format!("db:{}", chunk.address)]);
    }
    // The collector holds the connection that it was sent spans on.
    let _held = silent.accept().unwrap();
    assert_eq!(client.text(&["PING"]), "PONG");
    server.signal(Signal::TERM);
    assert_eq!(server.wait().code(), Some(0));
    let said = server.said().join("\n");
    assert!(said.contains("the collector of traces did not answer within 2s"), "{said}");
}

#[test]
fn a_grpc_call_takes_the_parent_of_its_caller_and_whether_it_is_sampled() {
    let collector = Collector::start();
    let directory = tempdir().unwrap();
    let mut flags = collector.flags().to_vec();
    flags.extend(["--table".to_owned(), table("db", STORE, "disk_free=0")]);
    let server = Server::start(directory.path(), &strings(&flags));
    let address = listed(STORE)[0].address.parse::<ChunkAddress>().unwrap();
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let endpoint = Endpoint::from_shared(format!("http://{}", server.address("http")));
        let mut client = ChunksClient::new(endpoint.unwrap().connect().await.unwrap());
        for (trace, is_sampled) in [("a", "01"), ("b", "00")] {
            let mut call = tonic::Request::new(GetChunkRequest {
                store: "db".into(),
                address: address.0.to_vec().into(),
                ..GetChunkRequest::default()
            });
            let header = format!("00-{}-{}-{is_sampled}", trace.repeat(32), "c".repeat(16));
            call.metadata_mut().insert("traceparent", header.parse().unwrap());
            assert!(client.get_chunk(call).await.unwrap().into_inner().found);
        }
    });
    assert_eq!(server.stop().code(), Some(0));
    let spans: Vec<Span> = collector.spans.try_iter().map(|(_, span)| span).collect();
    let [call] = &spans[..] else { panic!("one call was sampled: {spans:?}") };
    assert_eq!((call.name.as_str(), &call.trace_id), ("GetChunk", &vec![0xaa; 16]));
    assert_eq!(call.parent_span_id, [0xcc; 8]);
    assert_eq!(attribute(call, "busload.outcome"), Value::StringValue("ok".into()));
}

#[test]
fn settings_of_traces_that_make_no_sense_are_refused() {
    for (flags, expected) in [
        (["--otel-endpoint", "localhost:4318"], "expected the URL of an OTLP collector"),
        (["--otel-sample", "2"], "expected 0% to 100%"),
        (["--otel-sample", "2%"], "otel_sample is set without otel_endpoint"),
    ] {
        let ended = run(&[&["serve"][..], &flags].concat());
        assert!(ended.failed(2).contains(expected), "{ended:?}");
    }
    let help = busload().args(["serve", "--help"]).output().unwrap();
    assert!(String::from_utf8_lossy(&help.stdout).contains("--otel-endpoint"));
}
