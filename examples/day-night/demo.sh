#!/bin/sh
# Shows a day, a night and another day, each within seconds, on the simulated GPU. Four programs run on while their limits change.
# Needs `ci/stage.sh` and Python 3. The printed figures are those that the GPU itself has counted.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
target=${CARGO_TARGET_DIR:-$here/../../target}
: "${GPUSLICE:=$target/release/gpuslice}" "${GPUSLICE_SIMGPU:=$target/simgpu}" "${GPUSLICE_LIB:=$target/release/libgpuslice.so}"
: "${GPUSLICE_TRUTH:=$target/release/simgpu-truth}"
folder=$(mktemp -d /dev/shm/day-night.XXXXXX)
export GPUSLICE GPUSLICE_LIB LD_LIBRARY_PATH="$GPUSLICE_SIMGPU" SIMGPU_STATE="$folder/state"
export SIMGPU_MEMORY=16GiB SIMGPU_CONTEXT_BYTES=0
export NIGHT="$folder/train" SLICES="$folder/train $folder/serve-1 $folder/serve-2 $folder/serve-3"
export QUARTER=4GiB WHOLE=13GiB LITTLE=1GiB
programs=
trap 'kill $programs 2>/dev/null || :; wait; rm -rf "$folder"' EXIT
trap 'exit 1' INT TERM

for slice in $SLICES; do
    "$GPUSLICE" run --region "$slice" --mem $QUARTER --cores 25 -- python3 "$here/work.py" &
    programs="$programs $!"
done

# Waits until the figures that the GPU counts fit the part, and prints a line for each program.
report() { # name of the part; GiB that the programs must hold, and percent of the GPU's time that they must have
    python3 - "$GPUSLICE_TRUTH" "$@" <<'PYTHON'
import json, subprocess, sys, time
reader, part, sizes, shares = sys.argv[1:]
sizes, shares = ([int(word) for word in words.split()] for words in (sizes, shares))

def look():
    said = subprocess.run([reader], capture_output=True).stdout
    truth = json.loads(said or '{"processes": []}')  # no program has started the GPU yet
    alive = sorted((p for p in truth["processes"] if p["alive"] and p["devices"]), key=lambda p: p["pid"])
    return time.monotonic(), [(p["pid"], p["devices"][0]["held"], p["devices"][0]["busy_ns"]) for p in alive]

# It takes up to a third of a second until a new share has its effect.
deadline = time.monotonic() + 60
began, before = look()
while True:
    time.sleep(1)
    ended, after = look()
    known = {pid: busy for pid, _, busy in before}
    had = lambda pid, busy: round((busy - known.get(pid, 0)) / (ended - began) / 1e7, 1)
    rows = [(pid, held / 2**30, had(pid, busy)) for pid, held, busy in after]
    near = lambda found, wanted, most: all(abs(one - other) < most for one, other in zip(sorted(found), sorted(wanted)))
    held, had_all = [held for _, held, _ in rows], [had for *_, had in rows]
    fits = len(rows) == len(sizes) and near(held, sizes, 0.01) and near(had_all, shares, 5)
    if fits or time.monotonic() > deadline:
        break
    began, before = ended, after
for pid, held, had in rows:
    print(f"{part}  process {pid}  holds {held:.2f} GiB  had {had:.1f} % of the GPU", flush=True)
sys.exit(0 if fits else f"that is not {part}: expected {sizes} GiB and {shares} % of the time")
PYTHON
}

report day "4 4 4 4" "25 25 25 25"
"$here/day-night" night
report night "13 1 1 1" "97 1 1 1"
"$here/day-night" day
report day "4 4 4 4" "25 25 25 25"
