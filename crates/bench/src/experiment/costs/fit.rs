//! A line through the costs of batches: a fixed price, and one for each item.

/// Cost of an operation, as far as a line tells it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    pub fixed: f64,
    pub each: f64,
    /// Greatest distance of a point from the line, by the point.
    pub error: f64,
}

impl Fit {
    /// Fits a line through batches and their costs, none of them below 0. Distances count by the
    /// cost of their batch (least squares of relative errors): otherwise only the largest batch
    /// would count. `None` with fewer than two different batches.
    pub fn through(points: &[(f64, f64)]) -> Option<Self> {
        let (mut ones, mut mixed, mut squares, mut one, mut size) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for (batch, cost) in points.iter().filter(|point| 0.0 < point.1) {
            let (weight, part) = (1.0 / cost, batch / cost);
            ones += weight * weight;
            mixed += weight * part;
            squares += part * part;
            one += weight;
            size += part;
        }
        let determinant = ones * squares - mixed * mixed;
        if determinant <= 1e-9 * ones * squares {
            return None;
        }
        let (fixed, each) = (
            (one * squares - size * mixed) / determinant,
            (size * ones - one * mixed) / determinant,
        );
        // No price is below 0; the best line then goes through the origin, or is level.
        let (fixed, each) = match (0.0 <= fixed, 0.0 <= each) {
            (true, true) => (fixed, each),
            (false, _) => (0.0, size / squares),
            (true, false) => (one / ones, 0.0),
        };
        let distance = |&(batch, cost): &(f64, f64)| ((fixed + each * batch) / cost - 1.0).abs();
        let error = points.iter().filter(|point| 0.0 < point.1).map(distance).fold(0.0, f64::max);
        Some(Self { fixed, each, error })
    }

    /// Returns the batch whose items cost as much as the operation itself: below it, most of
    /// the price is the fixed one. `None` if items cost nothing.
    pub fn half_batch(&self) -> Option<f64> {
        (0.0 < self.each).then(|| self.fixed / self.each)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(fixed: f64, each: f64) -> Vec<(f64, f64)> {
        [1.0, 10.0, 100.0, 1_000.0].map(|batch| (batch, fixed + each * batch)).to_vec()
    }

    fn near(value: f64, wanted: f64) -> bool {
        (value - wanted).abs() <= 1e-6 * wanted.max(1e-3)
    }

    #[test]
    fn a_line_is_found_again_whatever_its_scale() {
        for (fixed, each) in [(300.0, 0.05), (0.02, 0.01), (30_000.0, 50.0), (5.0, 0.0)] {
            let fit = Fit::through(&line(fixed, each)).unwrap();
            assert!(near(fit.fixed, fixed) && near(fit.each, each), "{fit:?}");
            assert!(fit.error < 1e-6, "{fit:?}");
        }
        assert!(near(Fit::through(&line(100.0, 2.0)).unwrap().half_batch().unwrap(), 50.0));
        assert_eq!(Fit { fixed: 1.0, each: 0.0, error: 0.0 }.half_batch(), None);
    }

    #[test]
    fn a_point_beside_the_line_is_told_and_no_price_is_below_zero() {
        let mut points = line(100.0, 1.0);
        points[1].1 *= 1.5;
        let fit = Fit::through(&points).unwrap();
        assert!((0.1..0.5).contains(&fit.error), "{fit:?}");
        let falling = Fit::through(&[(1.0, 10.0), (100.0, 5.0)]).unwrap();
        assert!(falling.each == 0.0 && 5.0 <= falling.fixed, "{falling:?}");
        let steep = Fit::through(&[(1.0, 1.0), (10.0, 20.0), (100.0, 300.0)]).unwrap();
        assert!(steep.fixed == 0.0 && 0.0 < steep.each, "{steep:?}");
    }

    #[test]
    fn one_batch_makes_no_line() {
        assert_eq!(Fit::through(&[]), None);
        assert_eq!(Fit::through(&[(1.0, 5.0)]), None);
        assert_eq!(Fit::through(&[(10.0, 5.0), (10.0, 5.0), (1.0, 0.0)]), None);
    }
}
