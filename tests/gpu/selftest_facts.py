"""Tests that verdicts about facts find wrong assumptions, on a simulated GPU that is unlike them or by made-up figures."""

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [path for path in (str(HERE), str(HERE / "facts")) if path not in sys.path]

import bench  # noqa: E402
import driver  # noqa: E402
import events  # noqa: E402
import full  # noqa: E402
import late  # noqa: E402
import managed  # noqa: E402
import moves  # noqa: E402
import names  # noqa: E402
import order  # noqa: E402
import several  # noqa: E402

TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
SIMGPU = Path(os.environ.get("GPUSLICE_SIMGPU") or TARGET / "simgpu")
MIB = bench.MIB


class Unlike(unittest.TestCase):
    """Runs parts on a simulated GPU that is unlike the assumption."""

    def verdicts(self, part, setting=None, **environment):
        """Returns the verdict on each claim of a part."""
        if not (SIMGPU / "libcuda.so.1").exists():
            print("SKIP whether the GPU suite finds wrong assumptions; to mend it: ci/stage.sh")
            self.skipTest("no simulated driver")
        with tempfile.TemporaryDirectory() as folder:
            unlike = ["--unlike", setting] if setting else []
            command = [sys.executable, str(HERE / "run.py"), part, "--simulated", "--out", folder, *unlike]
            ended = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False,
                                   timeout=200)  # fmt: skip
            self.assertEqual(ended.returncode, 1, ended.stdout)
            (written,) = Path(folder).glob("*.json")
            facts = json.loads(written.read_text())["parts"][part]["facts"]
        self.said = ended.stdout
        return {fact["claim"]: fact["verdict"] for fact in facts}

    def differ(self, verdicts, *facts):
        for fact in facts:
            self.assertEqual(verdicts[fact.claim], bench.DIFFERS, self.said)

    def test_imports_that_nvml_counts_are_found(self):
        seen = self.verdicts("facts/moves", "SIMGPU_NVML_IMPORTS=1")
        self.differ(seen, moves.UNCOUNTED)
        others = {claim: verdict for claim, verdict in seen.items() if claim != moves.UNCOUNTED.claim}
        self.assertEqual(set(others.values()), {bench.AS_ASSUMED}, self.said)

    def test_managed_memory_that_nvml_counts_is_found(self):
        self.differ(self.verdicts("facts/managed", "SIMGPU_NVML_MANAGED=1"), managed.UNCOUNTED)

    def test_code_that_is_loaded_at_once_is_found(self):
        self.differ(self.verdicts("facts/late", CUDA_MODULE_LOADING="EAGER"), late.LATE)

    def test_a_driver_that_answers_about_an_ended_context_and_refuses_events_is_found(self):
        seen = self.verdicts("facts/order", "SIMGPU_FAULTS=cuCtxGetApiVersion=0;cuEventRecord=999")
        self.differ(seen, order.CHECKED, order.GREEN)

    def test_a_driver_that_dies_of_an_ended_context_is_found(self):
        seen = self.verdicts("facts/order", "SIMGPU_FAULTS=cuCtxGetApiVersion=kill@2")
        self.differ(seen, order.CHECKED)
        self.assertEqual(seen[order.GREEN.claim], bench.AS_ASSUMED, self.said)

    def test_devices_that_have_other_names_are_found(self):
        faults = "nvmlDeviceGetHandleByUUID=0;nvmlDeviceGetGpuInstanceId=0;cuDeviceGetUuid_v2=0"
        self.differ(self.verdicts("facts/names", f"SIMGPU_FAULTS={faults}"), names.LISTS, names.INSTANCES, names.LOST)

    def test_a_full_device_that_takes_nothing_from_pools_is_found(self):
        # The first eight allocations are those of the pieces.
        seen = self.verdicts("facts/full", "SIMGPU_FAULTS=cuMemAllocFromPoolAsync=2@9+")
        self.differ(seen, full.OWN, full.OTHERS)
        self.assertEqual(seen[full.LINEAR.claim], bench.AS_ASSUMED, self.said)


class MadeUp(unittest.TestCase):
    """Tests verdicts by made-up figures, where no setting of the simulated GPU makes an assumption false."""

    def test_a_full_device_that_takes_memory_of_pools_for_linear_memory_is_found(self):
        self.assertEqual(full.verdicts({"cuMemAlloc": {"status": 0}})[full.LINEAR], False)
        refused = full.verdicts({"cuMemAlloc": {"status": 2}, "its own pool": {"status": 700}})
        self.assertEqual([refused[fact] for fact in (full.LINEAR, full.OWN, full.OTHERS)], [True, None, None])

    def test_memory_that_comes_back_too_early_or_too_late_is_found(self):
        size, usual = 64 * MIB, {"before": 0, "during the kernel": 0, "in the host function": 64 * MIB, "at the end": 64 * MIB}
        for changes, held, back in (
            ({}, True, True), ({"during the kernel": size}, False, True), ({"the kernel ran on": False}, None, True),
            ({"in the host function": 0}, True, False), ({"in the host function": 0, "at the end": 0}, True, None),
        ):  # fmt: skip
            seen = moves.verdicts_in_stream({"the kernel ran on": True, **usual, **changes}, size)
            self.assertEqual((seen[moves.HELD], seen[moves.BACK]), (held, back), changes)

    def test_copies_and_imports_that_take_memory_are_found(self):
        self.assertTrue(moves.takes_nothing({"bytes": {"to the device": 0, "a fill": -5}}))
        self.assertFalse(moves.takes_nothing({"bytes": {"to the device": 0, "a fill": 4096}}))
        for lost, own, verdicts in ((0, 0, (True, True)), (64 * MIB, 64 * MIB, (False, False)), (0, None, (True, None))):
            seen = moves.verdicts_of_opened({"lost": lost, "own": own}, 64 * MIB)
            self.assertEqual((seen[moves.IMPORTS], seen[moves.UNCOUNTED]), verdicts)

    def test_code_that_takes_memory_at_a_later_call_is_found(self):
        first = {
            "load": 0,
            "look-up of the first": 4 * MIB,
            "launch of the second": MIB,
            "launch of the first again": 0,
            "wait": -MIB,
        }
        self.assertEqual(late.verdict(first), True)
        for call in ("load", "launch of the first again", "wait"):
            self.assertEqual(late.verdict({**first, call: 4096}), False, call)
        self.assertEqual(late.verdict({"load": 0, "look-up of the first": 4096}), None)

    def test_launches_that_overlap_across_an_event_are_found(self):
        for with_event, truth in ((40, True), (22, False)):
            seen = {"plain": 40, "programmatic": 21, "programmatic, with an event": with_event}
            self.assertEqual(order.in_order(seen), truth)
        self.assertEqual(order.in_order({"plain": 40, "programmatic": 40, "programmatic, with an event": 40}), None)
        self.assertIn(b"griddepcontrol.launch_dependents;\n    mov.u64 %begun", order.early())

    def test_contexts_that_are_not_checked_are_found(self):
        self.assertTrue(order.checked({"cuCtxDestroy_v2": [0, 201]}))
        for statuses in ([0, 0], [201, 201]):
            self.assertFalse(order.checked({"cuCtxDestroy_v2": [0, 201], "cuCtxDetach": statuses}))

    def test_managed_memory_that_is_counted_otherwise_is_found(self):
        for counter, truth in ((64 * MIB, True), (0, False)):
            self.assertEqual(managed.counted({"on the host": {"counter": counter}}, 64 * MIB), truth)
        for lost, own, truth in ((64, 0, True), (64, 64, False), (64, None, None), (0, 0, None)):
            self.assertEqual(managed.uncounted({"lost": lost, "own": own}, 64), truth)
        self.assertTrue(managed.stays({"advice": 0, "prefetch": 0}, 64))
        self.assertFalse(managed.stays({"advice": 0, "prefetch": 64}, 64))

    def test_lists_that_show_other_devices_are_found(self):
        every = ["GPU-12345678-aaaa", "GPU-12345678-bbbb"]
        table = names.expected(every)
        self.assertEqual((table["1,-1,0"], table["0,0"], table["GPU-12345678-a"]), ([1], [], [0]))
        seen = names.numbered(every, [[every[number] for number in wanted] for wanted in table.values()])
        self.assertEqual(names.unlike(table, seen), {})
        self.assertEqual(names.unlike({"0,0": [], "1": [1]}, [[0], [1]]), {"0,0": [[], [0]]})

    def test_clients_of_mps_that_are_in_another_list_are_found(self):
        for lists, truth in (([[7], []], True), ([[], [7]], False), ([[7], [7]], True), ([[8], [9]], None)):
            self.assertEqual(names.is_listed({"own": [1, 7], "compute": lists[0], "MPS": lists[1]}), truth)

    def test_a_lost_gpu_beside_which_the_others_have_uuids_is_found(self):
        for other, truth in (([0, 15], True), ([0, 0], False), ([15, None], None), ([999, 15], False)):
            self.assertEqual(names.found_by_number_alone({"0": [15, None], "1": other}), truth)
        self.assertEqual(names.found_by_number_alone({"0": [0, 0], "1": [0, 0]}), None)

    def test_a_library_of_the_image_and_one_of_the_host_are_told_apart(self):
        library = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.1"
        image = "1 2 0:30 / / rw - overlay overlay rw\n2 1 0:31 / /usr/lib/x86_64 rw - tmpfs tmpfs rw\n"
        self.assertEqual(names.mount_of(library, image), "/")
        self.assertEqual(names.mount_of(library, f"{image}3 1 8:1 /usr {library} ro - ext4 /dev/sda1 ro\n"), library)

    def test_a_compatibility_package_with_nvml_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(names.has_no_nvml(names.compatibility([folder])), None)
            Path(folder, "libcuda.so.580.1").touch()
            self.assertEqual(names.has_no_nvml(names.compatibility([folder])), True)
            Path(folder, "libnvidia-ml.so.580.1").touch()
            self.assertEqual(names.has_no_nvml(names.compatibility([folder])), False)

    def test_kernels_that_begin_too_early_or_too_late_in_their_launch_are_found(self):
        for late, verdict in ((-5001, False), (-5000, True), (5000, True), (5001, False)):
            self.assertEqual(events.starts_alike({"beyond the launch": {"median": late}}), verdict)

    def test_graphs_and_ranks_on_several_gpus_that_are_out_of_step_are_found(self):
        self.assertTrue(several.encloses({"events, ms": several.OTHER + 1}))
        self.assertFalse(several.encloses({"events, ms": several.OWN}))
        for limited, truth in (([17, 30], True), ([17, 90], False)):
            self.assertEqual(several.in_step({"bare": [5, 5], "in a slice": limited}), truth)


class Reasons(unittest.TestCase):
    """Tests the reasons for which a worker skips."""

    def said(self, task):
        arguments = ["facts/x.py", "--task", task.__name__, json.dumps({"parent": os.getppid(), "simulated": False})]
        text = io.StringIO()
        with mock.patch.object(sys, "argv", arguments), contextlib.redirect_stdout(text), mock.patch("bench.die_with"):
            bench.main("x", None, task)
        return json.loads(text.getvalue().removeprefix("ANSWER "))

    def test_a_function_that_the_driver_does_not_have_is_a_reason_to_skip(self):
        def ask():
            return driver.Library("libc.so.6").status("cuOfTheFuture")

        self.assertEqual(self.said(ask), {"skip": "this driver has no cuOfTheFuture"})

    def test_another_missing_attribute_is_a_fault(self):
        def fail():
            return None.attribute

        with self.assertRaises(AttributeError):
            self.said(fail)

    def test_managed_memory_is_used_only_if_the_run_allows_it(self):
        for simulated, allowed in ((False, False), (False, True), (True, False)):
            part = mock.Mock(simulated=simulated, settings={"managed": allowed})
            with contextlib.nullcontext() if simulated or allowed else self.assertRaises(bench.Skip):
                bench.Part.needs_managed(part)
