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
import unittest

from library import READER, Failed, Options, Receipt, Server, Tensor, check, lib

PARAMETER, MOMENTS = 0, 1
FLOAT32, BFLOAT16 = 0, 1
TENSORS = (("embed", (37, 24), PARAMETER), ("body", (40, 30, 5), PARAMETER), ("seen", (3, 4), MOMENTS),
           ("bias", (77,), PARAMETER), ("scale", (), PARAMETER))
SGD = ("--optimizer", "sgd", "--learning-rate", "0.1", "--stride", "1", "--window", "1")


class Box(c.Structure):
    _fields_ = [("tensor", c.c_char_p), ("axis", c.c_uint32), ("first", c.c_uint64), ("count", c.c_uint64),
                ("to", c.c_void_p), ("to_bytes", c.c_uint64)]


class PullOptions(c.Structure):
    _fields_ = [("size", c.c_size_t), ("dtype", c.c_uint32), ("conditional", c.c_uint32), ("newer_than", c.c_uint64),
                ("exact", c.c_uint32), ("version", c.c_uint64), ("boxes", c.POINTER(Box)), ("boxes_count", c.c_size_t),
                ("to", c.c_void_p), ("to_bytes", c.c_uint64)]


def elements(shape):
    total = 1
    for extent in shape:
        total *= extent
    return total


def cut(flat, shape, axis, first, count):
    """The box, element by element, as a list."""
    if not shape:
        return list(flat)
    inner = elements(shape[axis + 1:])
    return [x for i, x in enumerate(flat) if first <= i // inner % shape[axis] < first + count]


def to_bfloat16(values):
    """Bits, rounded to nearest even; by the definition and not by the library."""
    halves = []
    for value in values:
        bits = struct.unpack("<I", struct.pack("<f", value))[0]
        low, high = bits & 0xffff, bits >> 16
        halves.append(high + (1 if low > 0x8000 or (low == 0x8000 and high & 1) else 0))
    return struct.pack(f"<{len(halves)}H", *halves)


class Client:
    """bound: it binds all tensors; else it takes the servers' model."""

    def __init__(self, address, identity, bound=True, role=1, **more):
        self.client, self.memory, self.gradients = c.c_void_p(), {}, {}
        options = Options()
        lib.gradweir_options_default_sized(c.byref(options), c.c_size_t(c.sizeof(options)))
        options.address, options.identity, options.role = address.encode(), identity.encode(), role
        options.connect_timeout_ms, options.progress = 10000, more.get("progress", 0)
        options.transport = more.get("transport", "auto").encode()
        check(lib.gradweir_open(c.byref(options), c.byref(self.client)))
        tensors = (Tensor * len(TENSORS))()
        for tensor, (name, shape, kind) in zip(tensors, TENSORS):
            unit = c.c_float if kind == PARAMETER else c.c_double * 3
            self.memory[name] = (unit * elements(shape))()
            self.gradients[name] = (unit * elements(shape))()
            tensor.name, tensor.dimensions, tensor.kind = name.encode(), len(shape), kind
            for d, extent in enumerate(shape):
                tensor.shape[d] = extent
            tensor.parameters = c.cast(self.memory[name], c.c_void_p)
            tensor.gradient = c.cast(self.gradients[name], c.c_void_p)
        check(lib.gradweir_bind(self.client, tensors if bound else None, c.c_size_t(len(TENSORS) if bound else 0)))

    def fill(self, chance):
        for name, _, kind in TENSORS:
            for i in range(len(self.gradients[name])):
                if kind == PARAMETER:
                    self.gradients[name][i] = chance.uniform(-1, 1)
                else:
                    self.gradients[name][i][:] = (1.0, chance.uniform(-1, 1), 0.0)

    def wait(self, ticket, timeout_ms=10000):
        receipt = Receipt()
        check(lib.gradweir_wait(self.client, ticket, timeout_ms, c.byref(receipt)))
        return receipt

    def push(self, basis=None):
        ticket = c.c_uint64()
        if basis is None:
            check(lib.gradweir_push(self.client, c.c_uint64(1), c.byref(ticket)))
        else:
            check(lib.gradweir_push_from(self.client, c.c_uint64(1), c.c_uint64(basis), c.byref(ticket)))
        return self.wait(ticket)

    def pull(self):
        ticket = c.c_uint64()
        check(lib.gradweir_pull(self.client, c.byref(ticket)))
        return self.wait(ticket)

    def ask(self, boxes=(), dtype=FLOAT32, **more):
        """boxes: (tensor, axis, first, count). Gives the ticket and the memory of each box."""
        options, room = PullOptions(size=c.sizeof(PullOptions), dtype=dtype), []
        array = (Box * max(1, len(boxes)))()
        for box, (name, axis, first, count) in zip(array, boxes):
            shape, kind = next(((s, k) for n, s, k in TENSORS if n == name), ((1,), PARAMETER))
            n = elements(shape) // shape[axis] * count if shape and axis < len(shape) else 1
            unit = 24 if kind == MOMENTS else 2 if dtype == BFLOAT16 else 4
            room.append(c.create_string_buffer(max(1, n * unit)))
            box.tensor, box.axis, box.first, box.count = name.encode(), axis, first, count
            box.to, box.to_bytes = c.cast(room[-1], c.c_void_p), n * unit
        if boxes:
            options.boxes, options.boxes_count = array, len(boxes)
        for name, value in more.items():
            setattr(options, name, value)
        ticket = c.c_uint64()
        check(lib.gradweir_pull_with(self.client, c.byref(options), c.byref(ticket)))
        return ticket, room

    def slices(self, boxes=(), dtype=FLOAT32, **more):
        ticket, room = self.ask(boxes, dtype, **more)
        return self.wait(ticket), room

    def close(self):
        lib.gradweir_close(self.client)


def some_boxes(chance):
    """A few that share no element: of each tensor one axis, cut at random."""
    boxes = []
    for name, shape, _ in TENSORS:
        if chance.random() < 0.2:
            continue
        if not shape:
            boxes.append((name, 0, 0, 1))
            continue
        axis = chance.randrange(len(shape))
        cuts = sorted(chance.sample(range(shape[axis] + 1), 2)) if shape[axis] > 1 else [0, 1]
        boxes.append((name, axis, cuts[0], cuts[1] - cuts[0]))
        if cuts[1] < shape[axis]:
            boxes.append((name, axis, cuts[1], 1))
    chance.shuffle(boxes)
    return boxes or [("bias", 0, 3, 4)]


def wanted(client, box, dtype):
    name, axis, first, count = box
    shape, kind = next((s, k) for n, s, k in TENSORS if n == name)
    flat = client.memory[name]
    if kind == MOMENTS:
        return b"".join(bytes(x) for x in cut(flat, shape, axis, first, count))
    values = cut(flat, shape, axis, first, count)
    return to_bfloat16(values) if dtype == BFLOAT16 else struct.pack(f"<{len(values)}f", *values)


class Bounded(unittest.TestCase):
    def setUp(self):
        def stop(*_):
            raise TimeoutError("the test took longer than 120 s")
        signal.signal(signal.SIGALRM, stop)
        signal.alarm(120)
        self.addCleanup(signal.alarm, 0)

    def ready(self, server, **more):
        worker, chance = Client(server.address, "w", **more), random.Random(7)
        for name, _, kind in TENSORS:
            for i in range(len(worker.memory[name])):
                if kind == PARAMETER:
                    worker.memory[name][i] = chance.uniform(-2, 2)
        check(lib.gradweir_offer(worker.client, 10000))
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
    children = subprocess.run(["pgrep", "-P", str(server.process.pid)], capture_output=True, text=True,
                              check=False).stdout.split()
    os.kill(int(children[number % len(children)]), signal.SIGKILL)


def worker_is_pulling(worker, ticket):
    """A pull may already be done: then there is nothing to refuse."""
    return lib.gradweir_wait(worker.client, ticket, 0, None) == -2


if __name__ == "__main__":
    unittest.main()
