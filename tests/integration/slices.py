"""Pulls with options through ctypes, and a model of tensors to slice: for tests of whole processes."""
import ctypes as c
import struct

from library import HANG_MS, Options, Receipt, Tensor, check, lib

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
    tensors = TENSORS

    def __init__(self, address, identity, bound=True, role=1, **more):
        self.client, self.memory, self.gradients = c.c_void_p(), {}, {}
        options = Options()
        lib.gradweir_options_default_sized(c.byref(options), c.c_size_t(c.sizeof(options)))
        options.address, options.identity, options.role = address.encode(), identity.encode(), role
        options.connect_timeout_ms, options.progress = HANG_MS, more.get("progress", 0)
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

    def wait(self, ticket, timeout_ms=HANG_MS):
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
            shape, kind = next(((s, k) for n, s, k in self.tensors if n == name), ((1,), PARAMETER))
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
