"""Whole processes: what a user does wrong, and what dies, each with the answer it must get."""
import json
import math
import os
import socket
import subprocess
import tempfile
import threading
import time
import unittest

from library import BUILD, READER, VERDICTS, Failed, Server, Worker


def run(*arguments):
    return subprocess.run([os.path.join(BUILD, arguments[0]), *arguments[1:]], capture_output=True, text=True, timeout=60)


class WithServer(unittest.TestCase):
    arguments = ("--shards", "2", "--optimizer", "sgd", "--learning-rate", "0.1")

    def setUp(self):
        self.server = Server(*self.arguments)
        self.workers = []

    def tearDown(self):
        for worker in self.workers:
            worker.close()
        self.assertEqual(self.server.close(), 0, "a drained server ends with 0")

    def worker(self, identity="", **options):
        worker = Worker(self.server.address, identity, **options)
        self.workers.append(worker)
        return worker

    def ready(self, identity="", **options):
        worker = self.worker(identity, **options).bind().offer()
        worker.pull()
        return worker


class BadInput(WithServer):
    def test_another_shape_is_named_with_both_shapes(self):
        self.ready("worker-0", sizes=(("a", 700), ("b", 900)))
        with self.assertRaises(Failed) as caught:
            self.worker("worker-1", sizes=(("a", 700), ("b", 901))).bind()
        self.assertEqual(caught.exception.status, -5)
        for part in ("b", "900", "901"):
            self.assertIn(part, str(caught.exception))

    def test_a_nan_on_one_shard_refuses_that_push_on_all_and_names_the_tensor(self):
        worker = self.ready("worker-0", sizes=(("a", 1500), ("b", 1500)))
        worker.gradients[1][1400] = math.nan
        receipt = worker.push()
        self.assertEqual((VERDICTS[receipt.verdict], receipt.tensor, receipt.element), ("NOT_FINITE", b"b", 2900))
        worker.gradients[1][1400] = 1.0
        self.assertEqual(VERDICTS[worker.push().verdict], "ADMITTED")
        while worker.pull() < 1:
            pass
        self.assertAlmostEqual(worker.parameters[1][1400], -0.1, places=6)

    def test_push_before_pull_is_a_wrong_state(self):
        worker = self.worker("worker-0").bind().offer()
        with self.assertRaises(Failed) as caught:
            worker.push()
        self.assertEqual(caught.exception.status, -10)
        self.assertIn("pull", str(caught.exception))

    def test_four_accumulates_and_a_push_are_one_push_of_the_batch(self):
        one = self.ready("worker-0")
        for i in range(4):
            for k in range(3000):
                one.gradients[0][k] = math.sin(k * (i + 1))
            one.accumulate(8)
        self.assertEqual(VERDICTS[one.push(0).verdict], "ADMITTED")
        while one.pull() < 1:
            pass
        for k in range(3000):
            mean = sum(math.sin(k * (i + 1)) for i in range(4)) / 4
            self.assertAlmostEqual(one.parameters[0][k], -0.1 * mean, delta=1e-6)

    def test_a_wrong_ticket_is_refused(self):
        worker = self.ready("worker-0")
        with self.assertRaises(Failed) as caught:
            worker.wait(12345)
        self.assertEqual(caught.exception.status, -1)


class Deaths(WithServer):
    arguments = WithServer.arguments + ("--window", "2")

    def test_a_killed_worker_costs_nobody_else_anything_and_its_slot_comes_back(self):
        worker = self.ready("worker-0")
        script = ("import sys, time; sys.path.insert(0, sys.argv[1]); from library import Worker\n"
                  "w = Worker(sys.argv[2], 'worker-1').bind().offer(); w.pull()\n"
                  "while True: w.push(); w.pull(); print('.', flush=True)")
        victim = subprocess.Popen(["python3", "-c", script, os.path.dirname(__file__), self.server.address],
                                  stdout=subprocess.PIPE)
        victim.stdout.readline()
        victim.kill()
        victim.wait()
        victim.stdout.close()
        for _ in range(100):
            self.assertEqual(VERDICTS[worker.push().verdict], "ADMITTED")
            worker.pull()
        end = time.monotonic() + 10
        while time.monotonic() < end:
            if json.loads(worker.status())["workers_live"] == 1:
                break
            time.sleep(0.05)
        self.assertEqual(json.loads(worker.status())["workers_live"], 1)

    def test_a_second_process_of_the_same_name_fences_the_first(self):
        first = self.ready("worker-0")
        second = self.ready("worker-0")
        self.assertEqual(VERDICTS[second.push().verdict], "ADMITTED")
        with self.assertRaises(Failed) as caught:
            for _ in range(100):
                first.push()
        self.assertEqual(caught.exception.status, -6)


class Queue(WithServer):
    arguments = WithServer.arguments + ("--queue", "4")

    def test_the_queue_is_never_above_its_bound_and_every_push_has_a_verdict(self):
        workers = [self.ready(f"worker-{i}") for i in range(4)]
        heard = [0] * 4

        def work(i):
            for _ in range(200):
                workers[i].push()
                workers[i].pull()
                heard[i] += 1
        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        status = json.loads(workers[0].status())
        self.assertEqual(sum(heard), 800)
        self.assertLessEqual(status["queue_peak"], 4)
        self.assertEqual(status["pushes"], sum(status["verdicts"].values()))


class Replay(unittest.TestCase):
    def test_a_recording_gives_the_same_digest_on_any_shards_and_instructions(self):
        with tempfile.TemporaryDirectory() as folder:
            record = os.path.join(folder, "run")
            server = self.enterContext(Server("--shards", "2", "--window", "4", "--stride", "2", "--decay", "exp", "--optimizer", "adam",
                            "--clip-average", "0.5", "--staleness-max", "3", "--record", record))
            workers = [Worker(server.address, f"worker-{i}").bind().offer() for i in range(2)]
            for worker in workers:
                worker.pull()
            for step in range(60):
                for i, worker in enumerate(workers):
                    for k in range(3000):
                        worker.gradients[0][k] = math.sin(k * (step + i + 1))
                    if step == 20:
                        worker.gradients[0][2900] = math.inf
                    worker.push(1 + step % 3)
                    if i == 0 or step % 8 == 0:
                        worker.pull()
            # A gradient that no stride completes waits until it is flushed: one more, or two.
            for _ in range(2):
                workers[0].pull()
                workers[0].push()
                end = time.monotonic() + 4
                log = json.loads(workers[0].status())
                while log["flushes"] == 0 and time.monotonic() < end:
                    time.sleep(0.05)
                    log = json.loads(workers[0].status())
                if log["flushes"]:
                    break
            while workers[0].pull() < log["version"]:
                pass
            digest = workers[0].digest()
            for worker in workers:
                worker.close()
            self.assertEqual(server.close(), 0)
            self.assertGreater(log["verdicts"]["STALE"] + log["verdicts"]["NOT_FINITE"], 1)
            self.assertGreater(log["flushes"], 0)
            for shards in ("1", "2", "3"):
                for simd in ("scalar", "auto"):
                    told = run("gradweir-server", "replay", record, "--shards", shards, "--simd", simd)
                    self.assertEqual(told.returncode, 0, told.stderr)
                    self.assertIn(f"digest {digest}", told.stdout)


class WithoutServer(unittest.TestCase):
    def test_coordinator_and_shards_may_be_processes_of_their_own(self):
        common = ["--shards", "2", "--optimizer", "sgd", "--learning-rate", "0.1"]
        server = self.enterContext(Server(*common, "--shards-elsewhere", "on"))
        shards = [subprocess.Popen([os.path.join(BUILD, "gradweir-server"), *common, "--shard", str(i), "--coordinator",
                                    server.address], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                  for i in range(2)]
        try:
            worker = Worker(server.address, "worker-0").bind().offer()
            worker.pull()
            self.assertEqual(VERDICTS[worker.push().verdict], "ADMITTED")
            worker.close()
            self.assertEqual(server.close(), 0)
            for shard in shards:
                self.assertEqual(shard.wait(20), 0)
        finally:
            for shard in shards:
                shard.kill()
                shard.wait()

    def test_an_absent_server_is_unreachable_by_name_in_bounded_time(self):
        begin = time.monotonic()
        with self.assertRaises(Failed) as caught:
            Worker("127.0.0.1:1", timeout_ms=500)
        self.assertEqual(caught.exception.status, -3)
        self.assertIn("127.0.0.1:1", str(caught.exception))
        self.assertLess(time.monotonic() - begin, 10)

    def test_a_worker_started_first_connects_when_the_server_appears(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            address = "127.0.0.1:%d" % probe.getsockname()[1]
        found = []
        thread = threading.Thread(target=lambda: found.append(Worker(address, "worker-0", timeout_ms=20000)))
        thread.start()
        time.sleep(0.3)
        server = Server(listen=address)
        thread.join(30)
        self.assertEqual(len(found), 1)
        found[0].bind().offer()
        found[0].close()
        self.assertEqual(server.close(), 0)

    def test_a_port_in_use_is_named_with_the_reason(self):
        server = Server()
        second = run("gradweir-server", "--listen", server.address)
        self.assertNotEqual(second.returncode, 0)
        self.assertIn(server.address, second.stderr)
        self.assertIn("in use", second.stderr)
        server.close()

    def test_wrong_settings_are_named_with_range_and_nearest_name(self):
        for program, arguments, parts in (
                ("gradweir-server", ["--windov", "3"], ["windov", "window"]),
                ("gradweir-server", ["--window", "0"], ["window", "1", "256"]),
                ("gradweir-server", ["--decay", "expp"], ["decay", "exp"]),
                ("gradweir-train", ["--worker", "4000"], ["worker", "256"]),
                ("gradweir-train", ["--sead", "1"], ["sead", "seed"]),
                ("gradweir-train", ["--env", "CartPool-v1"], ["CartPool-v1", "CartPole-v1"])):
            told = run(program, *arguments)
            self.assertEqual(told.returncode, 2, f"{program} {arguments}: {told.stderr}")
            for part in parts:
                self.assertIn(part, told.stderr)

    def test_a_whole_run_ends_with_a_summary_and_no_process(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "run.json")
            told = run("gradweir-train", "--workers", "2", "--shards", "2", "--max-steps", "20000", "--evaluate", "5",
                       "--until", "500", "--json", path)
            self.assertEqual(told.returncode, 1, told.stderr)
            with open(path) as file:
                summary = json.load(file)
            self.assertGreaterEqual(summary["env_steps"], 20000)
            self.assertEqual(summary["pushes"], summary["admitted"] + summary["refused"])
            self.assertRegex(told.stdout, r"audit: .*: whole")


if __name__ == "__main__":
    unittest.main(verbosity=2)
