"""Groups: several processes that are one worker, each pushing its part of every gradient. Real servers, the real library.

    GRADWEIR_BUILD=build python3 tests/integration/test_parts.py         # or: ctest --test-dir build -R parts
"""
import ctypes as c
import os
import signal
import subprocess
import sys
import threading
import unittest

from library import HANG_MS, HANG_S, VERDICTS, Failed, Options, Server, Tensor, Worker, check, lib, until

SHAPES = (("embed", (37, 24)), ("body", (40, 30, 5)), ("bias", (77,)))
ADAM = ("--optimizer", "adam", "--learning-rate", "0.01", "--stride", "1", "--window", "1")


def elements(shape):
    total = 1
    for extent in shape:
        total *= extent
    return total


def whole_gradient(number, parameters):
    """The same floats whoever asks: a little arithmetic on what was pulled."""
    return [[0.5 * p + ((i * 7 + number * 13) % 11 - 5) * 0.125 for i, p in enumerate(tensor)] for tensor in parameters]


def cut(flat, shape, axis, first, count):
    inner = elements(shape[axis + 1:])
    period = shape[axis] * inner
    return [x for at in range(first * inner, len(flat), period) for x in flat[at:at + count * inner]]


class Rank(Worker):
    """parts: per tensor (axis, first, count), or None for the whole."""

    def __init__(self, address, identity, parts, rank, ranks, group="run-1", timeout_ms=HANG_MS, progress=0, outstanding=1):
        self.client, self.parts = c.c_void_p(), parts
        self.parameters = [(c.c_float * elements(shape))() for _, shape in SHAPES]
        self.gradients = []
        for (_, shape), part in zip(SHAPES, parts):
            n = elements(shape) if part is None else elements(shape) // shape[part[0]] * part[2]
            self.gradients.append((c.c_float * max(n, 1))())
        options = Options()
        lib.gradweir_options_default_sized(c.byref(options), c.c_size_t(c.sizeof(options)))
        options.address, options.identity, options.progress = address.encode(), identity.encode(), progress
        options.connect_timeout_ms, options.outstanding = timeout_ms, outstanding
        options.group, options.rank, options.ranks = group.encode(), rank, ranks
        check(lib.gradweir_open(c.byref(options), c.byref(self.client)))

    def bind(self):
        tensors = (Tensor * len(SHAPES))()
        for i, (name, shape) in enumerate(SHAPES):
            tensors[i].name, tensors[i].dimensions = name.encode(), len(shape)
            for d, extent in enumerate(shape):
                tensors[i].shape[d] = extent
            tensors[i].parameters = c.cast(self.parameters[i], c.c_void_p)
            tensors[i].gradient = c.cast(self.gradients[i], c.c_void_p)
            if self.parts[i] is not None:
                axis, first, count = self.parts[i]
                check(lib.gradweir_part(self.client, c.c_size_t(i), axis, c.c_uint64(first), c.c_uint64(count)))
        check(lib.gradweir_bind(self.client, tensors, c.c_size_t(len(SHAPES))))
        return self

    def fill(self, number):
        for own, flat, (_, shape), part in zip(self.gradients, whole_gradient(number, self.parameters), SHAPES, self.parts):
            values = flat if part is None else cut(flat, shape, *part)
            own[:len(values)] = values

    def run(self, pushes, verdicts):
        for number in range(pushes):
            self.pull_until(number)
            self.fill(number)
            verdicts.append(VERDICTS[self.push(3).verdict])
        self.pull_until(pushes)


ROWS = [[(0, 0, 20), (0, 0, 1), (0, 0, 0)], [(0, 20, 17), (0, 1, 39), None]]
COLUMNS = [[(1, 0, 7), (1, 0, 29), (0, 0, 40)], [(1, 7, 17), (1, 29, 1), (0, 40, 37)]]
MIXED = [[(0, 0, 0), (2, 0, 2), (0, 30, 47)], [(1, 20, 4), (2, 2, 1), (0, 0, 30)], [(1, 0, 20), (2, 3, 2), (0, 0, 0)]]
WHOLE = [None] * 3


def at_once(jobs):
    """Runs all, each in a thread of its own; gives what each gave or raised."""
    results = [None] * len(jobs)

    def one(i):
        try:
            results[i] = jobs[i]()
        except Exception as error:  # pylint: disable=broad-except
            results[i] = error
    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def group(server, cuts, **more):
    ranks = [Rank(server.address, "group", parts, r, len(cuts), **more) for r, parts in enumerate(cuts)]
    return ranks, at_once([rank.bind for rank in ranks])


class Bounded(unittest.TestCase):
    def setUp(self):
        def stop(*_):
            raise TimeoutError(f"the test took longer than {2 * HANG_S} s")
        signal.signal(signal.SIGALRM, stop)
        signal.alarm(2 * HANG_S)
        self.addCleanup(signal.alarm, 0)

    def digest(self, cuts, pushes=12, shards=2, chunk="4KiB", arguments=()):
        with Server("--shards", str(shards), "--chunk-bytes", chunk, *ADAM, *arguments) as server:
            if len(cuts) == 1:
                ranks = [Rank(server.address, "group", cuts[0], 0, 1).bind()]
            else:
                ranks, bound = group(server, cuts)
                self.assertFalse([b for b in bound if isinstance(b, Exception)], bound)
            for rank in ranks:
                for i, tensor in enumerate(rank.parameters):
                    tensor[:] = [((k * 5 + i) % 9 - 4) * 0.25 for k in range(len(tensor))]
            offered = at_once([rank.offer for rank in ranks])
            self.assertFalse([o for o in offered if isinstance(o, Exception)], offered)
            verdicts = [[] for _ in ranks]
            ran = at_once([lambda rank=rank, v=v: rank.run(pushes, v) for rank, v in zip(ranks, verdicts)])
            self.assertFalse([r for r in ran if isinstance(r, Exception)], ran)
            for v in verdicts:
                self.assertEqual(v, ["ADMITTED"] * pushes)
            digests = {rank.digest() for rank in ranks}
            self.assertEqual(len(digests), 1)
            at_once([rank.close for rank in ranks])
            self.assertEqual(server.close(), 0)
            return digests.pop()


class Parts(Bounded):
    def test_parts_give_the_bits_of_one_whole_worker(self):
        whole = self.digest([WHOLE])
        for name, cuts in (("rows", ROWS), ("columns", COLUMNS), ("three ranks, mixed", MIXED)):
            self.assertEqual(self.digest(cuts), whole, name)
        self.assertEqual(self.digest(MIXED, shards=3), whole, "another number of shards")

    def test_control_another_gradient_gives_another_digest(self):
        self.assertNotEqual(self.digest([WHOLE], pushes=3), self.digest([WHOLE], pushes=4))


class Refusals(Bounded):
    def test_a_gap_and_an_overlap_are_told_to_all_ranks_by_tensor_index_and_rank(self):
        gap = [ROWS[0], [(0, 21, 16), (0, 0, 39), None]]
        with Server("--shards", "2", *ADAM) as server:
            _, bound = group(server, gap)
            for error in bound:
                self.assertIsInstance(error, Failed)
                self.assertIn("no rank has 20 to 20 of axis 0 of tensor embed", str(error))
                self.assertIn("ranks 0 and 1 both have 0 to 0 of axis 0 of tensor body", str(error))
                self.assertIn("no rank has 39 to 39 of axis 0 of tensor body", str(error))

    def test_a_part_out_of_range_is_refused_before_anybody_hears_of_it(self):
        with Server(*ADAM) as server:
            rank = Rank(server.address, "group", [(1, 20, 5), None, None], 0, 2)
            with self.assertRaisesRegex(Failed, "tensor embed has 24 on axis 1, the part is 5 of them from 20 on"):
                rank.bind()

    def ready(self, server, cuts, **more):
        ranks, bound = group(server, cuts, progress=1, **more)
        self.assertFalse([b for b in bound if isinstance(b, Exception)], bound)
        self.assertFalse([o for o in at_once([rank.offer for rank in ranks]) if isinstance(o, Exception)])
        for rank in ranks:
            rank.pull()
        return ranks

    def test_a_rank_with_another_basis_refuses_the_gradient_for_all(self):
        with Server("--shards", "2", *ADAM) as server:
            ranks = self.ready(server, COLUMNS)
            for rank in ranks:
                rank.fill(0)
            tickets = [rank.send() for rank in ranks]
            self.assertEqual([VERDICTS[r.wait(t).verdict] for r, t in zip(ranks, tickets)], ["ADMITTED"] * 2)
            ranks[0].pull_until(1)  # rank 1 still has version 0
            tickets = [rank.send() for rank in ranks]
            self.assertEqual([VERDICTS[r.wait(t).verdict] for r, t in zip(ranks, tickets)], ["MISMATCH"] * 2)
            self.assertRegex(server.lines(), "rank [01] says basis [01] and 1 samples, rank [01] basis [01]")
            ranks[1].pull_until(1)
            tickets = [rank.send() for rank in ranks]
            self.assertEqual([VERDICTS[r.wait(t).verdict] for r, t in zip(ranks, tickets)], ["ADMITTED"] * 2)

    def test_a_rank_that_dies_costs_its_unfinished_gradient_and_the_others_are_told(self):
        with Server("--shards", "2", "--lease", "3s", *ADAM) as server:
            script = ("import sys; sys.path[:0] = [%r]; import test_parts as t, time\n"
                      "r = t.Rank(%r, 'group', t.ROWS[1], 1, 2, progress=1).bind().offer(); r.pull()\n"
                      "print('in', flush=True); time.sleep(60)" % (os.path.dirname(__file__), server.address))
            with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as other:
                rank = Rank(server.address, "group", ROWS[0], 0, 2, progress=1).bind().offer()
                rank.pull()
                self.assertEqual(other.stdout.readline(), "in\n")
                ticket = rank.send()
                other.kill()
                with self.assertRaisesRegex(Failed, "rank 1 of worker group is gone"):
                    rank.wait(ticket)
            reader = Worker(server.address, "look", sizes=(), role=2)
            check(lib.gradweir_bind(reader.client, None, c.c_size_t(0)))
            self.assertEqual(reader.pull(), 0, "nothing was applied")
            again = self.ready(server, ROWS, group="run-2")
            tickets = [r.send() for r in again]
            self.assertEqual([VERDICTS[r.wait(t).verdict] for r, t in zip(again, tickets)], ["ADMITTED"] * 2)

    def test_a_killed_shard_process_and_coordinator_cost_nothing(self):
        whole = self.digest([WHOLE], pushes=30)
        with Server("--shards", "2", "--chunk-bytes", "4KiB", "--supervise", *ADAM) as server:
            ranks, bound = group(server, MIXED, progress=1)
            self.assertFalse([b for b in bound if isinstance(b, Exception)], bound)
            for rank in ranks:
                for i, tensor in enumerate(rank.parameters):
                    tensor[:] = [((k * 5 + i) % 9 - 4) * 0.25 for k in range(len(tensor))]
            self.assertFalse([o for o in at_once([rank.offer for rank in ranks]) if isinstance(o, Exception)])
            stop, verdicts = threading.Event(), [[] for _ in ranks]

            def kill():
                """One after the other, each when some pushes are through since the last: they must get on in between."""
                turn, before = 0, 0
                while not stop.is_set():
                    done = sum(map(len, verdicts))
                    children = subprocess.run(["pgrep", "-P", str(server.process.pid)], capture_output=True, text=True,
                                              check=False).stdout.split()
                    if children and done >= before + 5 * (turn > 0):
                        os.kill(int(children[turn % len(children)]), signal.SIGKILL)
                        turn, before = turn + 1, done
                    stop.wait(0.03)
                return turn

            def run(rank, v):
                try:
                    rank.run(30, v)
                finally:
                    stop.set()
            ran = at_once([lambda rank=rank, v=v: run(rank, v) for rank, v in zip(ranks, verdicts)] + [kill])
            self.assertFalse([r for r in ran if isinstance(r, Exception)], ran)
            self.assertGreater(ran[-1], 1)
            for v in verdicts:
                self.assertEqual(v, ["ADMITTED"] * 30)
            self.assertEqual({rank.digest() for rank in ranks}, {whole})
            at_once([rank.close for rank in ranks])


if __name__ == "__main__":
    unittest.main()
