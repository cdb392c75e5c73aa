//! Versions of objects as numbers, for URLs.

use busload_chunks::ChunkAddress;
use busload_objects::ObjectMeta;

/// Returns a number that differs when the object of a name holds other bytes. It follows from the
/// object's metadata alone, so it is the same in every process and after every restart. It does not
/// depend on how the ETag is written, which differs between listings and headers.
pub(crate) fn version_of(meta: &ObjectMeta) -> u64 {
    let text = format!("{}\n{}", meta.size, bare(&meta.etag));
    ChunkAddress::of(text.as_bytes()).prefix()
}

fn bare(etag: &str) -> &str {
    etag.strip_prefix("W/").unwrap_or(etag).trim_matches('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(size: u64, etag: &str) -> u64 {
        version_of(&ObjectMeta { name: "a".to_owned(), size, etag: etag.to_owned() })
    }

    #[test]
    fn an_etag_is_the_same_however_it_is_written() {
        let version_of_it = version(17, "0x8D");
        for spelling in ["\"0x8D\"", "W/\"0x8D\"", "W/0x8D"] {
            assert_eq!(version(17, spelling), version_of_it, "{spelling}");
        }
        for (size, other) in [(18, "0x8D"), (17, "0x8d"), (17, "\"\""), (1, "7\n0x8D")] {
            assert_ne!(version(size, other), version_of_it, "{size} {other}");
        }
    }

    /// Clients hold URLs with these numbers.
    #[test]
    fn versions_do_not_change_with_the_program() {
        assert_eq!(format!("{:016x}", version(17, "\"0x8D\"")), "047c153ea1fa3c3f");
    }
}
