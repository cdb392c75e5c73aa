//! Tokens that Dolt's clients sign with their credentials: a JWT (RFC 7519) with Ed25519 (`EdDSA`,
//! RFC 8037). Its header names the key by an id, the hash of the public key.
//!
//! The key alone decides how a signature is verified; the header's `alg` can only be refused.

use std::{fmt, time::Duration};

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use ring::signature::{ED25519, UnparsedPublicKey};
use serde_json::Value;
use sha2::{Digest, Sha512_224};

use super::limits::CLOCK_SKEW;

/// Algorithm that Dolt signs with.
const ALGORITHM: &str = "EdDSA";
/// Digits of Dolt's base 32, most significant bits first, without padding.
const DIGITS: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";
/// Length of a public key.
const KEY_BYTES: usize = 32;

/// Public key of a pair that `dolt creds new` made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DoltKey([u8; KEY_BYTES]);

/// Parts of a token that has the form of a JWT. Nothing of it is verified.
#[derive(Debug)]
pub struct Unverified<'a> {
    header: Value,
    signed: &'a str,
    claims: &'a str,
    signature: &'a str,
}

/// Reason why a JWT is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JwtError {
    /// It is signed in another way.
    Algorithm,
    /// The signature is not that of the key.
    Signature,
    /// Claims are missing, or no JSON.
    Malformed,
    /// It is not valid any more.
    Expired,
    /// It is not valid yet.
    Early,
    /// It is for another server.
    Audience,
}

impl DoltKey {
    /// Parses a key as `dolt creds ls -v` prints it.
    pub fn parse(text: &str) -> Option<Self> {
        let (mut bytes, mut bits, mut count) = (Vec::with_capacity(KEY_BYTES), 0_u16, 0);
        for digit in text.bytes() {
            let value = DIGITS.iter().position(|known| *known == digit)?;
            bits = (bits << 5) | u16::try_from(value).ok()?;
            count += 5;
            if 8 <= count {
                count -= 8;
                bytes.push(u8::try_from(bits >> count).ok()?);
                bits &= (1 << count) - 1;
            }
        }
        let key = bytes.try_into().ok().map(Self)?;
        // Only one text stands for a key.
        (base32(&key.0) == text).then_some(key)
    }

    /// Returns the id that tokens name the key by.
    pub fn id(&self) -> String {
        base32(&Sha512_224::digest(self.0))
    }
}

fn base32(bytes: &[u8]) -> String {
    let bit = |index: usize| {
        bytes.get(index / 8).map_or(0, |byte| usize::from(byte >> (7 - index % 8) & 1))
    };
    let digits = (0..(bytes.len() * 8).div_ceil(5))
        .map(|digit| (0..5).fold(0, |value, at| value << 1 | bit(digit * 5 + at)));
    digits.map(|value| char::from(DIGITS[value])).collect()
}

impl<'a> Unverified<'a> {
    /// Takes a token apart, if it has the form of a JWT.
    pub fn parse(token: &'a str) -> Option<Self> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let header = json(header)?;
        header.is_object().then_some(Self { header, signed, claims, signature })
    }

    /// Returns the id of the key that is said to have signed it.
    pub fn key_id(&self) -> Option<&str> {
        self.header.get("kid")?.as_str()
    }

    /// Verifies signature, times and audience.
    pub fn verify(
        &self,
        key: &DoltKey,
        now: Duration,
        is_audience: impl Fn(&str) -> bool,
    ) -> Result<(), JwtError> {
        if self.header.get("alg").and_then(Value::as_str) != Some(ALGORITHM)
            || self.header.get("crit").is_some()
        {
            return Err(JwtError::Algorithm);
        }
        let signature =
            BASE64_URL_SAFE_NO_PAD.decode(self.signature).map_err(|_| JwtError::Signature)?;
        UnparsedPublicKey::new(&ED25519, key.0)
            .verify(self.signed.as_bytes(), &signature)
            .map_err(|_| JwtError::Signature)?;
        let claims = json(self.claims).ok_or(JwtError::Malformed)?;
        let seconds = |name| match claims.get(name) {
            None => Ok(None),
            Some(value) => value.as_f64().map(Some).ok_or(JwtError::Malformed),
        };
        let (now, skew) = (now.as_secs_f64(), CLOCK_SKEW.as_secs_f64());
        if seconds("exp")?.ok_or(JwtError::Malformed)? + skew <= now {
            return Err(JwtError::Expired);
        }
        if seconds("nbf")?.is_some_and(|from| now + skew < from) {
            return Err(JwtError::Early);
        }
        let fits = match claims.get("aud") {
            Some(Value::String(audience)) => is_audience(audience),
            Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).any(is_audience),
            _ => false,
        };
        if fits { Ok(()) } else { Err(JwtError::Audience) }
    }
}

fn json(part: &str) -> Option<Value> {
    serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(part).ok()?).ok()
}

impl fmt::Display for JwtError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Algorithm => "the token is signed in another way than with Ed25519 (EdDSA)",
            Self::Signature => "the token's signature is not that of its key",
            Self::Malformed => "the token's claims are malformed; expected JSON with exp and aud",
            Self::Expired => "the token has expired; compare the clocks of client and server",
            Self::Early => "the token is not valid yet; compare the clocks of client and server",
            Self::Audience => "the token is for another audience than this server",
        })
    }
}

#[cfg(test)]
pub mod tests {
    use ring::signature::{Ed25519KeyPair, KeyPair};
    use serde_json::json;

    use super::*;

    pub const NOW: Duration = Duration::from_secs(1_800_000_000);

    /// Makes a key pair and the public key's text.
    pub fn pair(seed: u8) -> (Ed25519KeyPair, String) {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap();
        let text = base32(pair.public_key().as_ref());
        (pair, text)
    }

    pub fn signed(pair: &Ed25519KeyPair, header: &Value, claims: &Value) -> String {
        let encode = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", encode(header), encode(claims));
        let signature = BASE64_URL_SAFE_NO_PAD.encode(pair.sign(signed.as_bytes()));
        format!("{signed}.{signature}")
    }

    fn verified(alg: &str, claims: &Value, signer: u8) -> Result<(), JwtError> {
        let (_, text) = pair(1);
        let key = DoltKey::parse(&text).unwrap();
        let token = signed(&pair(signer).0, &json!({"alg": alg, "kid": key.id()}), claims);
        let unverified = Unverified::parse(&token).unwrap();
        assert_eq!(unverified.key_id(), Some(&*key.id()));
        unverified.verify(&key, NOW, |audience| audience == "host")
    }

    #[test]
    fn only_the_keys_own_signature_for_this_server_and_time_is_taken() {
        let now = NOW.as_secs();
        let good = json!({"aud": "host", "exp": now + 30});
        assert_eq!(verified("EdDSA", &good, 1), Ok(()));
        assert_eq!(verified("EdDSA", &json!({"aud": ["x", "host"], "exp": now - 59}), 1), Ok(()));
        for alg in ["none", "HS256", "ES256", "eddsa", ""] {
            assert_eq!(verified(alg, &good, 1), Err(JwtError::Algorithm), "{alg}");
        }
        assert_eq!(verified("EdDSA", &good, 2), Err(JwtError::Signature));
        for (claims, error) in [
            (json!({"aud": "host", "exp": now - 60}), JwtError::Expired),
            (json!({"aud": "host", "exp": now + 30, "nbf": now + 61}), JwtError::Early),
            (json!({"aud": "other", "exp": now + 30}), JwtError::Audience),
            (json!({"exp": now + 30}), JwtError::Audience),
            (json!({"aud": "host"}), JwtError::Malformed),
            (json!({"aud": "host", "exp": "soon"}), JwtError::Malformed),
        ] {
            assert_eq!(verified("EdDSA", &claims, 1), Err(error), "{claims}");
        }
    }

    #[test]
    fn keys_have_one_text_and_an_id_of_45_digits() {
        let (_, text) = pair(7);
        assert_eq!(text.len(), 52);
        assert_eq!(DoltKey::parse(&text).unwrap().id().len(), 45);
        for wrong in ["", &text[1..], &text.to_uppercase(), &format!("{}w", &text[..51])] {
            assert_eq!(DoltKey::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn other_texts_are_no_jwt() {
        for text in ["", "a", "a.b.c", "..", "bnVsbA.bnVsbA.x"] {
            assert!(Unverified::parse(text).is_none(), "{text}");
        }
    }
}
