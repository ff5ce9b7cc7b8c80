//! The speed of a job by its number of containers.

use dormouse_messages::speed::CurveSource;
use dormouse_projections::queries::SpeedRow;

/// Columns of the longest bar.
const WIDTH: usize = 30;

/// Returns one sentence about the curve.
pub fn summary(speed: &SpeedRow) -> String {
    let from = match speed.source {
        CurveSource::Measured => "measured",
        CurveSource::Family => "from jobs of its name",
        CurveSource::Document => "as its document states",
    };
    let further = speed.further.map(|further| match further {
        gain if gain > 0.0005 => format!("; one more container adds {:.1} %", gain * 100.0),
        loss if loss < -0.0005 => format!("; one more container costs {:.1} %", -loss * 100.0),
        _ => "; one more container adds nothing".to_owned(),
    });
    format!(
        "{from}, error {:.0} %{}; fastest with {}",
        speed.error * 100.0,
        further.unwrap_or_default(),
        speed.fastest
    )
}

/// Draws a bar for each number of containers.
pub fn draw(speed: &SpeedRow) -> String {
    let all = speed.curve.iter();
    let most = all
        .flat_map(|at| [Some(at.fitted), at.measured])
        .flatten()
        .fold(1.0, f64::max);
    let lines = speed.curve.iter().map(|at| {
        let length = (at.fitted / most * WIDTH as f64).round() as usize;
        let measured = at
            .measured
            .map(|measured| format!(", measured {measured:.1}"));
        format!(
            "{:>6} {:<WIDTH$} {:.1}{}\n",
            at.containers,
            "█".repeat(length.min(WIDTH)),
            at.fitted,
            measured.unwrap_or_default()
        )
    });
    let title = "speed by containers, in speeds of one container\n".to_owned();
    std::iter::once(title).chain(lines).collect()
}

#[cfg(test)]
mod tests {
    use dormouse_projections::queries::SpeedAt;

    use super::*;

    #[test]
    fn a_curve_says_what_one_more_container_brings() {
        let at = |containers, fitted, measured| SpeedAt {
            containers,
            fitted,
            measured,
        };
        let speed = SpeedRow {
            source: CurveSource::Measured,
            error: 0.041,
            fastest: 4,
            further: Some(-0.03),
            curve: vec![at(1, 1.0, None), at(2, 1.5, Some(1.6)), at(4, 2.0, None)],
        };
        assert_eq!(
            summary(&speed),
            "measured, error 4 %; one more container costs 3.0 %; fastest with 4"
        );
        let drawn = draw(&speed);
        assert!(drawn.contains("     2 ███████████████████████ "), "{drawn}");
        assert!(drawn.contains(" 1.5, measured 1.6"), "{drawn}");
        let job = "ads/lr".parse().expect("an id");
        let svg = crate::render::speed_svg(&job, &speed).expect("a picture");
        assert!(svg.contains("ads/lr: measured, error 4 %"), "{svg}");
        assert_eq!(svg.matches("<circle").count(), 1);
    }
}
