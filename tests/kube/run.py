"""Runs the scenarios in a cluster, prints one figure for each, and counts them."""

import importlib
import pathlib
import sys
import time
import traceback

sys.path[:0] = [str(pathlib.Path(__file__).parent / "scenarios")]

from cluster import ROOT, Cluster, skipped  # noqa: E402
import claims  # noqa: E402
import one_gpu  # noqa: E402
import slices  # noqa: E402

# The scenarios, by the mode of the agent.
ORDER = {
    slices: ("three_pods", "quota", "three_large_pods", "many", "late_alloc", "crashes", "delete_before_bind", "full_node",
             "same_name", "upgrade", "reuse", "own_alloc", "preemption", "constraints", "resize", "namespace_quota", "outages",
             "crashes_of_cluster", "kueue"),
    one_gpu: ("volcano",),
    claims: ("claims_three_pods", "claims_three_large_pods", "claims_many", "claims_crashes"),
}


def main():
    known = [name for names in ORDER.values() for name in names]
    wanted = sys.argv[1:] or known
    if unknown := set(wanted) - set(known):
        sys.exit(f"no such scenario: {', '.join(unknown)}; there are {', '.join(known)}")
    cluster, passed, failed = Cluster(), 0, 0
    begun = time.monotonic()
    try:
        cluster.start()
        print(f"the cluster is ready after {time.monotonic() - begun:.1f} s", flush=True)
        slices.simulated_gpus(ROOT)
        for mode, names in ORDER.items():
            names = [name for name in wanted if name in names]
            if not names:
                continue
            begun = time.monotonic()
            mode.install()
            print(f"gpuslice is installed for {mode.__name__} after {time.monotonic() - begun:.1f} s", flush=True)
            results = [one(cluster, name) for name in names]
            passed, failed = passed + sum(results), failed + results.count(False)
            print(f"no slot, claim, specification or region is left after {slices.nothing_left():.0f} s", flush=True)
    except Exception:
        traceback.print_exc()
        failed += 1
    finally:
        cluster.stop()
    print(f"{passed} passed, {failed} failed, {len(skipped)} skipped")
    sys.exit(1 if failed else 0)


def one(cluster, name):
    begun = time.monotonic()
    try:
        figure = importlib.import_module(name).scenario(cluster)
    except Exception:
        traceback.print_exc()
        print(f"FAIL {name} after {time.monotonic() - begun:.1f} s", flush=True)
        slices.clear()
        return False
    print(f"ok {name} ({time.monotonic() - begun:.1f} s): {figure}", flush=True)
    return True


main()
