"""Pulls with options: boxes of tensors, bfloat16, only what is newer, one version exactly. Real servers, the real library.

    GRADWEIR_BUILD=build python3 tests/integration/test_pulls.py         # or: ctest --test-dir build -R '^pulls$'
"""
import ctypes as c
import os
import random
import signal
import struct
import subprocess
import threading
import time
import unittest

import test_parts
from library import HANG_MS, HANG_S, READER, Failed, Server, Worker, check, lib, until
from slices import (BFLOAT16, FLOAT32, PARAMETER, SGD, TENSORS, Box, Client, PullOptions, cut, elements, some_boxes,
                    to_bfloat16, wanted)


TIMEOUT, UNREACHABLE = -2, -3


class Bounded(unittest.TestCase):
    def setUp(self):
        def stop(*_):
            raise TimeoutError(f"the test took longer than {2 * HANG_S} s")
        signal.signal(signal.SIGALRM, stop)
        signal.alarm(2 * HANG_S)
        self.addCleanup(signal.alarm, 0)

    def ready(self, server, **more):
        worker, chance = Client(server.address, "w", **more), random.Random(7)
        for name, _, kind in TENSORS:
            for i in range(len(worker.memory[name])):
                if kind == PARAMETER:
                    worker.memory[name][i] = chance.uniform(-2, 2)
        check(lib.gradweir_offer(worker.client, HANG_MS))
        worker.pull()
        return worker

    def step(self, worker, chance):
        """One more version, in bound memory."""
        before = lib.gradweir_version(worker.client)
        worker.fill(chance)
        worker.push()
        while worker.pull().version == before:
            pass


class Slices(Bounded):
    def compare(self, shards, transport="auto"):
        chance = random.Random(shards)
        with Server("--shards", str(shards), "--chunk-bytes", "4KiB", "--transport", transport, *SGD) as server:
            worker = self.ready(server, transport=transport)
            reader = Client(server.address, "r", bound=False, role=READER, transport=transport)
            for turn in range(12):
                self.step(worker, chance)
                for client in (worker, reader):
                    boxes, dtype = some_boxes(chance), turn % 2
                    receipt, room = client.slices(boxes, dtype)
                    self.assertEqual((receipt.version, receipt.moved), (turn + 1, 1))
                    for box, memory in zip(boxes, room):
                        self.assertEqual(memory.raw, wanted(worker, box, dtype), (box, dtype))
            worker.close()
            reader.close()
            self.assertEqual(server.close(), 0)

    def test_of_one_shard_are_what_a_whole_pull_brings(self):
        self.compare(1)

    def test_of_two_shards_over_tcp_are_what_a_whole_pull_brings(self):
        self.compare(2, "tcp")

    def test_of_three_shards_are_what_a_whole_pull_brings(self):
        self.compare(3)

    def test_all_parameters_arrive_as_bfloat16_and_as_float32_where_the_caller_says(self):
        with Server("--shards", "2", "--chunk-bytes", "4KiB", *SGD) as server:
            worker = self.ready(server)
            flat = [x for name, _, kind in TENSORS if kind == PARAMETER for x in worker.memory[name]]
            for dtype, expected in ((BFLOAT16, to_bfloat16(flat)), (FLOAT32, struct.pack(f"<{len(flat)}f", *flat))):
                room = c.create_string_buffer(len(expected))
                receipt, _ = worker.slices(dtype=dtype, to=c.cast(room, c.c_void_p), to_bytes=len(expected))
                self.assertEqual((receipt.version, receipt.moved), (0, 1))
                self.assertEqual(room.raw, expected)
            worker.close()

    def test_a_worker_that_pulls_only_slices_names_their_version_as_the_basis(self):
        with Server("--shards", "2", *SGD) as server:
            self.ready(server).close()
            worker = Client(server.address, "slices")
            worker.fill(random.Random(1))
            with self.assertRaisesRegex(Failed, "push before pull"):
                worker.push(0)
            worker.slices([("bias", 0, 0, 5)])
            with self.assertRaisesRegex(Failed, "gradweir_push_from"):
                worker.push()
            with self.assertRaisesRegex(Failed, "has pulled version 0 and none newer"):
                worker.push(1)
            self.assertEqual(worker.push(0).verdict, 1)
            worker.close()


class SlicingRank(test_parts.Rank):
    """Of a group: pulls what it pushes, and nothing else."""
    tensors = [(name, shape, PARAMETER) for name, shape in test_parts.SHAPES]
    ask, slices, wait = Client.ask, Client.slices, Client.wait

    def train(self, pushes):
        boxes = [(name, *(part or (0, 0, shape[0]))) for (name, shape, _), part in zip(self.tensors, self.parts)]
        held = [i for i, box in enumerate(boxes) if box[3]]
        for number in range(pushes):
            receipt, room = self.slices([boxes[i] for i in held])
            while receipt.version < number:
                receipt, room = self.slices([boxes[i] for i in held], conditional=1, newer_than=receipt.version)
            for i, memory in zip(held, room):
                values = struct.unpack(f"<{len(memory) // 4}f", memory.raw)
                _, shape, _ = self.tensors[i]
                places = cut(range(elements(shape)), shape, *boxes[i][1:])
                for k, (place, value) in enumerate(zip(places, values)):
                    self.gradients[i][k] = 0.5 * value + ((place * 7 + number * 13) % 11 - 5) * 0.125
            ticket = c.c_uint64()
            check(lib.gradweir_push_from(self.client, c.c_uint64(3), c.c_uint64(number), c.byref(ticket)))
            if self.wait(ticket).verdict != 1:
                raise AssertionError("a share was refused")


class Ranks(test_parts.Bounded):
    def test_that_pull_and_push_their_parts_alone_give_the_bits_of_one_whole_worker(self):
        whole = self.digest([test_parts.WHOLE], pushes=6)
        with Server("--shards", "3", "--chunk-bytes", "4KiB", *test_parts.ADAM) as server:
            ranks = [SlicingRank(server.address, "group", parts, r, 3) for r, parts in enumerate(test_parts.MIXED)]
            self.assertFalse([b for b in test_parts.at_once([rank.bind for rank in ranks]) if isinstance(b, Exception)])
            for rank in ranks:
                for i, tensor in enumerate(rank.parameters):
                    tensor[:] = [((k * 5 + i) % 9 - 4) * 0.25 for k in range(len(tensor))]
            for jobs in ([rank.offer for rank in ranks], [lambda rank=rank: rank.train(6) for rank in ranks]):
                failed = [r for r in test_parts.at_once(jobs) if isinstance(r, Exception)]
                self.assertFalse(failed)
            ranks[0].pull_until(6)
            self.assertEqual(ranks[0].digest(), whole)
            test_parts.at_once([rank.close for rank in ranks])


class Ahead(Bounded):
    """Bound memory is written while a large pull is still arriving, and a wait that fails undoes it."""

    def stopped_in_the_middle(self, server, worker):
        """Waits for a pull whose server is stopped as soon as bound memory changes; whether it did, and then the wait failed."""
        first, ticket, over, changed = worker.parameters[0], c.c_uint64(), threading.Event(), threading.Event()
        before = first[0]
        check(lib.gradweir_pull(worker.client, c.byref(ticket)))

        def stop():
            while not changed.is_set() and not over.is_set():
                if first[0] != before:
                    os.kill(server.process.pid, signal.SIGSTOP)
                    changed.set()
        thread = threading.Thread(target=stop)
        thread.start()
        try:
            worker.wait(ticket, 1000)
            failed = False
        except Failed as error:
            self.assertIn(error.status, (TIMEOUT, UNREACHABLE), error)
            failed = True
        over.set()
        thread.join()
        self.held = [bytes(memory) for memory in worker.parameters]
        os.kill(server.process.pid, signal.SIGCONT)
        worker.wait(ticket)
        return failed and changed.is_set()

    def test_a_wait_that_fails_in_the_middle_leaves_one_version_and_the_next_brings_the_new_one(self):
        sizes, seen = (("a", 3_000_001), ("b", 1), ("c", 13_000_000)), 0
        with Server("--shards", "2", "--transport", "tcp", *SGD) as server:
            worker = Worker(server.address, "w", sizes=sizes, transport="tcp").bind().offer()
            for gradient in worker.gradients:
                c.memset(gradient, 0x3f, c.sizeof(gradient))  # 0.747
            worker.pull()
            end = time.monotonic() + HANG_S
            while seen < 3 and time.monotonic() < end:  # when we look is chance: again until it has been in the middle
                worker.push()
                before = [bytes(memory) for memory in worker.parameters]
                seen += self.stopped_in_the_middle(server, worker) and self.held == before
                for memory in worker.parameters:
                    values = set(memory[::50_000]) | {memory[len(memory) - 1]}
                    self.assertEqual(values, {worker.parameters[1][0]}, "one version, the newest")
                if self.held != before:
                    now = [bytes(memory) for memory in worker.parameters]
                    self.assertTrue(self.held == now, "a wait that failed has left parts of two versions")
            self.assertGreaterEqual(seen, 1, "no wait failed in the middle")
            worker.close()


class Conditions(Bounded):
    def test_nothing_moves_when_nothing_is_newer(self):
        with Server("--shards", "3", "--chunk-bytes", "4KiB", *SGD) as server:
            worker = self.ready(server)
            reader = Client(server.address, "r", bound=False, role=READER)
            boxes, chance = [("embed", 1, 3, 2), ("seen", 0, 1, 1)], random.Random(2)
            for turn in range(6):
                receipt, room = reader.slices(boxes, conditional=1, newer_than=turn)
                self.assertEqual((receipt.version, receipt.moved), (turn, 0))
                self.assertFalse(any(any(memory.raw) for memory in room), "nothing was written")
                for beyond in (turn + 1000, 2**64 - 1):
                    receipt, _ = reader.slices(boxes, conditional=1, newer_than=beyond)
                    self.assertEqual((receipt.version, receipt.moved), (turn, 0))
                receipt, _ = worker.slices(conditional=1, newer_than=turn)
                self.assertEqual((receipt.version, receipt.moved), (turn, 0))
                digest = lib.gradweir_digest(worker.client)
                self.assertNotEqual(digest, 0, "what was pulled before is still there")
                self.step(worker, chance)
                self.assertNotEqual(lib.gradweir_digest(worker.client), digest)
                receipt, room = reader.slices(boxes, conditional=1, newer_than=turn)
                self.assertEqual((receipt.version, receipt.moved), (turn + 1, 1))
                self.assertEqual(room[0].raw, wanted(worker, boxes[0], FLOAT32))
            worker.close()
            reader.close()

    def test_a_version_is_given_as_long_as_it_is_held_and_then_refused(self):
        with Server("--shards", "2", *SGD) as server:
            worker, chance, boxes = self.ready(server), random.Random(3), [("body", 2, 1, 2)]
            self.step(worker, chance)
            expected = wanted(worker, boxes[0], FLOAT32)
            self.step(worker, chance)
            receipt, room = worker.slices(boxes, exact=1, version=1)
            self.assertEqual((receipt.version, receipt.moved, room[0].raw), (1, 1, expected))
            for _ in range(5):
                self.step(worker, chance)
            with self.assertRaisesRegex(Failed, "do not hold the version that was asked for: the newest is 7"):
                worker.slices(boxes, exact=1, version=1)
            receipt, room = worker.slices(boxes)
            self.assertEqual((receipt.version, room[0].raw), (7, wanted(worker, boxes[0], FLOAT32)))
            worker.close()

    def test_a_version_that_does_not_come_is_refused_in_time_and_the_next_pulls_go_on(self):
        with Server("--shards", "2", "--pull-patience", "2s", *SGD) as server:
            worker = self.ready(server)
            for version in (5, 2**64 - 1):
                ticket, _ = worker.ask([("bias", 0, 0, 5)], exact=1, version=version)
                with self.assertRaisesRegex(Failed, f"has not sent version {version}"):
                    worker.wait(ticket, 100)
                with self.assertRaisesRegex(Failed, f"wait for ticket {ticket.value} first"):
                    worker.ask([("bias", 0, 0, 5)])
                with self.assertRaisesRegex(Failed, "do not hold the version that was asked for: the newest is 0"):
                    worker.wait(ticket)
                self.assertEqual((worker.slices([("bias", 0, 0, 5)])[0].version, worker.pull().version), (0, 0))
            worker.close()

    def test_slices_are_one_version_while_others_push_and_a_shard_is_killed(self):
        with Server("--shards", "3", "--chunk-bytes", "4KiB", "--supervise", *SGD) as server:
            worker = self.ready(server, progress=1)
            reader = Client(server.address, "r", bound=False, role=READER, progress=1)
            # Every gradient is one number, so every version moves all parameters by as much.
            for name, _, kind in TENSORS:
                for i in range(len(worker.memory[name])):
                    if kind == PARAMETER:
                        worker.gradients[name][i] = 1.0
            stop, failures = threading.Event(), []

            def push():
                try:
                    while not stop.is_set():
                        worker.pull()
                        worker.push()
                except Failed as error:
                    failures.append(error)
            thread = threading.Thread(target=push)
            thread.start()
            base = {}
            boxes = [("embed", 1, 0, 3), ("body", 0, 5, 30), ("bias", 0, 70, 7)]
            for turn in range(60):
                if turn in (20, 40):
                    kill_a_child(server, turn // 20)
                receipt, room = reader.slices(boxes)
                values = [struct.unpack(f"<{len(m) // 4}f", m.raw) for m in room]
                base.setdefault("v", (receipt.version, values))
                version, before = base["v"]
                moved = {round((b - a) / 0.1) for old, new in zip(before, values) for a, b in zip(new, old)}
                self.assertEqual(moved, {receipt.version - version})
            stop.set()
            thread.join()
            self.assertFalse(failures)
            worker.close()
            reader.close()


class Refusals(Bounded):
    def test_bad_boxes_are_told_what_is_allowed_and_the_client_goes_on(self):
        with Server("--shards", "2", *SGD) as server:
            worker = self.ready(server)
            small = c.create_string_buffer(8)
            bad = (
                (dict(boxes=[("nobody", 0, 0, 1)]), 'no tensor "nobody"'),
                (dict(boxes=[("embed", 2, 0, 1)]), "axis 2 of tensor embed: it has axes 0 to 1"),
                (dict(boxes=[("embed", 0, 30, 8)]), "8 from 30 on of axis 0 of tensor embed: it has 37"),
                (dict(boxes=[("embed", 0, 3, 0)]), "0 from 3 on of axis 0 of tensor embed"),
                (dict(boxes=[("scale", 1, 0, 1)]), "tensor scale: it has axes 0 to 0"),
                (dict(boxes=[("embed", 0, 0, 5), ("embed", 0, 4, 2)]), "share elements of tensor embed"),
                (dict(boxes=[("embed", 0, 0, 5), ("embed", 1, 4, 2)]), "share elements of tensor embed"),
                (dict(boxes=[("bias", 0, 0, 5)], dtype=7), "dtype is 7"),
                (dict(boxes=[("bias", 0, 0, 5)], to=c.cast(small, c.c_void_p)), "boxes have memory of their own"),
                (dict(dtype=BFLOAT16), "bound memory is float32"),
                (dict(to=c.cast(small, c.c_void_p), to_bytes=8), "to_bytes of options"),
                (dict(conditional=1, exact=1), "not both"),
                (dict(conditional=2), "conditional is 2"),
                (dict(size=8), "options.size is 8"),
                (dict(boxes_count=1025), "1025 boxes: at most 1024"),
            )
            for arguments, text in bad:
                with self.assertRaises(Failed, msg=text) as caught:
                    worker.ask(**arguments)
                self.assertIn(text, str(caught.exception))
                self.assertEqual(caught.exception.status, -1, text)
            options = PullOptions(size=c.sizeof(PullOptions))
            box = Box(tensor=b"bias", first=0, count=5, to=c.cast(small, c.c_void_p), to_bytes=8)
            options.boxes, options.boxes_count = c.pointer(box), 1
            self.assertEqual(lib.gradweir_pull_with(worker.client, c.byref(options), c.byref(c.c_uint64())), -1)
            self.assertIn("to_bytes of bias is 8: 5 elements there need 20", lib.gradweir_last_error().decode())
            pair = (Box * 2)(box, Box(tensor=b"embed", first=0, count=1, to=c.cast(small, c.c_void_p), to_bytes=96))
            pair[0].count, options.boxes, options.boxes_count = 2, pair, 2
            self.assertEqual(lib.gradweir_pull_with(worker.client, c.byref(options), c.byref(c.c_uint64())), -1)
            self.assertIn("share memory", lib.gradweir_last_error().decode())
            self.assertEqual(worker.slices([("bias", 0, 0, 5)])[0].moved, 1)
            worker.close()

    def test_one_pull_at_a_time_and_none_before_bind(self):
        with Server("--shards", "2", *SGD) as server:
            worker = self.ready(server)
            ticket, _ = worker.ask([("bias", 0, 0, 5)])
            for call in (worker.pull, lambda: worker.ask([("bias", 0, 0, 5)])):
                if worker_is_pulling(worker, ticket):
                    with self.assertRaisesRegex(Failed, f"wait for ticket {ticket.value} first"):
                        call()
            worker.wait(ticket)
            self.assertEqual(worker.pull().moved, 1)
            worker.close()


def kill_a_child(server, number):
    children = until(lambda: subprocess.run(["pgrep", "-P", str(server.process.pid)], capture_output=True, text=True,
                                            check=False).stdout.split())
    os.kill(int(children[number % len(children)]), signal.SIGKILL)


def worker_is_pulling(worker, ticket):
    """A pull may already be done: then there is nothing to refuse."""
    return lib.gradweir_wait(worker.client, ticket, 0, None) == -2


if __name__ == "__main__":
    unittest.main()
