//! Ranges still to be read, merged where little is between them.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    rc::Rc,
};

use busload_chunks::Span;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part<T> {
    pub span: Span,
    /// Purpose of the bytes.
    pub what: T,
}

/// Ranges of one URL that are read by one GET.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region<T> {
    pub url: Rc<str>,
    pub start: u64,
    /// and one past the last.
    pub end: u64,
    /// Parts in the order of their offsets.
    pub parts: Vec<Part<T>>,
}

#[derive(Debug)]
pub struct Regions<T> {
    /// Ranges less far apart are one.
    gap: u64,
    urls: HashMap<Rc<str>, usize>,
    regions: Vec<(Rc<str>, ByStart<T>)>,
    /// Length, URL, start: the last is the largest.
    by_size: BTreeSet<(u64, usize, u64)>,
}

/// The regions of one URL.
type ByStart<T> = BTreeMap<u64, Pending<T>>;

#[derive(Debug)]
struct Pending<T> {
    end: u64,
    parts: Vec<Part<T>>,
}

impl<T> Regions<T> {
    pub fn new(gap: u64) -> Self {
        Self { gap, urls: HashMap::new(), regions: Vec::new(), by_size: BTreeSet::new() }
    }

    /// Adds a range; it becomes a part of a region next to it.
    pub fn insert(&mut self, url: &Rc<str>, span: Span, what: T) {
        let url = self.url(url);
        let (mut start, mut end) = (span.offset, span.offset + u64::from(span.length));
        let mut parts = vec![Part { span, what }];
        while let Some((near_start, near)) = self.take_near(url, start, end) {
            start = start.min(near_start);
            end = end.max(near.end);
            // The longer list grows.
            let mut near = near.parts;
            if near.len() < parts.len() {
                std::mem::swap(&mut near, &mut parts);
            }
            near.append(&mut parts);
            parts = near;
        }
        self.by_size.insert((end - start, url, start));
        self.regions[url].1.insert(start, Pending { end, parts });
    }

    pub fn take_largest(&mut self) -> Option<Region<T>> {
        let (_, url, start) = self.by_size.pop_last()?;
        let (name, regions) = &mut self.regions[url];
        let Pending { end, mut parts } =
            regions.remove(&start).expect("in one map if in the other");
        parts.sort_unstable_by_key(|part| part.span.offset);
        Some(Region { url: Rc::clone(name), start, end, parts })
    }

    fn url(&mut self, url: &Rc<str>) -> usize {
        if let Some(known) = self.urls.get(url) {
            return *known;
        }
        let next = self.regions.len();
        self.urls.insert(Rc::clone(url), next);
        self.regions.push((Rc::clone(url), BTreeMap::new()));
        next
    }

    /// Removes a region that touches these bytes, or nearly.
    fn take_near(&mut self, url: usize, start: u64, end: u64) -> Option<(u64, Pending<T>)> {
        let regions = &mut self.regions[url].1;
        let before =
            regions.range(..=start).next_back().filter(|(_, near)| start < near.end + self.gap);
        let near_start = match before {
            Some((near_start, _)) => *near_start,
            None => *regions.range(start..end + self.gap).next()?.0,
        };
        let near = regions.remove(&near_start).expect("just found");
        self.by_size.remove(&(near.end - near_start, url, near_start));
        Some((near_start, near))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn regions(gap: u64, spans: &[(u64, u32)]) -> Vec<(u64, u64, usize)> {
        let url: Rc<str> = "http://host/file".into();
        let mut regions = Regions::new(gap);
        for (offset, length) in spans {
            regions.insert(&url, Span { offset: *offset, length: *length }, ());
        }
        std::iter::from_fn(|| regions.take_largest())
            .map(|region| (region.start, region.end, region.parts.len()))
            .collect()
    }

    #[test]
    fn ranges_less_than_the_gap_apart_are_one() {
        assert_eq!(regions(8_192, &[(0, 100), (8_291, 100)]), [(0, 8_391, 2)]);
        assert_eq!(regions(8_192, &[(0, 100), (8_292, 100)]), [(8_292, 8_392, 1), (0, 100, 1)]);
        assert_eq!(regions(8_192, &[(8_291, 100), (0, 100)]), [(0, 8_391, 2)]);
        assert_eq!(regions(8_192, &[(8_292, 100), (0, 100)]).len(), 2);
    }

    #[test]
    fn a_range_between_two_makes_them_one() {
        let spans = [(0, 10), (200, 10), (100, 10)];
        assert_eq!(regions(95, &spans), [(0, 210, 3)]);
        assert_eq!(regions(90, &spans).len(), 3);
    }

    #[test]
    fn the_largest_comes_first() {
        let spans = [(0, 10), (100_000, 30), (200_000, 20)];
        let sizes: Vec<_> = regions(10, &spans).iter().map(|(start, end, _)| end - start).collect();
        assert_eq!(sizes, [30, 20, 10]);
    }

    #[test]
    fn files_are_never_merged() {
        let mut regions = Regions::new(8_192);
        for url in ["http://host/a", "http://host/b"] {
            regions.insert(&url.into(), Span { offset: 0, length: 10 }, ());
            regions.insert(&url.into(), Span { offset: 20, length: 10 }, ());
        }
        let urls: Vec<_> =
            std::iter::from_fn(|| regions.take_largest()).map(|region| region.url).collect();
        assert_eq!(urls.len(), 2);
        assert_ne!(urls[0], urls[1]);
    }

    #[test]
    fn however_ranges_come_the_regions_are_those_of_the_sorted_list() {
        let mut random = Random::new(1);
        for _ in 0..50 {
            let mut spans: Vec<(u64, u32)> = (0..200).map(|number| (number * 500, 100)).collect();
            random.shuffle(&mut spans);
            spans.truncate(120);
            let mut found = regions(600, &spans);
            found.sort_unstable();
            spans.sort_unstable();
            let mut expected: Vec<(u64, u64, usize)> = Vec::new();
            for (offset, length) in spans {
                let end = offset + u64::from(length);
                match expected.last_mut() {
                    Some(last) if offset < last.1 + 600 => (last.1, last.2) = (end, last.2 + 1),
                    _ => expected.push((offset, end, 1)),
                }
            }
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn parts_are_in_the_order_of_their_bytes() {
        let mut regions = Regions::new(100);
        for offset in [40, 0, 20, 60] {
            regions.insert(&"http://host/a".into(), Span { offset, length: 10 }, offset);
        }
        let region = regions.take_largest().unwrap();
        assert_eq!(region.parts.iter().map(|part| part.what).collect::<Vec<_>>(), [0, 20, 40, 60]);
        assert_eq!((region.start, region.end), (0, 70));
    }
}
