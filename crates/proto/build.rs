//! Generates the services' code; needs no `protoc`.

use std::{env, error::Error, fs, path::PathBuf};

use prost::Message;

const CHUNKS: &str = "busload/v1/chunks.proto";
const DOLT: &str = "dolt/services/remotesapi/v1alpha1/chunkstore.proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile([CHUNKS, DOLT], ["proto"])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    let generator = tonic_prost_build::configure().bytes(".").build_transport(false);
    generator.codec_path("crate::codec::ExactCodec").compile_fds(descriptors)?;
    Ok(())
}
