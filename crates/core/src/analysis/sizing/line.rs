//! A line through the peaks of past runs over the size of their inputs.

/// A line that no past run was above.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Line {
    slope: f64,
    /// Includes the largest distance of a run above the fitted line.
    intercept: f64,
}

impl Line {
    /// Least-squares line through (input, peak), shifted up to the highest run; `None` below `min_points` points or if
    /// peaks do not grow with the input.
    pub fn through(points: &[(f64, f64)], min_points: usize) -> Option<Self> {
        if points.len() < min_points {
            return None;
        }
        #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^53 runs")]
        let count = points.len() as f64;
        let mean_x = points.iter().map(|(x, _)| x).sum::<f64>() / count;
        let mean_y = points.iter().map(|(_, y)| y).sum::<f64>() / count;
        let spread: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
        let common: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
        let slope = common / spread;
        let intercept = points.iter().map(|(x, y)| y - slope * x).fold(f64::NEG_INFINITY, f64::max);
        (slope.is_finite() && slope > 0.0).then_some(Self { slope, intercept })
    }

    /// The memory for an input of this size.
    pub fn at(&self, input: f64) -> f64 {
        self.slope * input + self.intercept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_passes_through_the_highest_run() {
        let points = [(1.0, 11.0), (2.0, 21.0), (3.0, 31.0), (4.0, 45.0), (5.0, 51.0)];
        let line = Line::through(&points, 5).unwrap();
        assert!(points.iter().all(|(x, y)| line.at(*x) >= y - 1e-9));
        assert!((line.at(4.0) - 45.0).abs() < 1e-9, "{}", line.at(4.0));
    }

    #[test]
    fn peaks_that_do_not_grow_with_the_input_give_no_line() {
        let falling: Vec<(f64, f64)> = (1..8).map(f64::from).map(|x| (x, 100.0 - x)).collect();
        let same_input = [(3.0, 1.0), (3.0, 9.0), (3.0, 5.0), (3.0, 2.0), (3.0, 8.0)];
        assert_eq!(Line::through(&falling, 5), None);
        assert_eq!(Line::through(&same_input, 5), None);
        assert_eq!(Line::through(&[(1.0, 1.0), (2.0, 2.0)], 5), None);
    }
}
