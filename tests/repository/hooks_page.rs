//! Compares `docs/reference/hooks.md` with the table. `GPUSLICE_TEST_BLESS=1 cargo test -p gpuslice-cli --test repository
//! hooks_page` writes the page.

use gpuslice_driver::symbols::NOT_EXPORTED;
use gpuslice_driver::table::{ALL, Row};
use gpuslice_driver::{Api, Symbol, Treatment};
use std::fmt::Write;
use std::{env, fs};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/hooks.md");

const INTRODUCTION: &str = "\
# Treatment of each driver call

Generated from the table in `src/driver/src/symbols/`; do not edit. One row per function that a driver exports or a
header declares: CUDA up to 13.5, NVML up to 13.5.

| treatment | meaning |
|---|---|
| charge | quota is reserved before the driver runs, and given back if it fails |
| release | the charge is given back after the driver succeeded |
| gate | work for the GPU: its start may be delayed |
| answer | gpuslice answers itself, or changes the question or the driver's answer |
| watch | forwarded unchanged; something is remembered or brought up to date |
| pass | forwarded unchanged |

A treatment takes effect where the last column names a hook. **A row without one is forwarded as it is in this
version**, whatever its treatment. The treatment then names the planned hook. When a limit cannot be enforced, all `charge`
and `gate` rows return 800, with a hook or without.

`since` is the first version at which `cuGetProcAddress` hands the function out; without one it never does.
";

fn treatment(treatment: Treatment) -> &'static str {
    match treatment {
        Treatment::Charge => "charge",
        Treatment::Release => "release",
        Treatment::Gate => "gate",
        Treatment::Answer => "answer",
        Treatment::Watch => "watch",
        Treatment::Pass => "pass",
    }
}

fn counts(page: &mut String) {
    page.push_str("\n| treatment | CUDA | hooked | NVML | hooked |\n|---|---|---|---|---|\n");
    for kind in ["charge", "release", "gate", "answer", "watch", "pass"] {
        let of = |api: Api, hooked: bool| {
            let wanted = |symbol: &&Symbol| {
                symbol.api() == api
                    && treatment(symbol.treatment()) == kind
                    && (!hooked || symbol.is_hooked())
            };
            ALL.iter().filter(wanted).count()
        };
        let [cuda, cuda_hooked] = [false, true].map(|hooked| of(Api::Cuda, hooked));
        let [nvml, nvml_hooked] = [false, true].map(|hooked| of(Api::Nvml, hooked));
        writeln!(page, "| {kind} | {cuda} | {cuda_hooked} | {nvml} | {nvml_hooked} |")
            .expect("writes to memory");
    }
}

fn family(page: &mut String, rows: &[Row]) {
    let first = rows.first().expect("a family has rows");
    writeln!(page, "\n### {}\n\n{}.\n", first.family.replace('_', " "), first.reason)
        .expect("writes to memory");
    page.push_str("| function | since | treatment | hook |\n|---|---|---|---|\n");
    for row in rows {
        let since = row.since.map(|since| since.to_string()).unwrap_or_default();
        let hook = row.hook.map(|hook| format!("`{hook}`")).unwrap_or_default();
        writeln!(page, "| `{}` | {since} | {} | {hook} |", row.name, treatment(row.treatment))
            .expect("writes to memory");
    }
}

fn page() -> String {
    let mut page = INTRODUCTION.to_owned();
    counts(&mut page);
    for (api, title) in [(Api::Cuda, "CUDA driver API"), (Api::Nvml, "NVML")] {
        writeln!(page, "\n## {title}").expect("writes to memory");
        let rows: Vec<Row> =
            ALL.iter().filter(|symbol| symbol.api() == api).map(|symbol| symbol.row()).collect();
        for rows in rows.chunk_by(|one, next| one.family == next.family) {
            family(&mut page, rows);
        }
    }
    page.push_str("\n## Exported by drivers and not by us\n\n| names | reason |\n|---|---|\n");
    for (prefix, reason) in NOT_EXPORTED {
        writeln!(page, "| `{prefix}*` | {reason} |").expect("writes to memory");
    }
    page
}

#[test]
fn the_page_of_hooks_agrees_with_the_table() {
    if env::var_os("GPUSLICE_TEST_BLESS").is_some() {
        fs::write(PAGE, page()).expect("the page can be written");
    }
    let written = fs::read_to_string(PAGE).unwrap_or_default();
    assert!(
        written == page(),
        "docs/reference/hooks.md is stale: GPUSLICE_TEST_BLESS=1 cargo test -p gpuslice-cli --test repository hooks_page"
    );
}
