//! Doubles as Redis 7.0 prints them: C's `%.17g`.

/// Significant digits with which every double reads back as itself.
const DIGITS: i32 = 17;

/// Formats the number as `%.17g` does, with `inf`, `-inf` and `nan` spelled out.
pub(crate) fn format(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number < 0.0 { "-inf" } else { "inf" }.to_owned();
    }
    let scientific = format!("{number:.16e}");
    let (mantissa, exponent) = scientific.split_once('e').expect("the format has an exponent");
    let exponent: i32 = exponent.parse().expect("the exponent is a small integer");
    if (-4..DIGITS).contains(&exponent) {
        let decimals =
            usize::try_from(DIGITS - 1 - exponent).expect("the exponent is below the digits");
        return without_trailing_zeros(&format!("{number:.decimals$}")).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", without_trailing_zeros(mantissa), exponent.unsigned_abs())
}

fn without_trailing_zeros(text: &str) -> &str {
    if !text.contains('.') {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.')
}

#[cfg(test)]
mod tests {
    use super::format;

    /// Doubles with what glibc's `printf("%.17g")` prints for them.
    #[test]
    fn doubles_print_as_c_does() {
        let cases = [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-1.5, "-1.5"),
            (0.1, "0.10000000000000001"),
            (3.0, "3"),
            (100.0, "100"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (123456789012345680.0, "1.2345678901234568e+17"),
            (0.0001, "0.0001"),
            (0.00001, "1.0000000000000001e-05"),
            (1e300, "1.0000000000000001e+300"),
            (5e-324, "4.9406564584124654e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
            // Exactly between two 17-digit numbers: rounds to the even one.
            (2f64.powi(-25), "2.9802322387695312e-08"),
            (3.0 * 2f64.powi(-25), "8.9406967163085938e-08"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
        ];
        for (number, text) in cases {
            assert_eq!(format(number), text);
        }
    }
}
