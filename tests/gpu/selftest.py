"""Tests of the suite itself: its arithmetic, its files, its claims, and its clean-up after an interruption."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock
from xml.dom.minidom import parseString

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE), str(HERE / "facts")]

import bench  # noqa: E402
import driver  # noqa: E402
import late  # noqa: E402
import order  # noqa: E402
import page  # noqa: E402
import plot  # noqa: E402
import quick  # noqa: E402
import run  # noqa: E402
import sampler  # noqa: E402
import slicing  # noqa: E402
import stamps  # noqa: E402
import stats  # noqa: E402
import watch  # noqa: E402
import workspace  # noqa: E402
from selftest_facts import SIMGPU, MadeUp, Reasons, Unlike  # noqa: E402, F401 (unittest finds the tests here)

GPU = {"name": "Some GPU", "bytes": 1, "cuda": 13000, "driver": "580.1"}


def report(**other):
    return {"format": run.FORMAT, "gpu": GPU, "simulated": False, "kernel": "6.1", "library": "a" * 64, "processors": 2,
            "date": "2026-01-01T00:00:00", "python": "3", "parts": {}, **other}  # fmt: skip


def a_part(result="ok", **figures):
    return {"results": [{"result": result, "claim": "c", "details": ""}], "figures": figures, "facts": [], "seconds": 1,
            "library": "a" * 64, "date": "2026-01-01T00:00:00"}  # fmt: skip


class Arithmetic(unittest.TestCase):
    def test_percentiles_lie_between_values_in_a_straight_line(self):
        self.assertEqual(stats.percentile([4, 1, 3, 2], 50), 2.5)
        self.assertEqual(stats.percentile(range(101), 99), 99)
        self.assertEqual([stats.percentile([7, 9], percent) for percent in (0, 25, 100)], [7, 7.5, 9])
        self.assertEqual(stats.percentile([5], 99), 5)
        with self.assertRaises(ValueError):
            stats.percentile([], 50)

    def test_a_bootstrap_interval_encloses_the_median_and_is_wider_for_fewer_values(self):
        many, few = [number % 11 for number in range(220)], [0, 2, 5, 8, 10]
        low, high = stats.interval(many)
        self.assertTrue(4 <= low <= 5 <= high <= 6, (low, high))
        wide = stats.interval(few)
        self.assertGreater(wide[1] - wide[0], high - low)
        self.assertEqual(stats.interval(few), stats.interval(few))
        self.assertEqual(stats.interval([3, 3, 3]), (3, 3))

    def test_a_bootstrap_interval_holds_the_truth_about_as_often_as_it_says(self):
        import random

        chance, held = random.Random(3), 0
        for number in range(60):
            low, high = stats.interval([chance.gauss(10, 1) for _ in range(20)], seed=number)
            held += low <= 10 <= high
        self.assertGreaterEqual(held, 51)

    def test_ratios_are_of_pairs(self):
        seen = stats.ratio([99, 198, 49.5], [100, 200, 50])
        self.assertEqual((seen["median"], seen["low"], seen["high"], seen["pairs"]), (0.99, 0.99, 0.99, 3))
        with self.assertRaises(ValueError):
            stats.ratio([1], [1, 2])

    def test_jains_index_is_one_when_all_have_the_same_and_one_nth_when_one_has_all(self):
        self.assertEqual(stats.jain([25, 25, 25, 25]), 1)
        self.assertEqual(stats.jain([0, 0, 7, 0]), 0.25)
        self.assertAlmostEqual(stats.jain([1, 3]), 0.8)
        self.assertEqual(stats.jain([0, 0]), 1)

    def test_pauses_between_queued_kernels_belong_to_their_run_and_longer_ones_do_not(self):
        kernels = [(at, at + 20_000) for at in range(0, 30_000_000, 21_000)] + [(40_000_000, 50_000_000)]
        alone, joined = stamps.Timeline(kernels), stamps.Timeline(kernels, 2000)
        self.assertAlmostEqual(alone.percent(0, 21_000_000), 100 * 20 / 21, 2)
        self.assertAlmostEqual(joined.percent(0, 21_000_000), 100, 2)
        self.assertAlmostEqual(joined.percent(0, 50_000_000), 80, 1)

    def test_turns_are_the_times_between_holes(self):
        kernels = [watch.Ran(0, 100_000, 40_000), watch.Ran(101_000, 200_000, 0)]
        self.assertEqual(watch.turns(kernels, [(30_000, 70_000)]), [[0, 30_000], [70_000, 200_000]])
        self.assertEqual(watch.overlap([[0, 10], [20, 30]], 5, 25), 10)

    def test_slices_of_two_that_take_turns_are_told_as_halves(self):
        lines = [[[at, at + 1_000_000] for at in range(first, 40_000_000, 2_050_000)] for first in (0, 1_025_000)]
        seen = slicing.told([{"turns": line, "events": 2.05} for line in lines])
        self.assertTrue(all(abs(share - 48.8) < 1 for share in seen["percent of each"]), seen)
        self.assertEqual((seen["change, us"]["median"], seen["both at once"]), (25, 0))


class Quick(unittest.TestCase):
    """Tests of the arithmetic of `facts/quick`."""

    STAMPS = [1_000_000 + 166_667 * number for number in range(60)]

    def test_one_process_a_sample_and_a_part_for_each_are_told_apart_and_come_to_the_same_parts(self):
        each = [(pid, stamp, 50) for stamp in self.STAMPS for pid in (7, 8)]
        one = [(7 if number % 3 else 8, stamp, 100) for number, stamp in enumerate(self.STAMPS)]
        both, single = sampler.beside(each), sampler.beside(one)
        self.assertEqual((both["entries a stamp"], single["entries a stamp"]), (2, 1))
        self.assertEqual([quick.kind_of_samples(seen) for seen in (both, single)], ["each", "one"])
        self.assertEqual([seen["of all"] for seen in both["processes"].values()], [50, 50])
        # By its own entries each process would have had all of the device.
        self.assertEqual([seen["of its entries"] for seen in single["processes"].values()], [100, 100])
        self.assertEqual([seen["of all"] for seen in single["processes"].values()], [66.7, 33.3])
        self.assertEqual(single["processes"][7]["in a second"]["n"], 10)
        self.assertEqual(single["processes"][7]["in a second"]["median"], 66.7)

    def test_of_other_processes_samples_are_not_counted_and_none_is_no_answer(self):
        rows = [(pid, stamp, 30) for stamp in self.STAMPS for pid in (7, 8, 9)]
        self.assertEqual(sampler.beside(rows, {7, 8})["entries a stamp"], 2)
        with self.assertRaises(bench.Skip):
            quick.kind_of_samples(sampler.beside(rows, {5}))

    def test_bytes_are_told_by_whose_they_can_be(self):
        size = 1 << 30
        for told, kind in (({}, "not listed"), ({"7": size}, "own"), ({"7": 0}, "0"), ({"7": size, "8": 5}, "5")):
            self.assertEqual(quick.kind_of_bytes({"listed": told}, size), kind)

    def test_the_nearest_rule_is_found(self):
        for name, rule in quick.RULES.items():
            taken = [(size, count, rule(size, count)) for size, count in quick.ROUNDED.items()]
            self.assertEqual(quick.rule(taken), name)
            # Each allocation may have found room in an existing block.
            self.assertEqual(quick.rule([(size, count, bytes_ - (2 << 20)) for size, count, bytes_ in taken]), name)
        self.assertEqual(quick.of_blocks((1 << 20) + 1, 3), 3 * (2 << 20))
        self.assertEqual(quick.of_blocks(3 << 18, 16), 16 << 20)

    def test_a_difference_is_reported_with_the_setting_that_matches(self):
        answers = {"what cuMemAlloc rounds up to": "1", "a context, MiB": 300, "an event, ns of the device": 1100,
                   "a time slice, us": 2000, "launches that wait in a stream": 1000, "free memory, us": 8000,
                   "a record of an event, ns for each further thread": 3000,
                   "questions about events while code is loaded": "goes on"}  # fmt: skip
        told = {question.name: quick.verdict(question, answers[question.name]) for question in quick.QUESTIONS
                if question.name in answers}  # fmt: skip
        self.assertEqual(
            [seen["setting"] for seen in told.values()],
            ["SIMGPU_LINEAR_GRANULE=1", "SIMGPU_CONTEXT_BYTES=300MiB", "SIMGPU_TIME=event_ns=1100",
             "SIMGPU_EVENT_CONTENTION_NS=3000", "SIMGPU_LOADING=free", "SIMGPU_FAULTS=cuMemGetInfo_v2=delay:8000us",
             "none", "SIMGPU_TIME=slice_ns=2000000"],
        )  # fmt: skip
        parts = {"facts/quick": a_part(**{page.SIMULATED: told})}
        text = page.page({**report(parts=parts), "summary": dict.fromkeys(run.RESULTS, 0)})
        self.assertIn("| a context, MiB | **300** | 530 | SIMGPU_CONTEXT_BYTES=300MiB |", text)
        self.assertIn("| launches that wait in a stream | 1000 | 1024 | none |", text)
        self.assertIn("```\nSIMGPU_LINEAR_GRANULE=1\nSIMGPU_CONTEXT_BYTES=300MiB\n", text)
        self.assertIn("\nSIMGPU_TIME=event_ns=1100,slice_ns=2000000\n", text)

    def test_settings_are_those_of_the_simulated_gpu(self):
        documented = (ROOT / "docs/internals/simgpu.md").read_text()
        self.assertEqual([question.name for question in quick.QUESTIONS], list(quick.DEFAULTS))
        for question, (_, setting) in quick.DEFAULTS.items():
            said = setting("not listed" if question.startswith("bytes") else 1)
            names = re.findall(r"SIMGPU_[A-Z_]+|[a-z]+_[a-z]+(?==)", said)
            self.assertTrue(names, question)
            for name in names:
                self.assertIn(f"`{name}`", documented, question)

    def test_a_simulated_gpu_that_is_unlike_the_default_is_found_so(self):
        if not (SIMGPU / "libcuda.so.1").exists():
            print("SKIP whether the GPU suite finds what is unlike; to mend it: ci/stage.sh")
            self.skipTest("no simulated driver")
        settings = ["SIMGPU_LINEAR_GRANULE=2MiB", "SIMGPU_CONTEXT_BYTES=300MiB", "SIMGPU_PRIVATE_ENTRIES=cuGraphLaunch/2",
                    "SIMGPU_LOADING=free"]  # fmt: skip
        # Other programs on the processors delay these calls, so only the names of the settings are compared.
        timed = {"a record of an event, ns for each further thread": "SIMGPU_EVENT_CONTENTION_NS=4000",
                 "free memory, us": "SIMGPU_FAULTS=cuMemGetInfo_v2=delay:5ms"}  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            unlike = [word for setting in [*settings, *timed.values()] for word in ("--unlike", setting)]
            command = [sys.executable, str(HERE / "run.py"), "quick", "--simulated", "--out", folder, *unlike]
            ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
            self.assertEqual(ended.returncode, 1, ended.stdout)
            (written,) = Path(folder).glob("*.json")
            told = json.loads(written.read_text())["parts"]["facts/quick"]["figures"][page.SIMULATED]
        self.assertLessEqual(set(settings), {judged["setting"] for judged in told.values()}, ended.stdout)
        for question, setting in timed.items():
            name = setting.split("=")[0]
            self.assertEqual(told[question]["setting"].split("=")[0], name, ended.stdout)


class Files(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = Path(self.folder.name) / "2026-01-01-some-gpu.json"

    def test_parts_of_separate_runs_come_together(self):
        run.finish(report(parts={"quota": a_part()}), self.path)
        path, parts = run.with_earlier(self.path, report())
        self.assertEqual((path, list(parts)), (self.path, ["quota"]))
        run.finish(report(parts={**parts, "shares": a_part("FAIL")}, library="b" * 64), self.path)
        kept = json.loads(self.path.read_text())
        self.assertEqual(kept["summary"], {"ok": 1, "FAIL": 1, "DIFFERS": 0, "SKIP": 0})
        self.assertIn("Measured of another library: `aaaaaaaaaaaaaaaa`", self.path.with_suffix(".md").read_text())

    def test_another_driver_or_a_foreign_file_is_not_overwritten(self):
        run.finish(report(parts={"quota": a_part()}), self.path)
        other, parts = run.with_earlier(self.path, report(gpu={**GPU, "driver": "590.1"}))
        self.assertEqual((other.name, parts), ("2026-01-01-some-gpu-2.json", {}))
        other.write_text("no measurement")
        self.assertEqual(
            run.with_earlier(self.path, report(gpu={**GPU, "driver": "590.1"}))[0].name, "2026-01-01-some-gpu-3.json"
        )

    def test_limits_that_are_measured_later_join_the_others(self):
        def part(limit, mean):
            made = a_part(shares={"x": {limit: {"mean": mean}}, f"y{limit}": {limit: {"mean": mean}}})
            made["results"][0]["claim"] = f"x at {limit} %"
            return made

        first = {**part("30", 29), "library": "a"}
        first["figures"]["shares"]["x"]["30"]["at first"] = 28
        both = run.joined(first, part("95", 94), "a")
        self.assertEqual(both["figures"]["shares"]["x"], {"30": {"mean": 29, "at first": 28}, "95": {"mean": 94}})
        self.assertEqual(set(both["figures"]["shares"]), {"x", "y30", "y95"})
        self.assertEqual([result["claim"] for result in both["results"]], ["x at 30 %", "x at 95 %"])
        again = run.joined({**both, "library": "a"}, part("30", 31), "a")
        self.assertEqual(again["figures"]["shares"]["x"]["30"], {"mean": 31})
        self.assertEqual(len(again["results"]), 2)
        self.assertEqual(run.joined(first, part("95", 94), "b"), part("95", 94), "of another library")

    def test_results_of_the_simulated_gpu_go_nowhere_near_measurements(self):
        options = mock.Mock(out=str(ROOT / "docs" / "measurements"), simulated=True)
        with self.assertRaises(SystemExit):
            run.destination(GPU, options)
        options.out = self.folder.name
        self.assertIn("simulated", run.destination(GPU, options).name)
        text = page.page({**report(simulated=True), "summary": dict.fromkeys(run.RESULTS, 0)})
        self.assertIn("simulated GPU**: no measurement", text)

    def test_a_page_shows_differences_first_and_pictures_are_well_formed(self):
        fact = {"claim": "it is so", "rests": "src/lib.rs", "otherwise": "change it", "seen": "it is not"}
        parts = {
            "facts/x": {**a_part(), "facts": [{**fact, "verdict": "as assumed"}, {**fact, "verdict": "differs"}]},
            "shares": a_part(
                shares={"20 us & <more>": {"30": {"mean": 30.2, "error": 0.2, "allowed": 0.5}}},
                **{page.REQUESTS: {"30": {"ratio": 1.125}}},
            ),
            "models": a_part(**{"throughput to bare": {"graphs": {"low": 0.99, "median": 0.995, "high": 1.0}}}),
            "neighbours": a_part(
                shares={"two": {"percent": {"1": 29.9, "2": 69.8}}}, latency={"alone": {"p50 ms": 1, "p99 ms": 2}}
            ),
        }
        told = report(parts=parts)
        drawn = page.pictures(told)
        self.assertEqual(set(drawn), {"shares", "overhead", "neighbours", "latency"})
        for picture in drawn.values():
            parseString(picture)
        text = page.page({**told, "summary": dict.fromkeys(run.RESULTS, 0)}, ["x.svg"])
        self.assertLess(text.index("**differs**"), text.index("as assumed"))
        self.assertIn("![x.svg](x.svg)", text)
        self.assertIn(f"| {page.REQUESTS} | 1.12 |", text)

    def test_pictures_of_one_value_and_of_none_but_zeros_are_well_formed(self):
        parseString(plot.intervals("t", [("a", 1, 1, 1)], 1))
        parseString(plot.bars("t", [("a", 0, "g")]))


PTXAS = ROOT / "build" / "headers" / "ptxas"


class Kernels(unittest.TestCase):
    def test_the_assembler_takes_every_kernel_for_the_oldest_and_the_newest_devices(self):
        if not PTXAS.exists():
            print("SKIP whether the kernels of the GPU suite assemble; to mend it: ci/headers.sh")
            self.skipTest("no assembler")
        texts = {"stamps": stamps.text(["spin_20us"]), "watch": watch.text(["watch_spin_20us"]), "driver": driver.PTX,
                 "quick": quick.LATE, "variable": late.variable(), "code": late.code(10), "early": order.early()}  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            for name, text in texts.items():
                source = Path(folder) / name
                source.write_bytes(text.rstrip(b"\0"))
                oldest = ("sm_75",) if name != "early" else ()  # which needs a newer one
                for target in (*oldest, "sm_90", "sm_120"):
                    command = [PTXAS, f"-arch={target}", source, "-o", f"{source}.cubin"]
                    told = subprocess.run(command, capture_output=True, text=True, check=False)
                    self.assertEqual(told.returncode, 0, f"{name}, {target}: {told.stderr}")


class Verdicts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        told = {
            "simulated": False,
            "seconds": 9,
            "answer": f"{folder.name}/answer",
            "scratch": folder.name,
            "bulk": folder.name,
            "unlike": {},
        }
        with mock.patch.dict(os.environ, {"GPU_SUITE": json.dumps(told)}):
            self.part = bench.Part("x")
        self.addCleanup(self.part.scratch.cleanup)
        self.facts = [bench.Fact(name, "src", "change") for name in ("one", "two")]

    def verdicts(self):
        return [(fact["claim"], fact["verdict"]) for fact in self.part.facts]

    def test_a_fact_that_no_program_told_is_not_seen(self):
        with mock.patch("builtins.print"), self.part.about_facts("both", *self.facts):
            self.part.fact(self.facts[0], False, "other")
            raise bench.Skip("no stamps")
        self.assertEqual(self.verdicts(), [("one", "differs"), ("two", "not seen")])
        self.assertEqual([result["result"] for result in self.part.results], ["DIFFERS", "SKIP"])

    def test_seen_facts_are_told_in_words(self):
        seen = {"launch, us": 74.5, "gaps": [1, 2]}
        with mock.patch("builtins.print") as said:
            self.part.fact(self.facts[0], None, seen)
        said.assert_called_once_with("SKIP", "one: not seen: launch, us: 74.5; gaps: 1, 2", flush=True)

    def test_a_fault_of_the_suite_is_a_failure(self):
        with mock.patch("builtins.print"), self.part.about_facts("both", *self.facts):
            raise TypeError("a fault")
        self.assertEqual([result["result"] for result in self.part.results], ["FAIL", "SKIP", "SKIP"])


class Claims(unittest.TestCase):
    """Tests of the claims in docs/measurements, and of the places that facts name in the design."""

    def test_every_claim_names_the_command_that_measures_it_or_says_why_none_does(self):
        text = (ROOT / "docs/measurements/README.md").read_text()
        claims = text.partition("## Claims that rest")[2].partition("\n## What `ci/bench.sh`")[0]
        header, rows = [], []
        for line in claims.splitlines():
            cells = [cell.strip() for cell in line[1:-1].split("|")] if line.startswith("|") else []
            if cells and not header:
                header = cells
            elif cells and header[0] == "claim" and not cells[0].startswith("---"):
                self.assertEqual(len(cells), len(header), cells)
                rows.append(dict(zip(header, cells)))
            elif not cells:
                header = []
        self.assertGreater(len(rows), 40)
        for row in rows:
            measured = row["measured by"]
            commands = re.findall(r"`ci/gpu\.sh ([^`]+)`", measured)
            self.assertTrue(commands or measured.startswith("not asked: "), row)
            for command in commands:
                self.assertTrue(all(word in run.GROUPS or word in run.PARTS for word in command.split()), row)
            self.assertTrue(row.get("source", "a target"), row)

    def test_settings_that_make_a_claim_false_are_those_of_the_simulated_gpu(self):
        claims = (ROOT / "docs/measurements/README.md").read_text().partition("## Claims that rest")[2]
        documented = (ROOT / "docs/internals/simgpu.md").read_text()
        names = set(re.findall(r"`(SIMGPU_[A-Z_]+)", claims))
        self.assertGreater(len(names), 8)
        for name in names:
            self.assertIn(f"`{name}`", documented)

    def test_files_that_facts_rest_on_are_there(self):
        for fact in all_facts():
            for place in re.findall(r"(?:src|docs)/[a-z0-9_/.-]+", fact.rests):
                self.assertTrue((ROOT / place.rstrip(".")).exists(), (fact.claim, place))
            for name in re.findall(r"\b[A-Z][A-Z_]{3,}\b", fact.rests):
                if name not in ("NVML",):
                    places = re.findall(r"src/[a-z0-9_/.]+\.rs", fact.rests)
                    self.assertTrue(any(name in (ROOT / place).read_text() for place in places), (fact.claim, name))

    def test_every_part_is_there_and_each_group_can_end_in_eight_minutes(self):
        for name in run.PARTS:
            self.assertTrue((HERE / f"{name}.py").exists(), name)
        self.assertTrue(all(most <= 480 for most in run.PARTS.values()))


def all_facts():
    import importlib.util

    for path in [HERE / "growth.py", HERE / "lookup.py", *sorted((HERE / "facts").glob("*.py"))]:
        spec = importlib.util.spec_from_file_location(f"facts_{path.stem}", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield from (value for value in vars(module).values() if isinstance(value, bench.Fact))
    yield from map(quick.fact, quick.QUESTIONS)


class Interrupted(unittest.TestCase):
    """Tests that an interrupted run leaves no process, region or file, and that a part that takes too long is stopped."""

    def start(self, *more):
        if not (SIMGPU / "libcuda.so.1").exists():
            print("SKIP how an interrupted GPU suite cleans up; to mend it: ci/stage.sh")
            self.skipTest("no simulated driver")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        command = [sys.executable, str(HERE / "run.py"), "shares", "--simulated", "--out", folder.name, *more]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GPU_")}
        self.said = Path(folder.name) / "said"
        with open(self.said, "w") as said:
            self.child = subprocess.Popen(command, env=environment, stdout=said, stderr=said)
        self.addCleanup(self.child.kill)
        # A part and a worker of it, in the run's own folder.
        self.folder = until(lambda: next((folder for folder in folders() if f"/{self.child.pid}\n" in owner(folder)), None))
        until(lambda: len(members(self.folder)) >= 2)

    def test_a_part_that_takes_too_long_is_stopped_and_says_so(self):
        self.start("--budget", "6")
        self.assertEqual(self.child.wait(60), 1)
        self.assertIn("FAIL shares: no end within 6 s; it was stopped", self.said.read_text())
        self.assertFalse(members(self.folder))
        self.assertFalse(self.folder.exists())

    def test_by_ctrl_c(self):
        self.start()
        self.child.send_signal(signal.SIGINT)
        self.assertEqual(self.child.wait(30), 130)
        self.assertFalse(members(self.folder))
        self.assertFalse(self.folder.exists() or workspace.bulk(self.folder).exists())

    def test_by_a_kill_after_which_the_next_run_removes_the_rest(self):
        self.start()
        self.child.kill()
        self.child.wait(30)
        until(lambda: not members(self.folder), 10)  # the part by itself would take longer
        workspace.sweep()
        self.assertFalse(self.folder.exists() or workspace.bulk(self.folder).exists())


def until(condition, patience=60):
    end = time.monotonic() + patience
    while time.monotonic() < end:
        seen = condition()
        if seen:
            return seen
        time.sleep(0.05)
    raise AssertionError("it did not come to that")


def folders():
    return list(workspace.FOLDER.glob(workspace.PREFIX + "*"))


def owner(folder):
    try:
        return f"/{(folder / 'lock').read_text()}\n"
    except OSError:
        return ""


def members(folder):
    """Returns the processes that have the folder in their environment: parts, and their workers."""
    found, name = [], str(folder).encode()
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if name in (place / "environ").read_bytes():
                found.append(int(place.name))
        except OSError:
            continue
    return found


class Counted(unittest.TextTestResult):
    """Test result that prints its counts in the form that ci/parts.sh reads."""

    def stopTestRun(self):
        super().stopTestRun()
        bad = len(self.failures) + len(self.errors)
        print(f"{self.testsRun - bad - len(self.skipped)} passed, {bad} failed, {len(self.skipped)} skipped", flush=True)


if __name__ == "__main__":
    unittest.main(testRunner=unittest.TextTestRunner(resultclass=Counted, stream=sys.stdout))
