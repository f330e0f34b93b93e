"""Real processes that stop (SIGSTOP) for longer than they are waited for, or crawl."""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import library

HERE = os.path.dirname(os.path.abspath(__file__))


def stop(process):
    """Once it really stands still."""
    process.send_signal(signal.SIGSTOP)

    def stands():
        with open(f"/proc/{process.pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "T"
    library.until(stands)


def resident_kib(pid):
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))


class Pushers:
    """kill_worker.py processes and their notes."""

    def __init__(self, test, address, *names):
        self.test, self.folder = test, tempfile.TemporaryDirectory()
        test.addCleanup(self.folder.cleanup)
        self.processes = {}
        for name in names:
            with open(self.path(name + ".err"), "w") as errors:
                self.processes[name] = subprocess.Popen([sys.executable, os.path.join(HERE, "kill_worker.py"), address, name,
                                                         self.notes(name), self.path("stop")], stderr=errors)
            test.addCleanup(self.end, self.processes[name])

    @staticmethod
    def end(process):
        if process.poll() is None:
            process.kill()
        process.wait()

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def notes(self, name):
        return self.path(name + ".notes")

    def count(self, name):
        try:
            with open(self.notes(name)) as file:
                return file.read().count(" ADMITTED ")
        except OSError:
            return 0

    def go_on(self, name, count=20):
        before = self.count(name)
        library.until(lambda: self.count(name) >= before + count)

    def finish(self, recording):
        open(self.path("stop"), "w").close()
        for name, process in self.processes.items():
            self.test.assertEqual(process.wait(library.HANG_S), 0, name)
        audit = subprocess.run([sys.executable, os.path.join(HERE, "audit.py"), recording, *map(self.notes, self.processes)],
                               capture_output=True, text=True)
        self.test.assertEqual(audit.returncode, 0, audit.stdout + audit.stderr)


class Beginnings(unittest.TestCase):
    def test_a_server_that_is_told_to_end_while_it_begins_ends(self):
        """Its shards have not enlisted yet, and would not hear STOP."""
        for words in ([], ["--threads", "one"], ["--threads", "each", "--shards", "4"]):
            for _ in range(3):
                server = library.Server(*words)  # returns as soon as the port file is there
                self.assertEqual(server.close(), 0, words)

    def test_a_supervised_server_that_is_told_to_end_while_it_begins_ends_without_waiting_for_its_shards(self):
        """At any moment: its shards may not have enlisted when their coordinator has gone. They would be killed after 5 s."""
        for pause in range(0, 60, 4):
            server = library.Server("--supervise", "on", "--shards", "2")
            self.addCleanup(server.__exit__)
            time.sleep(pause / 1000)
            server.process.terminate()
            self.assertEqual(server.process.wait(library.HANG_S), 0)
            self.assertNotIn("signal 9", server.lines(), f"{pause} ms")

    def test_a_shard_that_cannot_open_ends_the_server_with_its_reason(self):
        for threads in ("one", "each"):
            server = library.Server("--threads", threads, "--net-devices", "nosuch0")
            self.addCleanup(server.__exit__)
            self.assertEqual(server.process.wait(library.HANG_S), 2, server.lines())
            self.assertIn("shard 0: ", server.lines().splitlines()[-1])


class Stops(unittest.TestCase):
    def start(self, *arguments):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.recording = os.path.join(folder.name, "recording")
        self.server = library.Server("--shards", "2", "--optimizer", "adam", "--record", self.recording, *arguments)
        self.addCleanup(self.server.__exit__)

    def test_a_worker_stopped_beyond_its_lease_leaves_and_joins_again_by_itself(self):
        self.start("--lease", "1s", "--heartbeat", "200ms", "--push_patience", "500ms")
        pushers = Pushers(self, self.server.address, "stopped", "other")
        for name in ("stopped", "other"):
            pushers.go_on(name)
        for _ in range(3):
            left = self.server.lines().count("worker stopped is gone: its lease is over")
            stop(pushers.processes["stopped"])
            library.until(lambda: self.server.lines().count("worker stopped is gone: its lease is over") > left)
            before = pushers.count("stopped")
            pushers.go_on("other")
            self.assertEqual(pushers.count("stopped"), before)
            pushers.processes["stopped"].send_signal(signal.SIGCONT)
            pushers.go_on("stopped")
        pushers.finish(self.recording)

    def test_a_worker_that_comes_back_after_another_had_its_name_stays_out(self):
        """As a machine that is restored: it stands still while a second process has its name, and while the coordinator is
        another one. What it had under way has its end by then; nothing of it is merged later."""
        self.start("--lease", "1s", "--heartbeat", "200ms", "--push_patience", "500ms", "--supervise", "on")
        pushers = Pushers(self, self.server.address, "same")
        pushers.go_on("same")
        stop(pushers.processes["same"])
        library.until(lambda: "worker same is gone: its lease is over" in self.server.lines())
        second = library.Worker(self.server.address, "same", sizes=(("body", 5000), ("head", 300)), progress=1).bind().offer()
        self.addCleanup(second.close)
        for turn in range(4):
            second.pull()
            self.assertEqual(second.push().verdict, 1)
            if turn == 1:
                os.kill(int(re.findall(r"coordinator runs as process (\d+)", self.server.lines())[-1]), signal.SIGKILL)
        before = json.loads(second.status())
        pushers.processes["same"].send_signal(signal.SIGCONT)
        self.assertEqual(pushers.processes["same"].wait(library.HANG_S), 1)
        with open(pushers.path("same.err")) as errors:
            self.assertRegex(errors.read(), "Failed: -6: .*another process has joined under this identity")
        after = json.loads(second.status())
        for page in (before, after):
            known, = (worker for worker in page["workers"] if worker["identity"] == "same")
            self.assertEqual((known["incarnation"], known["state"]), (2, "live"))
            self.assertEqual(known["last_sequence"], before["workers"][known["worker"]]["last_sequence"])
        self.assertEqual((after["pushes"], after["verdicts"]), (before["pushes"], before["verdicts"]))
        second.pull()
        self.assertEqual(second.push().verdict, 1, "the second one is not fenced")

    def crawl(self, pid, ended):
        """A process that runs a tenth of the time."""
        while not ended.wait(0.01):
            os.kill(pid, signal.SIGSTOP)
            time.sleep(0.09)
            os.kill(pid, signal.SIGCONT)

    def test_a_slow_shard_is_named_and_costs_time_but_no_memory(self):
        self.start("--supervise", "on", "--queue", "4")
        pushers = Pushers(self, self.server.address, "one", "two", "three")
        for name in pushers.processes:
            pushers.go_on(name)
        pid = int(re.findall(r"shard 1 runs as process (\d+)", self.server.lines())[-1])
        before = resident_kib(pid)
        ended = threading.Event()
        crawling = threading.Thread(target=self.crawl, args=(pid, ended))
        crawling.start()
        try:
            reader = library.Worker(self.server.address, role=library.READER, sizes=())
            self.addCleanup(reader.close)
            library.until(lambda: any("shard 1" in wait for wait in json.loads(reader.status())["waits"]))
            for name in pushers.processes:
                pushers.go_on(name)
            self.assertLessEqual(json.loads(reader.status())["queue_peak"], 4)
        finally:
            ended.set()
            crawling.join()
        self.assertLess(resident_kib(pid) - before, 4096)
        pushers.finish(self.recording)


if __name__ == "__main__":
    unittest.main()
