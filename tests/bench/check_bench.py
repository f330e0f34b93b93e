#!/usr/bin/env python3
"""Every command of gradweir-bench, for a fraction of a second: its JSON has all keys, and what they say can be true.

    tests/bench/check_bench.py [--build build] [--only push,step]

Absolute rates are nobody's business here; relations are: something moved, a half of it was no slower than nearly all of
it, memory is there, CPU time is no more than the cores had. Wrong options end with 2 and one sentence, and no process is
left behind when the program is killed."""
import argparse
import json
import os
import signal
import subprocess
import sys
import time

HANG_S = 120
KEYS = """case bytes transport workers shards window stride optimizer dtype goodput_gbps floor_gbps floor_ratio perftest_gbps
perftest_ratio memcpy_gbps server_cpu_s_per_gb worker_cpu_s_per_gb rss_mib plan_mib p50_us p99_us ops_per_s""".split()
LIVE = ["server_cpu_s_per_gb", "worker_cpu_s_per_gb", "rss_mib", "plan_mib", "p50_us", "p99_us", "floor_gbps", "memcpy_gbps"]
# Command line, and the keys that must be numbers beside goodput_gbps and ops_per_s.
CASES = [
    ("push --transport posix --size 1MiB", LIVE),
    ("push --transport tcp --size 40KB --workers 2 --shards 2 --in-flight 2", LIVE),
    ("push --size 64KiB --window 4 --stride 2 --decay exp --optimizer adam --server-threads one", LIVE),
    ("push --size 256KiB --dtype int8 --transport tcp", LIVE),
    ("step --size 256KiB --dtype bfloat16 --window 4 --threads 2", ["gradient_us", "triad_ratio"]),
    ("pull --size 256KiB", LIVE),
    ("exchange --size 40KB --transport tcp --workers 2", LIVE),
    ("step --size 256KiB --window 8 --decay exp --optimizer adam --against window=1", 
     ["floor_gbps", "memcpy_gbps", "p50_us", "p99_us", "worst_us", "triad_gbps", "triad_ratio", "against_ratio"]),
    ("step --size 64KiB --window 16 --stride 16 --optimizer sgd", ["gradient_us"]),
    ("codec --size 256KiB --dtype bfloat16", ["encode_gbps", "encode_rest_gbps", "decode_gbps", "memcpy_gbps"]),
    ("codec --size 40KB --dtype int8", ["encode_gbps", "encode_rest_gbps", "decode_gbps", "encoded_bytes"]),
    ("records --workers 20 --shards 8", ["ns_per_record", "gradients_per_s", "p50_us"]),
    ("floor --size 256KiB --optimizer adam", ["floor_gbps", "memcpy_gbps", "copy_ratio", "step_triad_ratio"]),
]
WRONG = ["push --size 3", "push --siez 1MiB", "push --window 0", "nothing", "push --window 4 --window-max 2", "push --seconds x", "step --shards 2",
         "step --against window", "push --size 0x10MiB", "push --listen 127.0.0.1:7", "push --port-file x",
         "step --shard 0", "step --against size=1MiB", "push --workers 1000"]
failures = []


def expect(holds, what):
    if not holds:
        failures.append(what)
        print("FAILED:", what, flush=True)


def run(program, words):
    return subprocess.run([program, *words.split()], capture_output=True, text=True, timeout=2 * HANG_S)


def check_row(words, wanted, row):
    expect(all(key in row for key in KEYS), f"{words}: keys missing: {[k for k in KEYS if k not in row]}")
    moves = [] if row["case"] == "records" else ["goodput_gbps"]
    for key in ["ops_per_s", *moves, *wanted]:
        value = row.get(key)
        expect(isinstance(value, (int, float)) and value > 0, f"{words}: {key} is {value}")
    expect(all(not isinstance(value, (dict, list)) for value in row.values()), f"{words}: not flat")
    for low, high in [("p50_us", "p99_us"), ("goodput_min", "goodput_gbps"), ("goodput_gbps", "goodput_max"),
                      ("floor_ratio_min", "floor_ratio"), ("floor_ratio", "floor_ratio_max")]:
        if row.get(low) is not None and row.get(high) is not None:
            expect(row[low] <= row[high] * 1.001, f"{words}: {low} {row[low]} above {high} {row[high]}")
    expect(row.get("refused") in (None, 0), f"{words}: {row.get('refused')} pushes refused")
    if row.get("goodput_gbps") and row.get("ops_per_s") and row["case"] in ("push", "pull", "exchange"):
        moved = row["ops_per_s"] * row["bytes"] / 1e9
        expect(abs(moved / row["goodput_gbps"] - 1) < 0.01, f"{words}: {row['ops_per_s']} operations are {moved} GB/s")
        # Of the slowest round: medians of both may be of different ones.
        expect(row["server_cpu_s_per_gb"] * row["goodput_min"] < os.cpu_count() * 1.3, f"{words}: more CPU than there is")


def check_cases(options):
    program = os.path.join(options.build, "gradweir-bench")
    only = options.only.split(",") if options.only else None
    for words, wanted in CASES:
        if only and words.split()[0] not in only:
            continue
        done = run(program, words + " --seconds 0.2 --rounds 2 --perftest off --json")
        expect(done.returncode == 0, f"{words}: ended with {done.returncode}: {done.stderr}")
        rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        expect(rows, f"{words}: no row")
        for row in rows:
            check_row(words, wanted, row)
    lines = run(program, "floor --size 64KiB --seconds 0.05 --rounds 1").stdout
    expect("goodput" in lines and "{" not in lines, "without --json: lines for people")
    refused = None if only else run(program, "push --size 4KiB --mode sync --workers 4 --queue 3")
    if refused:
        expect(refused.returncode == 2 and "mode = sync with workers_max 4" in refused.stderr and "gradweir-bench: " in refused.stderr,
               f"what the servers refuse: ended with {refused.returncode}: {refused.stderr}")
    for words in [] if only else WRONG:
        done = run(program, words)
        expect(done.returncode == 2 and done.stderr.startswith("gradweir-bench: ") and not done.stdout,
               f"{words}: ended with {done.returncode}: {done.stderr}")


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(word) for word in file.read().split()]


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def check_orphans(options, number):
    """Killed in the middle, by a signal it cannot see: server and workers go with it."""
    bench = subprocess.Popen([os.path.join(options.build, "gradweir-bench"), *"push --size 1MiB --workers 2 --seconds 3600".split()],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    children, end = [], time.monotonic() + HANG_S
    while len(children) < 3 and time.monotonic() < end and bench.poll() is None:
        children = children_of(bench.pid)
        time.sleep(0.01)
    expect(len(children) >= 3, f"server and two workers: {len(children)} children")
    bench.send_signal(number)
    bench.wait(HANG_S)
    end = time.monotonic() + HANG_S
    while any(map(alive, children)) and time.monotonic() < end:
        time.sleep(0.01)
    left = [pid for pid in children if alive(pid)]
    expect(not left, f"children outlive signal {number}")
    for pid in left:
        os.kill(pid, signal.SIGKILL)


def check_deaths(options, name):
    """One of its children is killed in the middle: it says which and how, soon, and ends the others."""
    bench = subprocess.Popen([os.path.join(options.build, "gradweir-bench"), *"push --size 1MiB --workers 2 --seconds 3600 --perftest off".split()],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    children, end = [], time.monotonic() + HANG_S
    while len(children) < 3 and time.monotonic() < end and bench.poll() is None:
        children = children_of(bench.pid)
        time.sleep(0.01)
    os.kill(children[0] if name == "gradweir-server" else children[-1], signal.SIGKILL)
    try:
        told = bench.communicate(timeout=HANG_S)[1]
    except subprocess.TimeoutExpired:
        bench.kill()
        told = f"nothing for {HANG_S} s" + bench.communicate()[1]
    expect(bench.returncode == 1 and f"gradweir-bench: {name} was killed by signal 9" in told, f"kill -9 of {name}: {bench.returncode}, {told}")
    expect(not any(map(alive, children)), f"kill -9 of {name}: children are left")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", default=os.environ.get("GRADWEIR_BUILD", "build"))
    parser.add_argument("--only")
    options = parser.parse_args()
    check_cases(options)
    if not options.only:
        check_orphans(options, signal.SIGTERM)
        check_orphans(options, signal.SIGKILL)
        check_deaths(options, "gradweir-server")
        check_deaths(options, "worker 1")
    print(f"{len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
