//! The sums of the first table are what redis-server 7.0.15 answered; those of the second are
//! beyond its precision.

use super::{Decimal, NOT_FINITE, Repr};
use crate::error::CommandError;

fn add(left: &str, right: &str) -> Result<String, CommandError> {
    let sum = Decimal::parse(left.as_bytes())?.add(&Decimal::parse(right.as_bytes())?)?;
    let mut out = Vec::new();
    sum.write(&mut out);
    Ok(String::from_utf8(out).expect("digits are ASCII"))
}

/// Returns the same sum computed by the library, whatever the numbers' size.
fn add_slowly(left: &str, right: &str) -> String {
    let big = |text: &str| {
        let number = Decimal::parse(text.as_bytes()).expect("a number");
        Decimal(Repr::Big(number.big().expect("finite")))
    };
    let mut out = Vec::new();
    big(left).add(&big(right)).expect("in range").write(&mut out);
    String::from_utf8(out).expect("digits are ASCII")
}

const AS_REDIS: &[(&str, &str, &str)] = &[
    ("3.0e3", "5", "3005"),
    ("10.50", "0.1", "10.6"),
    ("10.6", "-5", "5.6"),
    ("5.0e3", "2.0e2", "5200"),
    ("5.0e3", "200", "5200"),
    ("0", "0", "0"),
    ("-0", "-0", "0"),
    ("1", "-1", "0"),
    ("-1.5", "1.5", "0"),
    ("0.1", "0.2", "0.3"),
    ("-0.1", "-0.2", "-0.3"),
    ("1.", "2", "3"),
    (".5", ".5", "1"),
    ("+7", "+.25", "7.25"),
    ("1e1", "1E+1", "20"),
    ("1e-5", "0", "0.00001"),
    ("1e-17", "0", "0.00000000000000001"),
    ("1e-18", "0", "0"),
    ("-1e-18", "0", "0"),
    ("-1e-18", "-1e-30", "0"),
    ("0.000000000000000006", "0", "0.00000000000000001"),
    ("-0.000000000000000006", "0", "-0.00000000000000001"),
    ("000123", "0", "123"),
    ("100", "0", "100"),
    ("100.10", "0", "100.1"),
    ("9007199254740993", "0", "9007199254740993"),
    ("9223372036854775807", "1", "9223372036854775808"),
    ("18446744073709551615", "0", "18446744073709551615"),
    ("-18446744073709551615", "1", "-18446744073709551614"),
    ("1e19", "0", "10000000000000000000"),
    ("1e22", "1e22", "20000000000000000000000"),
    ("-1e22", "0", "-10000000000000000000000"),
    ("0e99999999999999999999", "1", "1"),
    ("3.14159", "2.71828", "5.85987"),
    ("1.23", "-0.03", "1.2"),
    ("0.00001", "0.00002", "0.00003"),
    ("123456.789", "0.211", "123457"),
];

#[test]
fn sums_are_those_of_redis_where_it_is_exact() {
    for (left, right, sum) in AS_REDIS {
        assert_eq!(add(left, right).as_deref(), Ok(*sum), "{left} + {right}");
        assert_eq!(add(right, left).as_deref(), Ok(*sum), "{right} + {left}");
    }
}

#[test]
fn sums_are_exact_beyond_binary_fractions() {
    let long = "9".repeat(40);
    let cases = [
        ("1e300", "1", format!("1{}1", "0".repeat(299))),
        ("1e300", "-1", "9".repeat(300)),
        ("1e300", "1e-17", format!("1{}.00000000000000001", "0".repeat(300))),
        ("1e300", "1e-300", format!("1{}", "0".repeat(300))),
        ("1e4932", "1e4931", format!("11{}", "0".repeat(4931))),
        (&long, "1", format!("1{}", "0".repeat(40))),
        (
            "123456789012345678901234567890.12345678901234567",
            "0",
            "123456789012345678901234567890.12345678901234567".into(),
        ),
        ("0.12345678901234567", "0.00000000000000001", "0.12345678901234568".into()),
        ("0.100000000000000001", "0.000000000000000009", "0.10000000000000001".into()),
        ("1e20", "1e-17", "100000000000000000000.00000000000000001".into()),
        (
            "99999999999999999999.99999999999999999",
            "0.00000000000000001",
            "100000000000000000000".into(),
        ),
        ("99999999999999999999.999999999999999999", "0", "100000000000000000000".into()),
    ];
    for (left, right, sum) in cases {
        assert_eq!(add(left, right).as_deref(), Ok(&*sum), "{left} + {right}");
    }
}

#[test]
fn what_is_behind_17_digits_is_rounded_to_the_nearest_and_ties_to_even() {
    let cases = [
        ("0.000000000000000005", "0"),
        ("0.0000000000000000050000000001", "0.00000000000000001"),
        ("0.000000000000000015", "0.00000000000000002"),
        ("0.000000000000000025", "0.00000000000000002"),
        ("-0.000000000000000015", "-0.00000000000000002"),
        ("-0.000000000000000005", "0"),
        ("0.999999999999999995", "1"),
        ("0.999999999999999994", "0.99999999999999999"),
        ("1e-4950", "0"),
        ("-1e-4950", "0"),
    ];
    for (number, rounded) in cases {
        assert_eq!(add(number, "0").as_deref(), Ok(rounded), "{number}");
    }
    // Rounded once, after the exact sum.
    assert_eq!(
        add("0.000000000000000004", "0.000000000000000004").as_deref(),
        Ok("0.00000000000000001")
    );
}

#[test]
fn what_is_no_number_is_refused() {
    let refused = [
        "",
        "+",
        "-",
        ".",
        "-.",
        "+.e1",
        "e5",
        ".e5",
        "1e",
        "1e+",
        "1e-",
        "1e5.",
        "1e5e5",
        "1.2.3",
        " 1",
        "1 ",
        "1\n",
        "--1",
        "+-1",
        "1-",
        "1_0",
        "1,5",
        "nan",
        "NaN",
        "-nan",
        "nan(1)",
        "in",
        "infi",
        "infinit",
        "infinityy",
        "inf1",
        "inf ",
        "0x10",
        "0x1p3",
        "1f",
        "abc",
        "1\0",
        "\0",
        "\u{661}",
        "1e4933",
        "1.19e4932",
        "1e99999999999999999999",
        "-1e4933",
        "1e-4951",
        "-1e-4951",
        "1e-99999999999999999999",
        "1e9223372036854775807",
        "1e-9223372036854775808",
    ];
    for text in refused {
        let parsed = Decimal::parse(text.as_bytes());
        assert_eq!(parsed.map(|_| ()), Err(CommandError::NotFloat), "{text:?}");
    }
    assert!(Decimal::parse("0".repeat(5 * 1024).as_bytes()).is_err());
    assert!(Decimal::parse("9".repeat(4934).as_bytes()).is_err());
    assert!(Decimal::parse("1".repeat(4933).as_bytes()).is_ok());
}

#[test]
fn the_range_is_that_of_long_double() {
    for text in
        ["1.18973149535723176502e4932", "-1.1897314953572317650e+4932", "3.7e-4951", "1.9e-4951"]
    {
        assert!(Decimal::parse(text.as_bytes()).is_ok_and(|number| number.is_finite()), "{text}");
    }
    for text in ["1.18973149535723176506e4932", "1.8e-4951"] {
        assert!(Decimal::parse(text.as_bytes()).is_err(), "{text}");
    }
    let largest = "1.18973149535723176502e4932";
    for (left, right) in [(largest, largest), ("1e4932", "1.9e4931"), ("-1e4932", "-1e4932")] {
        assert_eq!(add(left, right), Err(NOT_FINITE), "{left} + {right}");
    }
    assert_eq!(add(largest, "-1.18973149535723176502e4932").as_deref(), Ok("0"));
}

#[test]
fn infinities_are_read_but_not_added() {
    for text in ["inf", "-inf", "+inf", "INF", "Infinity", "-iNfInItY"] {
        assert!(Decimal::parse(text.as_bytes()).is_ok_and(|number| !number.is_finite()), "{text}");
        assert_eq!(add(text, "1"), Err(NOT_FINITE), "{text}");
        assert_eq!(add("1e300", text), Err(NOT_FINITE), "{text}");
        assert_eq!(add(text, "-inf"), Err(NOT_FINITE), "{text}");
    }
}

#[test]
fn chained_sums_may_outgrow_128_bits() {
    let step = Decimal::parse(b"99999999999999999999").expect("a number");
    let mut sum = Decimal::ZERO;
    for _ in 0..40 {
        sum = sum.add(&step).and_then(|sum| sum.add(&sum)).expect("in range");
    }
    let mut out = Vec::new();
    sum.write(&mut out);
    // Each round computes x -> 2 (x + step): after n rounds (2^(n+1) - 2) steps.
    assert_eq!(
        out,
        ((1u128 << 41) - 2)
            .checked_mul(99_999_999_999_999_999_999)
            .expect("fits")
            .to_string()
            .as_bytes()
    );
}

#[test]
fn both_ways_to_add_agree() {
    let mut random = Random(7);
    for _ in 0..20_000 {
        let (left, right) = (random.number(), random.number());
        assert_eq!(
            add(&left, &right).as_deref(),
            Ok(&*add_slowly(&left, &right)),
            "{left} + {right}"
        );
    }
}

#[test]
fn mutated_numbers_never_panic_and_what_is_printed_reads_back() {
    let mut random = Random(11);
    let alphabet = b"0123456789+-.eEinfty x\0\xff";
    for _ in 0..50_000 {
        let mut text = random.number().into_bytes();
        for _ in 0..random.below(4) {
            let at = random.below(text.len());
            text[at] = alphabet[random.below(alphabet.len())];
        }
        let Ok(number) = Decimal::parse(&text) else { continue };
        let mut printed = Vec::new();
        number.write(&mut printed);
        let mut again = Vec::new();
        Decimal::parse(&printed).expect("what is printed is a number").write(&mut again);
        assert_eq!(printed, again, "{}", text.escape_ascii());
    }
}

#[test]
fn plain_numbers_read_the_same_as_those_with_an_exponent() {
    let mut random = Random(3);
    for _ in 0..20_000 {
        let number = random.number();
        let plain = number.split('e').next().expect("a mantissa");
        assert_eq!(add(plain, "0"), add(&format!("{plain}e0"), "0"), "{plain}");
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).expect("31 bits") % limit
    }

    fn digits(&mut self, len_max: usize) -> String {
        (0..=self.below(len_max)).map(|_| char::from(b'0' + self.below(10) as u8)).collect()
    }

    fn number(&mut self) -> String {
        let sign = ["", "-", "+"][self.below(3)];
        let fraction = [String::new(), format!(".{}", self.digits(22))][self.below(2)].clone();
        let exponent = ["", "e2", "e-3", "e15", "e-15"][self.below(5)];
        format!("{sign}{}{fraction}{exponent}", self.digits(24))
    }
}
