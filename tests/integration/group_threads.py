"""Ranks of a group as threads of one process, through ctypes: for test_group.py."""
import ctypes as c
import threading

import library
from library import HANG_S, lib


class GroupOptions(c.Structure):
    _fields_ = [("size", c.c_size_t), ("client", c.c_void_p), ("backend", c.c_char_p), ("listen", c.c_char_p),
                *((name, c.c_uint32) for name in ("timeout_ms", "patience_ms", "samples", "fixed"))]


class Threaded:
    """A rank in a thread of this process: for what group_rank.c would not do."""

    def __init__(self, address, rank, ranks, size=3000, timeout_ms=HANG_S * 1000, patience_ms=5000):
        self.client, self.options, self.group = library.Options(), GroupOptions(), c.c_void_p()
        lib.gradweir_options_default_sized(c.byref(self.client), c.c_size_t(c.sizeof(self.client)))
        lib.gradweir_group_options_default_sized(c.byref(self.options), c.c_size_t(c.sizeof(self.options)))
        self.client.address, self.client.identity, self.client.rank, self.client.ranks = address.encode(), b"group", rank, ranks
        self.client.connect_timeout_ms = HANG_S * 1000
        self.options.timeout_ms, self.options.patience_ms = timeout_ms, patience_ms
        self.options.client = c.cast(c.byref(self.client), c.c_void_p)
        self.parameters, self.gradient = (c.c_float * size)(), (c.c_float * size)(*[1.0] * size)
        self.receipt = library.Receipt()

    def join(self):
        return lib.gradweir_group_join(c.byref(self.options), c.byref(self.group))

    def bind(self, size=None):
        tensor = library.Tensor(b"w", 1, (c.c_uint64 * 8)(size or len(self.parameters)), 0, 0,
                                c.cast(self.parameters, c.c_void_p), c.cast(self.gradient, c.c_void_p))
        return lib.gradweir_group_bind(self.group, c.byref(tensor), c.c_size_t(1))

    def offer(self):
        return lib.gradweir_group_offer(self.group, HANG_S * 1000)

    def pull(self):
        return lib.gradweir_group_pull(self.group, c.byref(self.receipt))

    def push(self):
        return lib.gradweir_group_push(self.group, c.c_uint64(4), c.byref(self.receipt))

    def renew(self):
        return lib.gradweir_group_renew(self.group)

    def leave(self):
        lib.gradweir_group_leave(self.group)
        self.group = c.c_void_p()

    def barrier(self):
        return lib.gradweir_group_barrier(self.group)


def threads(*calls):
    """Each in a thread of its own: what they return, and what they say."""
    told = [None] * len(calls)

    def one(i):
        told[i] = (calls[i](), lib.gradweir_last_error().decode())
    started = [threading.Thread(target=one, args=(i,), daemon=True) for i in range(len(calls))]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join(2 * HANG_S)
    return told
