//! Numbers of bytes, as people write them.

use crate::{harness::measurement, stats::float};

/// Bytes as `4096`, `16k`, `64KiB`, `1G`: multiples of 1,024 whether the `i` is there or not.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let lower = text.to_ascii_lowercase();
    let digits = lower.trim_end_matches(|letter: char| letter.is_ascii_lowercase());
    let shift = match &lower[digits.len()..] {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(format!("`{text}`: the units of bytes are k, M, G and T")),
    };
    let bytes = digits.parse::<u64>().ok().and_then(|count| count.checked_mul(1_u64 << shift));
    bytes.ok_or_else(|| format!("`{text}` is no number of bytes, as 4096, 16k or 1G"))
}

/// Bytes in the largest unit that leaves at least one.
pub fn bytes_text(bytes: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let Some((shift, unit)) = units.into_iter().find(|(shift, _)| 1 <= bytes >> shift) else {
        return format!("{bytes} B");
    };
    let value = measurement(float(bytes) / float(1_u64 << shift));
    format!("{} {unit}", value.trim_end_matches(".00").trim_end_matches(".0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_powers_of_1024() {
        let texts = ["0", "4096", "16k", "1KiB", "3M", "2g"];
        let parsed = texts.map(|text| parse_bytes(text).unwrap());
        assert_eq!(parsed, [0, 4_096, 16_384, 1_024, 3 << 20, 2 << 30]);
        for wrong in ["", "k", "1.5k", "-1", "1 k", "1x", "99999999999T"] {
            assert!(parse_bytes(wrong).is_err(), "{wrong}");
        }
        let texts = [0, 1_023, 16_384, 1 << 30, 1_610_612_736].map(bytes_text);
        assert_eq!(texts, ["0 B", "1023 B", "16 KiB", "1 GiB", "1.50 GiB"]);
    }
}
