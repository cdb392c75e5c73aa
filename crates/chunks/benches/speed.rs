//! Measures one core: parsing and decoding chunks of 4 KiB, hashing them, finding them in one large
//! and in many small files, and the time and memory that indexes and lookups take.
//!
//! `cargo bench -p busload-chunks --bench speed`
#![allow(clippy::disallowed_methods, reason = "a benchmark is about the real clock")]

use std::{hint::black_box, sync::Arc, time::Instant};

use busload_chunks::{
    ChunkAddress, ChunkLocation, Dictionary, Lookup, Span, Stored, TableIndex, check,
    write::ClassicWriter,
};
use bytes::Bytes;

const CHUNK_BYTES: usize = 4096;

/// Number of addresses to find, in no order.
const FINDS: u64 = 200_000;

fn main() {
    decode();
    find("one file", &[1_000_000]);
    find("one file that the caches hold", &[10_000]);
    find("1,000 files", &[1_000; 1_000]);
}

/// Maps a number to one without pattern.
fn mixed(number: u64) -> u64 {
    let mixed = (number ^ number >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// Returns contents that compress about 2:1.
fn contents(number: u64) -> Vec<u8> {
    let words =
        (0u64..).map(|word| if word.is_multiple_of(2) { mixed(number << 20 | word) } else { 7 });
    words.flat_map(u64::to_le_bytes).take(CHUNK_BYTES).collect()
}

fn location(span: &Bytes, is_zstd: bool) -> ChunkLocation {
    let span = Span { offset: 0, length: u32::try_from(span.len()).expect("a small chunk") };
    ChunkLocation { span, dictionary: is_zstd.then_some(span) }
}

fn decode() {
    let dictionary = contents(0);
    let frame = zstd::bulk::compress(&dictionary, 3).expect("room for it");
    let digested = Dictionary::decode(&frame).expect("just compressed");
    let mut compressor =
        zstd::bulk::Compressor::with_dictionary(3, &dictionary).expect("a dictionary");
    let chunks: Vec<(ChunkAddress, Bytes, Bytes)> = (1..1_000)
        .map(|number| {
            let contents = contents(number);
            let zstd = Bytes::from(compressor.compress(&contents).expect("room for it"));
            let mut record = snap::raw::Encoder::new().compress_vec(&contents).expect("small");
            record.extend(crc32c::crc32c(&record).to_be_bytes());
            (ChunkAddress::of(&contents), Bytes::from(record), zstd)
        })
        .collect();
    let read = |span: &Bytes, is_zstd| {
        let stored = Stored::parse(span.clone(), &location(span, is_zstd)).expect("whole");
        stored.decode(Some(&digested)).expect("whole")
    };
    println!(
        "chunks of {CHUNK_BYTES} bytes, snappy {}, zstd {}",
        chunks[0].1.len(),
        chunks[0].2.len()
    );
    let time = |what: &str, work: &dyn Fn(&(ChunkAddress, Bytes, Bytes))| {
        let rounds = 20;
        let start = Instant::now();
        (0..rounds).for_each(|_| chunks.iter().for_each(work));
        let ns = start.elapsed().as_nanos() / (rounds * chunks.len() as u128);
        println!("{ns:>8} ns  {what}");
    };
    time("parse a record", &|chunk| {
        drop(black_box(Stored::parse(chunk.1.clone(), &location(&chunk.1, false))))
    });
    time("parse and decode a record", &|chunk| drop(black_box(read(&chunk.1, false))));
    time("parse and decode a zstd frame", &|chunk| drop(black_box(read(&chunk.2, true))));
    time("parse, decode and check a record", &|chunk| {
        check(&chunk.0, &read(&chunk.1, false)).expect("its own address");
    });
    time("encode a zstd frame as a record", &|chunk| {
        let stored = Stored::parse(chunk.2.clone(), &location(&chunk.2, true)).expect("whole");
        drop(black_box(stored.to_record(Some(&digested))));
    });
    time("address to text and back", &|chunk| {
        black_box(ChunkAddress::from_key(&black_box(chunk.0).to_text()).expect("just made"));
    });
}

/// Returns the tail of a file whose chunks have addresses made of numbers.
fn tail(numbers: std::ops::Range<u64>) -> (Bytes, u32, u64) {
    let mut writer = ClassicWriter::new(Vec::new());
    for number in numbers {
        writer.push_as(address(number), &[1]).expect("memory takes it");
    }
    let (spec, file) = writer.finish().expect("memory takes it");
    let bytes = TableIndex::classic_tail_bytes(spec.chunk_count);
    let start = file.len() - usize::try_from(bytes).expect("it is in memory");
    (Bytes::copy_from_slice(&file[start..]), spec.chunk_count, file.len() as u64)
}

fn address(number: u64) -> ChunkAddress {
    let mut bytes = [0; 20];
    bytes[..8].copy_from_slice(&mixed(number).to_be_bytes());
    bytes[8..16].copy_from_slice(&mixed(!number).to_be_bytes());
    ChunkAddress(bytes)
}

fn files(sizes: &[u64]) -> (Vec<Arc<TableIndex>>, u64) {
    let starts = sizes.iter().scan(0, |next, size| Some(std::mem::replace(next, *next + size)));
    let tails: Vec<_> = starts.zip(sizes).map(|(start, size)| tail(start..start + size)).collect();
    let start = Instant::now();
    let parse = |(tail, count, bytes)| {
        Arc::new(TableIndex::parse_classic(tail, count, bytes).expect("just written"))
    };
    let files: Vec<_> = tails.into_iter().map(parse).collect();
    println!("{:>8} ms  to parse the indexes", start.elapsed().as_millis());
    (files, sizes.iter().sum())
}

fn find(what: &str, sizes: &[u64]) {
    println!("\n{what}");
    let (files, count) = files(sizes);
    let start = Instant::now();
    let lookup = Lookup::new(&files, None);
    println!("{:>8} ms  to make the lookup of {count} chunks", start.elapsed().as_millis());
    let index: u64 = files.iter().map(|file| file.memory_bytes()).sum();
    let per_chunk = (index + lookup.memory_bytes()) as f64 / count as f64;
    println!("{per_chunk:>8.2} B   per chunk");
    let time = |what: &str, address: &dyn Fn(u64) -> ChunkAddress| {
        let addresses: Vec<ChunkAddress> = (0..FINDS).map(address).collect();
        let start = Instant::now();
        for address in &addresses {
            let found = lookup.find(address);
            black_box(found.map(|found| files[found.file as usize].location(found.position)));
        }
        println!("{:>8} ns  {what}", start.elapsed().as_nanos() / u128::from(FINDS));
    };
    time("find and location", &|number| address(mixed(number) % count));
    time("find what is not there", &|number| address(mixed(number) | 1 << 63));
}
