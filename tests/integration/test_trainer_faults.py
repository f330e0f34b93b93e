"""The trainer and its processes when something goes wrong: signals, servers that end, files that cannot be written."""
import json
import os
import re
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


def words_of(pid):
    with open(f"/proc/{pid}/cmdline") as file:
        return file.read().replace("\0", " ")


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
        return library.until(lambda: len(found := children_of(self.process.pid)) == count and found)


LONG = ("--pace", "5", "--until", "1e9", "--max-steps", "1000000000")


class Signals(unittest.TestCase):
    def test_the_library_installs_no_handler(self):
        with library.Server() as server:
            told = subprocess.run([sys.executable, "-c", SIGNALS, os.path.join(library.BUILD, "libgradweir.so"),
                                   os.path.dirname(os.path.abspath(__file__)), server.address],
                                  capture_output=True, text=True, timeout=library.HANG_S)
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
                self.assertEqual(server.process.wait(library.HANG_S), 0)
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
            library.until(lambda: re.search(r" admitted [1-9]", run.lines()))
            run.process.send_signal(signal.SIGHUP)
            self.assertEqual(run.process.wait(library.HANG_S), 130)
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
                self.assertLess(time.monotonic() - begin, library.HANG_S / 2)
                self.assertEqual(server.process.wait(library.HANG_S), 0)
                worker.close()

    def test_a_worker_that_never_looks_does_not_keep_a_server(self):
        with library.Server() as server:
            worker = library.Worker(server.address, "a").bind().offer()
            begin = time.monotonic()
            self.assertEqual(server.close(), 0)
            self.assertLess(time.monotonic() - begin, library.HANG_S / 2)
            worker.close()


def read_json(path):
    with open(path) as file:
        return json.load(file)


class OwnServer(unittest.TestCase):
    def test_a_killed_server_ends_the_run_at_once_with_the_reason_and_no_result(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "run.json")
            with Trainer("--workers", "2", "--json", path, "--progress", "--patience", "3600", *LONG) as run:
                family = run.family(3)
                library.until(lambda: re.search(r" admitted [1-9]", run.lines()))
                server = library.until(lambda: [pid for pid in family if words_of(pid).startswith("gradweir-server")])
                begin = time.monotonic()
                os.kill(server[0], signal.SIGKILL)
                self.assertEqual(run.process.wait(library.HANG_S), 2)
                self.assertLess(time.monotonic() - begin, library.HANG_S)
                self.assertIn("the server that this run started was killed by signal 9", run.lines())
                self.assertFalse(any(alive(pid) for pid in family))
            told = read_json(path)
            self.assertIn("was killed by signal 9", told["failed"])
            self.assertIsNone(told["version"])
            self.assertIsNone(told["digest"])
            self.assertIsNone(told["final_mean_return"])
            self.assertFalse(told["solved"])

    def test_a_worker_that_is_stopped_for_good_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "run.json")
            with Trainer("--workers", "2", "--json", path, "--pace", "5", "--until", "1e9", "--max-steps", "20000",
                         "--evaluate", "1") as run:
                family = run.family(3)
                last = library.until(lambda: next((pid for pid in family if "--worker 2 " in words_of(pid)), 0))
                os.kill(last, signal.SIGSTOP)
                self.assertEqual(run.process.wait(2 * library.HANG_S), 1)
                self.assertRegex(run.lines(), r"worker-1 did not end when it was told to .*: killed")
                self.assertNotIn("NOT WHOLE", run.lines())
                self.assertFalse(any(alive(pid) for pid in family))
            self.assertIsNone(read_json(path)["failed"])


    def test_a_recording_that_is_not_whole_is_no_success_of_the_run_nor_of_its_replay(self):
        for bound, code, replayed in (("64KiB", 2, 3), ("1GiB", 1, 0)):
            with tempfile.TemporaryDirectory() as folder:
                path, recording = os.path.join(folder, "run.json"), os.path.join(folder, "recording")
                with Trainer("--max-steps", "4000", "--until", "1e9", "--evaluate", "1", "--json", path, "--record",
                             recording, "--server-settings", f"--record_bytes_max {bound}") as run:
                    self.assertEqual(run.process.wait(library.HANG_S), code, run.lines())
                    self.assertEqual("is not whole" in run.lines(), code == 2)
                self.assertEqual(read_json(path)["recording_whole"], code != 2)
                self.assertIsNotNone(read_json(path)["version"])
                done = subprocess.run([os.path.join(library.BUILD, "gradweirctl"), "replay", recording],
                                      capture_output=True, text=True, timeout=library.HANG_S)
                self.assertEqual(done.returncode, replayed, done.stdout + done.stderr)


class ForeignServer(unittest.TestCase):
    def run_against(self, server, path, *more):
        run = self.enterContext(Trainer("--servers", server.address, "--workers", "2", "--json", path, "--progress",
                                        *more, *LONG))
        run.family(2)
        library.until(lambda: re.search(r" admitted [1-9]", run.lines()))
        return run

    def test_servers_that_end_in_order_end_the_run_at_once(self):
        with tempfile.TemporaryDirectory() as folder, library.Server() as server:
            path = os.path.join(folder, "run.json")
            run = self.run_against(server, path, "--patience", "3600")
            server.process.terminate()
            self.assertEqual(run.process.wait(library.HANG_S), 2)
            told = read_json(path)
            self.assertIn("the servers have shut down in order", told["failed"])
            self.assertEqual([told[name] for name in ("window", "stride", "shards", "lr")], [None] * 4)
            self.assertIn(server.address, told["failed"])
            self.assertIsNone(told["version"])
            self.assertIsNone(told["digest"])

    def test_servers_that_stay_away_end_the_run_when_patience_is_over_and_are_named(self):
        with tempfile.TemporaryDirectory() as folder, library.Server() as server:
            path = os.path.join(folder, "run.json")
            run = self.run_against(server, path, "--patience", "2")
            begin = time.monotonic()
            server.process.kill()
            self.assertEqual(run.process.wait(library.HANG_S), 2)
            self.assertGreater(time.monotonic() - begin, 1.5)
            self.assertIn(f"nobody answers at {server.address}", read_json(path)["failed"])
            self.assertIsNone(read_json(path)["version"])

    def test_other_servers_at_the_same_place_are_not_taken_for_those_that_are_gone(self):
        with tempfile.TemporaryDirectory() as folder, library.Port() as place, library.Server(listen=place) as server:
            path = os.path.join(folder, "run.json")
            run = self.run_against(server, path)
            server.process.kill()
            server.process.wait()
            with library.Server(listen=place):
                self.assertEqual(run.process.wait(library.HANG_S), 2)
            self.assertIn("begun anew", read_json(path)["failed"])


class Words(unittest.TestCase):
    def told(self, *arguments):
        done = subprocess.run([os.path.join(library.BUILD, "gradweir-train"), *arguments], capture_output=True,
                              text=True, timeout=library.HANG_S)
        return done.returncode, done.stdout + done.stderr

    def test_files_that_cannot_be_written_are_named_before_training(self):
        for option in ("--json", "--curve", "--server-log"):
            code, text = self.told(option, "/nonexistent/file", "--until", "1e9", "--max-steps", "1000000000")
            self.assertEqual(code, 2)
            self.assertRegex(text, rf"^gradweir-train: {option} /nonexistent/file\S*: No such file or directory\n$")
        code, text = self.told("--local", "--json", "/nonexistent/file")
        self.assertEqual((code, text), (2, "gradweir-train: --json /nonexistent/file: No such file or directory\n"))

    def test_options_that_would_be_dropped_are_refused_by_name(self):
        for option, value in (("--curve", ["c"]), ("--record", ["d"]), ("--server-log", ["f"]), ("--servers", ["a:1"]),
                              ("--kill-worker", ["0", "1"]), ("--patience", ["3"]), ("--progress", [])):
            code, text = self.told("--local", option, *value)
            self.assertEqual(code, 2, text)
            self.assertIn(f"{option}: has no use with --local", text)
        for option, value in (("--shards", "2"), ("--record", "d"), ("--window", "3"), ("--lr", "0.1")):
            code, text = self.told("--servers", "127.0.0.1:1", option, value)
            self.assertEqual(code, 2, text)
            self.assertIn(f"{option}: belongs to the servers", text)

    def test_what_is_lost_on_a_full_disk_is_no_success(self):
        code, text = self.told("--local", "--max-steps", "1000", "--evaluate", "1", "--json", "/dev/full")
        self.assertEqual(code, 2)
        self.assertIn("/dev/full: No space left on device", text)

    def test_without_greedy_episodes_nothing_is_said_of_them(self):
        code, text = self.told("--local", "--max-steps", "1000", "--evaluate", "0")
        self.assertEqual(code, 1)
        self.assertIn(" versions; digest ", text)
        self.assertNotIn("greedy", text)
        self.assertNotIn("nan", text)

    def test_a_push_that_is_too_large_is_called_so_with_the_limit(self):
        code, text = self.told("--max-steps", "2000", "--evaluate", "1", "--until", "1e9", "--server-settings", "--magnitude_max 1")
        self.assertIn("is too large: an element is above the servers' magnitude_max 1;", text)
        self.assertNotIn("NaN", text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
