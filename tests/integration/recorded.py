#!/usr/bin/env python3
"""recorded.py DIR [--versions N]: records a run into DIR that has every turn of the law in it, and prints what the run
itself had: a line `version V digest D` for every version that a worker pulled, and a last one for the end.

Four workers, two shards, W = 4, S = 2, weights that decay exponentially, Adam, a clip of the average; one worker is slow
to pull, so some of its gradients are STALE; one sends a gradient that is NOT_FINITE now and then; some leave one alone, so
that a window is flushed; the learning rate is tuned on the way."""
import argparse
import ctypes as c
import json
import math
import random
import re
import threading

import library
from library import VERDICTS, Server, Worker

SIZES = (("a", 5000), ("b", 333), ("c", 20000))
LAW = ("--window", "4", "--stride", "2", "--decay", "exp", "--decay-beta", "0.8", "--optimizer", "adam", "--clip-average",
       "0.5", "--staleness-max", "4", "--samples-exponent", "0.5", "--learning-rate", "1e-3")
WORKERS = 4
PUSHES_MIN, ADMITTED_MIN = 60, 10  # of each worker, however late its thread comes: everybody's absence must show


def flushed(worker, heard):
    """The status once a window was flushed and nothing waits for another flush, which would be one more version. A gradient
    that no stride completes waits until it is flushed: one more, or two."""
    def settled():
        page = json.loads(worker.status())
        return page if re.search(r" waits for (\d+) more of \1 gradients", str(page["waits"])) else None
    for _ in range(2):
        worker.pull()
        heard(VERDICTS[worker.push().verdict])
        page = library.until(settled)
        if page["flushes"]:
            break
    return page


class Run:
    """The folder, what was pulled (digest by version), how each push ended, and the servers' own numbers at the end."""

    def __init__(self, folder, versions=300, more=(), seed=1):
        self.folder, self.versions = folder, versions
        self.digests, self.heard, self.faults = {}, {i: [] for i in range(WORKERS)}, []
        self.lock = threading.Lock()
        random.seed(seed)
        self.noise = [(c.c_float * size)(*(random.gauss(0, 1) for _ in range(size))) for _, size in SIZES]
        with Server("--shards", "2", *LAW, "--record", folder, *more) as server:
            self.record(server)

    def note(self, version, digest):
        with self.lock:
            known = self.digests.setdefault(version, digest)
        if known != digest:
            self.faults.append(f"version {version} was pulled as {known} and as {digest}")

    def pull(self, worker):
        version = worker.pull()
        self.note(version, worker.digest())
        return version

    def work(self, i, worker):
        version, push = 0, 0
        version = self.pull(worker)
        while version < self.versions or push < PUSHES_MIN or self.heard[i].count("ADMITTED") < ADMITTED_MIN:
            push += 1
            for noise, gradient in zip(self.noise, worker.gradients):
                c.memmove(gradient, noise, c.sizeof(noise))
                gradient[(37 * push + i) % len(gradient)] = math.sin(push)
            if i == 1 and push % 40 == 7:
                worker.gradients[2][19000] = math.nan
            self.heard[i].append(VERDICTS[worker.push(1 + push % 3).verdict])
            if i != 3 or push % 6 == 0:
                version = self.pull(worker)

    def guarded(self, i, worker):
        try:
            self.work(i, worker)
        except Exception as error:  # a thread's own would be lost
            self.faults.append(repr(error))

    def refuse(self, workers):
        """Whatever happened by itself: one STALE, of version 0, and one NOT_FINITE, while nobody else pushes."""
        ticket = c.c_uint64()
        library.check(library.lib.gradweir_push_from(workers[3].client, c.c_uint64(1), c.c_uint64(0), c.byref(ticket)))
        self.heard[3].append(VERDICTS[workers[3].wait(ticket).verdict])
        self.pull(workers[1])
        workers[1].gradients[2][19000] = math.nan
        self.heard[1].append(VERDICTS[workers[1].push().verdict])

    def record(self, server):
        workers = [Worker(server.address, f"worker-{i}", sizes=SIZES).bind().offer() for i in range(WORKERS)]
        threads = [threading.Thread(target=self.guarded, args=pair, daemon=True) for pair in enumerate(workers)]
        for thread in threads:
            thread.start()
        library.check(library.lib.gradweir_tune(workers[0].client, b"learning_rate", b"5e-4", library.HANG_MS))
        for thread in threads:
            thread.join(2 * library.HANG_S)
            if thread.is_alive():
                self.faults.append("a worker hangs")
        self.refuse(workers)
        self.status = flushed(workers[0], self.heard[0].append)
        workers[0].pull_until(self.status["version"])
        self.version = self.pull(workers[0])
        self.digest = workers[0].digest()
        for worker in workers:
            worker.close()
        self.log = server.lines()
        self.closed = server.close()

    def count(self, verdict):
        return sum(heard.count(verdict) for heard in self.heard.values())

    def has_every_turn(self):
        """What is missing in it, for a test that must not pass on a tame run; "" when nothing is."""
        wanted = {"STALE": self.count("STALE"), "NOT_FINITE": self.count("NOT_FINITE"), "flush": self.status["flushes"],
                  "ADMITTED": self.count("ADMITTED"), "pulled versions": len(self.digests) // 20}
        return ", ".join(name for name, count in wanted.items() if count == 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder")
    parser.add_argument("--versions", type=int, default=300)
    options = parser.parse_args()
    run = Run(options.folder, options.versions)
    for version in sorted(run.digests):
        print(f"version {version} digest {run.digests[version]}")
    print(f"end version {run.version} digest {run.digest}: {run.count('ADMITTED')} admitted, {run.count('STALE')} stale, "
          f"{run.count('NOT_FINITE')} not finite, {run.status['flushes']} flushes")
    if run.faults or run.has_every_turn() or run.closed != 0:
        raise SystemExit(f"not as it should be: {run.faults} missing: {run.has_every_turn()} exit: {run.closed}")


if __name__ == "__main__":
    main()
