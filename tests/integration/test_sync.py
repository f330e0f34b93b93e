"""mode = sync equals a synchronous trainer in one process, to the bit: real servers (two shards), the real client library,
and a reference (sync_reference.h, the order of every operation is written there) that shares no code with them.

    GRADWEIR_BUILD=build python3 tests/integration/test_sync.py          # or: ctest --test-dir build -R sync
    GRADWEIR_SYNC_STEPS=5000 ...                                         # another number of steps than 1000
"""
import os
import re
import signal
import subprocess
import unittest

from library import BUILD, HANG_MS, HANG_S, VERDICTS, Failed, Server, Worker, check, lib, until

STEPS = int(os.environ.get("GRADWEIR_SYNC_STEPS", "1000"))
ADAM = ("--optimizer", "adam", "--learning-rate", "0.003", "--eps", "1e-8", "--weight-decay", "0.01")
SYNC = ("--mode", "sync", "--shards", "2", *ADAM)


def equal(server, workers, steps, *more):
    program = os.path.join(BUILD, "tests", "sync_equal")
    return subprocess.run([program, server.address, str(workers), str(steps), *map(str, more)], capture_output=True,
                          text=True, timeout=3 * HANG_S)


class Bounded(unittest.TestCase):
    def setUp(self):
        def stop(*_):
            raise TimeoutError(f"the test took longer than {4 * HANG_S} s")
        signal.signal(signal.SIGALRM, stop)
        signal.alarm(4 * HANG_S)
        self.addCleanup(signal.alarm, 0)


class Equivalence(Bounded):
    def assert_equal(self, workers, steps, seed, *arguments):
        with Server(*SYNC, "--workers-max", str(workers), *arguments) as server:
            if arguments:
                self.assertIn(f"{arguments[1]} shard", server.lines())
            run = equal(server, workers, steps, seed)
            self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
            self.assertIn(f"workers {workers}: {steps} steps", run.stdout)
            print(run.stdout.strip(), flush=True)
            self.assertEqual(server.close(), 0)
        return re.search("digest ([0-9a-f]+); ([0-9]+) of", run.stdout)

    def test_one_worker(self):
        self.assert_equal(1, STEPS, 1)

    def test_two_workers(self):
        self.assertGreater(int(self.assert_equal(2, STEPS, 2)[2]), STEPS // 4)

    def test_four_workers_in_any_order_of_arrival(self):
        self.assertGreater(int(self.assert_equal(4, STEPS, 3)[2]), STEPS)

    def test_the_number_of_shards_changes_no_bit(self):
        digests = {self.assert_equal(3, 50, 4, "--shards", str(shards))[1] for shards in (1, 2, 3)}
        self.assertEqual(len(digests), 1)

    def assert_differs(self, arguments, workers, control=()):
        with Server(*arguments) as server:
            run = equal(server, workers, 40, 5, *control)
            self.assertEqual(run.returncode, 1, run.stdout + run.stderr)
            self.assertIn("differs", run.stdout)
            return run.stdout

    def test_control_another_order_of_the_sum_differs(self):
        self.assert_differs((*SYNC, "--workers-max", "4"), 4, ("swap",))

    def test_control_one_gradient_left_out_differs_from_that_step_on(self):
        self.assertIn("version 21 ", self.assert_differs((*SYNC, "--workers-max", "4"), 4, ("drop",)))

    def test_control_the_order_of_arrival_differs(self):
        self.assert_differs(("--mode", "async", "--window", "4", "--stride", "4", "--flush-after", "1h", "--shards", "2",
                             *ADAM), 4)


class Guards(Bounded):
    def test_a_queue_that_holds_no_round_is_refused_by_name(self):
        for setting, text in (("--queue", "queue is 3"), ("--window-max", "window_max 3")):
            with Server("--mode", "sync", "--workers-max", "4", setting, "3") as server:
                server.process.wait(HANG_S)
                self.assertNotEqual(server.process.returncode, 0)
                self.assertIn("mode = sync", server.lines())
                self.assertIn(text, server.lines())

    def test_a_worker_that_stops_pushing_is_named_taken_out_told_and_may_come_back(self):
        with Server(*SYNC, "--workers-max", "2", "--round-patience", "1h") as server:
            workers = [Worker(server.address, f"worker-{i}", progress=1).bind().offer() for i in range(2)]
            for worker in workers:
                worker.pull()
            ticket = workers[0].send()
            self.assertRaises(Failed, workers[0].wait, ticket, 700)
            waits = until(lambda: re.search("the round of version 1 waits for worker-1 since ([0-9.]+) s", workers[0].status()))
            self.assertGreaterEqual(float(waits[1]), 0.5)
            check(lib.gradweir_tune(workers[0].client, b"round_patience", b"500ms", HANG_MS))
            self.assertEqual(VERDICTS[workers[0].wait(ticket).verdict], "ADMITTED")
            self.assertIn("worker worker-1 is taken out of the round", server.lines())
            self.assertEqual(VERDICTS[workers[0].push().verdict], "ADMITTED", "the other goes on alone")
            check(lib.gradweir_tune(workers[0].client, b"round_patience", b"1h", HANG_MS))
            workers[1].pull_until(2)
            tickets = [worker.send() for worker in workers]
            self.assertEqual([VERDICTS[w.wait(t).verdict] for w, t in zip(workers, tickets)], ["ADMITTED"] * 2)
            workers[0].pull_until(3)
            self.assertEqual(workers[0].pull(), 3, "and both are in one step again")
            for worker in workers:
                worker.close()
            self.assertEqual(server.close(), 0)


if __name__ == "__main__":
    unittest.main()
