"""Whole processes: what a user does wrong, and what dies, each with the answer it must get."""
import errno
import json
import math
import os
import select
import signal
import subprocess
import tempfile
import threading
import time
import unittest

from library import BUILD, HANG_S, READER, VERDICTS, Failed, Port, Server, Worker, until
from recorded import flushed


def instructions():
    """What this processor can do, besides scalar, of what replay may be asked for."""
    with open("/proc/cpuinfo") as file:
        flags = set(file.read().split())
    found = ["scalar", "auto"]
    if "avx2" in flags:
        found.append("avx2")
    if {"avx512f", "avx512vl", "avx512dq", "avx512bw"} <= flags:
        found.append("avx512")
    return found


def run(*arguments):
    return subprocess.run([os.path.join(BUILD, arguments[0]), *arguments[1:]], capture_output=True, text=True,
                          timeout=HANG_S)


class Bounded(unittest.TestCase):
    """A test that hangs fails, and then what it started is killed."""

    def setUp(self):
        def stop(*_):
            raise TimeoutError(f"the test took longer than {2 * HANG_S} s")
        signal.signal(signal.SIGALRM, stop)
        signal.alarm(2 * HANG_S)
        self.addCleanup(signal.alarm, 0)


class WithServer(Bounded):
    arguments = ("--shards", "2", "--optimizer", "sgd", "--learning-rate", "0.1")

    def setUp(self):
        super().setUp()
        self.server = self.enterContext(Server(*self.arguments))
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
        self.assertRegex(str(caught.exception), r"\bb\b.*\b90[01]\b.*\b90[01]\b")
        for part in ("900", "901"):
            self.assertIn(part, str(caught.exception))

    def test_a_nan_on_one_shard_refuses_that_push_on_all_and_names_the_tensor(self):
        sizes = (("a", 40000), ("b", 40000))
        worker, other = (self.ready(f"worker-{i}", sizes=sizes) for i in range(2))
        for tensor, element in ((0, 0), (1, 39999)):
            worker.gradients[1 - tensor][7] = 5.0
            worker.gradients[tensor][element] = math.nan
            other.gradients[0][100] = 1.0
            tickets = worker.send(), other.send()
            receipt, beside = worker.wait(tickets[0]), other.wait(tickets[1])
            self.assertEqual((VERDICTS[receipt.verdict], receipt.tensor, receipt.element),
                             ("NOT_FINITE", sizes[tensor][0].encode(), 40000 * tensor + element))
            self.assertEqual(VERDICTS[beside.verdict], "ADMITTED")
            worker.gradients[tensor][element] = worker.gradients[1 - tensor][7] = 0.0
            worker.pull_until(tensor + 1)
            self.assertEqual(worker.pull(), tensor + 1, "one version for each admitted push, none for the refused")
            self.assertEqual((worker.parameters[0][7], worker.parameters[1][7]), (0.0, 0.0))
            other.pull()
        self.assertAlmostEqual(worker.parameters[0][100], -0.2, places=6)

    def test_push_before_pull_is_a_wrong_state(self):
        worker = self.worker("worker-0").bind().offer()
        with self.assertRaises(Failed) as caught:
            worker.push()
        self.assertEqual(caught.exception.status, -10)
        self.assertIn("pull", str(caught.exception))

    def test_four_accumulates_and_a_push_are_one_push_of_the_batch(self):
        one, counts = self.ready("worker-0"), (8, 4, 2, 2)
        for i, count in enumerate(counts):
            for k in range(3000):
                one.gradients[0][k] = math.sin(k * (i + 1))
            one.accumulate(count)
        self.assertEqual(VERDICTS[one.push(0).verdict], "ADMITTED")
        one.pull_until(1)
        second = self.enterContext(Server(*self.arguments))
        whole = Worker(second.address, "worker-0").bind().offer()
        whole.pull()
        for k in range(3000):
            whole.gradients[0][k] = sum(count * math.sin(k * (i + 1)) for i, count in enumerate(counts)) / sum(counts)
        self.assertEqual(VERDICTS[whole.push(sum(counts)).verdict], "ADMITTED")
        whole.pull_until(1)
        whole.close()
        self.assertEqual(second.close(), 0)
        self.assertGreater(max(map(abs, whole.parameters[0])), 0.05)
        for k in range(3000):
            self.assertAlmostEqual(one.parameters[0][k], whole.parameters[0][k], delta=1e-6)

    def test_a_wrong_ticket_is_refused(self):
        worker = self.ready("worker-0")
        with self.assertRaises(Failed) as caught:
            worker.wait(12345)
        self.assertEqual(caught.exception.status, -1)


class Deaths(WithServer):
    arguments = WithServer.arguments + ("--window", "2", "--workers-max", "2", "--lease", "2s")

    def test_a_killed_worker_costs_nobody_else_anything_and_its_slot_comes_back(self):
        worker = self.ready("worker-0")
        script = ("import sys, time; sys.path.insert(0, sys.argv[1]); from library import Worker\n"
                  "w = Worker(sys.argv[2], 'worker-1').bind().offer(); w.pull()\n"
                  "while True: w.push(); w.pull(); print('.', flush=True)")
        victim = subprocess.Popen(["python3", "-c", script, os.path.dirname(__file__), self.server.address],
                                  stdout=subprocess.PIPE)
        try:
            self.assertTrue(select.select([victim.stdout], [], [], HANG_S)[0], "the second worker pushed nothing")
            self.assertEqual(json.loads(worker.status())["workers_live"], 2)
        finally:
            victim.kill()
            victim.wait()
            victim.stdout.close()

        def alone():
            self.assertEqual(VERDICTS[worker.push().verdict], "ADMITTED")
            worker.pull()
            return json.loads(worker.status())["workers_live"] == 1
        until(alone)  # when its lease is over
        third = self.ready("worker-2")
        self.assertEqual(VERDICTS[third.push().verdict], "ADMITTED")

    def test_a_second_process_of_the_same_name_fences_the_first(self):
        first = self.ready("worker-0")
        second = self.ready("worker-0")
        self.assertEqual(VERDICTS[second.push().verdict], "ADMITTED")
        with self.assertRaises(Failed) as caught:
            for _ in range(100):
                first.push()
        self.assertEqual(caught.exception.status, -6)


class Queue(Bounded):
    workers, outstanding, rounds = 4, 4, 50

    def push_hard(self, queue, full):
        """4 workers with 4 pushes each under way at once; the status afterwards, and the verdicts that they heard. One shard
        stands still until the status is `full`, so that all pushes are under way at once however fast the servers are."""
        common = ("--shards", "2", "--optimizer", "sgd", "--queue", str(queue), "--staleness-max", "1000", "--lease", "10min",
                  "--heartbeat", "1min", "--place-patience", "10min", "--push-patience", "10min")
        server = self.enterContext(Server(*common, "--shards-elsewhere", "on"))
        shards = [start_shard(self, server.address, i, *common) for i in range(2)]
        workers = [Worker(server.address, f"worker-{i}", outstanding=self.outstanding).bind().offer()
                   for i in range(self.workers)]
        for worker in workers:
            worker.pull()
        reader = Worker(server.address, "reader", role=READER, sizes=())
        heard = [[] for _ in workers]

        def work(worker, verdicts):
            for _ in range(self.rounds):
                tickets = [worker.send() for _ in range(self.outstanding)]
                verdicts += [VERDICTS[worker.wait(ticket).verdict] for ticket in tickets]
                worker.pull()
        threads = [threading.Thread(target=work, args=pair, daemon=True) for pair in zip(workers, heard)]
        shards[1].send_signal(signal.SIGSTOP)
        for thread in threads:
            thread.start()
        until(lambda: full(json.loads(reader.status())))
        shards[1].send_signal(signal.SIGCONT)
        for thread in threads:
            thread.join(HANG_S)
            self.assertFalse(thread.is_alive())
        status = json.loads(workers[0].status())
        for worker in (reader, *workers):
            worker.close()
        self.assertEqual(server.close(), 0)
        return status, sum(heard, [])

    def test_the_queue_is_never_above_its_bound_and_every_push_has_a_verdict(self):
        status, heard = self.push_hard(4, lambda page: page["queue_peak"] == 4 and page["waiting"] > 0)
        self.assertEqual(len(heard), self.workers * self.outstanding * self.rounds)
        heard.append("ADMITTED")  # the offer of the first parameters goes the way of a push
        self.assertEqual(status["pushes"], len(heard))
        self.assertEqual(sum(status["verdicts"].values()), len(heard))
        for verdict in set(heard):
            self.assertEqual(status["verdicts"][verdict], heard.count(verdict), verdict)
        self.assertLessEqual(status["queue_peak"], 4)

    def test_the_same_pushes_fill_a_longer_queue_further(self):
        self.push_hard(32, lambda page: page["queue_peak"] > 4)


class Replay(Bounded):
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
            log = flushed(workers[0], lambda verdict: None)
            workers[0].pull_until(log["version"])
            digest = workers[0].digest()
            for worker in workers:
                worker.close()
            self.assertEqual(server.close(), 0)
            self.assertGreater(log["verdicts"]["STALE"] + log["verdicts"]["NOT_FINITE"], 1)
            self.assertGreater(log["flushes"], 0)
            for shards in ("1", "2", "3"):
                for simd in instructions():
                    told = run("gradweir-server", "replay", record, "--shards", shards, "--simd", simd)
                    self.assertEqual(told.returncode, 0, told.stderr)
                    self.assertIn(f"digest {digest}", told.stdout)


def start_shard(test, address, index, *arguments):
    shard = subprocess.Popen([os.path.join(BUILD, "gradweir-server"), *arguments, "--shard", str(index), "--coordinator",
                              address], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    test.addCleanup(shard.wait)
    test.addCleanup(shard.kill)
    return shard


def resident_mib(process):
    with open(f"/proc/{process.pid}/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmRSS"))


class StoppedShard(Bounded):
    def setUp(self):
        super().setUp()
        common = ["--shards", "2", "--optimizer", "sgd", "--learning-rate", "0.01", "--queue", "4"]
        self.server = self.enterContext(Server(*common, "--shards-elsewhere", "on"))
        self.shards = [start_shard(self, self.server.address, i, *common) for i in range(2)]
        self.workers = [Worker(self.server.address, f"worker-{i}", sizes=(("w", 200000),)).bind().offer()
                        for i in range(4)]
        for worker in self.workers:
            worker.pull()

    def rounds(self, count):
        def work(worker):
            for _ in range(count):
                self.assertEqual(VERDICTS[worker.push().verdict], "ADMITTED")
                worker.pull()
        threads = [threading.Thread(target=work, args=(worker,)) for worker in self.workers]
        for thread in threads:
            thread.start()
        return threads

    def test_a_stopped_shard_holds_pushes_back_within_the_bound_and_loses_none(self):
        for thread in self.rounds(50):
            thread.join()
        before = [resident_mib(shard) for shard in self.shards]
        threads = self.rounds(300)
        self.shards[1].send_signal(signal.SIGSTOP)
        time.sleep(1)
        self.shards[1].send_signal(signal.SIGCONT)
        for thread in threads:
            thread.join()
        status = json.loads(self.workers[0].status())
        self.assertLessEqual(status["queue_peak"], 4)
        self.assertEqual(status["verdicts"]["ADMITTED"], 4 * 350 + 1)  # and the first parameters
        self.assertEqual(status["pushes"], sum(status["verdicts"].values()))
        for shard, mib in zip(self.shards, before):
            # What is kept of each push would be 400 MiB; the transport may take some more buffers.
            self.assertLess(resident_mib(shard), mib + 32)

    def test_a_killed_shard_is_named_to_whoever_waits_in_bounded_time(self):
        self.shards[1].kill()
        self.shards[1].wait()
        ticket = self.workers[0].send(1)

        def named():  # as soon as the worker has heard of it, which may be later than a first deadline
            with self.assertRaises(Failed) as caught:
                self.workers[0].wait(ticket, 1000)
            self.assertEqual(caught.exception.status, -2)
            return "shard 1" in str(caught.exception)
        until(named)


class WithoutServer(Bounded):
    def test_coordinator_and_shards_may_be_processes_of_their_own(self):
        common = ["--shards", "2", "--optimizer", "sgd", "--learning-rate", "0.1"]
        server = self.enterContext(Server(*common, "--shards-elsewhere", "on"))
        shards = [start_shard(self, server.address, i, *common) for i in range(2)]
        worker = Worker(server.address, "worker-0").bind().offer()
        worker.pull()
        self.assertEqual(VERDICTS[worker.push().verdict], "ADMITTED")
        worker.close()
        self.assertEqual(server.close(), 0)
        for shard in shards:
            self.assertEqual(shard.wait(HANG_S), 0)

    def test_an_absent_server_is_unreachable_by_name_in_bounded_time(self):
        begin = time.monotonic()
        with self.assertRaises(Failed) as caught:
            Worker("127.0.0.1:1", timeout_ms=500)
        self.assertEqual(caught.exception.status, -3)
        self.assertIn("127.0.0.1:1", str(caught.exception))
        self.assertLess(time.monotonic() - begin, HANG_S)

    def test_a_worker_started_first_connects_when_the_server_appears(self):
        address = self.enterContext(Port())
        found = []
        thread = threading.Thread(target=lambda: found.append(Worker(address, "worker-0")), daemon=True)
        thread.start()
        time.sleep(0.3)
        server = self.enterContext(Server(listen=address))
        thread.join(HANG_S)
        self.assertEqual(len(found), 1)
        found[0].bind().offer()
        found[0].close()
        self.assertEqual(server.close(), 0)

    def test_a_port_in_use_is_named_with_the_reason(self):
        server = self.enterContext(Server())
        second = run("gradweir-server", "--listen", server.address)
        self.assertNotEqual(second.returncode, 0)
        self.assertIn(server.address, second.stderr)
        self.assertIn(os.strerror(errno.EADDRINUSE), second.stderr)
        server.close()

    def test_wrong_settings_are_named_with_range_and_nearest_name(self):
        for program, arguments, parts in (
                ("gradweir-server", ["--windov", "3"], ["windov", "nearest is window"]),
                ("gradweir-server", ["--window", "0"], ["window is 1 to 256"]),
                ("gradweir-server", ["--decay", "expp"], ["decay", "exp"]),
                ("gradweir-train", ["--workers", "4000"], ["--workers 4000", "1 to 256"]),
                ("gradweir-train", ["--shards", "0"], ["--shards 0", "1 to 64"]),
                ("gradweir-train", ["--sead", "1"], ["--sead", "nearest is --seed"]),
                ("gradweir-train", ["--env", "CartPool-v1"], ["CartPool-v1", "nearest is CartPole-v1"])):
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
