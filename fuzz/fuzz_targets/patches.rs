//! Changes of a valid file that the fuzzer chooses. Random bytes alone would never have a valid
//! checksum.

/// Changes the bytes: each patch is an offset (two bytes), a length and that many bytes. A patch
/// without bytes cuts the file there.
pub fn patch(bytes: &mut Vec<u8>, mut patches: &[u8]) {
    while let [low, high, len, rest @ ..] = patches {
        let at = usize::from(u16::from_le_bytes([*low, *high])).min(bytes.len());
        let run = &rest[..rest.len().min(usize::from(*len))];
        patches = &rest[run.len()..];
        if run.is_empty() {
            bytes.truncate(at);
        }
        let count = run.len().min(bytes.len() - at);
        bytes[at..at + count].copy_from_slice(&run[..count]);
    }
}
