"""Cut lines between real processes in network name spaces (network.py): coordinator, two shards, two workers, a place each.
Needs the right to make name spaces; else the tests are skipped and say so."""
import json
import os
import signal
import subprocess
import sys
import time
import unittest

import library
import network

HERE = os.path.dirname(os.path.abspath(__file__))
SERVER = os.path.join(library.BUILD, "gradweir-server")
TOOL = os.path.join(library.BUILD, "gradweirctl")
WHY_NOT = network.why_not()


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Cuts(unittest.TestCase):
    def setUp(self):
        self.net = network.Network(("coordinator", "shard0", "shard1", "a", "b"))
        self.addCleanup(self.net.close)
        self.folder = self.net.folder.name
        self.processes = {}
        self.addCleanup(self.end)
        self.coordinator("coordinator")
        for shard in (0, 1):
            place = f"shard{shard}"
            self.server(place, "--shard", str(shard), "--coordinator", "10.77.0.1:7070", "--listen",
                        f"{self.net.programs[place][0]}:0")
        for name in ("a", "b"):
            self.worker(name)
        self.goes_on("a", "b")

    def server(self, place, *arguments):
        self.processes[place] = self.net.start(
            place, SERVER, "--shards", "2", "--insecure", "on", "--transport", "tcp", "--lease", "1s", "--push_patience", "2s",
            "--place_patience", "2s", "--optimizer", "adam", "--record", self.path("recording"), *arguments, log=self.path(place))

    def coordinator(self, place):
        self.server(place, "--shards_elsewhere", "on", "--listen", "10.77.0.1:7070")

    def worker(self, name):
        self.processes[name] = self.net.start(name, sys.executable, os.path.join(HERE, "kill_worker.py"), "10.77.0.1:7070", name,
                                              self.path(name + ".notes"), self.path("stop"), "network", log=self.path(name))

    def end(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()

    def path(self, name):
        return os.path.join(self.folder, name)

    def lines(self, name):
        with open(self.path(name)) as file:
            return file.read()

    def admitted(self, name):
        return self.lines(name + ".notes").count(" ADMITTED ") if os.path.exists(self.path(name + ".notes")) else 0

    def goes_on(self, *names, count=20, seconds=library.HANG_S):
        """Each of them has so many gradients admitted from now on."""
        before = {name: self.admitted(name) for name in names}
        for name in names:
            try:
                library.until(lambda: self.admitted(name) >= before[name] + count, seconds)
            except TimeoutError:
                self.fail(f"{name} stands at {self.admitted(name)}:\n" +
                          "".join(f"-- {place}\n{self.lines(place)[-1500:]}\n" for place in self.processes))

    def during(self, seconds, *names):
        """How many gradients of each are admitted in so long."""
        before = [self.admitted(name) for name in names]
        time.sleep(seconds)
        return [self.admitted(name) - count for name, count in zip(names, before)]

    def nothing_comes(self, seconds, name, *others, at_most=1):
        """Once what was under way is through; meanwhile the others go on. Of one that was admitted before, the receipt may
        have gone the way that is cut off: it is asked for again, and comes."""
        library.until(lambda: self.during(1, name) == [0])
        before = self.admitted(name)
        time.sleep(seconds)
        self.goes_on(*others)
        self.assertLessEqual(self.admitted(name) - before, at_most)

    def status(self, place="b"):
        done = self.net.output(place, TOOL, "status", "--servers", "10.77.0.1:7070", "--json", "on", "--insecure", "on")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def busy_s(self, place):
        with open(f"/proc/{self.processes[place].pid}/stat") as file:
            words = file.read().rsplit(")", 1)[1].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def all_told(self):
        """Everybody ends in order, and the log and the workers' notes tell the same story (audit.py)."""
        open(self.path("stop"), "w").close()
        for name in ("a", "b"):
            self.assertEqual(self.processes[name].wait(library.HANG_S), 0, self.lines(name))
        audit = subprocess.run([sys.executable, os.path.join(HERE, "audit.py"), self.path("recording"), self.path("a.notes"),
                                self.path("b.notes")], capture_output=True, text=True)
        self.assertEqual(audit.returncode, 0, audit.stdout + audit.stderr)

    def test_a_worker_cut_off_from_one_shard_counts_nowhere_and_the_others_go_on(self):
        self.net.cut_both("a", "shard1")
        self.nothing_comes(3, "a", "b")
        self.net.heal("a", "shard1")
        self.goes_on("a", "b")
        self.all_told()

    def test_without_one_shard_nothing_is_admitted_and_it_is_named_and_heals(self):
        self.net.cut_both("coordinator", "shard1")
        for name in ("a", "b"):
            self.nothing_comes(2, name)
        self.assertIn("shard 1", json.dumps(self.status()))
        self.net.heal("coordinator", "shard1")
        self.goes_on("a", "b")
        self.all_told()

    def test_cut_one_way_only_nothing_is_admitted_and_nothing_runs_in_circles(self):
        for sender, receiver in (("coordinator", "shard1"), ("shard1", "coordinator")):
            self.net.cut(sender, receiver)
            self.nothing_comes(2, "b")
            before = {place: self.busy_s(place) for place in ("coordinator", "shard0", "shard1")}
            begin = time.monotonic()
            self.nothing_comes(2, "a")
            for place, busy in before.items():
                self.assertLess(self.busy_s(place) - busy, (time.monotonic() - begin) / 2, f"{place} runs in circles")
            self.net.heal(sender, receiver)
            self.goes_on("a", "b")
        self.all_told()

    def test_a_worker_cut_off_one_way_from_a_shard_heals(self):
        for sender, receiver in (("a", "shard1"), ("shard1", "a")):
            self.net.cut(sender, receiver)
            self.nothing_comes(3, "a", "b", at_most=1 + 2 * (receiver == "a"))  # its body may come through, and then no pull
            self.net.heal(sender, receiver)
            self.goes_on("a", "b")
        self.all_told()

    def test_a_coordinator_that_wakes_after_a_take_over_is_fenced(self):
        others = ("shard0", "shard1", "a", "b")
        self.processes["coordinator"].send_signal(signal.SIGSTOP)
        self.net.add("second", 9, "10.77.0.1")
        for place in others:
            self.net.point(place, "second")
        self.coordinator("second")
        self.goes_on("a", "b")
        self.processes["coordinator"].send_signal(signal.SIGCONT)
        self.goes_on("a", "b")  # by the second one
        for place in others:  # and now its members are led back to the first one
            self.net.point(place, "coordinator")
        self.assertNotEqual(self.processes["coordinator"].wait(library.HANG_S), 0)
        self.assertIn("epoch 1 is over: a shard follows another coordinator, in epoch 2", self.lines("coordinator"))
        for place in others:
            self.net.point(place, "second")
        self.goes_on("a", "b")
        self.all_told()


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Supervised(unittest.TestCase):
    """Coordinator and shards of one place under --supervise, and a coordinator elsewhere that has its address for a while."""

    def setUp(self):
        self.net = network.Network(("first", "a"))
        self.addCleanup(self.net.close)
        self.processes = []
        self.addCleanup(self.end)
        self.path = lambda name: os.path.join(self.net.folder.name, name)
        self.first = self.start("first", SERVER, "--shards", "2", "--insecure", "on", "--transport", "tcp", "--supervise", "on",
                                "--lease", "1s", "--listen", "10.77.0.1:7070", "--arena_dir", self.net.folder.name)
        self.start("a", sys.executable, os.path.join(HERE, "kill_worker.py"), "10.77.0.1:7070", "a", self.path("a.notes"),
                   self.path("stop"), "network")
        library.until(lambda: os.path.exists(self.path("a.notes")) and " ADMITTED " in self.lines("a.notes"))

    def start(self, place, *words):
        self.processes.append(self.net.start(place, *words, log=self.path(place)))
        return self.processes[-1]

    def end(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()

    def lines(self, name):
        with open(self.path(name)) as file:
            return file.read()

    def pid(self, name):
        return int(self.lines("first").split(f"{name} runs as process ")[1].split()[0])

    def test_a_fenced_coordinator_s_parent_keeps_the_shards_that_follow_another(self):
        os.kill(self.pid("coordinator"), signal.SIGSTOP)
        self.net.inside("first", "ip", "address", "add", "10.77.0.8/24", "dev", "eth0")
        self.net.inside("first", "ip", "address", "del", "10.77.0.1/24", "dev", "eth0")
        self.net.inside("first", "ip", "address", "replace", "10.77.0.8/24", "dev", "eth0")
        self.net.add("second", 9, "10.77.0.1")
        self.start("second", SERVER, "--shards", "2", "--insecure", "on", "--transport", "tcp", "--lease", "1s",
                   "--shards_elsewhere", "on", "--listen", "10.77.0.1:7070")
        library.until(lambda: "epoch 2" in self.lines("second"))
        os.kill(self.pid("coordinator"), signal.SIGCONT)
        self.net.inside("first", "ip", "address", "add", "10.77.0.1/24", "dev", "eth0")
        library.until(lambda: "the shards follow another coordinator: ours is not started again" in self.lines("first"))
        shards = [self.pid(f"shard {shard}") for shard in (0, 1)]
        time.sleep(0.5)
        self.assertIsNone(self.first.poll())
        self.assertFalse(any(library.gone(pid) for pid in shards))
        self.first.terminate()
        self.assertEqual(self.first.wait(library.HANG_S), 0)
        self.assertTrue(all(library.gone(pid) for pid in shards))
        self.assertEqual(sum("-shard-" in name for name in os.listdir(self.net.folder.name)), 2, "their memory stays")


if __name__ == "__main__":
    if WHY_NOT:
        print("SKIPPED:", WHY_NOT)
    unittest.main()
