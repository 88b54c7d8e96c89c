"""How does a person read what was measured? A page of tables beside the file of figures."""

import json
import re

ORDER = ["FAIL", "SKIP", "ok"]


def page(report):
    """The whole page."""
    gpu, summary = report["gpu"], report["summary"]
    where = "the **simulated GPU**: no measurement" if report["simulated"] else f"{gpu['name']}, driver {gpu['driver']}"
    lines = [
        f"# {gpu['name']}, {report['date'][:10]}",
        "",
        f"Measured by `ci/gpu.sh` on {where}. Library `{report['library'][:16]}`, Linux {report['kernel']},",
        f"{report['processors']} processors, Python {report['python']}.",
        "",
        f"{summary['ok']} claims hold, {summary['FAIL']} do not, {summary['SKIP']} were skipped.",
        "",
    ]
    shares = report["parts"].get("shares", {}).get("figures", {}).get("shares")
    if shares:
        lines += table_of_shares(shares)
    for name, part in report["parts"].items():
        lines += describe(name, part)
    return "\n".join(lines) + "\n"


def table_of_shares(shares):
    """Workloads by limits: how far the mean was from the limit, in points, and how far that may be."""
    limits = sorted({limit for cells in shares.values() for limit in cells}, key=int)
    lines = [
        "## Shares of GPU time",
        "",
        "Mean less limit, in points of the device's time; in brackets the 95th percentile of how far sliding windows of",
        "1 s were off. **Bold**: further than the target, or, for kernels of more than 5 ms, than anybody can hold.",
        "",
        "| workload | " + " | ".join(f"{limit} %" for limit in limits) + " |",
        "|---|" + "---:|" * len(limits),
    ]
    for name, cells in shares.items():
        lines.append(f"| {name} | " + " | ".join(show(cells.get(limit)) for limit in limits) + " |")
    return [*lines, ""]


def show(cell):
    if cell is None:
        return ""
    text = f"{cell['error']:+.2f}"
    if abs(cell["error"]) > cell["allowed"]:
        text = f"**{text}**"
    return text + (f" ({cell['windows95']:.1f})" if "windows95" in cell else "")


def describe(name, part):
    """A part: what does not hold, what was skipped, its figures."""
    results = sorted(part["results"], key=lambda result: ORDER.index(result["result"]))
    told = [result for result in results if result["result"] != "ok"]
    count = sum(result["result"] == "ok" for result in results)
    lines = [f"## {name}", "", f"{count} claims hold. {part['seconds']:.0f} s.", ""]
    lines += [f"- {result['result']}: {result['claim']}{tail(result['details'])}" for result in told]
    lines += [""] if told else []
    figures = {key: value for key, value in part["figures"].items() if key != "shares"}
    if figures:
        lines += ["| figure | |", "|---|---|"]
        lines += [f"| {cut(key)} | {cut(value)} |" for key, value in figures.items()]
        lines.append("")
    return lines


def tail(details):
    return f" ({cut(details)})" if details else ""


def cut(value):
    """A value on one line of a table, shortened."""
    said = value if isinstance(value, str) else json.dumps(value)
    text = " ".join(re.sub('[{}"]', "", said.replace("|", "/")).split())
    return text if len(text) <= 200 else text[:197] + "..."
