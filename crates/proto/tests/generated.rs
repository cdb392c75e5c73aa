//! The code in `src/generated` is what the `.proto` files generate. It is committed, so that a
//! build of busload compiles no generator; this test needs no `protoc`.

#![allow(clippy::unwrap_used, reason = "in tests a panic is the message")]

use std::{fs, path::Path};

use prost::Message;

const CHUNKS: &str = "busload/v1/chunks.proto";
const DOLT: &str = "dolt/services/remotesapi/v1alpha1/chunkstore.proto";
/// Variable that makes the test write the code anew: `cargo xtask proto`.
const WRITE: &str = "BUSLOAD_WRITE_GENERATED";

#[test]
fn the_generated_code_is_that_of_the_proto_files() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out = tempfile::tempdir().unwrap();
    let descriptors = protox::compile([CHUNKS, DOLT], [root.join("proto")]).unwrap();
    fs::write(out.path().join("descriptors.bin"), descriptors.encode_to_vec()).unwrap();
    let generator = tonic_prost_build::configure().bytes(".").build_transport(false);
    let generator = generator.codec_path("crate::codec::ExactCodec").out_dir(out.path());
    generator.compile_fds(descriptors).unwrap();
    let mut files = 0;
    for entry in fs::read_dir(out.path()).unwrap() {
        let entry = entry.unwrap();
        let committed = root.join("src/generated").join(entry.file_name());
        let generated = fs::read(entry.path()).unwrap();
        if std::env::var_os(WRITE).is_some() {
            fs::write(&committed, &generated).unwrap();
        }
        let is_same = fs::read(&committed).is_ok_and(|committed| committed == generated);
        assert!(is_same, "{} is out of date: cargo xtask proto", committed.display());
        files += 1;
    }
    assert_eq!(files, 3);
}
