"""The trainer and its processes when something goes wrong: signals, servers that end, files that cannot be written."""
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import library

SIGNALS = """
import ctypes, os, sys
def caught():
    with open("/proc/self/status") as file:
        return [line.split()[1][-8:] for line in file if line.startswith(("SigCgt", "SigIgn"))]  # 32 and 33 are glibc's
before = caught()
lib = ctypes.CDLL(sys.argv[1])
after_load = caught()
sys.path.insert(0, sys.argv[2])
import library
worker = library.Worker(sys.argv[3], "a").bind().offer()
worker.pull()
print(before == after_load == caught(), before, after_load, caught())
"""


def until(what, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = what()
        if found:
            return found
        time.sleep(0.01)
    raise TimeoutError("it did not happen")


def children_of(pid):
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                fields = file.read().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(name))
    return found


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Trainer:
    """gradweir-train in the background, its lines in a file."""

    def __init__(self, *arguments, **popen):
        self.output = tempfile.NamedTemporaryFile(mode="r")
        with open(self.output.name, "a") as output:
            self.process = subprocess.Popen([os.path.join(library.BUILD, "gradweir-train"), *arguments], stdout=output,
                                            stderr=subprocess.STDOUT, **popen)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.output.close()

    def lines(self):
        self.output.seek(0)
        return self.output.read()

    def family(self, count):
        """Its processes, once there are so many and all the workers train."""
        return until(lambda: len(found := children_of(self.process.pid)) == count and found)


LONG = ("--pace", "5", "--until", "1e9", "--max-steps", "1000000000")


class Signals(unittest.TestCase):
    def test_the_library_installs_no_handler(self):
        with library.Server() as server:
            told = subprocess.run([sys.executable, "-c", SIGNALS, os.path.join(library.BUILD, "libgradweir.so"),
                                   os.path.dirname(os.path.abspath(__file__)), server.address],
                                  capture_output=True, text=True, timeout=60)
        self.assertTrue(told.stdout.startswith("True"), told.stdout + told.stderr)

    def test_a_hangup_ends_a_server_in_order(self):
        for arguments in ((), ("--shards", "2", "--supervise", "on")):
            with library.Server(*arguments) as server:
                worker = library.Worker(server.address, "a").bind().offer()
                family = children_of(server.process.pid)
                server.process.send_signal(signal.SIGHUP)
                server.process.send_signal(signal.SIGHUP)  # a terminal that closes may say so twice
                with self.assertRaisesRegex(library.Failed, "shut down in order"):
                    while True:
                        worker.pull()
                self.assertEqual(server.process.wait(20), 0)
                self.assertFalse(any(alive(pid) for pid in family))
                worker.close()

    def test_a_server_that_ignores_hangups_as_under_nohup_goes_on(self):
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self.addCleanup(signal.signal, signal.SIGHUP, before)
        for arguments in ((), ("--shards", "2", "--supervise", "on")):
            with library.Server(*arguments) as server:
                server.process.send_signal(signal.SIGHUP)
                worker = library.Worker(server.address, "a").bind().offer()
                worker.pull()
                worker.close()
                self.assertIsNone(server.process.poll())

    def test_a_hangup_ends_a_run_with_all_its_processes(self):
        with Trainer("--workers", "2", "--progress", *LONG) as run:
            family = run.family(3)
            until(lambda: " admitted " in run.lines())
            run.process.send_signal(signal.SIGHUP)
            self.assertEqual(run.process.wait(10), 130)
            self.assertFalse(any(alive(pid) for pid in family))


class ServersEnd(unittest.TestCase):
    def test_stop_reaches_a_worker_that_was_not_looking_when_it_came(self):
        for threads in ("one", "each"):
            with library.Server("--threads", threads) as server:
                worker = library.Worker(server.address, "a").bind().offer()
                server.process.send_signal(signal.SIGTERM)
                time.sleep(0.3)  # it computes
                begin = time.monotonic()
                with self.assertRaisesRegex(library.Failed, "shut down in order"):
                    worker.pull()
                self.assertLess(time.monotonic() - begin, 1)
                self.assertEqual(server.process.wait(10), 0)
                worker.close()

    def test_a_worker_that_never_looks_does_not_keep_a_server(self):
        with library.Server() as server:
            worker = library.Worker(server.address, "a").bind().offer()
            begin = time.monotonic()
            self.assertEqual(server.close(), 0)
            self.assertLess(time.monotonic() - begin, 5)
            worker.close()


if __name__ == "__main__":
    unittest.main(verbosity=2)
