"""The client library against a real server: options of older callers, bases, events and reports."""
import ctypes as c
import json
import math
import select
import unittest

from library import VERDICTS, Failed, Options, Server, Worker, check, lib, until

INVALID, STATE, FULL, REFUSED, FENCED = -1, -10, -8, -7, -6


class Event(c.Structure):
    _fields_ = [("number", c.c_uint64), ("time_ns", c.c_int64), ("kind", c.c_uint32), ("status", c.c_int),
                ("text", c.c_char * 160)]


lib.gradweir_events.restype = c.c_size_t
lib.gradweir_event_text.restype = c.c_char_p


def events(worker, most=64):
    room, dropped = (Event * most)(), c.c_uint64()
    count = lib.gradweir_events(worker.client, room, c.c_size_t(most), c.byref(dropped))
    return [(room[i].number, lib.gradweir_event_text(room[i].kind).decode(), room[i].status, room[i].text.decode())
            for i in range(count)], dropped.value


class WithServer(unittest.TestCase):
    def setUp(self):
        self.server = self.enterContext(Server("--shards", "2", "--optimizer", "sgd", "--staleness-max", "8"))

    def ready(self, identity, **options):
        worker = Worker(self.server.address, identity, **options).bind().offer()
        self.addCleanup(worker.close)
        worker.pull()
        return worker

    def refused(self, status, part, call, *arguments):
        with self.assertRaises(Failed) as caught:
            call(*arguments)
        self.assertEqual(caught.exception.status, status, caught.exception)
        self.assertIn(part, str(caught.exception))


class Opening(WithServer):
    def test_a_shorter_struct_of_an_older_caller_is_accepted_and_left_alone_behind_its_end(self):
        options = Options()
        c.memset(c.byref(options), 0xAA, c.sizeof(options))
        lib.gradweir_options_default(c.byref(options))
        self.assertEqual(options.size, Options.keys.offset)
        self.assertEqual(bytes(options)[Options.keys.offset:], b"\xaa" * (c.sizeof(options) - Options.keys.offset))
        options.address = self.server.address.encode()
        client = c.c_void_p()
        check(lib.gradweir_open(c.byref(options), c.byref(client)))
        lib.gradweir_close(client)

    def test_a_longer_struct_of_a_newer_caller_is_accepted_when_what_is_beyond_is_0(self):
        room = (c.c_uint8 * (c.sizeof(Options) + 16))()
        options = Options.from_buffer(room)
        lib.gradweir_options_default_sized(c.byref(options), c.c_size_t(len(room)))
        options.address = self.server.address.encode()
        client = c.c_void_p()
        check(lib.gradweir_open(c.byref(options), c.byref(client)))
        lib.gradweir_close(client)
        room[len(room) - 1] = 1
        self.refused(INVALID, "older than its header", lambda: check(lib.gradweir_open(c.byref(options), c.byref(client))))
        options.size = 8
        self.refused(INVALID, "options.size is 8", lambda: check(lib.gradweir_open(c.byref(options), c.byref(client))))


class Bases(WithServer):
    def push_from(self, worker, basis, samples=1):
        ticket = c.c_uint64()
        check(lib.gradweir_push_from(worker.client, c.c_uint64(samples), c.c_uint64(basis), c.byref(ticket)))
        return worker.wait(ticket)

    def test_an_older_basis_counts_as_old_and_a_newer_one_is_refused(self):
        worker = self.ready("worker-0")
        for version in range(1, 4):
            worker.push()
            worker.pull_until(version)
        receipt = self.push_from(worker, 1)
        self.assertEqual((VERDICTS[receipt.verdict], receipt.staleness), ("ADMITTED", 2))
        self.refused(INVALID, "has pulled version 3 and none newer", self.push_from, worker, 4)
        for version in range(4, 12):
            worker.pull_until(version)
            worker.push()
        self.assertEqual(VERDICTS[self.push_from(worker, 1).verdict], "STALE")

    def test_what_is_accumulated_is_as_old_as_its_oldest_part(self):
        worker = self.ready("worker-0")
        worker.accumulate(1)
        helper = self.ready("worker-1")
        for version in range(1, 3):
            helper.push()
            helper.pull_until(version)
        worker.pull_until(2)
        worker.accumulate(1)
        self.assertEqual(worker.push(0).staleness, 2)
        worker.pull_until(3)
        self.assertEqual(worker.push().staleness, 0, "the next one is new again")

    def test_accumulate_before_pull_is_a_wrong_state(self):
        worker = Worker(self.server.address, "worker-0").bind().offer()
        self.addCleanup(worker.close)
        self.refused(STATE, "pull", worker.accumulate, 1)


class Happenings(WithServer):
    def undisturbed(self, check_worker):
        """check_worker(worker, told) with a new worker, and with another one when this one's connections broke meanwhile, which
        is an event of its own: on a busy machine somebody may be silent for too long. told() is events(worker)."""
        for tries in range(10):
            worker, kinds = self.ready(f"worker-{tries}"), []

            def told(most=64):
                seen, dropped = events(worker, most)
                kinds.extend(kind for _, kind, _, _ in seen)
                return seen, dropped
            try:
                return check_worker(worker, told)
            except AssertionError:
                told(1000)
                if tries == 9 or not any(kind.endswith("LOST") for kind in kinds):
                    raise

    def test_a_client_tells_what_happened_to_it_in_order(self):
        self.undisturbed(self.happenings_of)

    def happenings_of(self, worker, told):
        seen, dropped = told()
        kinds = [kind for _, kind, _, _ in seen]
        self.assertEqual(kinds[:2], ["CONNECTED", "JOINED"])
        self.assertEqual(sorted(kinds[2:]), ["SHARD_CONNECTED"] * 2)
        self.assertEqual([number for number, _, _, _ in seen], [1, 2, 3, 4])
        self.assertEqual((dropped, told()[0]), (0, []))
        descriptor = lib.gradweir_events_fd(worker.client)
        self.assertEqual(select.select([descriptor], [], [], 0)[0], [])
        worker.gradients[0][2] = math.nan
        self.assertEqual(VERDICTS[worker.push().verdict], "NOT_FINITE")
        self.assertEqual(select.select([descriptor], [], [], 0)[0], [descriptor])
        seen, _ = told()
        self.assertEqual([(number, kind) for number, kind, _, _ in seen], [(5, "PUSH_REFUSED")])
        self.assertIn("NOT_FINITE w", seen[0][3])
        self.assertEqual(select.select([descriptor], [], [], 0)[0], [])

    def test_events_are_bounded_and_what_is_dropped_is_counted(self):
        worker = self.ready("worker-0")
        worker.gradients[0][0] = math.inf
        for _ in range(70):
            worker.push()
        seen, dropped = events(worker, 1000)
        last = seen[-1][0]
        self.assertGreaterEqual(last, 4 + 70)  # what a busy machine adds is told too
        self.assertEqual((len(seen), dropped), (64, last - 64))
        self.assertEqual([number for number, _, _, _ in seen], list(range(last - 63, last + 1)))

    def test_fenced_and_lost_are_told(self):
        worker = self.ready("worker-0")
        events(worker)
        self.ready("worker-0")
        seen = until(lambda: [event for event in events(worker)[0] if event[1] == "FENCED"])
        self.assertEqual(seen[0][2], FENCED)
        second = self.ready("worker-1")
        self.server.process.kill()
        self.server.process.wait()
        until(lambda: "LOST" in [kind for _, kind, _, _ in events(second)[0]])


class Reports(WithServer):
    def page(self, worker, **wanted):
        """Reports are answered by nobody, but a status asked for behind one has it."""
        found = [entry["report"] for entry in json.loads(worker.status())["workers"] if entry["identity"] == "worker-0"]
        self.assertEqual(found, [wanted])

    def test_numbers_of_a_worker_stand_on_the_page_beside_its_name(self):
        worker = self.ready("worker-0")
        self.page(worker)
        worker.report(kl=0.25, **{"return": 475.0})
        self.page(worker, kl=0.25, **{"return": 475.0})
        worker.report(kl=math.nan, loss=-1e-3)
        self.page(worker, kl=None, loss=-1e-3, **{"return": 475.0})

    def test_too_many_and_badly_named_ones_are_refused_and_change_nothing(self):
        worker = self.ready("worker-0")
        worker.report(**{f"n{i}": i for i in range(7)})
        self.refused(FULL, "8", lambda: worker.report(a=1, b=2))
        for name in ("", "x" * 32, 'quo"te', "new\nline"):
            self.refused(INVALID, "name", lambda name=name: worker.report(good=1, **{name: 2}))
        self.page(worker, **{f"n{i}": i for i in range(7)})


if __name__ == "__main__":
    unittest.main()
