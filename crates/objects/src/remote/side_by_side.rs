//! Rates of bodies side by side, from which it shows whether one more brings more.
//!
//! A connection brings a window of bytes per round trip. Far from the store this is less than the
//! link, and several ranges side by side come sooner; over a slow link they do not. So the bytes
//! per second of one, two, three and more bodies together are measured, and one more is sent as
//! long as the last one brought more. Nothing here reads a clock.

use tokio::time::Instant;

use super::limits::{
    SIDE_BY_SIDE_MAX, TOGETHER_GAIN_MIN, TOGETHER_REMEMBERED, TOGETHER_SAMPLE_TIME, TOGETHER_WEIGHT,
};

/// Rates by the number of bodies that come at a time.
#[derive(Debug, Default)]
pub(super) struct SideBySide {
    bodies: usize,
    /// Begin and bytes of the sample, in which the number of bodies has not changed.
    sample: Option<(Instant, u64)>,
    /// Bytes per second of so many bodies together, and the time of the last sample.
    rates: [Option<(f64, Instant)>; SIDE_BY_SIDE_MAX + 1],
}

impl SideBySide {
    pub(super) fn handle_begun(&mut self, now: Instant) {
        self.bodies += 1;
        self.sample = Some((now, 0));
    }

    pub(super) fn handle_ended(&mut self, now: Instant) {
        self.bodies -= 1;
        self.sample = Some((now, 0));
    }

    /// Forgets the sample: bodies were not read for a while.
    pub(super) fn handle_paused(&mut self, now: Instant) {
        self.sample = Some((now, 0));
    }

    pub(super) fn handle_bytes(&mut self, bytes: u64, now: Instant) {
        let (began, before) = self.sample.unwrap_or((now, 0));
        let took = now.saturating_duration_since(began);
        let all = before + bytes;
        self.sample = Some((began, all));
        if took < TOGETHER_SAMPLE_TIME {
            return;
        }
        self.sample = Some((now, 0));
        if let Some(rate) = self.rates.get_mut(self.bodies) {
            let new = all as f64 / took.as_secs_f64();
            let mean = rate.filter(|(_, at)| is_fresh(*at, now)).map_or(new, |(mean, _)| mean);
            *rate = Some((mean + (new - mean) * TOGETHER_WEIGHT, now));
        }
    }

    /// Returns whether one body more, beside those that come now, is likely to bring more.
    pub(super) fn gains_by_one_more(&self, now: Instant) -> bool {
        0 < self.bodies
            && self.bodies < SIDE_BY_SIDE_MAX
            && self.rate(self.bodies, now).is_some()
            && (1..=self.bodies).all(|bodies| self.gains(bodies, now))
    }

    /// Returns whether several bodies brought clearly more than one when they were last measured.
    pub(super) fn gains_by_several(&self) -> bool {
        let Some((one, _)) = self.rates[1] else { return false };
        let several = self.rates[2..].iter().flatten();
        several.into_iter().any(|(rate, _)| one * (1.0 + TOGETHER_GAIN_MIN) <= *rate)
    }

    /// Returns whether one body more than so many brings more, or nobody has tried of late.
    fn gains(&self, bodies: usize, now: Instant) -> bool {
        let (Some(rate), Some(more)) = (self.rate(bodies, now), self.rate(bodies + 1, now)) else {
            return true;
        };
        rate + rate / bodies as f64 * TOGETHER_GAIN_MIN <= more
    }

    fn rate(&self, bodies: usize, now: Instant) -> Option<f64> {
        self.rates[bodies].filter(|(_, at)| is_fresh(*at, now)).map(|(rate, _)| rate)
    }
}

fn is_fresh(measured: Instant, now: Instant) -> bool {
    now.saturating_duration_since(measured) < TOGETHER_REMEMBERED
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Lets the bodies that there are bring so many bytes in each of three seconds.
    fn bring(side: &mut SideBySide, now: &mut Instant, bytes: u64) {
        for _ in 0..3 {
            *now += Duration::from_secs(1);
            side.handle_bytes(bytes, *now);
        }
    }

    #[test]
    fn one_more_is_sent_as_long_as_the_last_one_brought_more() {
        let (mut side, mut now) = (SideBySide::default(), Instant::now());
        assert!(!side.gains_by_one_more(now), "nothing was measured");
        let mut sent = 0;
        // Three connections fill this link.
        for rate in [300, 600, 900, 910] {
            side.handle_begun(now);
            sent += 1;
            assert!(!side.gains_by_one_more(now), "not measured yet: {sent}");
            bring(&mut side, &mut now, rate);
            assert_eq!(side.gains_by_one_more(now), sent < 4, "{sent}");
        }
        side.handle_begun(now);
        bring(&mut side, &mut now, 905);
        assert!(!side.gains_by_one_more(now), "nor do five and six");
        side.handle_ended(now);
        side.handle_ended(now);
        assert!(!side.gains_by_one_more(now), "four brought no more than three");
        assert!(side.gains_by_several());
        side.handle_ended(now);
        assert!(side.gains_by_one_more(now), "three brought more than two");
        now += TOGETHER_REMEMBERED;
        side.handle_begun(now);
        bring(&mut side, &mut now, 900);
        assert!(side.gains_by_one_more(now), "four are tried again");
    }

    #[test]
    fn over_a_slow_link_two_are_tried_once_a_minute() {
        let (mut side, mut now) = (SideBySide::default(), Instant::now());
        side.handle_begun(now);
        bring(&mut side, &mut now, 200);
        side.handle_begun(now);
        bring(&mut side, &mut now, 210);
        assert!(!side.gains_by_one_more(now), "three were never tried");
        side.handle_ended(now);
        bring(&mut side, &mut now, 200);
        assert!(!side.gains_by_one_more(now) && !side.gains_by_several());
        now += Duration::from_secs(30);
        bring(&mut side, &mut now, 200);
        assert!(!side.gains_by_one_more(now));
        now += TOGETHER_REMEMBERED / 2;
        bring(&mut side, &mut now, 200);
        assert!(side.gains_by_one_more(now));
    }

    #[test]
    fn more_bodies_than_are_compared_are_no_error() {
        let (mut side, mut now) = (SideBySide::default(), Instant::now());
        (0..3 * SIDE_BY_SIDE_MAX).for_each(|_| side.handle_begun(now));
        bring(&mut side, &mut now, 1_000);
        assert!(!side.gains_by_one_more(now));
    }
}
