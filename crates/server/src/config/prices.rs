//! Prices of what an object store bills, from which `savings` computes money.

use std::{fmt, str::FromStr};

use super::options::Options;

/// Greatest price, in USD.
const PRICE_MAX: f64 = 1e6;
/// Digits of a price behind its point.
const DECIMALS: usize = 9;

/// A price in billionths of USD.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Price {
    nano_usd: u64,
}

/// Prices of requests and bytes. The defaults are those of S3 Standard and DynamoDB on demand in
/// us-east-1 at the end of 2024, for a process in the same region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prices {
    /// Price of a million GETs and HEADs.
    pub get: Price,
    /// Price of a million LISTs.
    pub list: Price,
    /// Price of 2^30 bytes that leave the bucket.
    pub egress: Price,
    /// Price of a million read units of DynamoDB.
    pub dynamodb: Price,
}

impl Prices {
    /// Prices of a store that bills nothing.
    pub const NONE: Self = Self {
        get: Price { nano_usd: 0 },
        list: Price { nano_usd: 0 },
        egress: Price { nano_usd: 0 },
        dynamodb: Price { nano_usd: 0 },
    };

    /// Takes the prices that are set, and defaults for the others.
    pub fn of(options: &Options) -> Self {
        let default = Self::default();
        Self {
            get: options.price_get.unwrap_or(default.get),
            list: options.price_list.unwrap_or(default.list),
            egress: options.price_egress.unwrap_or(default.egress),
            dynamodb: options.price_dynamodb.unwrap_or(default.dynamodb),
        }
    }

    /// Returns the prices of the store at a URL: a folder costs nothing.
    pub fn of_store(self, url: &str) -> Self {
        if url.starts_with("file:") { Self::NONE } else { self }
    }
}

impl Default for Prices {
    fn default() -> Self {
        Self {
            get: Price { nano_usd: 400_000_000 },
            list: Price { nano_usd: 5_000_000_000 },
            dynamodb: Price { nano_usd: 125_000_000 },
            ..Self::NONE
        }
    }
}

impl Price {
    /// Returns the price in USD.
    pub fn usd(self) -> f64 {
        self.nano_usd as f64 / 1e9
    }
}

impl FromStr for Price {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
        let is_plain = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
        let fits = !whole.is_empty()
            && is_plain(whole)
            && is_plain(decimals)
            && decimals.len() <= DECIMALS;
        let price = fits.then(|| text.parse::<f64>().ok()).flatten();
        let price = price.filter(|usd| *usd <= PRICE_MAX);
        // At most 10^15, which fits.
        price.map(|usd| Self { nano_usd: (usd * 1e9).round() as u64 }).ok_or_else(|| {
            format!(
                "`{text}` is no price; expected USD from 0 to {PRICE_MAX}, like 0.4, with at most \
                 {DECIMALS} digits behind the point"
            )
        })
    }
}

impl fmt::Display for Price {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.usd().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_plain_numbers_from_0_on() {
        for (text, nano_usd) in [
            ("0", 0),
            ("0.40", 400_000_000),
            ("5.", 5_000_000_000),
            ("0.000000001", 1),
            ("1000000", 1_000_000_000_000_000),
        ] {
            assert_eq!(text.parse(), Ok(Price { nano_usd }), "{text}");
        }
        assert_eq!("0.125".parse::<Price>().unwrap().to_string(), "0.125");
        for text in ["", "-1", "-0.4", "+1", "nan", "inf", "1e3", "0x1", "$1", ".5", "1,5", "1.2.3"]
        {
            let error = text.parse::<Price>().unwrap_err();
            assert!(error.contains("is no price; expected USD from 0 to 1000000"), "{error}");
        }
        for text in ["1000000.1", "1000001", "0.0000000001"] {
            assert!(text.parse::<Price>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_folder_costs_nothing() {
        let prices = Prices::of(&Options {
            price_egress: Some("0.09".parse().unwrap()),
            ..Options::default()
        });
        let all = |Prices { get, list, egress, dynamodb }: Prices| {
            [get, list, egress, dynamodb].map(Price::usd)
        };
        assert_eq!(all(prices.of_store("s3://bucket/{name}")), [0.4, 5.0, 0.09, 0.125]);
        assert_eq!(all(prices.of_store("file:///dolt/{name}")), [0.0; 4]);
    }
}
