"""gradweirctl against real servers and a real recording."""
import csv
import json
import os
import re
import subprocess
import tempfile
import unittest

from library import BUILD, HANG_S, Server, Worker, until
from recorded import Run


def tool(*arguments):
    return subprocess.run([os.path.join(BUILD, "gradweirctl"), *arguments], capture_output=True, text=True, timeout=HANG_S)


class Running(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.record = os.path.join(self.folder, "run")
        self.server = self.enterContext(Server("--shards", "2", "--optimizer", "sgd", "--window", "2", "--window-max", "4",
                                               "--record", self.record))

    def ask(self, command, *arguments, code=0):
        told = tool(command, *arguments, "--servers", self.server.address)
        self.assertEqual(told.returncode, code, told.stdout + told.stderr)
        return told

    def status(self):
        return json.loads(self.ask("status", "--json").stdout)

    def worker(self, identity="worker-0"):
        worker = Worker(self.server.address, identity).bind().offer()
        self.addCleanup(worker.close)
        worker.pull()
        return worker

    def test_status_names_workers_shards_and_what_is_waited_for(self):
        until(lambda: "waits: shards wait for the first worker" in self.ask("status").stdout)  # once they are here
        self.assertIn("staleness  of no gradient yet", self.ask("status").stdout)
        worker = self.worker()
        worker.gradients[0][5] = float("nan")
        worker.push()
        worker.gradients[0][5] = 1
        worker.push()
        worker.pull_until(1)
        until(lambda: self.status()["whole"] == 1)  # the shards tell the coordinator, too
        told = self.ask("status").stdout
        for part in (f"{self.server.address}: version 1 (1 whole on all shards), it runs", "NOT_FINITE 1", "worker-0",
                     "staleness  mean 0.00, max 0 at admission, of the 1 gradients",
                     "shard 0", "shard 1", "window 1 of 2", "step 2 waits for 1 more of 1 gradients"):
            self.assertIn(part, told)

    def test_top_prints_the_lines_that_were_asked_for(self):
        self.worker().push()
        lines = self.ask("top", "--count", "3", "--every", "20ms").stdout.splitlines()
        self.assertEqual(len(lines), 4)
        self.assertRegex(lines[0], "time +version +steps/s")
        for line in lines[1:]:
            self.assertRegex(line, r"^\d\d:\d\d:\d\d +\d+ ")

    def test_tune_changes_the_law_at_a_record_that_replay_repeats(self):
        worker = self.worker()
        worker.gradients[0][0] = 1
        for version, rate in enumerate(("0.5", "0.125"), 1):
            self.ask("tune", "learning-rate", rate)
            self.assertEqual(self.status()["settings"]["learning_rate"], float(rate))
            worker.push()
            worker.pull_until(version)
        self.assertAlmostEqual(worker.parameters[0][0], -0.625, places=6)
        self.ask("tune", "window", "4")
        self.ask("tune", "flush_after", "50ms")
        self.assertEqual(self.status()["settings"]["window"], 4)
        digest = worker.digest()
        worker.close()
        self.assertEqual(self.server.process.terminate() or self.server.process.wait(HANG_S), 0)
        self.assertIn(f"version 2 digest {digest}", tool("replay", self.record, "--shards", "3").stdout)

    def test_tune_refuses_with_reasons(self):
        self.worker()
        for setting, value, code, part in (("learning_rat", "1", 2, "nearest is learning_rate"),
                                           ("shards", "3", 2, "fixed at start"),
                                           ("window", "5", 1, "at most window_max, which is 4"),
                                           ("window", "0", 1, "1 to 256"), ("decay", "expp", 1, "uniform|exp|poly")):
            self.assertIn(part, self.ask("tune", setting, value, code=code).stderr)
        self.assertIn("SETTING VALUE", self.ask("tune", "window", code=2).stderr)

    def test_bench_pulls_from_a_job_and_pushes_only_where_it_is_asked_to(self):
        told = tool("bench", "--servers", self.server.address)
        self.assertEqual(told.returncode, 1)
        self.assertIn("no worker has brought a model", told.stderr)
        self.worker()
        before = self.status()["version"]
        row = json.loads(self.ask("bench", "--seconds", "0.1", "--gbit", "8", "--json").stdout)
        self.assertEqual((row["case"], row["bytes"], row["shards"], row["perftest_gbps"]), ("pull", 12000, 2, None))
        self.assertLessEqual(row["p50_us"], row["p99_us"])
        self.assertAlmostEqual(row["wire_ratio"], row["goodput_gbps"], delta=1e-3 * row["goodput_gbps"])
        self.assertEqual(self.status()["version"], before)
        told = self.ask("bench", "--push", "--size", "4KiB", code=1)
        self.assertIn("the servers keep this model", told.stderr)
        self.assertIn("the model differs from the servers'", told.stderr)
        self.assertEqual(tool("bench", "--seconds", "x").returncode, 2)

    def test_bench_pushes_zeros_into_servers_without_a_model(self):
        rows = [json.loads(line) for line in self.ask("bench", "--push", "--size", "4KiB", "--seconds", "0.1", "--timeout",
                                                   "2min", "--json").stdout.splitlines()]
        self.assertEqual([row["case"] for row in rows], ["pull", "push"])
        self.assertEqual(rows[1]["refused"], 0)
        for row in rows:
            self.assertRegex(row["transport"], r"^(posix|tcp|memory|rc)", row)
        self.assertGreater(self.status()["version"], 0)

    def test_doctor_tries_every_part_and_says_what_it_did_not(self):
        told = self.ask("doctor").stdout
        self.assertIn("not checked: the data plane", told)
        worker = self.worker()
        told = self.ask("doctor").stdout
        for part in ("control round trip: median", "protocol: the server speaks", "shard 0 at", "shard 1 at",
                     "floats: shard 0", "floats: shard 1", "pulled version 0", "not checked: pushes"):
            self.assertIn(part, told)
        self.assertNotIn("FAIL", told)
        self.assertEqual(worker.pull(), 0)

    def test_doctor_finds_a_missing_shard(self):
        server = self.enterContext(Server("--shards", "2", "--shards-elsewhere", "on"))
        told = tool("doctor", "--servers", server.address)
        self.assertEqual(told.returncode, 1)
        self.assertRegex(told.stdout, "FAIL +shard 0: the coordinator has no connection to it")


class Recorded(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.folder = os.path.join(cls.temporary.name, "run")
        cls.recorded = Run(cls.folder, 40)

    def blame(self, versions):
        path = os.path.join(self.temporary.name, "blame.csv")
        told = tool("blame", versions, self.folder, "--csv", path)
        self.assertEqual(told.returncode, 0, told.stderr)
        with open(path) as file:
            return told.stdout, list(csv.DictReader(file))

    def test_blame_lists_every_gradient_behind_the_versions(self):
        last = self.recorded.version
        told, rows = self.blame(f"1..{last}")
        self.assertEqual(len(re.findall(r"^version \d+: ", told, re.M)), last)
        admitted = sum(heard.count("ADMITTED") for heard in self.recorded.heard.values())
        names = {(row["worker"], row["incarnation"], row["sequence"]) for row in rows}
        self.assertEqual(len(names), admitted, "W = 2 S: none is unused")
        for row in rows:
            age = int(row["version"]) - 1 - int(row["basis"])
            self.assertEqual(int(row["staleness"]), age)
            self.assertEqual(int(row["transit"]) + int(row["queued"]) + int(row["window"]), age)
            self.assertGreater(float(row["norm"]), 0)
        for version in range(1, last + 1):
            weights = [float(row["weight"]) for row in rows if int(row["version"]) == version]
            self.assertTrue(1 <= len(weights) <= 4)
            # Normalised by the sum over the window; without a clip of each gradient that is 1.
            self.assertAlmostEqual(sum(weights), 1, places=5)

    def test_blame_tells_a_range_only_and_one_that_is_not_there(self):
        told, rows = self.blame("7..9")
        self.assertEqual({row["version"] for row in rows}, {"7", "8", "9"})
        self.assertIn("3 steps, by worker", told)
        self.assertEqual({row["version"] for row in self.blame("7")[1]}, {"7"})
        for versions, code, part in (("9..7", 2, "no range"), ("x", 2, "no range"), ("0", 2, "from 1 on"),
                                     ("1..99999", 1, "ends at version")):
            told = tool("blame", versions, self.folder)
            self.assertEqual(told.returncode, code)
            self.assertIn(part, told.stderr)


class Alone(unittest.TestCase):
    def test_plan_counts_memory_as_the_servers_do(self):
        law = ("--shards", "2", "--optimizer", "adam", "--window", "4", "--queue", "6", "--clip-average", "1")
        planned = tool("plan", "--params", "3000", "--workers", "64", *law)
        self.assertEqual(planned.returncode, 0, planned.stderr)
        with Server(*law) as server:
            worker = Worker(server.address, "worker-0").bind()
            told = re.findall(r"shard (\d): (\d.* MiB = .*)", server.lines())
            worker.close()
            self.assertEqual(server.close(), 0)
        self.assertEqual({shard for shard, _ in told}, {"0", "1"})
        for shard, line in told:
            self.assertRegex(planned.stdout, rf"shard {shard} .*: {re.escape(line)}")
        big = tool("plan", "--params", "7e9", "--workers", "8", "--shards", "4", "--gbit", "100")
        self.assertRegex(big.stdout, r"100 Gbit/s +0\.56 s a step at each shard +2\.24 s a push")

    def test_plan_takes_its_times_from_rates_that_were_measured(self):
        with tempfile.TemporaryDirectory() as folder:
            rates = os.path.join(folder, "rates")
            for text, part in (("", "no case push or pull"), ('{"case":"push"}\n', 'line 1: has no "goodput_gbps"'),
                               ('\n{"case":"pull","goodput_gbps":-1}', "line 2: goodput_gbps is -1"), ("words", "line 1"),
                               ("\0" * 5000, "line 1: is no text")):
                with open(rates, "w", encoding="utf-8") as file:
                    file.write(text)
                told = tool("plan", "--params", "1e6", "--memory-speed", "10", "--rates", rates)
                self.assertEqual(told.returncode, 1, text)
                self.assertIn(part, told.stderr)
            with open(rates, "w", encoding="utf-8") as file:
                file.write('{"case":"push","transport":"tcp","goodput_gbps":1.5}\n'
                           '{"case":"step","goodput_gbps":9}\n'
                           '{"case": "push", "transport": "tcp", "goodput_gbps": 2}\n')
            told = tool("plan", "--params", "1e9", "--rates", rates)
        self.assertEqual(told.returncode, 0, told.stderr)
        self.assertRegex(told.stdout, r"measured over tcp, one worker: 2\.00 GB/s, 2 s a push")
        self.assertNotIn("a pull\n  times", told.stdout)
        speed = re.search(r"at ([\d.]+) GB/s, measured here", told.stdout)
        self.assertTrue(speed, told.stdout)
        self.assertGreater(float(speed[1]), 0.1)

    def test_wrong_usage_ends_with_2_and_names_the_nearest(self):
        for arguments, part in (([], "COMMAND"), (["statis"], "nearest is status"), (["status", "--serverz", "x"], "servers"),
                                (["status", "extra"], "options only"), (["top", "--every", "never"], "every"),
                                (["plan", "--parms", "7"], "nearest is params"), (["plan", "--shards", "0"], "1 to 64"),
                                (["replay"], "folder comes first"), (["blame", "3"], "come first"),
                                (["replay", "x", "--untill", "3"], "nearest is until")):
            told = tool(*arguments)
            self.assertEqual(told.returncode, 2, f"{arguments}: {told.stderr}")
            self.assertIn(part, told.stderr, arguments)

    def test_help_is_there_for_every_command(self):
        names = re.findall(r"^  ([a-z]+) ", tool("--help").stdout, re.M)
        self.assertGreaterEqual(len(names), 7)
        for name in names:
            told = tool(name, "--help")
            self.assertEqual(told.returncode, 0, name)
            self.assertIn(name, told.stdout)

    def test_no_server_is_a_failure_that_names_the_address(self):
        for command in (["status"], ["top"], ["tune", "window", "2"], ["doctor"]):
            told = tool(*command, "--servers", "127.0.0.1:1", "--timeout", "200ms")
            self.assertEqual(told.returncode, 1, command)
            self.assertIn("127.0.0.1:1", told.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
