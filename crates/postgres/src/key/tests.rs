use proptest::prelude::*;

use super::{Key, KeyEncoder, KeyShape, KeyType};

fn shape(types: &[KeyType]) -> KeyShape {
    let columns: Vec<_> =
        types.iter().enumerate().map(|(index, &one)| (format!("c{index}"), one)).collect();
    KeyShape::new(&columns, ':')
}

fn binary(shape: &KeyShape, key: &Key) -> Vec<Vec<u8>> {
    key.parts()
        .zip(shape.types())
        .map(|(part, &element)| {
            let mut bytes = Vec::new();
            part.write_binary(element, &mut |slice| bytes.extend_from_slice(slice));
            bytes
        })
        .collect()
}

/// Decodes a row's key: from the binary form back to the encoded one.
fn from_binary(shape: &KeyShape, parts: &[Vec<u8>]) -> Key {
    let mut encoder = KeyEncoder::default();
    for (index, (&key_type, raw)) in shape.types().iter().zip(parts).enumerate() {
        encoder.binary(key_type, raw, shape.position(index)).expect("it is of its type");
    }
    encoder.key()
}

fn escape(part: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for &byte in part {
        if byte == b':' || byte == b'\\' {
            out.push(b'\\');
        }
        out.push(byte);
    }
    out
}

#[test]
fn spellings_of_one_key_are_one_key() {
    let same: [(KeyType, &[&str]); 3] = [
        (KeyType::Int4, &["7", "007", "+7"]),
        (KeyType::Int8, &["-9223372036854775808"]),
        (
            KeyType::Uuid,
            &[
                "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
                "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
                "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}",
                "a0eebc999c0b4ef8bb6d6bb9bd380a11",
            ],
        ),
    ];
    for (key_type, spellings) in same {
        let keys: Vec<_> = spellings
            .iter()
            .map(|text| shape(&[key_type]).parse(text.as_bytes()).expect(text))
            .collect();
        assert!(keys.windows(2).all(|pair| pair[0] == pair[1]), "{keys:?}");
    }
}

#[test]
fn what_a_column_cannot_hold_is_refused_with_the_reason() {
    let cases: [(&[KeyType], &[u8], &str); 13] = [
        (
            &[KeyType::Text],
            b"a\0b",
            "the key holds a NUL byte, which text in Postgres cannot (column c0 is text)",
        ),
        (&[KeyType::Text], b"\xff", "the key is not UTF-8 (column c0 is text)"),
        (
            &[KeyType::Int2],
            b"32768",
            "the key is not a whole number from -32768 to 32767 (column c0 is int2)",
        ),
        (
            &[KeyType::Int4],
            b"2147483648",
            "the key is not a whole number from -2147483648 to 2147483647 (column c0 is int4)",
        ),
        (
            &[KeyType::Int8],
            b"9223372036854775808",
            "the key is not a whole number of 64 bits (column c0 is int8)",
        ),
        (&[KeyType::Int8], b"", "the key is not a whole number of 64 bits (column c0 is int8)"),
        (&[KeyType::Int8], b" 1", "the key is not a whole number of 64 bits (column c0 is int8)"),
        (&[KeyType::Int8], b"\xff", "the key is not a whole number of 64 bits (column c0 is int8)"),
        (&[KeyType::Uuid], b"a0eebc99", "the key is not a UUID (column c0 is uuid)"),
        (
            &[KeyType::Text, KeyType::Int4],
            b"a",
            "the key has 1 part, expected 2: c0:c1 \
             (a backslash before : or \\ makes it part of a value)",
        ),
        (
            &[KeyType::Text, KeyType::Int4],
            b"a:1:2",
            "the key has 3 parts, expected 2: c0:c1 \
             (a backslash before : or \\ makes it part of a value)",
        ),
        (
            &[KeyType::Text, KeyType::Int4],
            b"a:b",
            "the key's part 2 is not a whole number from -2147483648 to 2147483647 \
             (column c1 is int4)",
        ),
        (
            &[KeyType::Text, KeyType::Int4],
            b"a\\b:1",
            "in a key of several parts a backslash stands before : or another backslash",
        ),
    ];
    for (types, raw, expected) in cases {
        let error = shape(types).parse(raw).expect_err(expected);
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn a_backslash_or_separator_in_a_key_of_one_column_is_itself() {
    let shape = shape(&[KeyType::Text]);
    let key = shape.parse(b"a\\b:c").expect("one column needs no escapes");
    assert_eq!(binary(&shape, &key), [b"a\\b:c".to_vec()]);
}

#[test]
fn a_separator_of_several_bytes_divides_and_is_escaped() {
    let columns = [("a".to_owned(), KeyType::Text), ("b".to_owned(), KeyType::Text)];
    let shape = KeyShape::new(&columns, '\u{2192}');
    let key = shape.parse("x\u{2192}y\\\u{2192}z".as_bytes()).expect("two parts");
    assert_eq!(binary(&shape, &key), [b"x".to_vec(), "y\u{2192}z".as_bytes().to_vec()]);
}

#[test]
fn a_key_of_another_shape_does_not_fit() {
    let key = shape(&[KeyType::Int4]).parse(b"1").expect("a number");
    assert!(shape(&[KeyType::Int4]).fits(&key));
    for types in [&[KeyType::Text][..], &[KeyType::Uuid], &[KeyType::Int4, KeyType::Int4]] {
        assert!(!shape(types).fits(&key), "{types:?}");
    }
    let pair = shape(&[KeyType::Int4, KeyType::Int4]).parse(b"1:2").expect("two numbers");
    assert!(!shape(&[KeyType::Int4]).fits(&pair));
}

/// `ALTER TABLE t ALTER COLUMN k TYPE bigint` comes between parsing and sending.
#[test]
fn an_integer_stays_the_same_key_in_a_wider_column_and_in_a_narrower_one_that_can_hold_it() {
    for types in [KeyType::Int2, KeyType::Int4, KeyType::Int8] {
        let small = shape(&[types]).parse(b"-7").expect("a number");
        assert_eq!(small, shape(&[KeyType::Int8]).parse(b"-7").expect("a number"));
        for other in [KeyType::Int2, KeyType::Int4, KeyType::Int8] {
            assert!(shape(&[other]).fits(&small), "{types:?} {other:?}");
        }
    }
    let large = shape(&[KeyType::Int8]).parse(b"2147483648").expect("a number");
    assert!(!shape(&[KeyType::Int4]).fits(&large));
}

#[test]
fn common_keys_need_no_memory_of_their_own() {
    let key = shape(&[KeyType::Text]).parse(b"00000000000000000042").expect("text");
    assert_eq!(key.memory_bytes(), size_of::<Key>());
    assert_eq!(size_of::<Key>(), 32);
}

proptest! {
    #[test]
    fn keys_of_one_column_sort_as_postgres_sorts_them(
        mut numbers: Vec<i64>,
        mut texts: Vec<String>,
    ) {
        let numbers_shape = shape(&[KeyType::Int8]);
        let mut keys: Vec<_> = numbers
            .iter()
            .map(|number| numbers_shape.parse(number.to_string().as_bytes()).expect("in range"))
            .collect();
        keys.sort();
        numbers.sort_unstable();
        prop_assert_eq!(
            keys.iter().flat_map(|key| binary(&numbers_shape, key)).collect::<Vec<_>>(),
            numbers.iter().map(|number| number.to_be_bytes().to_vec()).collect::<Vec<_>>()
        );

        texts.retain(|text| !text.contains('\0'));
        let texts_shape = shape(&[KeyType::Text]);
        let mut keys: Vec<_> = texts
            .iter()
            .map(|text| texts_shape.parse(text.as_bytes()).expect("text"))
            .collect();
        keys.sort();
        texts.sort_unstable();
        prop_assert_eq!(
            keys.iter().flat_map(|key| binary(&texts_shape, key)).collect::<Vec<_>>(),
            texts.iter().map(|text| text.as_bytes().to_vec()).collect::<Vec<_>>()
        );
    }

    #[test]
    fn a_composite_key_comes_back_from_its_row(
        text in "[^\0]{0,40}",
        bytes: Vec<u8>,
        small: i16,
        middle: i32,
        large: i64,
        uuid: [u8; 16],
        last in "[^\0]{0,40}",
    ) {
        let shape = shape(&[
            KeyType::Text,
            KeyType::Bytes,
            KeyType::Int2,
            KeyType::Int4,
            KeyType::Int8,
            KeyType::Uuid,
            KeyType::Text,
        ]);
        let uuid = uuid::Uuid::from_bytes(uuid);
        let parts = [
            escape(text.as_bytes()),
            escape(&bytes),
            small.to_string().into(),
            middle.to_string().into(),
            large.to_string().into(),
            uuid.to_string().into(),
            escape(last.as_bytes()),
        ];
        let key = shape.parse(&parts.join(&b':')).expect("seven parts");
        let raw = binary(&shape, &key);
        prop_assert_eq!(&raw, &[
            text.into_bytes(), bytes, small.to_be_bytes().to_vec(), middle.to_be_bytes().to_vec(),
            large.to_be_bytes().to_vec(), uuid.as_bytes().to_vec(), last.into_bytes(),
        ]);
        prop_assert!(shape.fits(&key));
        prop_assert_eq!(from_binary(&shape, &raw), key);
    }

    #[test]
    fn no_input_breaks_the_parser(raw: Vec<u8>) {
        for types in [
            &[KeyType::Text][..],
            &[KeyType::Uuid],
            &[KeyType::Bytes, KeyType::Text],
            &[KeyType::Int8, KeyType::Int2],
        ] {
            if let Ok(key) = shape(types).parse(&raw) {
                prop_assert_eq!(from_binary(&shape(types), &binary(&shape(types), &key)), key);
            }
        }
    }
}
