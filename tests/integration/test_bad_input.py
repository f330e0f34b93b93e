"""What a user does wrong, beyond test_processes.py: each has an answer that names it, soon, and hurts nobody else."""
import ctypes as c
import math
import os
import socket
import subprocess
import tempfile
import threading
import time
import unittest

from library import BUILD, HANG_MS, HANG_S, READER, VERDICTS, Failed, Server, Tensor, Worker, check, lib, until

INVALID, TIMEOUT, UNREACHABLE, MISMATCH, REFUSED, STATE = -1, -2, -3, -5, -7, -10


def run(*arguments, timeout=HANG_S):
    result = subprocess.run([os.path.join(BUILD, arguments[0]), *arguments[1:]], capture_output=True, text=True,
                            timeout=timeout)
    return result.returncode, result.stderr


class Bad(unittest.TestCase):
    def refused(self, status, parts, call):
        start = time.monotonic()
        with self.assertRaises(Failed) as caught:
            call()
        self.assertLess(time.monotonic() - start, HANG_S / 2, "an answer must come soon")
        self.assertEqual(caught.exception.status, status, caught.exception)
        for part in parts:
            self.assertIn(part, str(caught.exception))

    def works(self, worker):
        worker.pull()
        self.assertEqual(VERDICTS[worker.push().verdict], "ADMITTED")


class Addresses(Bad):
    def test_what_is_no_address_is_told_at_once_and_by_name(self):
        for address in ("127.0.0.1", "", ":", "127.0.0.1:", "127.0.0.1:99999", "127.0.0.1:port"):
            self.refused(INVALID, [address], lambda: Worker(address))

    def test_a_host_that_nobody_knows_is_unreachable_by_name(self):
        self.refused(UNREACHABLE, ["no.such.host.invalid:7070"],
                     lambda: Worker("no.such.host.invalid:7070", timeout_ms=500, insecure=True))

    def test_a_listener_that_is_no_server_is_not_waited_for_beyond_the_deadline(self):
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            threading.Thread(target=self.chat, args=(other,), daemon=True).start()
            address = f"127.0.0.1:{other.getsockname()[1]}"
            with self.assertRaises(Failed) as caught:
                Worker(address, timeout_ms=1000)
        self.assertIn(caught.exception.status, (REFUSED, UNREACHABLE))
        self.assertIn(address, str(caught.exception))

    @staticmethod
    def chat(listener):
        try:
            while True:
                peer, _ = listener.accept()
                peer.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n" * 4)
                peer.close()
        except OSError:
            pass

    def test_an_address_that_is_not_ours_is_named_with_errnos_text(self):
        for listen, parts in (("203.0.113.7:0", ["203.0.113.7:0", "Cannot assign requested address"]),
                              ("300.1.2.3:7070", ["300.1.2.3:7070"]), ("127.0.0.1", ["127.0.0.1"]),
                              ("127.0.0.1:70000", ["127.0.0.1:70000"])):
            code, text = run("gradweir-server", "--insecure", "on", "--listen", listen)
            self.assertEqual(code, 2, text)
            for part in parts:
                self.assertIn(part, text)

    def test_a_port_in_use_is_named_for_both_planes(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            for arguments in (["--listen", address],
                              ["--listen", "127.0.0.1:0", "--data-ports", address.partition(":")[2]]):
                code, text = run("gradweir-server", *arguments)
                self.assertEqual(code, 2, text)
                self.assertIn(address, text)
                self.assertIn("Address already in use", text)

    def test_the_trainer_names_the_server_that_is_not_there(self):
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{nobody.getsockname()[1]}"
            start = time.monotonic()
            code, text = run("gradweir-train", "--servers", address, "--workers", "1", "--max-steps", "1000")
        self.assertNotEqual(code, 0)
        self.assertIn(f"nobody answers at {address}", text)
        self.assertLess(time.monotonic() - start, HANG_S)


class Settings(Bad):
    def test_a_bad_line_of_a_file_is_named_with_file_and_line(self):
        with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
            for text, parts in (("shards = 2\nquueue = 4\n", [":2", "quueue", "nearest is queue"]),
                                ("queue = 0\n", [":1", "queue is 1 to 4096"]), ("queue\n", [":1", "name = value"])):
                file.seek(0)
                file.truncate()
                file.write(text)
                file.flush()
                code, told = run("gradweir-server", "--config", file.name)
                self.assertEqual(code, 2, told)
                for part in [file.name, *parts]:
                    self.assertIn(part, told)

    def test_what_does_not_fit_together_is_named(self):
        for arguments, parts in ((["--window", "8", "--window-max", "4"], ["window_max is 4", "window, which is 8"]),
                                 (["--shard", "2", "--shards", "2", "--coordinator", "x:1"], ["shard is 2", "0 to 1"]),
                                 (["--shard", "0"], ["coordinator is not"]),
                                 (["--recheck", "on", "--staleness-at", "arrival"], ["recheck", "arrival"]),
                                 (["--identity", "me"], ["keys is not"])):
            code, text = run("gradweir-server", "--listen", "127.0.0.1:0", *arguments)
            self.assertEqual(code, 2, text)
            for part in parts:
                self.assertIn(part, text)

    def test_a_live_change_that_is_wrong_changes_nothing(self):
        server = self.enterContext(Server("--optimizer", "sgd"))
        worker = Worker(server.address, "worker-0").bind().offer()
        self.addCleanup(worker.close)
        before = worker.status().partition('"settings":')[2].partition("}")[0]
        for name, value, part in (("windov", "3", "windov"), ("window", "0", "window"), ("window", "9", "window_max"),
                                  ("shards", "2", "shards"), ("learning_rate", "fast", "learning_rate")):
            self.refused(INVALID, [part], lambda: check(
                lib.gradweir_tune(worker.client, name.encode(), value.encode(), HANG_MS)))
        self.assertEqual(worker.status().partition('"settings":')[2].partition("}")[0], before)
        check(lib.gradweir_tune(worker.client, b"learning_rate", b"0.5", HANG_MS))
        self.assertIn('"learning_rate":0.5', worker.status())
        self.works(worker)


class Recordings(Bad):
    def test_a_folder_that_cannot_be_recorded_into_ends_the_server_at_its_start(self):
        with tempfile.TemporaryDirectory() as old:
            for name in ("log.records", "shard-0.bodies", "shard-1.bodies"):
                open(os.path.join(old, name), "w").close()
            for folder, word in ((old, "into a new folder"), ("/proc/foo", "/proc/foo")):
                for threads in ("one", "each"):
                    code, told = run("gradweir-server", "--listen", "127.0.0.1:0", "--shards", "2", "--threads",
                                     threads, "--record", folder)
                    self.assertEqual(code, 2, told)
                    self.assertIn(word, told)


class WithServer(Bad):
    sizes = (("a", 40000), ("b", 40000))

    def setUp(self):
        self.server = self.enterContext(Server("--shards", "2", "--optimizer", "sgd", "--learning-rate", "0.1"))
        self.first = self.ready("worker-0")

    def worker(self, identity, **options):
        worker = Worker(self.server.address, identity, **options)
        self.addCleanup(worker.close)
        return worker

    def ready(self, identity):
        worker = self.worker(identity, sizes=self.sizes).bind().offer()
        worker.pull()
        return worker


class Models(WithServer):
    def tearDown(self):
        self.works(self.first)

    def test_the_first_tensor_that_differs_is_named_whatever_differs(self):
        for sizes, parts in (((("a", 40000), ("c", 40000)), ["b", "c"]), ((("a", 40000),), ["b"]),
                             ((("a", 40000), ("b", 40000), ("d", 5)), ["d"]),
                             ((("b", 40000), ("a", 40000)), ["a", "b"]),
                             ((("a", 1), ("b", 40000)), ["a", "[1]", "[40000]"])):
            self.refused(MISMATCH, parts, lambda: self.worker("worker-1", sizes=sizes).bind())

    def test_the_same_elements_in_another_shape_are_another_model(self):
        worker = self.worker("worker-1", sizes=self.sizes)
        tensors = (Tensor * 2)()
        for tensor, name, parameters in zip(tensors, (b"a", b"b"), worker.parameters):
            tensor.name, tensor.dimensions = name, 1
            tensor.shape[0] = 40000
            tensor.parameters = c.cast(parameters, c.c_void_p)
        tensors[1].dimensions, tensors[1].shape[0], tensors[1].shape[1] = 2, 400, 100
        self.refused(MISMATCH, ["b", "400", "100", "40000"],
                     lambda: check(lib.gradweir_bind(worker.client, tensors, c.c_size_t(2))))

    def test_a_model_that_is_none_is_refused_before_anybody_hears_of_it(self):
        for sizes, part in (((("", 5),), "name"), ((("n" * 64, 5),), "name"), ((("a", 5), ("a", 5)), "a"), ((), "at least one")):
            self.refused(INVALID, [part], lambda: self.worker("worker-1", sizes=sizes).bind())


class Gradients(WithServer):
    def test_no_nan_infinity_or_monster_in_either_shard_is_ever_applied(self):
        bystander, admitted = self.ready("worker-1"), 0
        for value in (math.nan, math.inf, -math.inf, 3e38):
            for tensor, element in ((0, 39999), (1, 0)):
                self.first.gradients[tensor][element] = value
                receipt = self.first.push()
                self.assertEqual(VERDICTS[receipt.verdict], "NOT_FINITE", value)
                if value != 3e38:
                    self.assertEqual((receipt.tensor, receipt.element), (self.sizes[tensor][0].encode(), 40000 * tensor + element))
                self.first.gradients[tensor][element] = 0
                self.works(bystander)
                admitted += 1
        self.first.pull_until(admitted)
        self.assertEqual(self.first.pull(), admitted, "one version for each that was admitted")
        self.assertEqual(set(self.first.parameters[0]) | set(self.first.parameters[1]), {0.0})

    def test_calls_in_the_wrong_order_are_wrong_states(self):
        early = self.worker("worker-1", sizes=self.sizes)
        for call in (early.push, early.pull, early.offer, lambda: early.accumulate(1)):
            self.refused(STATE, ["bind"], call)
        early.bind()
        self.refused(STATE, ["bind is called once"], early.bind)
        self.refused(STATE, ["pull"], early.push)
        reader = self.worker("reader", sizes=self.sizes, role=READER).bind()
        reader.pull()
        self.refused(STATE, ["reader"], reader.push)
        self.works(early)

    def test_samples_and_waits_have_bounds(self):
        self.refused(INVALID, ["samples is 0"], lambda: self.first.push(0))
        self.refused(INVALID, ["samples"], lambda: self.first.push(2**53 + 1))
        self.first.accumulate(3)
        self.refused(STATE, ["3 samples are accumulated"], lambda: self.first.push(1))
        self.assertEqual(VERDICTS[self.first.push(0).verdict], "ADMITTED")
        self.refused(INVALID, ["options.outstanding is 9", "1 to 8"], lambda: self.worker("worker-1", outstanding=9))
        self.refused(INVALID, ["identity", "63"], lambda: self.worker("x" * 64))
        self.refused(INVALID, ["progress"], lambda: self.worker("worker-1", progress=7))
        self.refused(INVALID, ["pigeon"], lambda: self.worker("worker-1", sizes=self.sizes, transport="pigeon").bind())


class Strangers(WithServer):
    def test_garbage_on_the_control_port_ends_nobody(self):
        host, _, port = self.server.address.rpartition(":")
        for garbage in (b"GET / HTTP/1.0\r\n\r\n", b"\0" * 5000, os.urandom(100000), b"\xff" + b"\0" * 8 + b"\x7f" + b"\x03"):
            with socket.create_connection((host, int(port))) as peer:
                peer.sendall(garbage)
            self.works(self.first)

    def test_a_server_that_dies_while_somebody_waits_is_named_in_time(self):
        other = self.ready("worker-1")
        self.server.process.kill()
        self.server.process.wait()
        for worker in (self.first, other):
            ticket = worker.send()

            def named():
                with self.assertRaises(Failed) as caught:
                    worker.wait(ticket, 1000)
                self.assertIn(caught.exception.status, (UNREACHABLE, TIMEOUT))
                return self.server.address in str(caught.exception)
            until(named)


if __name__ == "__main__":
    unittest.main()
