#!/usr/bin/env python3
"""test_kills.py [--kills N] [--seed N] [--roles worker,shard,coordinator] [--every SECONDS] [--elements N]
[--folder DIR] [--program PROGRAM] [--settings "WORDS"]: kill -9 at
random moments while workers push; then the audit, and the replay of the recording. With roles such as coordinator-stop
it is SIGSTOP, and SIGCONT STOP_S later: longer than the heartbeats wait.

The servers run under --supervise (a process each for coordinator and shards); killed workers are replaced by new ones
under a new name. Prints the pause of each kind of kill: from the kill until a push that began after it has its
receipt. Fails when the audit finds a fault, the replay's digest is not the run's, or something hangs."""
import argparse
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

import library

HERE = os.path.dirname(os.path.abspath(__file__))
SHARDS, WORKERS, STOP_S = 2, 3, 1.5
HANG_S = library.HANG_S


class Workers:
    """WORKERS processes, whoever dies is replaced."""

    def __init__(self, server, folder, elements):
        self.server, self.address, self.folder, self.born, self.notes = server, server.address, folder, 0, []
        self.size = f"elements={elements}"
        self.stop = os.path.join(folder, "stop")
        self.alive = {}
        for place in range(WORKERS):
            self.spawn(place)

    def spawn(self, place):
        name = f"worker-{place}-{self.born}"
        self.born += 1
        path = os.path.join(self.folder, name + ".notes")
        open(path, "w").close()
        with open(path + ".err", "w") as errors:
            process = subprocess.Popen([sys.executable, os.path.join(HERE, "kill_worker.py"), self.address, name, path,
                                        self.stop, self.size], stderr=errors)
        self.alive[place] = (process, path)
        self.notes.append(path)

    def kill(self, place):
        process, _ = self.alive[place]
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.spawn(place)

    def check(self):
        for process, path in self.alive.values():
            if process.poll() not in (None, 0):
                with open(path + ".err") as errors:
                    raise SystemExit(f"a worker ended by itself ({process.returncode}): {errors.read()[-600:]}\n"
                                     f"server ({self.server.process.poll()}): {self.server.lines()[-2000:]}")

    def finish(self):
        open(self.stop, "w").close()
        for process, _ in self.alive.values():
            process.wait(HANG_S)
        self.check()


class Watch(threading.Thread):
    """Reads the ends of the notes: when did a push begin, when did its receipt come?"""

    def __init__(self, workers):
        super().__init__(daemon=True)
        self.workers, self.places, self.begun, self.done = workers, {}, {}, []
        self.ended = threading.Event()

    def look(self, now):
        for path in list(self.workers.notes):
            with open(path) as file:
                file.seek(self.places.get(path, 0))
                text = file.read()
                whole = text[:text.rfind("\n") + 1]
                self.places[path] = self.places.get(path, 0) + len(whole)
            for line in whole.splitlines():
                if line == "push":
                    self.begun[path] = now
                elif line.startswith("receipt") and path in self.begun:
                    self.done.append((self.begun.pop(path), now))

    def run(self):
        while not self.ended.wait(0.001):
            self.look(time.monotonic())

    def pause_after(self, moment, at):
        """Seconds until a push that began after the moment had its receipt."""
        end = time.monotonic() + HANG_S
        while time.monotonic() < end:
            for begun, done in self.done[at:]:
                if begun > moment:
                    return done - moment
            self.workers.check()
            time.sleep(0.002)
        raise SystemExit(f"no push had a receipt for {HANG_S} s after a kill")


def children(parent):
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as file:
                if int(file.read().rsplit(")", 1)[1].split()[1]) != parent:
                    continue
            with open(f"/proc/{pid}/cmdline") as file:
                words = file.read().split("\0")
        except OSError:
            continue
        found["shard" + words[words.index("--shard") + 1] if "--shard" in words else "coordinator"] = int(pid)
    return found


def victim(role, dice, server, workers):
    """The process to hit and, if it is a worker, its place. None: nobody has that role just now."""
    if role == "worker":
        place = dice.randrange(WORKERS)
        return workers.alive[place][0].pid, place
    name = role if role == "coordinator" else f"shard{dice.randrange(SHARDS)}"
    return children(server.process.pid).get(name), None


def hit(role, dice, server, workers):
    """The moment from which on all should be well again; None when nobody was there to be hit."""
    kind, _, stopped = role.partition("-")
    pid, place = victim(kind, dice, server, workers)
    if pid is None:
        return None
    if stopped:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(STOP_S)
        os.kill(pid, signal.SIGCONT)
        return time.monotonic()
    moment = time.monotonic()
    if place is None:
        os.kill(pid, signal.SIGKILL)
    else:
        workers.kill(place)
    return moment


def quantile(values, part):
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


def report(pauses):
    everything = [pause for one in pauses.values() for pause in one]
    for role, one in [*pauses.items(), ("all", everything)]:
        if one:
            print(f"pause after {role:16} n {len(one):4}  p50 {quantile(one, .5) * 1e3:7.1f} ms  "
                  f"p99 {quantile(one, .99) * 1e3:7.1f} ms  max {max(one) * 1e3:7.1f} ms")


def replay(recording, version):
    done = subprocess.run([os.path.join(library.BUILD, "gradweir-server"), "replay", recording, "--shards", "1",
                           "--until", str(version)], capture_output=True, text=True, timeout=600)
    found = re.search(r"digest[= :]+([0-9a-f]{16})", done.stdout)
    if done.returncode or not found:
        raise SystemExit(f"replay: {done.returncode} {done.stdout[-400:]} {done.stderr[-400:]}")
    return found.group(1)


def run(options, folder):
    dice = random.Random(options.seed)
    roles = options.roles.split(",")
    recording = os.path.join(folder, "recording")
    arguments = ["--shards", str(SHARDS), "--window", "3", "--record", recording, "--record-bytes-max", "16GiB", "--optimizer", "adam",
                 "--lease", "2s", *options.settings.split()]
    if any(not role.startswith("worker") for role in roles):
        arguments += ["--supervise", "on"]
    with library.Server(*arguments, program=options.program) as server:
        if not server.address:
            raise SystemExit(f"no server: {server.lines()}")
        workers = Workers(server, folder, options.elements)
        watch = Watch(workers)
        watch.start()
        pauses = {role: [] for role in roles}
        watch.pause_after(time.monotonic(), 0)
        for number in range(options.kills):
            time.sleep(options.every * dice.uniform(0.2, 1.8))
            role, at = dice.choice(roles), len(watch.done)
            moment = hit(role, dice, server, workers)
            if moment is None:
                continue
            pauses[role].append(watch.pause_after(moment, at))
            if (number + 1) % 25 == 0:
                print(f"{number + 1} kills, {len(watch.done)} receipts", flush=True)
        workers.finish()
        watch.ended.set()
        reader = library.Worker(server.address, role=library.READER, sizes=())
        library.check(library.lib.gradweir_bind(reader.client, None, 0))
        version = reader.pull()
        digest = reader.digest()
        reader.close()
        code = server.close()
        if code:
            raise SystemExit(f"the server ended with {code}")
    report(pauses)
    audit = subprocess.run([sys.executable, os.path.join(HERE, "audit.py"), recording, *workers.notes])
    again = replay(recording, version)
    print(f"digest of the run {digest} at version {version}, of the replay {again}")
    return 1 if audit.returncode or again != digest else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=15)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--roles", default="worker,shard,coordinator")
    parser.add_argument("--every", type=float, default=0.3)
    parser.add_argument("--elements", type=int, default=5000)
    parser.add_argument("--folder")
    parser.add_argument("--program", default="gradweir-server")
    parser.add_argument("--settings", default="", help="more words for the server")
    options = parser.parse_args()
    if options.folder:
        os.makedirs(options.folder)
        return run(options, options.folder)
    with tempfile.TemporaryDirectory() as folder:
        return run(options, folder)


if __name__ == "__main__":
    sys.exit(main())
