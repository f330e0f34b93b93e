"""The coordinator is killed with -9 under load and started again on the same port: training goes on, every push has one
verdict, no name counts twice. And what is refused when memory is gone."""
import json
import os
import signal
import subprocess
import threading
import time
import unittest

from library import BUILD, HANG_S, VERDICTS, Failed, Port, Server, Worker, until

COMMON = ["--shards", "2", "--optimizer", "sgd", "--learning-rate", "0.001", "--lease", "10min"]


class Job(unittest.TestCase):
    """A coordinator and two shards as processes of their own, and workers as threads."""
    common = COMMON

    def setUp(self):
        def stop(*_):
            raise TimeoutError(f"the test took longer than {4 * HANG_S} s")
        signal.signal(signal.SIGALRM, stop)
        signal.alarm(4 * HANG_S)
        self.addCleanup(signal.alarm, 0)
        self.address = self.enterContext(Port())
        self.server = self.enterContext(Server(*self.common, "--shards_elsewhere", "on", listen=self.address))
        self.shards = [self.shard(i) for i in range(2)]
        self.stop = False
        self.receipts = {}
        self.failures = []

    def shard(self, index):
        process = subprocess.Popen([os.path.join(BUILD, "gradweir-server"), *self.common, "--shard", str(index), "--coordinator",
                                    self.address], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def restart(self):
        self.server.process.kill()
        self.server.process.wait()
        self.server = self.enterContext(Server(*self.common, "--shards_elsewhere", "on", listen=self.address))
        self.assertEqual(self.server.address, self.address)

    def worker(self, name, **options):
        worker = Worker(self.address, name, **options).bind().offer()
        worker.pull()
        return worker

    def train(self, worker, name):
        """Pushes until told to stop; what each ended in, and how long the longest wait was."""
        heard = self.receipts[name] = []
        try:
            while not self.stop:
                tickets = [worker.send() for _ in range(2)]
                heard += [(r.sequence, VERDICTS[r.verdict], r.index) for r in (worker.wait(t) for t in tickets)]
                worker.pull()
        except Failed as failed:
            self.failures.append(f"{name}: {failed}")

    def start(self, count):
        workers = {f"worker-{i}": self.worker(f"worker-{i}", outstanding=2) for i in range(count)}
        threads = [threading.Thread(target=self.train, args=(w, n), daemon=True) for n, w in workers.items()]
        for thread in threads:
            thread.start()
        return workers, threads

    def wait_until(self, ready, seconds, what):
        end = time.monotonic() + seconds
        while not ready():
            self.assertLess(time.monotonic(), end, f"{what}; {self.failures}; {self.server.lines()[-2000:]}")
            time.sleep(0.002)
        return seconds - (end - time.monotonic())


class Restart(Job):
    kills = 5

    def test_a_killed_coordinator_costs_a_pause_and_nothing_else(self):
        workers, threads = self.start(3)
        pauses = []
        for kill in range(self.kills):
            before = sum(map(len, self.receipts.values()))
            self.wait_until(lambda: sum(map(len, self.receipts.values())) > before + 60, HANG_S, "no training")
            self.server.process.kill()
            self.server.process.wait()
            counts = {n: len(r) for n, r in self.receipts.items()}
            begin = time.monotonic()
            self.server = self.enterContext(Server(*self.common, "--shards_elsewhere", "on", listen=self.address))
            self.wait_until(lambda: all(len(r) > counts[n] + 4 for n, r in self.receipts.items()), HANG_S,
                            f"no worker went on after kill {kill}")
            pauses.append(time.monotonic() - begin)
        self.stop = True
        for thread in threads:
            thread.join(HANG_S)
            self.assertFalse(thread.is_alive())
        self.assertEqual(self.failures, [])
        print("pauses until every worker had 5 receipts more, s:", [round(p, 3) for p in pauses])
        self.compare(json.loads(workers["worker-0"].status()))
        for worker in workers.values():
            worker.close()
        self.assertEqual(self.server.close(), 0)
        for shard in self.shards:
            self.assertEqual(shard.wait(HANG_S), 0)

    def compare(self, status):
        """What the workers heard against what the servers count, by sequence and by index of the log."""
        self.assertEqual(status["epoch"], 1 + self.kills)
        self.assertEqual(status["pushes"], sum(status["verdicts"].values()))
        indices = []
        for known in status["workers"]:
            heard = self.receipts[known["identity"]]
            offered = 1 if known["identity"] == "worker-0" else 0  # the first parameters go the way of a push
            self.assertEqual([s for s, _, _ in heard], list(range(heard[0][0], heard[0][0] + len(heard))))
            self.assertEqual(known["incarnation"], 1)
            self.assertEqual(known["last_sequence"], heard[-1][0])
            for verdict, count in known["verdicts"].items():
                mine = sum(v == verdict for _, v, _ in heard)
                self.assertEqual(count, mine + (offered if verdict == "ADMITTED" else 0), (known["identity"], verdict))
            indices += [i for _, v, i in heard if v == "ADMITTED"]
        self.assertEqual(len(indices), len(set(indices)), "two gradients under one record")


class RestartClipped(Restart):
    """Every step has a round: a new epoch asks for the sums again."""
    common = [*COMMON, "--clip-average", "0.01"]
    kills = 3


class RestartLamb(Restart):
    common = [*COMMON, "--optimizer", "lamb", "--weight-decay", "0.01"]
    kills = 3


class Refusals(Job):
    def test_a_shard_that_lost_its_memory_is_refused_by_name_and_nothing_begins_anew(self):
        worker = self.worker("worker-0")
        self.assertEqual(VERDICTS[worker.push().verdict], "ADMITTED")
        self.server.process.kill()
        self.server.process.wait()
        self.shards[1].kill()
        self.shards[1].wait()
        again = self.shard(1)
        self.restart()
        self.assertNotEqual(again.wait(HANG_S), 0)
        self.assertIn("shard 1 has no memory of the job", again.stderr.read())
        self.assertIsNone(self.shards[0].poll())
        ticket = worker.send()

        def named():
            with self.assertRaises(Failed) as caught:
                worker.wait(ticket, 1000)
            return "coordinator" in str(caught.exception)
        until(named)

    def test_a_shard_that_comes_back_without_memory_ends_the_job_and_says_what_is_lost(self):
        worker = self.worker("worker-0")
        worker.push()
        self.shards[1].kill()
        self.shards[1].wait()
        self.shard(1)
        with self.assertRaises(Failed) as caught:
            worker.push()
        self.assertRegex(str(caught.exception), "shard 1 came back without its memory.*are lost", self.server.lines()[-3000:])
        self.assertNotEqual(self.server.process.wait(HANG_S), 0)
        self.assertNotEqual(self.shards[0].wait(HANG_S), 0)

    def test_other_settings_do_not_take_the_job_over_and_do_not_harm_it(self):
        worker = self.worker("worker-0")
        worker.push()
        self.server.process.kill()
        self.server.process.wait()
        with Server(*self.common, "--queue", "7", "--shards_elsewhere", "on", listen=self.address) as other:
            self.assertNotEqual(other.process.wait(HANG_S), 0)
            self.assertIn("queue", other.lines())
        self.restart()
        worker.pull()
        self.assertEqual(VERDICTS[worker.push().verdict], "ADMITTED")
        worker.close()
        self.assertEqual(self.server.close(), 0)


if __name__ == "__main__":
    unittest.main()
