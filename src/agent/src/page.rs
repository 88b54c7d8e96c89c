//! Renders the page of the node. The page needs no script to be complete. A script keeps it up to date from the JSON.
//!
//! The script finds bars and figures by their attributes `data-…`. The style sheet has the colours.

use crate::gpus::Gpu;
use crate::history::{History, Point, SeriesKey};
use crate::snapshot::{Device, SliceSnapshot, Snapshot, Sums};
use gpuslice_slices::figures::{limit, percent, size, span};
use maud::{DOCTYPE, Markup, html};
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;

/// The style sheet.
pub(crate) const STYLE: &str = include_str!("page.css");
/// The script.
pub(crate) const SCRIPT: &str = include_str!("page.js");

/// Width of a bar and of a plot, in their own units.
const WIDTH: u64 = 1000;
/// Height of a plot.
const HEIGHT: u64 = 60;
/// Number of colours. Slices use them in turn.
const COLOURS: usize = 8;

/// A coloured part of a bar.
struct Part {
    class: String,
    title: String,
    /// Length of the part. [`WIDTH`] is the length of the whole bar.
    length: u64,
}

/// Returns the page of the moment `now`. `history` has the points of the plots.
pub(crate) fn render(now: &Snapshot, history: &History) -> Markup {
    let lines: BTreeMap<&SeriesKey, &VecDeque<Point>> = history.lines().collect();
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="dark light";
                title { "gpuslice" }
                link rel="icon" href="data:,";
                link rel="stylesheet" href="/page.css";
                script src="/page.js" defer {}
            }
            body {
                a.skip href="#slices" { "Skip to the slices" }
                header {
                    h1 { "gpuslice" }
                    p {
                        span #driver { @if let Some(driver) = &now.driver { "driver " (driver) } @else { "NVML does not answer" } }
                        " · agent " (env!("CARGO_PKG_VERSION")) " · "
                        span #state role="status" { "as of the loading of this page" }
                    }
                }
                main {
                    section aria-labelledby="gpus" {
                        h2 #gpus { "GPUs" }
                        @if now.gpus.is_empty() { p.none { "NVML lists no GPU." } }
                        @for gpu in &now.gpus { (of_gpu(gpu, now, &lines)) }
                    }
                    section aria-labelledby="slices" {
                        h2 #slices tabindex="-1" { "Slices" }
                        @if now.slices.is_empty() { p.none { "There is no slice." } }
                        @for (place, slice) in now.slices.iter().enumerate() {
                            @for device in &slice.devices { (of_slice(place, slice, device, now, &lines)) }
                            @if slice.devices.is_empty() { (broken(slice)) }
                        }
                    }
                }
                footer {
                    p { a href="/metrics" { "metrics" } " · " a href="/api/v1/gpus" { "GPUs as JSON" } " · " a href="/api/v1/slices" { "slices as JSON" } }
                }
            }
        }
    }
}

fn of_gpu(gpu: &Gpu, now: &Snapshot, lines: &BTreeMap<&SeriesKey, &VecDeque<Point>>) -> Markup {
    let sums = now.sums(gpu);
    let on_it: Vec<(usize, &SliceSnapshot, &Device)> = now
        .slices
        .iter()
        .enumerate()
        .flat_map(|(place, slice)| slice.devices.iter().map(move |device| (place, slice, device)))
        .filter(|(_, _, device)| device.uuid == gpu.uuid)
        .collect();
    let model = gpu.model.as_deref().unwrap_or("GPU");
    let key = SeriesKey { container: String::new(), slice: String::new(), uuid: gpu.uuid.clone() };
    html! {
        article.gpu data-gpu=(gpu.uuid) tabindex="0" aria-label=(format!("GPU {}", gpu.index)) {
            h3 { "GPU " (gpu.index) " " span.model { (model) } }
            p.uuid { (gpu.uuid) }
            p.bad data-f="health" hidden[gpu.healthy] { "NVML does not answer for this GPU." }
            (labelled("Memory", "memory-text", &memory_text(gpu, &sums)))
            (bar("memory", &memory_parts(gpu, &sums, &on_it), None))
            (labelled("Time", "time-text", &time_text(gpu, &sums)))
            (bar("time", &time_parts(&on_it), None))
            (labelled("Promised", "sums-text", &sums_text(gpu, &sums)))
            ul.warnings data-f="warnings" { @for warning in &sums.warnings { li.bad { (warning) } } }
            (plots(lines.get(&key).copied(), gpu.memory_total, false))
        }
    }
}

fn labelled(name: &str, field: &str, text: &str) -> Markup {
    html! { p.line { span.name { (name) } " " span data-f=(field) { (text) } } }
}

fn memory_text(gpu: &Gpu, sums: &Sums) -> String {
    let of = gpu.memory_total.map_or_else(|| "unknown".to_owned(), |total| limit(Some(total)));
    let used = gpu.memory_used.map_or_else(|| "unknown".to_owned(), size);
    format!("{used} used of {of}, slices hold {}", size(sums.memory_held))
}

fn time_text(gpu: &Gpu, sums: &Sums) -> String {
    let busy = gpu.utilization_percent.map_or_else(|| "unknown".to_owned(), |percent| format!("{percent}%"));
    format!("slices use {}, busy by NVML {busy}", used(sums.used_permille))
}

/// Formats a part of the GPU's time. Returns `-` if the time is not measured.
fn used(permille: Option<u64>) -> String {
    permille.map_or_else(|| "-".to_owned(), percent)
}

fn sums_text(gpu: &Gpu, sums: &Sums) -> String {
    let total = gpu.memory_total.map_or_else(|| "unknown".to_owned(), |total| limit(Some(total)));
    format!(
        "quotas {} of {total}, fixed shares {} of 100%",
        size(sums.limit_sum),
        percent(sums.share_permille_sum.into())
    )
}

/// Returns the length of a part in a bar that stands for the whole.
fn length(part: u64, whole: u64) -> u64 {
    let length = u128::from(part).saturating_mul(WIDTH.into()).checked_div(whole.into()).unwrap_or(0);
    u64::try_from(length).unwrap_or(WIDTH).min(WIDTH)
}

fn colour(place: usize) -> String {
    format!("c{}", place.checked_rem(COLOURS).unwrap_or(0))
}

fn memory_parts(gpu: &Gpu, sums: &Sums, on_it: &[(usize, &SliceSnapshot, &Device)]) -> Vec<Part> {
    let total = gpu.memory_total.unwrap_or_else(|| sums.limit_sum.max(sums.memory_held));
    let others = gpu.memory_used.unwrap_or(0).saturating_sub(sums.memory_held);
    let of_slices = on_it.iter().map(|(place, slice, device)| Part {
        class: colour(*place),
        title: format!("{}: {}", slice.name, size(device.memory_used)),
        length: length(device.memory_used, total),
    });
    let others = Part {
        class: "others".to_owned(),
        title: format!("others: {}", size(others)),
        length: length(others, total),
    };
    of_slices.chain([others]).collect()
}

fn time_parts(on_it: &[(usize, &SliceSnapshot, &Device)]) -> Vec<Part> {
    let part = |(place, slice, device): &(usize, &SliceSnapshot, &Device)| Part {
        class: colour(*place),
        title: format!("{}: {}", slice.name, used(device.used_permille)),
        length: length(device.used_permille.unwrap_or(0), 1000),
    };
    on_it.iter().map(part).collect()
}

/// Draws parts beside each other, and a mark at the limit. Cuts off parts beyond the end of the bar.
fn bar(field: &str, parts: &[Part], limit: Option<u64>) -> Markup {
    let mut at = 0_u64;
    let placed = parts.iter().map(|part| {
        let from = at;
        at = at.saturating_add(part.length).min(WIDTH);
        (from, at.saturating_sub(from), part)
    });
    let placed: Vec<_> = placed.collect();
    html! {
        svg.bar data-f=(field) viewBox=(format!("0 0 {WIDTH} 24")) preserveAspectRatio="none" role="img" aria-label=(titles(parts)) {
            rect.empty x="0" y="0" width=(WIDTH) height="24" {}
            @for (from, width, part) in placed {
                rect class=(part.class) x=(from) y="0" width=(width) height="24" { title { (part.title) } }
            }
            @if let Some(at) = limit { line.limit x1=(at) x2=(at) y1="0" y2="24" {} }
        }
    }
}

fn titles(parts: &[Part]) -> String {
    parts.iter().map(|part| part.title.as_str()).collect::<Vec<_>>().join(", ")
}

fn of_slice(
    place: usize,
    slice: &SliceSnapshot,
    device: &Device,
    now: &Snapshot,
    lines: &BTreeMap<&SeriesKey, &VecDeque<Point>>,
) -> Markup {
    let gpu = now.gpus.iter().find(|gpu| gpu.uuid == device.uuid);
    let container = slice.place().to_owned();
    let key =
        SeriesKey { container: container.clone(), slice: slice.name.clone(), uuid: device.uuid.clone() };
    let total = gpu.and_then(|gpu| gpu.memory_total);
    let short: String = slice.container.iter().flat_map(|id| id.chars()).take(12).collect();
    html! {
        article.slice data-slice=(slice.name) data-container=(container) data-uuid=(device.uuid) tabindex="0" aria-label=(format!("slice {}", slice.name)) {
            h3 {
                svg.key viewBox="0 0 10 10" aria-hidden="true" { rect class=(colour(place)) width="10" height="10" {} }
                " " (slice.name)
                @if let Some(gpu) = gpu { span.model { " on GPU " (gpu.index) } }
            }
            p.uuid {
                @if let Some(pod) = &slice.pod {
                    "pod " (pod.namespace) "/" (pod.name) ", container " (pod.container)
                } @else if short.is_empty() { (slice.region) } @else {
                    "container " @if let Some(name) = &slice.container_name { (name) " " } (short)
                }
            }
            p.bad data-f="problem" hidden[slice.problem.is_none()] { (slice.problem.as_deref().unwrap_or_default()) }
            (labelled("Memory", "memory-text", &format!("{} used, limit {}", size(device.memory_used), limit(device.memory_limit))))
            (bar("memory", &[Part {
                class: colour(place),
                title: size(device.memory_used),
                length: length(device.memory_used, device.memory_limit.or(total).unwrap_or(device.memory_used)),
            }], None))
            (labelled("Time", "time-text", &format!("{} used, limit {} {}", used(device.used_permille), percent(device.share_permille.into()), device.policy)))
            (bar("time", &[Part { class: colour(place), title: used(device.used_permille), length: length(device.used_permille.unwrap_or(0), 1000) }], Some(length(device.share_permille.into(), 1000))))
            dl {
                dt { "Throttled" } dd data-f="throttled" { (span(device.throttled_ns)) }
                dt { "Denied" } dd data-f="denied" { (device.denied) }
                dt { "Peak" } dd data-f="peak" { (size(device.memory_peak)) }
                dt { "Processes" } dd data-f="processes" { (slice.process_count) }
            }
            (plots(lines.get(&key).copied(), device.memory_limit.or(total), true))
            details hidden[slice.processes.is_empty()] {
                summary { "Processes" }
                ul.processes {
                    @for process in &slice.processes {
                        li {
                            (process.host_pid.unwrap_or(process.pid)) " " (size(process.memory_used)) " "
                            code { (process.command.as_deref().unwrap_or("(not visible from here)")) }
                        }
                    }
                }
            }
        }
    }
}

/// Returns the entry of a slice that has a problem and no GPU.
fn broken(slice: &SliceSnapshot) -> Markup {
    html! {
        article.slice data-slice=(slice.name) data-container="" data-uuid="" tabindex="0" aria-label=(format!("slice {}", slice.name)) {
            h3 { (slice.name) }
            p.uuid { (slice.region) }
            p.bad data-f="problem" { (slice.problem.as_deref().unwrap_or("It has no GPU yet.")) }
        }
    }
}

/// Draws memory and time over the last ten minutes. Only a slice has a line of throttled time.
fn plots(points: Option<&VecDeque<Point>>, memory: Option<u64>, is_slice: bool) -> Markup {
    let none = VecDeque::new();
    let points = points.unwrap_or(&none);
    let most = points.iter().filter_map(|point| point.memory_mib).max().unwrap_or(0);
    let whole = memory.map_or_else(|| most.into(), |bytes| bytes >> 20).max(1);
    let memory = path(points, |point| point.memory_mib.map(|mib| height(mib.into(), whole)));
    let time = path(points, |point| point.used_permille.map(|used| height(used.into(), 1000)));
    let throttled = path(points, |point| Some(height(point.throttled_permille.into(), 1000)));
    html! {
        figure data-memory-mib=(whole) {
            svg.plot viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) preserveAspectRatio="none" role="img" aria-label="memory and time over the last ten minutes" {
                @if is_slice { path.throttled data-f="plot-throttled" d=(throttled) {} }
                path.memory data-f="plot-memory" d=(memory) {}
                path.time data-f="plot-time" d=(time) {}
            }
            figcaption { "ten minutes: " span.memory { "memory" } ", " span.time { "time" } @if is_slice { ", " span.throttled { "throttled" } } }
        }
    }
}

/// Returns the distance between a value and the top of a plot.
fn height(part: u64, whole: u64) -> u64 {
    HEIGHT.saturating_sub(part.saturating_mul(HEIGHT).checked_div(whole).unwrap_or(0).min(HEIGHT))
}

/// Returns a line through points, with the newest at the right. The line has gaps where a value is unknown.
fn path(points: &VecDeque<Point>, value: impl Fn(&Point) -> Option<u64>) -> String {
    /// Number of points in ten minutes, less one.
    const STEPS: u64 = 299;
    let mut text = String::new();
    let mut is_drawn = false;
    let first = STEPS.saturating_add(1).saturating_sub(u64::try_from(points.len()).unwrap_or(0));
    for (place, point) in (first..).zip(points) {
        let Some(value) = value(point) else {
            is_drawn = false;
            continue;
        };
        let across = place.saturating_mul(WIDTH).checked_div(STEPS).unwrap_or(0);
        let _to_a_string = write!(text, "{}{across} {value}", if is_drawn { 'L' } else { 'M' });
        is_drawn = true;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Pod;
    use gpuslice_region::Limits;

    fn now() -> Snapshot {
        let limits = Limits { memory: Some(4 << 30), cores_permille: 600, ..Limits::NONE };
        let device = Device {
            uuid: "GPU-a".to_owned(),
            memory_used: 2 << 30,
            used_permille: Some(300),
            denied: 17,
            ..Device::limited(limits)
        };
        let slice = |name: &str, container: Option<&str>| SliceSnapshot {
            name: name.to_owned(),
            container: container.map(str::to_owned),
            container_name: None,
            pod: container.map(|_| Pod {
                namespace: "team-<a>".to_owned(),
                name: "train".to_owned(),
                uid: "u".to_owned(),
                container: "main".to_owned(),
            }),
            made: container.is_none(),
            region: "/r".to_owned(),
            problem: None,
            generation: None,
            process_count: 1,
            processes: Vec::new(),
            devices: vec![device.clone()],
        };
        let gpu = Gpu {
            uuid: "GPU-a".to_owned(),
            healthy: true,
            memory_total: Some(16 << 30),
            memory_used: Some(8 << 30),
            ..Gpu::default()
        };
        Snapshot {
            gpus: vec![gpu],
            slices: vec![slice("a", None), slice("<script>alert(1)</script>", Some("c\"d"))],
            ..Snapshot::default()
        }
    }

    #[test]
    fn a_page_has_the_figures_and_loads_nothing_from_elsewhere() {
        let page = render(&now(), &History::default()).into_string();
        for words in [
            "2.00 GiB used, limit 4GiB",
            "30% used, limit 60% fixed",
            ">17<",
            "8.00 GiB used of 16GiB, slices hold 4.00 GiB",
            "quotas 8.00 GiB of 16GiB, fixed shares 120% of 100%",
            "shares of 2 slices sum to 120%",
        ] {
            assert!(page.contains(words), "{words} is missing in\n{page}");
        }
        assert!(!page.contains("://") && !page.contains("style="), "{page}");
        for text in [STYLE, SCRIPT] {
            assert!(!text.contains("://") && !text.contains("@import"), "{text}");
        }
    }

    #[test]
    fn time_that_is_not_measured_is_a_dash() {
        let mut now = now();
        now.slices[0].devices[0] = Device {
            uuid: "GPU-a".to_owned(),
            ..Device::limited(Limits { memory: Some(1), ..Limits::NONE })
        };
        let words = ["- used, limit 100% fixed", "slices use -, busy by NVML unknown"];
        let page = |now: &Snapshot| render(now, &History::default()).into_string();
        for words in words {
            assert!(page(&now).contains(words), "{words} is missing in\n{}", page(&now));
        }
        // A slice without a process uses nothing.
        now.slices[0].process_count = 0;
        assert!(page(&now).contains("slices use 30%, busy"), "{}", page(&now));
    }

    #[test]
    fn markup_in_names_of_tenants_is_escaped() {
        let page = render(&now(), &History::default()).into_string();
        assert!(
            !page.contains("<script>alert")
                && page.contains("&lt;script&gt;alert(1)")
                && page.contains("data-container=\"c&quot;d\"")
                && page.contains("pod team-&lt;a&gt;/train, container main"),
            "{page}"
        );
    }

    #[test]
    fn parts_of_a_bar_stand_beside_each_other_and_end_with_it() {
        let part = |length| Part { class: "c0".to_owned(), title: String::new(), length };
        let text = bar("x", &[part(600), part(300), part(300)], Some(700)).into_string();
        for piece in [
            "x=\"0\" y=\"0\" width=\"600\"",
            "x=\"600\" y=\"0\" width=\"300\"",
            "x=\"900\" y=\"0\" width=\"100\"",
            "x1=\"700\" x2=\"700\"",
        ] {
            assert!(text.contains(piece), "{piece}: {text}");
        }
        assert_eq!([length(1, 4), length(9, 4), length(1, 0)], [250, WIDTH, 0]);
    }

    #[test]
    fn a_line_ends_at_the_right_and_has_gaps() {
        let point = |memory_mib| Point { memory_mib, used_permille: None, throttled_permille: 0 };
        let points = [Some(0), None, Some(10), Some(5)].map(point).into_iter().collect();
        let drawn = path(&points, |point| point.memory_mib.map(|mib| height(mib.into(), 10)));
        assert_eq!(drawn, "M989 60M996 0L1000 30");
    }
}
