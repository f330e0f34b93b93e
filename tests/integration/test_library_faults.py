"""What callers get wrong, against a real server: it is refused, named, and changes nothing."""
import ctypes as c
import json
import math
import os
import subprocess
import tempfile
import time
import unittest

from library import BUILD, HANG_S, READER, Failed, Options, Server, Tensor, Worker, check, lib

INVALID, MISMATCH, REFUSED, NO_MEMORY = -1, -5, -7, -11


class Group(c.Structure):
    _fields_ = [("learning_rate_scale", c.c_double), ("weight_decay", c.c_double), ("beta1", c.c_double),
                ("beta2", c.c_double), ("frozen", c.c_uint32)]


class WithServer(unittest.TestCase):
    def setUp(self):
        self.server = self.enterContext(Server("--optimizer", "sgd"))

    def opened(self, identity, **options):
        worker = Worker(self.server.address, identity, **options)
        self.addCleanup(worker.close)
        return worker

    def refused(self, status, part, call, *arguments):
        with self.assertRaises(Failed) as caught:
            check(call(*arguments))
        self.assertEqual(caught.exception.status, status, caught.exception)
        self.assertIn(part, str(caught.exception))

    def tensor(self, worker, **changes):
        tensor = Tensor(b"w", 1, (c.c_uint64 * 8)(len(worker.parameters[0])), 0, 0,
                        c.cast(worker.parameters[0], c.c_void_p), c.cast(worker.gradients[0], c.c_void_p))
        for name, value in changes.items():
            setattr(tensor, name, value)
        return tensor


class Nulls(WithServer):
    def test_null_arguments_are_refused_by_name_and_never_followed(self):
        client, ticket = self.opened("n").client, c.c_uint64()
        size, none = c.c_size_t(1), None
        for name, call in (
                ("options is", lambda: lib.gradweir_open(none, c.byref(ticket))),
                ("client", lambda: lib.gradweir_open(c.byref(Options()), none)),
                ("client is", lambda: lib.gradweir_group_add(none, c.byref(Group()), c.byref(ticket))),
                ("group is", lambda: lib.gradweir_group_add(client, none, c.byref(ticket))),
                ("number is", lambda: lib.gradweir_group_add(client, c.byref(Group()), none)),
                ("client is", lambda: lib.gradweir_bind(none, c.byref(Tensor()), size)),
                ("tensors is", lambda: lib.gradweir_bind(client, none, size)),
                ("client is", lambda: lib.gradweir_offer(none, 1)),
                ("client is", lambda: lib.gradweir_push(none, c.c_uint64(1), none)),
                ("client is", lambda: lib.gradweir_push_from(none, c.c_uint64(1), c.c_uint64(1), none)),
                ("client is", lambda: lib.gradweir_accumulate(none, c.c_uint64(1))),
                ("client is", lambda: lib.gradweir_pull(none, c.byref(ticket))),
                ("ticket", lambda: lib.gradweir_pull(client, none)),
                ("client is", lambda: lib.gradweir_wait(none, ticket, 1, none)),
                ("client is", lambda: lib.gradweir_exchange(none, c.c_uint64(1), 1, none)),
                ("client is", lambda: lib.gradweir_progress(none)),
                ("parameters is", lambda: lib.gradweir_parameters(client, none, c.c_uint64(1))),
                ("client is", lambda: lib.gradweir_parameters(none, c.byref(ticket), c.c_uint64(1))),
                ("setting is", lambda: lib.gradweir_tune(client, none, b"1", 1)),
                ("value is", lambda: lib.gradweir_tune(client, b"window", none, 1)),
                ("client is", lambda: lib.gradweir_tune(none, b"window", b"1", 1)),
                ("text is", lambda: lib.gradweir_status_json(client, 1, none, size)),
                ("client is", lambda: lib.gradweir_status_json(none, 1, c.create_string_buffer(9), size)),
                ("numbers is", lambda: lib.gradweir_report(client, none, size)),
                ("client is", lambda: lib.gradweir_report(none, none, size))):
            with self.subTest(name):
                self.assertEqual(call(), INVALID)
                self.assertIn(name + (" NULL" if name.endswith("is") else ""), lib.gradweir_last_error().decode())
        lib.gradweir_close(none)
        lib.gradweir_log_to(none, none, none)
        lib.gradweir_options_default_sized(none, size)
        text = c.create_string_buffer(b"left alone?")
        lib.gradweir_describe(none, text, c.c_size_t(len(text)))
        self.assertEqual(text.value, b"")
        for call in (lib.gradweir_version, lib.gradweir_newest, lib.gradweir_elements, lib.gradweir_digest):
            self.assertEqual(call(none), 0)
        self.assertEqual(lib.gradweir_events(none, none, size, none), 0)
        self.assertEqual(lib.gradweir_events(client, none, size, none), 0)
        self.assertEqual(lib.gradweir_events_fd(none), -1)


class Models(WithServer):
    def bind(self, worker, tensor):
        return lib.gradweir_bind(worker.client, c.byref(tensor), c.c_size_t(1))

    def test_a_kind_that_is_none_is_refused_and_bind_may_be_tried_again(self):
        worker = self.opened("k")
        self.refused(INVALID, "tensor w: kind 9 is neither", self.bind, worker, self.tensor(worker, kind=9))
        check(self.bind(worker, self.tensor(worker)))

    def test_a_push_without_gradient_memory_is_refused_by_the_tensors_name(self):
        worker = self.opened("g")
        check(self.bind(worker, self.tensor(worker, gradient=None)))
        worker.offer().pull()
        self.refused(INVALID, "tensor w has no gradient memory", worker.push)
        self.refused(INVALID, "tensor w has no gradient memory", worker.accumulate, 1)
        self.assertEqual(json.loads(worker.status())["verdicts"]["ADMITTED"], 1)  # the offer

    def test_groups_whose_numbers_are_none_are_refused_at_once(self):
        worker, number = self.opened("o"), c.c_uint32(77)
        for group, part in ((Group(math.nan, -1, -1, -1, 0), "scale"), (Group(-1, -1, -1, -1, 0), "scale"),
                            (Group(1, math.nan, -1, -1, 0), "decay"), (Group(1, -1, 1.5, -1, 0), "betas"),
                            (Group(1, -1, -1, math.inf, 0), "betas")):
            self.refused(INVALID, part, lib.gradweir_group_add, worker.client, c.byref(group), c.byref(number))
        self.assertEqual(number.value, 77)
        check(lib.gradweir_group_add(worker.client, c.byref(Group(1, -1, 0.5, -1, 0)), c.byref(number)))
        self.assertEqual(number.value, 1)

    def test_a_transport_that_is_none_is_refused_by_open(self):
        self.refused(INVALID, "auto, posix, tcp or rc", lambda: self.opened("t", transport="foo"))

    def test_a_model_beyond_the_machines_memory_is_refused_at_once(self):
        worker = self.opened("b")
        began = time.monotonic()
        self.refused(NO_MEMORY, "this machine has", self.bind, worker, self.tensor(worker, shape=(c.c_uint64 * 8)(1 << 39)))
        self.assertLess(time.monotonic() - began, HANG_S / 2)


class Tuning(WithServer):
    def test_a_client_that_has_failed_tunes_nothing(self):
        self.opened("a").bind().offer()
        other = self.opened("other", sizes=(("w", 17),))
        self.refused(MISMATCH, "w", other.bind)
        status = lib.gradweir_tune(other.client, b"learning_rate", b"0.5", 10000)
        self.assertEqual(status, MISMATCH)
        time.sleep(0.3)
        self.assertNotIn("tuned:", self.server.lines())


class Numbers(WithServer):
    def test_more_names_come_and_go_than_there_are_worker_numbers(self):
        for i in range(300):
            Worker(self.server.address, f"w{i}", sizes=(("w", 8),), role=READER if i % 2 else 1).bind().close()
        last = self.opened("last", sizes=(("w", 8),)).bind().offer()
        last.pull()
        self.assertEqual(last.push().verdict, 1)


class Keys(unittest.TestCase):
    def test_who_is_turned_away_hears_it_at_once(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        here, there = os.path.join(folder, "here"), os.path.join(folder, "there")
        for keys in (here, there):
            subprocess.run([os.path.join(BUILD, "gradweir-server"), "keygen", keys, "server", "w"], check=True,
                           stdout=subprocess.DEVNULL)
        with Server("--keys", here) as server:
            for keys in (there, ""):
                began = time.monotonic()
                with self.assertRaises(Failed) as caught:
                    Worker(server.address, "w", keys=keys, timeout_ms=1000 * HANG_S)
                self.assertEqual(caught.exception.status, REFUSED, caught.exception)
                self.assertLess(time.monotonic() - began, HANG_S / 2)
            stranger = os.path.join(folder, "stranger")
            os.mkdir(stranger)
            for name, source in (("server.public", here), ("w.secret", there), ("w.public", there)):
                with open(os.path.join(source, name)) as file, open(os.path.join(stranger, name), "w") as copy:
                    copy.write(file.read())
                os.chmod(os.path.join(stranger, name), 0o600)
            began = time.monotonic()
            with self.assertRaises(Failed) as caught:
                Worker(server.address, "w", keys=stranger)
            self.assertIn("not in its table of keys", str(caught.exception))
            self.assertLess(time.monotonic() - began, HANG_S / 2)
            Worker(server.address, "w", keys=here).close()


def ran(program, *arguments, stdout=subprocess.DEVNULL):
    done = subprocess.run([os.path.join(BUILD, program), *arguments], stdout=stdout, stderr=subprocess.PIPE, text=True,
                          timeout=HANG_S)
    return done.returncode, done.stderr


class Settings(unittest.TestCase):
    def test_what_contradicts_is_refused_by_name(self):
        for arguments, part in ((("--lease", "100ms", "--heartbeat", "1min"), "heartbeat is 60 s, but lease only 0.1 s"),
                                (("--shards_elsewhere", "on", "--coordinator", "127.0.0.1:1"), "nothing would run here"),
                                (("--optimizer", "adam", "--nesterov", "on"), "nesterov is on, but optimizer is adam"),
                                (("--listen", "127.0.0.1:99999"), "port 0 to 65535"),
                                (("--listen", "127.0.0.1:-1"), "port 0 to 65535"),
                                (("--listen", "nosuch.invalid:7070"), "does not resolve"),
                                (("--data_ports", "5-3"), "data_ports")):
            with self.subTest(arguments):
                code, said = ran("gradweir-server", *arguments)
                self.assertEqual(code, 2, said)
                self.assertIn(part, said)

    def test_a_file_of_settings_says_what_is_wrong_with_it(self):
        for content, part in ((b"config = x\n", "a file cannot name another"), (b"window = 1\0\n", "NUL byte"),
                              (b"\xef\xbb\xbfwindow = 0\n", "window")):
            with tempfile.NamedTemporaryFile() as file:
                file.write(content)
                file.flush()
                code, said = ran("gradweir-server", "--config", file.name, "--listen", "127.0.0.1:0")
                self.assertEqual(code, 2, said)
                self.assertIn(part, said)
                self.assertNotIn("there is no setting", said)

    def test_keygen_leaves_nothing_when_one_of_the_names_has_keys(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(ran("gradweir-server", "keygen", folder, "server")[0], 0)
            code, said = ran("gradweir-server", "keygen", folder, "worker-0", "server")
            self.assertEqual((code, sorted(os.listdir(folder))), (2, ["server.public", "server.secret"]), said)

    def test_output_that_was_lost_is_no_success(self):
        with open("/dev/full", "w") as full:
            for program, arguments in (("gradweirctl", ("--help",)), ("gradweir-server", ("--help",)),
                                       ("gradweir-server", ("plan", "--params", "1000")), ("gradweir-train", ("--help",))):
                code, said = ran(program, *arguments, stdout=full)
                self.assertEqual(code, 1, (program, said))
                self.assertIn("output is lost", said)


if __name__ == "__main__":
    unittest.main()
