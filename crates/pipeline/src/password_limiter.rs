//! Limits how fast one address may guess passwords.
//!
//! Each address may try some passwords at once and one more each second. Beyond that a password
//! from there is refused without being checked, even the right one: an answer would tell whether it
//! was right. Clients that share the address of a guesser (behind one router, or on this machine)
//! cannot log in meanwhile either; clients that have logged in are not asked again. Other addresses
//! are not affected.
//!
//! **Limits.** A limited number of addresses is tracked; all further ones count as one. An address
//! is forgotten when it has regained all its attempts. All clients of a Unix socket count as one
//! address, and so does an IPv6 network that one customer gets (64 bits).

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    time::Duration,
};

use busload_io::Address;

use crate::limits::{GUESS_ADDRESSES_MAX, GUESS_INTERVAL, GUESSES_AT_ONCE};

/// Time in which an address regains all attempts but one.
const SPENT_MAX: Duration = GUESS_INTERVAL.checked_mul(GUESSES_AT_ONCE - 1).expect("it is short");
/// Bits of an IPv6 address that tell customers apart.
const NETWORK: u128 = !0 << 64;

/// Address that passwords come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClientAddress {
    /// A Unix socket of this machine.
    Unix,
    /// An IPv4 address or an IPv6 network.
    Network(IpAddr),
}

/// Counts wrong passwords by the address they came from. Time is an argument.
#[derive(Debug, Default)]
pub struct PasswordLimiter {
    /// Time at which each address has regained all its attempts.
    full_at: HashMap<ClientAddress, Duration>,
    /// The same for the addresses that are not tracked separately.
    others_full_at: Duration,
    /// Time of the last sweep that forgot the addresses with all attempts regained.
    swept_at: Duration,
}

impl From<&Address> for ClientAddress {
    fn from(address: &Address) -> Self {
        match address {
            Address::Unix(_) => Self::Unix,
            Address::Tcp(address) => address.ip().into(),
        }
    }
}

impl From<IpAddr> for ClientAddress {
    fn from(address: IpAddr) -> Self {
        Self::Network(match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & NETWORK)),
            address => address,
        })
    }
}

impl PasswordLimiter {
    /// Returns how long passwords from this address are refused, or `None` when the next one is
    /// checked.
    pub fn wait(&self, client: ClientAddress, now: Duration) -> Option<Duration> {
        let full_at =
            self.full_at.get(&client).copied().unwrap_or_else(|| match self.has_space() {
                true => Duration::ZERO,
                false => self.others_full_at,
            });
        let wait = full_at.saturating_sub(now).saturating_sub(SPENT_MAX);
        (!wait.is_zero()).then_some(wait)
    }

    /// Counts a wrong password from this address.
    pub fn note_wrong(&mut self, client: ClientAddress, now: Duration) {
        if !self.has_space() && GUESS_INTERVAL <= now.saturating_sub(self.swept_at) {
            self.swept_at = now;
            self.full_at.retain(|_, full_at| now < *full_at);
        }
        let has_space = self.has_space();
        let full_at = match self.full_at.get_mut(&client) {
            Some(full_at) => full_at,
            None if has_space => self.full_at.entry(client).or_default(),
            None => &mut self.others_full_at,
        };
        *full_at = now.max(*full_at) + GUESS_INTERVAL;
    }

    /// Takes back a password that was counted as wrong before it was verified, and was right.
    pub fn note_right(&mut self, client: ClientAddress) {
        let full_at = match self.full_at.get_mut(&client) {
            Some(full_at) => full_at,
            None => &mut self.others_full_at,
        };
        *full_at = full_at.saturating_sub(GUESS_INTERVAL);
    }

    fn has_space(&self) -> bool {
        self.full_at.len() < GUESS_ADDRESSES_MAX
    }
}

/// Rounds a wait up to seconds, for people and programs.
pub fn whole_seconds(wait: Duration) -> u64 {
    wait.as_millis().div_ceil(1000).try_into().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(address: &str) -> ClientAddress {
        ClientAddress::from(address.parse::<IpAddr>().unwrap())
    }

    /// Returns how many passwords are checked at this moment.
    fn guess(guesses: &mut PasswordLimiter, client: ClientAddress, now: Duration) -> u32 {
        let mut count = 0;
        while guesses.wait(client, now).is_none() {
            guesses.note_wrong(client, now);
            count += 1;
        }
        count
    }

    #[test]
    fn an_address_has_some_guesses_at_once_and_one_more_each_second() {
        let (mut guesses, guesser, other) =
            (PasswordLimiter::default(), of("10.0.0.1"), of("10.0.0.2"));
        let mut now = Duration::from_secs(1_000);
        assert_eq!(guess(&mut guesses, guesser, now), GUESSES_AT_ONCE);
        assert_eq!(guesses.wait(guesser, now), Some(GUESS_INTERVAL));
        assert_eq!(guesses.wait(other, now), None);
        for _ in 0..100 {
            now += GUESS_INTERVAL / 2;
            assert_eq!(guess(&mut guesses, guesser, now), 0);
            now += GUESS_INTERVAL / 2;
            assert_eq!(guess(&mut guesses, guesser, now), 1);
        }
        now += GUESS_INTERVAL * GUESSES_AT_ONCE;
        assert_eq!(guess(&mut guesses, guesser, now), GUESSES_AT_ONCE, "and no more than that");
    }

    #[test]
    fn who_cannot_be_remembered_shares_with_others_like_it_and_harms_nobody_else() {
        let mut guesses = PasswordLimiter::default();
        let known = |index: usize| {
            ClientAddress::from(IpAddr::from(u32::try_from(index).unwrap().to_be_bytes()))
        };
        let now = Duration::from_secs(5);
        (0..GUESS_ADDRESSES_MAX)
            .for_each(|index| assert_eq!(guess(&mut guesses, known(index), now), GUESSES_AT_ONCE));
        assert_eq!(guess(&mut guesses, of("10.0.0.1"), now), GUESSES_AT_ONCE);
        assert_eq!(guess(&mut guesses, of("10.0.0.2"), now), 0, "they count as one");
        assert_eq!(guesses.full_at.len(), GUESS_ADDRESSES_MAX);
        let later = now + GUESS_INTERVAL;
        assert_eq!(guess(&mut guesses, known(7), later), 1, "the others have their own");
        // When the tracked addresses have regained their attempts, another one can be tracked.
        let late = later + GUESS_INTERVAL * GUESSES_AT_ONCE;
        assert_eq!(guess(&mut guesses, of("10.0.0.2"), late), GUESSES_AT_ONCE);
        assert!(guesses.full_at.len() < 3, "{}", guesses.full_at.len());
    }

    #[test]
    fn one_customer_is_one() {
        let tcp = |text: &str| ClientAddress::from(&Address::Tcp(text.parse().unwrap()));
        assert_eq!(tcp("10.0.0.1:1"), tcp("10.0.0.1:2"));
        assert_ne!(tcp("10.0.0.1:1"), tcp("10.0.0.2:1"));
        assert_eq!(tcp("10.0.0.1:1"), tcp("[::ffff:10.0.0.1]:1"));
        assert_eq!(tcp("[2001:db8::1]:1"), tcp("[2001:db8::ffff:1]:1"));
        assert_ne!(tcp("[2001:db8::1]:1"), tcp("[2001:db8:0:1::1]:1"));
        assert_eq!(
            ClientAddress::from(&Address::Unix("/a".into())),
            ClientAddress::from(&Address::Unix("/b".into()))
        );
    }

    #[test]
    fn a_wait_is_told_in_whole_seconds() {
        for (millis, seconds) in [(1, 1), (999, 1), (1000, 1), (1001, 2)] {
            assert_eq!(whole_seconds(Duration::from_millis(millis)), seconds);
        }
    }
}
