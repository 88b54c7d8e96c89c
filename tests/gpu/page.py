"""Page of tables beside the file of figures."""

import json
import re

from plot import bars, intervals

REQUESTS = "requests at two thirds"  # the name that `shares` uses
SIMULATED = "simulated GPU"  # the name that `facts/quick` uses for facts that differ from it
ORDER = ["FAIL", "DIFFERS", "SKIP", "ok"]


def page(report, drawn=()):
    """Returns the whole page. `drawn`: names of the pictures beside it."""
    gpu, summary = report["gpu"], report["summary"]
    where = "the **simulated GPU**: no measurement" if report["simulated"] else f"{gpu['name']}, driver {gpu['driver']}"
    lines = [
        f"# {gpu['name']}, {report['date'][:10]}",
        "",
        f"Measured by `ci/gpu.sh` on {where}. Library `{report['library'][:16]}`, Linux {report['kernel']},",
        f"{report['processors']} processors, Python {report['python']}.",
        "",
        f"{summary['ok']} claims hold, {summary['FAIL']} do not, {summary['SKIP']} were skipped;",
        f"{summary['DIFFERS']} facts differ from what the design assumes.",
        "",
    ]
    for name in drawn:
        lines += [f"![{name}]({name})", ""]
    lines += table_of_the_simulated(report)
    lines += table_of_facts(report)
    figures = report["parts"].get("shares", {}).get("figures", {})
    if figures.get("shares"):
        lines += table_of_shares(figures["shares"], figures.get(REQUESTS, {}))
    for name, part in report["parts"].items():
        lines += describe(name, part, report["library"])
    return "\n".join(lines) + "\n"


def table_of_shares(shares, requests):
    """Returns a table of workloads by limits: the mean's distance from the limit in points, the allowed distance, and
    latencies."""
    limits = sorted({limit for cells in shares.values() for limit in cells}, key=int)
    lines = [
        "## Shares of GPU time",
        "",
        "Mean less limit, in points of the device's time; in brackets the 95th percentile of how far sliding windows of",
        "1 s were off. **Bold**: further than the target, or, for kernels of more than 5 ms, than anybody can hold. Of requests",
        "the 99th percentile, as a multiple of that without a limit; at most 1.2.",
        "",
        "| workload | " + " | ".join(f"{limit} %" for limit in limits) + " |",
        "|---|" + "---:|" * len(limits),
    ]
    for name, cells in shares.items():
        lines.append(f"| {name} | " + " | ".join(show(cells.get(limit)) for limit in limits) + " |")
    if requests:
        ratios = [f"{requests[limit]['ratio']:.2f}" if limit in requests else "" for limit in limits]
        lines.append(f"| {REQUESTS} | " + " | ".join(ratios) + " |")
    return [*lines, ""]


def show(cell):
    if cell is None:
        return ""
    text = f"{cell['error']:+.2f}"
    if abs(cell["error"]) > cell["allowed"]:
        text = f"**{text}**"
    return text + (f" ({cell['windows95']:.1f})" if "windows95" in cell else "")


def table_of_the_simulated(report):
    """Returns a table of the simulated GPU's values that differ from this device, and the settings that make them alike."""
    told = report["parts"].get("facts/quick", {}).get("figures", {}).get(SIMULATED, {})
    if not told:
        return []
    lines = [
        "## This device and the simulated GPU", "", "| question | seen | simulated GPU | setting that makes it so |",
        "|---|---|---|---|",
    ]  # fmt: skip
    for name, judged in told.items():
        seen = cut(judged["seen"]) or "none"
        shown = seen if judged["alike"] else f"**{seen}**"
        lines.append(f"| {name} | {shown} | {cut(judged['default']) or 'none'} | {cut(judged['setting'])} |")
    changes = settings(judged["setting"] for judged in told.values())
    return [*lines, "", *(["```", *changes, "```", ""] if changes else [])]


def settings(changes):
    """Returns the settings of the simulated GPU among some changes. Several values of one setting are one line."""
    values = {}
    for change in changes:
        name, _, value = change.partition("=")
        if name.startswith("SIMGPU_"):
            values.setdefault(name, []).append(value)
    return [f"{name}={','.join(each)}" for name, each in values.items()]


def table_of_facts(report):
    """Returns a table of the design's assumptions. Those that differ come first."""
    facts = [fact for part in report["parts"].values() for fact in part.get("facts", [])]
    if not facts:
        return []
    order = ["differs", "not seen", "as assumed"]
    lines = [
        "## Facts", "", "What the design takes for granted, and which line of it would have to change.", "",
        "| fact | verdict | seen | rests on it | if it differs |", "|---|---|---|---|---|",
    ]  # fmt: skip
    for fact in sorted(facts, key=lambda fact: order.index(fact["verdict"])):
        verdict = f"**{fact['verdict']}**" if fact["verdict"] == "differs" else fact["verdict"]
        lines.append(f"| {fact['claim']} | {verdict} | {cut(fact['seen'])} | {fact['rests']} | {fact['otherwise']} |")
    return [*lines, ""]


def pictures(report):
    """Returns pictures of the existing figures, by name."""
    figures = {name: part["figures"] for name, part in report["parts"].items()}
    where = " (simulated: no measurement)" if report["simulated"] else f", {report['gpu']['name']}"
    drawn = {}
    shares = figures.get("shares", {}).get("shares")
    if shares:
        rows = [(f"{name}, {limit} %", cell["mean"] - cell["error"], cell["mean"], cell["mean"])
                for name, cells in shares.items() for limit, cell in cells.items()]  # fmt: skip
        errors = [(name, min(0, value - wanted), value - wanted, max(0, value - wanted)) for name, wanted, value, _ in rows]
        drawn["shares"] = intervals(f"Share less limit, in points{where}", errors, 0)
    costs = figures.get("models", {}).get("throughput to bare")
    if costs:
        rows = [(name, *(100 * seen[key] for key in ("low", "median", "high"))) for name, seen in costs.items()]
        drawn["overhead"] = intervals(f"Throughput at 100 %, in % of bare, with its 95 % interval{where}", rows, 99.5, " %")
    divided = figures.get("neighbours", {}).get("shares")
    if divided:
        rows = [(f"{name}: {which}", share, name) for name, seen in divided.items() for which, share in seen["percent"].items()]
        drawn["neighbours"] = bars(f"Shares of slices side by side, in percent of the device{where}", rows, " %")
    latency = figures.get("neighbours", {}).get("latency")
    if latency:
        rows = [(f"{name}, {key}", seen[key], key) for name, seen in latency.items() for key in ("p50 ms", "p99 ms")]
        drawn["latency"] = bars(f"Requests beside a training neighbour{where}", rows, " ms")
    return drawn


def describe(name, part, library):
    """Returns the lines of a part: failed claims, skipped claims, figures."""
    results = sorted(part["results"], key=lambda result: ORDER.index(result["result"]))
    told = [result for result in results if result["result"] != "ok"]
    count = sum(result["result"] == "ok" for result in results)
    lines = [f"## {name}", "", f"{count} claims hold. {part['seconds']:.0f} s.", ""]
    if part.get("library", library) != library:
        lines += [f"Measured of another library: `{part['library'][:16]}`, {part['date']}.", ""]
    lines += [f"- {result['result']}: {result['claim']}{tail(result['details'])}" for result in told]
    lines += [""] if told else []
    figures = {key: value for key, value in part["figures"].items() if key not in ("shares", REQUESTS, SIMULATED)}
    if figures:
        lines += ["| figure | |", "|---|---|"]
        lines += [f"| {cut(key)} | {cut(value)} |" for key, value in figures.items()]
        lines.append("")
    return lines


def tail(details):
    return f" ({cut(details)})" if details else ""


def cut(value):
    """Returns a value as one shortened line of a table."""
    said = value if isinstance(value, str) else json.dumps(value)
    text = " ".join(re.sub('[{}"]', "", said.replace("|", "/")).split())
    return text if len(text) <= 200 else text[:197] + "..."
