//! Draws shares over time as a picture that is readable on light and on dark paper.

use std::fmt::Write as _;

const WIDTH: i64 = 900;
const HEIGHT: i64 = 460;
const LEFT: i64 = 52;
const RIGHT: i64 = 150;
const TOP: i64 = 46;
const BOTTOM: i64 = 44;
/// Time of which each point is the share, in milliseconds.
pub(crate) const POINT_MS: usize = 100;
/// Colours of the lines, in the order of the courses. Colour-blind readers can tell them apart.
const COLOURS: [&str; 5] = ["#3987d4", "#d55e00", "#009e73", "#cc79a7", "#b58900"];

const STYLE: &str = "\
<style>
  .paper { fill: #ffffff } .ink { fill: #24292f } .faint { stroke: #d0d7de } .limit { stroke: #57606a }
  text { font: 13px system-ui, sans-serif }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #0d1117 } .ink { fill: #e6edf3 } .faint { stroke: #30363d } .limit { stroke: #8b949e }
  }
</style>
";

/// Course of a share.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) name: String,
    /// Limits in percent, each with the millisecond from which it holds.
    pub(crate) limits: Vec<(usize, u64)>,
    /// Busy nanoseconds of each millisecond.
    pub(crate) busy: Vec<u32>,
}

/// Draws a scalable picture (SVG) of all lines.
pub(crate) fn draw(title: &str, lines: &[Line]) -> String {
    let length = lines.iter().map(|line| line.busy.len()).max().unwrap_or(1).max(1);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-label=\"{title}\">\n{STYLE}<rect class=\"paper\" width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"6\"/>\n\
         <text class=\"ink\" x=\"{LEFT}\" y=\"26\">{title}</text>\n"
    );
    axes(&mut svg, length);
    for (line, colour) in lines.iter().zip(COLOURS.iter().cycle()) {
        limits(&mut svg, line, length);
        course(&mut svg, line, length, colour);
    }
    svg + "</svg>\n"
}

fn x(ms: usize, length: usize) -> i64 {
    LEFT + ms as i64 * (WIDTH - LEFT - RIGHT) / length as i64
}

/// Returns the height in tenths of a pixel of `share`, which is in hundredths of points.
fn tenths(share: i64) -> i64 {
    (HEIGHT - BOTTOM) * 10 - share * (HEIGHT - BOTTOM - TOP) / 1000
}

fn axes(svg: &mut String, length: usize) {
    for percent in (0..=100).step_by(10) {
        let (y, end) = (tenths(percent * 100) / 10, WIDTH - RIGHT);
        let _ = writeln!(svg, "<path class=\"faint\" d=\"M{LEFT} {y}H{end}\"/>");
        if percent % 20 == 0 {
            let (at, y) = (LEFT - 8, y + 4);
            let _ = writeln!(
                svg,
                "<text class=\"ink\" x=\"{at}\" y=\"{y}\" text-anchor=\"end\">{percent} %</text>"
            );
        }
    }
    for second in 0..=length / 1000 {
        let (at, y) = (x(second * 1000, length), HEIGHT - BOTTOM + 20);
        let _ = writeln!(
            svg,
            "<text class=\"ink\" x=\"{at}\" y=\"{y}\" text-anchor=\"middle\">{second} s</text>"
        );
    }
}

/// Draws the limits as broken lines, and the name at the end of the last one.
fn limits(svg: &mut String, line: &Line, length: usize) {
    let ends = line.limits.iter().skip(1).map(|(from, _)| *from).chain([line.busy.len()]);
    for ((from, percent), to) in line.limits.iter().zip(ends) {
        let (y, from, to) = (tenths(*percent as i64 * 100) / 10, x(*from, length), x(to, length));
        let _ = writeln!(svg, "<path class=\"limit\" stroke-dasharray=\"5 4\" d=\"M{from} {y}H{to}\"/>");
    }
    if let Some((_, percent)) = line.limits.last() {
        let (at, y) = (WIDTH - RIGHT + 8, tenths(*percent as i64 * 100) / 10 + 4);
        let _ = writeln!(svg, "<text class=\"ink\" x=\"{at}\" y=\"{y}\">{}</text>", line.name);
    }
}

fn course(svg: &mut String, line: &Line, length: usize, colour: &str) {
    let mut path = String::new();
    for (at, part) in line.busy.chunks_exact(POINT_MS).enumerate() {
        let busy: u64 = part.iter().map(|ns| u64::from(*ns)).sum();
        let share = (busy / (POINT_MS as u64 * 100)) as i64;
        let (command, y) = (if at == 0 { 'M' } else { 'L' }, tenths(share));
        let _ = write!(path, "{command}{} {}.{}", x(at * POINT_MS + POINT_MS / 2, length), y / 10, y % 10);
    }
    let _ = writeln!(svg, "<path fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" d=\"{path}\"/>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_at_its_limit_lies_on_it() {
        let limits = vec![(0, 20), (500, 60)];
        let busy = (0..1000).map(|ms| if ms < 500 { 200_000 } else { 600_000 }).collect();
        let svg = draw("test", &[Line { name: "to 60 %".to_owned(), limits, busy }]);
        // 370 pixels are a hundred points: 20 % lies at 416 - 74, 60 % at 416 - 222.
        assert!(svg.contains("d=\"M52 342H401\"") && svg.contains("d=\"M401 194H750\""), "{svg}");
        assert!(svg.contains("M86 342.0L156 342.0") && svg.contains("L715 194.0"), "{svg}");
        assert!(svg.contains(">to 60 %</text>"));
    }
}
