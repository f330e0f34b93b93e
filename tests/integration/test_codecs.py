"""Gradients in other numbers than float32, and error feedback: real servers, the real library.

    GRADWEIR_BUILD=build python3 tests/integration/test_codecs.py        # or: ctest --test-dir build -R codecs
"""
import ctypes as c
import os
import random
import subprocess
import tempfile
import threading
import unittest

from library import BUILD, HANG_S, VERDICTS, Failed, Server, Worker, check, lib
from test_parts import SHAPES, Rank

ON, OFF = 1, 2
SIZES = (("a", 700), ("b", 60), ("c", 1300))
PLAIN = ("--optimizer", "sgd", "--learning-rate", "1", "--window", "1", "--stride", "1")
CODECS = ("bfloat16", "float16", "int8")


def flat(arrays):
    return [x for array in arrays for x in array]


class Pusher:
    """Pushes drawn gradients from version 0 on and adds up what it computed."""

    def __init__(self, address, seed, **options):
        self.random = random.Random(seed)
        self.worker = Worker(address, "w", SIZES, **options).bind().offer()
        self.worker.pull()
        self.before = flat(self.worker.parameters)
        self.sums = [0.0] * len(self.before)

    def fill(self, scale):
        for gradient in self.worker.gradients:
            gradient[:] = [scale * self.random.uniform(-1, 1) for _ in gradient]
        self.sums = [sum_ + x for sum_, x in zip(self.sums, flat(self.worker.gradients))]

    def push(self, scale=1.0, basis=None):
        self.fill(scale)
        ticket = c.c_uint64()
        if basis is None:
            check(lib.gradweir_push(self.worker.client, c.c_uint64(1), c.byref(ticket)))
        else:
            check(lib.gradweir_push_from(self.worker.client, c.c_uint64(1), c.c_uint64(basis), c.byref(ticket)))
        receipt = self.worker.wait(ticket)
        if VERDICTS[receipt.verdict] == "ADMITTED":
            self.worker.pull_until(receipt.version + 1)
        return VERDICTS[receipt.verdict]

    def spoil(self, tensor, value):
        """A gradient that is not finite, or too large: it leaves nothing behind."""
        before = self.sums
        self.fill(1.0)
        self.sums = before
        self.worker.gradients[tensor][41] = value
        return self.worker.push()

    def apart(self):
        """What was computed, less what the parameters moved by."""
        return [abs(x - y - z) for x, y, z in zip(self.before, flat(self.worker.parameters), self.sums)]

    def owed(self):
        return max(self.apart())


class Feedback(unittest.TestCase):
    def test_what_was_rounded_off_or_refused_comes_with_later_gradients(self):
        for codec in CODECS:
            with self.subTest(codec), Server(*PLAIN, "--gradient-dtype", codec, "--staleness-max", "0") as server:
                pusher = Pusher(server.address, codec, feedback=ON)
                verdicts = [pusher.push(basis=0 if i in (7, 8, 15) else None) for i in range(30)]
                self.assertEqual(verdicts.count("STALE"), 3)
                self.assertEqual(verdicts.count("ADMITTED"), 27)
                owed = pusher.owed()
                for _ in range(3):
                    pusher.push(scale=0.0)
                self.assertLess(pusher.owed(), 2e-5)
                self.assertGreater(owed, pusher.owed())
                pusher.worker.close()

    def test_without_it_they_are_lost(self):
        with Server(*PLAIN, "--gradient-dtype", "int8") as server:
            pusher = Pusher(server.address, "off", feedback=OFF)
            for i in range(33):
                pusher.push(scale=1.0 if i < 30 else 0.0)
            self.assertGreater(pusher.owed(), 1e-3)
            pusher.worker.close()

    def test_int8_has_it_unless_told_otherwise_and_accumulate_too(self):
        with Server(*PLAIN, "--gradient-dtype", "int8") as server:
            pusher = Pusher(server.address, "accumulate")
            for i in range(24):
                pusher.fill(1.0 if i < 21 else 0.0)
                pusher.worker.accumulate(1)
                pusher.worker.wait(pusher.worker.send(0))
                pusher.worker.pull_until(i + 1)
            self.assertLess(pusher.owed(), 2e-5)
            pusher.worker.close()

    def test_a_gradient_that_is_not_finite_is_named_and_leaves_nothing_behind(self):
        for codec in CODECS:
            with self.subTest(codec), Server(*PLAIN, "--gradient-dtype", codec, "--magnitude-max", "1e4") as server:
                pusher = Pusher(server.address, codec, feedback=ON)
                for i in range(6):
                    self.assertEqual(pusher.push(), "ADMITTED")
                    for value, name in ((float("nan"), b"c"), (float("inf"), b"c"), (2e4, b"")):
                        receipt = pusher.spoil(2, value)
                        self.assertEqual((VERDICTS[receipt.verdict], receipt.tensor), ("NOT_FINITE", name))
                        if name:
                            self.assertEqual(receipt.element, 700 + 60 + 41)
                for _ in range(3):
                    pusher.push(scale=0.0)
                apart = pusher.apart()
                self.assertLess(apart.pop(700 + 60 + 41), 0.02)  # beside 2e4 its rest was rounded
                self.assertLess(max(apart), 2e-5)
                pusher.worker.close()

    def test_a_float16_gradient_beyond_its_range_is_not_finite(self):
        with Server(*PLAIN, "--gradient-dtype", "float16") as server:
            pusher = Pusher(server.address, 1)
            receipt = pusher.spoil(1, 65520.0)
            self.assertEqual((VERDICTS[receipt.verdict], receipt.tensor), ("NOT_FINITE", b"b"))
            pusher.worker.close()


class Places(unittest.TestCase):
    def test_slots_shrink_and_the_log_says_so(self):
        sizes = {}
        for codec in ("float32",) + CODECS:
            told = subprocess.run([os.path.join(BUILD, "gradweirctl"), "plan", "--params", "50e6", "--gradient-dtype",
                                   codec], capture_output=True, text=True, timeout=HANG_S)
            self.assertEqual(told.returncode, 0, told.stderr)
            self.assertIn("slots of " + codec, told.stdout)
            sizes[codec] = float(told.stdout.split("slots of " + codec + " x ")[1].split()[0])
        self.assertAlmostEqual(sizes["bfloat16"] / sizes["float32"], 0.5, 3)
        self.assertAlmostEqual(sizes["int8"] / sizes["float32"], 0.254, 3)

    def test_many_workers_offer_and_one_is_first(self):
        with Server(*PLAIN, "--gradient-dtype", "int8", "--shards", "3") as server:
            workers = [Worker(server.address, f"w{i}", SIZES, progress=1).bind() for i in range(5)]
            for worker in workers:
                worker.offer()
            versions = {worker.pull() for worker in workers}
            self.assertEqual(versions, {0})
            for worker in workers:
                worker.close()

    def test_float32_is_the_default_and_feedback_does_nothing_there(self):
        with Server(*PLAIN) as server:
            pusher = Pusher(server.address, 3, feedback=ON)
            for _ in range(5):
                self.assertEqual(pusher.push(), "ADMITTED")
            self.assertLess(pusher.owed(), 1e-5)
            pusher.worker.close()

    def test_an_unknown_one_is_refused_with_the_list(self):
        told = subprocess.run([os.path.join(BUILD, "gradweir-server"), "--gradient-dtype", "int4"], capture_output=True,
                              text=True, timeout=HANG_S)
        self.assertNotEqual(told.returncode, 0)
        self.assertIn("int8", told.stderr)


class Recordings(unittest.TestCase):
    def test_replay_gives_the_bits_of_the_run_on_any_shards(self):
        for codec in CODECS:
            with self.subTest(codec), tempfile.TemporaryDirectory() as parent, \
                    Server("--optimizer", "adam", "--gradient-dtype", codec, "--shards", "2", "--window", "3", "--stride",
                           "1", "--record", os.path.join(parent, "run")) as server:
                folder = os.path.join(parent, "run")
                pusher = Pusher(server.address, codec)
                for _ in range(12):
                    pusher.push()
                digest = pusher.worker.digest()
                pusher.worker.close()
                server.close()
                for shards in ("1", "2", "3"):
                    told = subprocess.run([os.path.join(BUILD, "gradweirctl"), "replay", folder, "--shards", shards],
                                          capture_output=True, text=True, timeout=HANG_S)
                    self.assertEqual(told.returncode, 0, told.stdout + told.stderr)
                    self.assertIn(digest, told.stdout)


class Ranks(unittest.TestCase):
    def run_group(self, codec, parts):
        with Server(*PLAIN, "--gradient-dtype", codec, "--shards", "2") as server:
            ranks = [Rank(server.address, "w", part, r, 2, progress=1) for r, part in enumerate(parts)]
            errors = []

            def go(rank):
                try:
                    rank.bind().offer()
                    rank.verdicts = []
                    rank.run(4, rank.verdicts)
                except Exception as error:
                    errors.append(str(error))

            threads = [threading.Thread(target=go, args=(rank,)) for rank in ranks]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(HANG_S)
            digest = None if errors else ranks[0].digest()
            for rank in ranks:
                rank.close()
            return digest, errors

    def whole(self, codec):
        with Server(*PLAIN, "--gradient-dtype", codec) as server:
            worker = Rank(server.address, "w", [None] * len(SHAPES), 0, 1)
            worker.bind().offer()
            worker.run(4, [])
            digest = worker.digest()
            worker.close()
            return digest

    def test_of_bfloat16_any_share_gives_the_bits_of_one_worker(self):
        parts = ([(1, 0, 9), (2, 0, 2), (0, 0, 30)], [(1, 9, 15), (2, 2, 3), (0, 30, 47)])
        digest, errors = self.run_group("bfloat16", parts)
        self.assertEqual(errors, [])
        self.assertEqual(digest, self.whole("bfloat16"))

    def test_of_int8_a_share_that_cuts_a_block_is_refused_with_the_tensor(self):
        parts = ([(1, 0, 9), None, None], [(1, 9, 15), (0, 0, 0), (0, 0, 0)])
        _, errors = self.run_group("int8", parts)
        self.assertEqual(len(errors), 2)
        self.assertIn("one scale for each 256 elements", errors[0])
        self.assertIn("embed", errors[0])

    def test_of_int8_a_share_of_whole_blocks_gives_the_bits_of_one_worker(self):
        self.assertEqual(SHAPES[0][1], (37, 24), "32 rows of 24 are 3 blocks")
        parts = ([(0, 0, 32), (0, 0, 0), (0, 0, 0)], [(0, 32, 5), None, None])
        digest, errors = self.run_group("int8", parts)
        self.assertEqual(errors, [])
        self.assertEqual(digest, self.whole("int8"))


if __name__ == "__main__":
    unittest.main()
