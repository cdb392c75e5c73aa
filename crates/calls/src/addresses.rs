//! Addresses of chunks in a request.

use busload_dolt::ChunkAddress;
use tonic::Status;

use crate::limits::ADDRESS_COUNT_MAX;

/// Decodes the addresses of a request for many chunks, from the field of this name.
///
/// # Errors
/// Returns `INVALID_ARGUMENT` for a part of an address, or for more than [`ADDRESS_COUNT_MAX`].
pub fn addresses<'a>(
    field: &str,
    bytes: &'a [u8],
) -> Result<&'a [[u8; ChunkAddress::BYTES]], Status> {
    let (addresses, rest) = bytes.as_chunks();
    if !rest.is_empty() {
        return Err(Status::invalid_argument(format!(
            "{field}: expected a multiple of 20 bytes, got {}",
            bytes.len()
        )));
    }
    check_count(field, addresses.len())?;
    Ok(addresses)
}

/// Refuses too many addresses in a field.
///
/// # Errors
/// Returns `INVALID_ARGUMENT` for more than [`ADDRESS_COUNT_MAX`].
pub fn check_count(field: &str, count: usize) -> Result<(), Status> {
    if ADDRESS_COUNT_MAX < count {
        return Err(Status::invalid_argument(format!(
            "{field}: expected at most {ADDRESS_COUNT_MAX}, got {count}"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    #[test]
    fn other_bytes_than_addresses_are_refused_with_what_was_expected() {
        let refused = |bytes: usize| addresses("addresses", &vec![0; bytes]).unwrap_err();
        assert_eq!(addresses("addresses", &[]).unwrap().len(), 0);
        assert_eq!(
            addresses("addresses", &vec![0; 20 * ADDRESS_COUNT_MAX]).unwrap().len(),
            ADDRESS_COUNT_MAX
        );
        assert_eq!(refused(19).message(), "addresses: expected a multiple of 20 bytes, got 19");
        let one_more = 20 * (ADDRESS_COUNT_MAX + 1);
        assert_eq!(refused(one_more).message(), "addresses: expected at most 16384, got 16385");
        assert_eq!(refused(one_more).code(), Code::InvalidArgument);
    }
}
