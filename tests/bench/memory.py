#!/usr/bin/env python3
"""What a shard's process takes: resident memory (VmRSS) of each of 1, 2, 4 shard processes beside the arithmetic.

The plan, per shard of N, for P parameters in float32 and Adam, is what the server prints at start and gradweirctl plan
before it,

    (slots + parameter slots + 2 moments) x 4 P / N  +  tables, sums, a tile more for each state, room for gathered answers,

and a constant: what the process of a model of 1,000 parameters takes beyond that line, the program, its libraries and the
transport. Measured is twice: once READY, before any gradient came, for memory is taken at start; and after pushes through
every slot, for it must not grow. Fails when one number of either is more than 5 % and more than 8 MiB (the transport's
receive buffers, which come with the first large bodies) from the plan, when the plan is not the arrays within 24 MiB, or
when a model that does not fit is not refused at once by name.

    tests/bench/memory.py [--build build] [--params 50000000] [--shards 1,2,4] [--queue 4] [--json FILE]"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration")
PARAMETER_SLOTS, MOMENTS, WINDOW, OFF_MAX, FREE_MIB, TABLES_MIB = 4, 2, 1, 0.05, 8, 24


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", default=os.environ.get("GRADWEIR_BUILD", "build"))
    parser.add_argument("--params", type=int, default=50000000)
    parser.add_argument("--shards", default="1,2,4")
    parser.add_argument("--queue", type=int, default=4)
    parser.add_argument("--json")
    return parser.parse_args()


class Servers:
    """A coordinator and shards, each a process of its own."""

    def __init__(self, options, shards, *more):
        self.folder = tempfile.TemporaryDirectory()
        self.common = ["--shards", str(shards), "--queue", str(options.queue), "--optimizer", "adam", *more]
        self.program = os.path.join(options.build, "gradweir-server")
        port = os.path.join(self.folder.name, "port")
        self.coordinator = self.start("coordinator", "--shards-elsewhere", "on", "--listen", "127.0.0.1:0", "--port-file", port)
        end = time.monotonic() + 120
        while not os.path.exists(port) and time.monotonic() < end:
            time.sleep(0.01)
        with open(port) as file:
            self.address = file.read().strip()
        self.shards = [self.start(f"shard-{i}", "--shard", str(i), "--coordinator", self.address) for i in range(shards)]

    def start(self, name, *words):
        log = open(os.path.join(self.folder.name, name), "w")
        return subprocess.Popen([self.program, *self.common, *words], stdout=subprocess.DEVNULL, stderr=log)

    def lines(self, name):
        with open(os.path.join(self.folder.name, name)) as file:
            return file.read()

    def resident(self):
        """MiB of each shard's process."""
        found = []
        for process in self.shards:
            with open(f"/proc/{process.pid}/status") as file:
                found += [int(line.split()[1]) / 1024 for line in file if line.startswith("VmRSS")]
        return found

    def planned(self):
        """MiB of each shard, as its process printed."""
        return [float(re.search(r"shard \d+: ([\d.]+) MiB = ", self.lines(f"shard-{i}"))[1]) for i in range(len(self.shards))]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in (*self.shards, self.coordinator):
            process.kill()
            process.wait()
        self.folder.cleanup()


def measure(options, shards, params):
    """MiB of each shard: as planned; resident once READY, and after pushes through every slot."""
    from library import VERDICTS, Worker
    with Servers(options, shards) as servers:
        worker = Worker(servers.address, "memory", sizes=(("w", params),)).bind()
        planned, ready = servers.planned(), servers.resident()
        worker.offer()
        worker.pull()
        worker.gradients[0][params // 2] = 1.0
        for _ in range(options.queue + WINDOW + 2):
            verdict = VERDICTS[worker.push().verdict]
            if verdict != "ADMITTED":
                sys.exit(f"a push was {verdict}")
        pushed = servers.resident()
        worker.close()
        return planned, ready, pushed


def too_large(options):
    """A model that the machine has no room for: the shard says so at once, with the numbers."""
    from library import Failed, Worker
    with open("/proc/meminfo") as file:
        total = next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemTotal"))
    queue, parameter_slots = 500, 64
    params = int(1.1 * total / (4 * (queue + parameter_slots)))
    if params > 100000000:
        return "not tried, for the worker's part of it would be large too"
    with Servers(options, 1, "--queue", str(queue), "--parameter-slots", str(parameter_slots)) as servers:
        end = time.monotonic() + 120
        while servers.shards[0].poll() is None and time.monotonic() < end:
            try:
                Worker(servers.address, "large", sizes=(("w", params),), timeout_ms=2000).bind()
                sys.exit("a model that does not fit was taken")
            except Failed:
                pass
        said = [line for line in servers.lines("shard-0").splitlines()
                if "MiB are wanted" in line or "bytes for its arena" in line]
        if not said:
            sys.exit("a model that does not fit was not refused by name:\n" + servers.lines("shard-0"))
        return said[0].strip()


def main():
    options = arguments()
    os.environ["GRADWEIR_BUILD"] = options.build
    sys.path.insert(0, ROOT)
    little = [sum(column) / len(column) for column in measure(options, 1, 1000)]
    constant = little[2] - little[0]
    arrays = options.queue + WINDOW + PARAMETER_SLOTS + MOMENTS
    whole = arrays * 4 * options.params / 2**20
    print(f"{options.params} parameters, {arrays} arrays = {options.queue + WINDOW} slots + {PARAMETER_SLOTS} parameter slots "
          f"+ {MOMENTS} moments: {whole:.1f} MiB over all shards; constant {constant:.1f} MiB a shard")
    print("shards  plan MiB   ready MiB (off)                  after pushes MiB (off)")
    rows, worst = [], 0.0
    for shards in map(int, options.shards.split(",")):
        planned, ready, pushed = measure(options, shards, options.params)
        plan = max(planned) + constant
        if any(abs(value - whole / shards) > TABLES_MIB for value in planned):
            sys.exit(f"{shards} shards: the server plans {planned} MiB, the arrays are {whole / shards:.1f} MiB")
        off = [max((abs(value - plan) / plan for value in values)) for values in (ready, pushed)]
        worst = max([worst, *(part for part in off if part * plan > FREE_MIB)])
        rows.append({"shards": shards, "plan_mib": plan, "ready_mib": ready, "pushed_mib": pushed, "off": off})
        print(f"{shards:6} {plan:9.1f}   {' '.join(f'{v:.1f}' for v in ready)} ({off[0]:.1%})   "
              f"{' '.join(f'{v:.1f}' for v in pushed)} ({off[1]:.1%})", flush=True)
    print("a model that does not fit:", too_large(options))
    held = worst <= OFF_MAX
    print(f"largest distance from the plan beyond {FREE_MIB} MiB: {worst:.1%}, limit {OFF_MAX:.0%}: {'holds' if held else 'DOES NOT HOLD'}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"params": options.params, "arrays": arrays, "constant_mib": constant, "rows": rows,
                       "holds": held}, file, indent=1)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
