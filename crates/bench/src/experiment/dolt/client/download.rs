//! One region of a resource: a GET, again from where it broke, its parts handed on as they come.

use bytes::{Bytes, BytesMut};
use tokio::{sync::mpsc::UnboundedSender, time::sleep};

use super::{
    counts::Meter,
    failure::{backoff, refused, wrong},
    http::Http,
    limits::RETRIES,
    regions::{Part, Region},
};
use crate::failures::Failure;

/// Status of an answer with a range.
const PARTIAL: u16 = 206;

/// Bytes of a part, which are all there.
#[derive(Debug)]
pub struct Piece<T> {
    /// Purpose of the bytes.
    pub part: Part<T>,
    pub bytes: Bytes,
}

/// Reads a region; its parts go to `pieces`.
pub async fn download<T>(
    http: &Http,
    meter: &Meter,
    region: Region<T>,
    pieces: &UnboundedSender<Piece<T>>,
) -> Result<(), Failure> {
    let (url, end) = (region.url, region.end);
    let mut cutter = Cutter::new(region.start, region.parts);
    let mut retries = 0;
    while let Err(failure) = attempt(http, &url, end, &mut cutter, pieces).await {
        if matches!(failure, Failure::Wrong(_)) || retries == RETRIES {
            return Err(failure);
        }
        meter.add(|counts| counts.retries += 1);
        sleep(backoff(retries)).await;
        retries += 1;
    }
    Ok(())
}

/// Sends one GET for the bytes that are still missing.
async fn attempt<T>(
    http: &Http,
    url: &str,
    end: u64,
    cutter: &mut Cutter<T>,
    pieces: &UnboundedSender<Piece<T>>,
) -> Result<(), Failure> {
    let mut answer = http.get(url, Some(cutter.position..end)).await?;
    if answer.status != PARTIAL {
        let status = answer.status;
        return Err(match status {
            200..300 => {
                wrong(url, format_args!("expected a range and status 206, got status {status}"))
            }
            _ => refused(url, format_args!("status {status}")),
        });
    }
    while cutter.position < end {
        let Some(data) = answer.data().await? else {
            let missing = end - cutter.position;
            return Err(wrong(
                url,
                format_args!("the body ends in order {missing} bytes too early"),
            ));
        };
        cutter.feed(data, |piece| {
            // Nobody takes pieces any more when the walk has failed.
            let _ = pieces.send(piece);
        });
    }
    // The connection is free again when the end has been seen.
    match answer.data().await? {
        None => Ok(()),
        Some(more) => Err(wrong(url, format_args!("{} bytes more than asked for", more.len()))),
    }
}

/// Cuts a stream of bytes into parts and drops what is between them.
#[derive(Debug)]
struct Cutter<T> {
    /// Offset of the next byte in the resource.
    position: u64,
    /// The parts still missing.
    parts: std::vec::IntoIter<Part<T>>,
    /// The one that has begun.
    current: Option<(Part<T>, BytesMut)>,
}

impl<T> Cutter<T> {
    /// `parts` in the order of their offsets, none before `position`, and without overlaps.
    fn new(position: u64, parts: Vec<Part<T>>) -> Self {
        Self { position, parts: parts.into_iter(), current: None }
    }

    fn feed(&mut self, mut data: Bytes, mut take: impl FnMut(Piece<T>)) {
        while !data.is_empty() {
            let Some((part, mut begun)) = self.current.take().or_else(|| self.next()) else {
                self.skip(&mut data, u64::MAX);
                return;
            };
            self.skip(&mut data, part.span.offset.saturating_sub(self.position));
            let missing = length(part.span.length) - begun.len();
            let bytes = data.split_to(missing.min(data.len()));
            self.position += count(bytes.len());
            if bytes.len() == missing && begun.is_empty() {
                // All of it in one buffer, which is most often so: nothing to copy.
                take(Piece { part, bytes });
                continue;
            }
            begun.extend_from_slice(&bytes);
            if bytes.len() == missing {
                take(Piece { part, bytes: begun.freeze() });
            } else {
                self.current = Some((part, begun));
            }
        }
    }

    fn next(&mut self) -> Option<(Part<T>, BytesMut)> {
        self.parts.next().map(|part| (part, BytesMut::new()))
    }

    fn skip(&mut self, data: &mut Bytes, most: u64) {
        let skipped = data.len().min(usize::try_from(most).unwrap_or(usize::MAX));
        let _ = data.split_to(skipped);
        self.position += count(skipped);
    }
}

fn length(bytes: u32) -> usize {
    usize::try_from(bytes).expect("32 bits fit")
}

fn count(bytes: usize) -> u64 {
    u64::try_from(bytes).expect("a length fits in 64 bits")
}

#[cfg(test)]
mod tests {
    use busload_chunks::Span;

    use super::*;

    #[test]
    fn parts_are_cut_out_however_the_bytes_come() {
        let bytes: Vec<u8> = (0..=255).collect();
        let spans = [(3, 5), (8, 1), (20, 100), (255, 1)];
        for step in [1, 2, 7, 50, 256] {
            let part = |(offset, length)| Part { span: Span { offset, length }, what: offset };
            let mut cutter = Cutter::new(0, spans.map(part).to_vec());
            let mut found = Vec::new();
            for data in bytes.chunks(step) {
                cutter.feed(Bytes::copy_from_slice(data), |piece| {
                    found.push((piece.part.what, piece.bytes.to_vec()));
                });
            }
            let expected: Vec<_> = spans
                .iter()
                .map(|(offset, length)| {
                    let start = usize::try_from(*offset).unwrap();
                    (*offset, bytes[start..start + usize::try_from(*length).unwrap()].to_vec())
                })
                .collect();
            assert_eq!(found, expected, "{step} bytes at a time");
            assert_eq!(cutter.position, 256);
        }
    }
}
