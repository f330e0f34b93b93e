"""More than 2^32 bytes in one model, on one shard: offered, pushed, stepped, and compared slice by slice.

    GRADWEIR_BUILD=build python3 tests/integration/test_big.py [--gib 5]     # or: ctest --test-dir build -L slow -R big

The worker (big_model.c) maps 64 MiB again and again, so nearly all memory is the shard's: 2 parameter slots of float32, and
2 gradient slots of int8. Without room for that the test is skipped, and says so.
"""
import argparse
import os
import subprocess
import sys
import time

from library import BUILD, Server

GIB = 1 << 30


def available():
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable:"))


def memory(pid, what):
    """VmHWM: the most it ever had; RssAnon: what it has now of its own, without what is mapped again and again."""
    try:
        with open(f"/proc/{pid}/status") as file:
            return next((int(line.split()[1]) * 1024 for line in file if line.startswith(what + ":")), 0)
    except OSError:
        return 0  # it has ended


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gib", type=float, default=5, help="of parameters, float32")
    gib = parser.parse_args().gib
    elements = int(gib * GIB / 4) + 1000
    needed = elements * (2 * 4 + 2 * 1.016 + 1.016) + GIB / 2  # the shard, a push on its way, the rest
    if available() < needed + 2 * GIB:
        print(f"SKIPPED: {gib} GiB of parameters take {needed / GIB:.1f} GiB of memory and 2 more for others; "
              f"{available() / GIB:.1f} GiB are available")
        return 0
    start = time.monotonic()
    with Server("--shards", "1", "--parameter-slots", "2", "--window", "1", "--queue", "1", "--gradient-dtype", "int8",
                "--optimizer", "sgd", "--learning-rate", "0.25", "--lease", "60s", "--push-patience", "300s",
                "--pull-patience", "60s", "--preset", "classic") as server:
        worker = [os.path.join(BUILD, "tests", "big_model"), server.address, str(elements)]
        with subprocess.Popen(worker) as process:
            most = 0
            while process.poll() is None:
                time.sleep(0.02)
                most = max(most, memory(process.pid, "RssAnon"))
        print(f"peak: server {memory(server.process.pid, 'VmHWM') / GIB:.2f} GiB, worker {most / GIB:.2f} GiB; "
              f"{time.monotonic() - start:.0f} s")
        if process.returncode != 0:
            print(server.lines()[-4000:])
            return 1
        return server.close()


if __name__ == "__main__":
    sys.exit(main())
