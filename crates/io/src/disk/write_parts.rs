//! Loop around a vectored positional write: handles short writes, interruptions, and more parts
//! than the system accepts in one call.

use std::io::{self, IoSlice};

use crate::limits::WRITE_PART_COUNT_MAX;

/// Writes all `parts` one after the other at `offset` by calls of `write(offset, parts)`, each of
/// which may write less than it is offered. Makes one call if that writes everything. Does not
/// allocate: the rest of a partly written part is offered alone.
pub(super) fn write_parts(
    mut offset: u64,
    mut parts: &[IoSlice<'_>],
    mut write: impl FnMut(u64, &[IoSlice<'_>]) -> io::Result<usize>,
) -> io::Result<()> {
    // Bytes of the first part that are already written.
    let mut taken = 0;
    loop {
        while let Some((first, behind)) = parts.split_first()
            && first.len() <= taken
        {
            taken -= first.len();
            parts = behind;
        }
        let Some(first) = parts.first() else { return Ok(()) };
        let rest = [IoSlice::new(&first[taken..])];
        let offered =
            if taken == 0 { &parts[..parts.len().min(WRITE_PART_COUNT_MAX)] } else { &rest[..] };
        match write(offset, offered) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                taken += count;
                offset += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes `parts` to a file whose successive writes accept the byte counts in `takes`.
    fn written(parts: &[&[u8]], takes: &[io::Result<usize>]) -> (Vec<u8>, usize, io::Result<()>) {
        let slices: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let mut file = vec![b'.'; 4];
        let mut calls = 0;
        let result = write_parts(4, &slices, |offset, parts| {
            let take = match takes.get(calls) {
                Some(Ok(count)) => *count,
                Some(Err(error)) => {
                    calls += 1;
                    return Err(error.kind().into());
                }
                None => usize::MAX,
            };
            calls += 1;
            let all: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
            let count = take.min(all.len());
            file.truncate(usize::try_from(offset).unwrap());
            assert_eq!(file.len() as u64, offset, "a write behind a hole");
            file.extend_from_slice(&all[..count]);
            Ok(count)
        });
        (file, calls, result)
    }

    #[test]
    fn one_call_when_the_system_takes_all() {
        let (file, calls, result) = written(&[b"ab", b"", b"cde"], &[]);
        assert_eq!((file.as_slice(), calls), (b"....abcde".as_slice(), 1));
        result.unwrap();
    }

    #[test]
    fn every_sequence_of_short_writes_gives_the_same_contents() {
        for first in 1..=6 {
            for second in 1..=6 {
                let takes = [Ok(first), Err(io::ErrorKind::Interrupted.into()), Ok(second)];
                let (file, _, result) = written(&[b"ab", b"", b"c", b"defg", b""], &takes);
                assert_eq!(file, b"....abcdefg", "takes {first}, {second}");
                result.unwrap();
            }
        }
    }

    #[test]
    fn more_parts_than_one_call_takes_are_written_in_order() {
        let bytes: Vec<u8> = (0..=255).cycle().take(WRITE_PART_COUNT_MAX * 2 + 7).collect();
        let parts: Vec<&[u8]> = bytes.chunks(1).collect();
        let (file, calls, result) = written(&parts, &[]);
        assert_eq!(file[4..], bytes);
        assert_eq!(calls, 3);
        result.unwrap();
    }

    #[test]
    fn an_error_and_a_write_of_nothing_end_it() {
        let full = Err(io::ErrorKind::StorageFull.into());
        assert_eq!(
            written(&[b"ab"], &[Ok(1), full]).2.unwrap_err().kind(),
            io::ErrorKind::StorageFull
        );
        assert_eq!(written(&[b"ab"], &[Ok(0)]).2.unwrap_err().kind(), io::ErrorKind::WriteZero);
    }

    #[test]
    fn nothing_to_write_is_no_call() {
        assert_eq!(written(&[b"", b""], &[]).1, 0);
        assert_eq!(written(&[], &[]).1, 0);
    }
}
