//! An S3 server over a directory, for programs that test against one.
//!
//! ```sh
//! cargo run --package busload-bucket --example serve -- DIRECTORY ACCESS_KEY_ID SECRET_ACCESS_KEY
//! ```
//!
//! Prints `ready URL`, and ends when its standard input does. Its only bucket is
//! `bucket`.

use std::{
    error::Error,
    io::{Read, Write},
    path::Path,
};

use busload_bucket::Bucket;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, access_key, secret_key] = arguments.as_slice() else {
        return Err("expected DIRECTORY ACCESS_KEY_ID SECRET_ACCESS_KEY".into());
    };
    let bucket = Bucket::with_credentials(Path::new(directory), access_key, secret_key)?;
    let mut out = std::io::stdout();
    writeln!(out, "ready http://{}", bucket.address())?;
    out.flush()?;
    // The end of the input, or an error of it, ends the program.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    Ok(())
}
