//! The addresses that requests for chunk locations ask for, each once.

use std::collections::HashMap;

use busload_calls::{addresses, check_count};
use busload_dolt::ChunkAddress;
use bytes::Bytes;
use tonic::Status as Refusal;

/// Addresses that one request asks for.
#[derive(Debug, PartialEq, Eq)]
pub struct Question {
    /// Addresses, without any duplicates.
    pub addresses: Vec<ChunkAddress>,
    /// For each entry of the request, its index in `addresses`.
    pub entries: Vec<usize>,
}

impl Question {
    /// Parses addresses that are concatenated.
    pub fn of_packed(field: &str, bytes: &[u8]) -> Result<Self, Refusal> {
        Ok(Self::new(addresses(field, bytes)?.iter().copied()))
    }

    /// Parses a list of addresses.
    pub fn of_list(field: &str, list: &[Bytes]) -> Result<Self, Refusal> {
        Ok(Self::new(listed(field, list)?.into_iter().map(|ChunkAddress(bytes)| bytes)))
    }

    fn new(requested: impl ExactSizeIterator<Item = [u8; ChunkAddress::BYTES]>) -> Self {
        let mut distinct = Distinct::with_capacity(requested.len());
        let entries = requested.map(|address| distinct.index(ChunkAddress(address))).collect();
        Self { addresses: distinct.addresses, entries }
    }
}

/// A list of addresses without duplicates.
struct Distinct {
    addresses: Vec<ChunkAddress>,
    known: HashMap<ChunkAddress, usize>,
}

impl Distinct {
    fn with_capacity(count: usize) -> Self {
        Self { addresses: Vec::with_capacity(count), known: HashMap::with_capacity(count) }
    }

    fn index(&mut self, address: ChunkAddress) -> usize {
        *self.known.entry(address).or_insert_with(|| {
            self.addresses.push(address);
            self.addresses.len() - 1
        })
    }
}

/// Addresses that the requests of a batch ask for.
#[derive(Debug, PartialEq, Eq)]
pub struct MergedQuestions {
    /// Addresses, without any duplicates.
    pub addresses: Vec<ChunkAddress>,
    /// For each request, the index in `addresses` of each of its entries.
    pub entries: Vec<Vec<usize>>,
}

impl MergedQuestions {
    /// Merges these questions, keeping their order.
    pub fn of<'a>(questions: impl Iterator<Item = &'a Question> + Clone) -> Self {
        let mut distinct = Distinct::with_capacity(
            questions.clone().map(|question| question.addresses.len()).sum(),
        );
        let entries = |question: &Question| {
            let indexes: Vec<usize> =
                question.addresses.iter().map(|address| distinct.index(*address)).collect();
            question.entries.iter().map(|&entry| indexes[entry]).collect()
        };
        let entries = questions.map(entries).collect();
        Self { addresses: distinct.addresses, entries }
    }
}

/// Parses the addresses of a list.
pub fn listed(field: &str, list: &[Bytes]) -> Result<Vec<ChunkAddress>, Refusal> {
    check_count(field, list.len())?;
    let address = |(index, bytes): (usize, &Bytes)| {
        let address = <[u8; ChunkAddress::BYTES]>::try_from(&bytes[..]).map_err(|_| {
            let bytes = bytes.len();
            Refusal::invalid_argument(format!(
                "{field}: expected 20 bytes each, got {bytes} at index {index}"
            ))
        })?;
        Ok(ChunkAddress(address))
    };
    list.iter().enumerate().map(address).collect()
}

#[cfg(test)]
mod tests {
    use busload_calls::limits::ADDRESS_COUNT_MAX;
    use tonic::Code;

    use super::*;

    fn address(number: u8) -> ChunkAddress {
        ChunkAddress([number; 20])
    }

    fn question(numbers: &[u8]) -> Question {
        let packed: Vec<u8> = numbers.iter().flat_map(|number| [*number; 20]).collect();
        Question::of_packed("chunk_hashes", &packed).unwrap()
    }

    fn merged(asked: &[&[u8]]) -> MergedQuestions {
        let questions: Vec<Question> = asked.iter().map(|numbers| question(numbers)).collect();
        MergedQuestions::of(questions.iter())
    }

    #[test]
    fn an_address_asked_for_twice_is_one() {
        let asked = question(&[3, 1, 3, 2, 1]);
        assert_eq!(asked.addresses, [3, 1, 2].map(address));
        assert_eq!(asked.entries, [0, 1, 0, 2, 1]);
        let listed: Vec<Bytes> = [3, 1, 3, 2, 1].map(|number| Bytes::from(vec![number; 20])).into();
        assert_eq!(Question::of_list("chunk_hashes", &listed).unwrap(), asked);
    }

    #[test]
    fn an_address_that_several_requests_ask_for_is_one() {
        let MergedQuestions { addresses, entries } =
            merged(&[&[3, 1, 3], &[], &[1, 2, 1, 4], &[4]]);
        assert_eq!(addresses, [3, 1, 2, 4].map(address));
        assert_eq!(entries, [vec![0, 1, 0], vec![], vec![1, 2, 1, 3], vec![3]]);
        assert_eq!(merged(&[]), MergedQuestions { addresses: vec![], entries: vec![] });
    }

    #[test]
    fn other_bytes_than_addresses_are_refused() {
        let refused = |outcome: Result<Question, Refusal>, expected: &str| {
            let refusal = outcome.unwrap_err();
            assert_eq!(refusal.code(), Code::InvalidArgument);
            assert_eq!(refusal.message(), expected);
        };
        refused(
            Question::of_packed("chunk_hashes", &[0; 39]),
            "chunk_hashes: expected a multiple of 20 bytes, got 39",
        );
        refused(
            Question::of_packed("chunk_hashes", &[0; 20 * (ADDRESS_COUNT_MAX + 1)]),
            "chunk_hashes: expected at most 16384, got 16385",
        );
        let [whole, part] = [20, 19].map(|bytes| Bytes::from(vec![0; bytes]));
        refused(
            Question::of_list("hashes", &[whole.clone(), part]),
            "hashes: expected 20 bytes each, got 19 at index 1",
        );
        refused(
            Question::of_list("hashes", &vec![whole.clone(); ADDRESS_COUNT_MAX + 1]),
            "hashes: expected at most 16384, got 16385",
        );
        assert_eq!(
            Question::of_list("hashes", &vec![whole; ADDRESS_COUNT_MAX]).unwrap().addresses.len(),
            1
        );
        assert_eq!(question(&[]), Question { addresses: vec![], entries: vec![] });
    }
}
