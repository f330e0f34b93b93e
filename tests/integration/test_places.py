"""Where servers listen, and what fits into their memory: listen, advertise, data_ports, queue_bytes_max."""
import json
import os
import re
import socket
import subprocess
import tempfile
import unittest

from library import BUILD, HANG_S, VERDICTS, Failed, Server, Worker


def refusal(*arguments):
    result = subprocess.run([os.path.join(BUILD, "gradweir-server"), "--listen", "127.0.0.1:0", *arguments],
                            capture_output=True, text=True, timeout=HANG_S)
    return result.returncode, result.stderr


def port_range(test, *taken):
    """The first of so many ports that nobody has but us, until the test ends. Those that are not to be had are listened on;
    the others are bound, and who listens with SO_REUSEADDR, as servers do, finds them free."""
    for first in range(21000 + os.getpid() % 500 * 16, 32000, 16):
        ours = [socket.socket() for _ in taken]
        try:
            for i, (one, listens) in enumerate(zip(ours, taken)):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, not listens)
                one.bind(("127.0.0.1", first + i))
                if listens:
                    one.listen()
        except OSError:
            for one in ours:
                one.close()
            continue
        for one in ours:
            test.addCleanup(one.close)
        return first
    raise AssertionError("no free ports")


class Places(unittest.TestCase):
    def works(self, address, **options):
        worker = Worker(address, "worker-0", **options).bind().offer()
        worker.pull()
        self.assertEqual(VERDICTS[worker.push().verdict], "ADMITTED")
        shards = [shard["address"] for shard in json.loads(worker.status())["shards"]]
        worker.close()
        return shards

    def test_a_server_on_all_addresses_is_reached_by_the_one_that_the_worker_knows(self):
        server = self.enterContext(Server("--shards", "2", "--insecure", "on", listen="0.0.0.0:0"))
        port = server.address.rpartition(":")[2]
        shards = self.works(f"127.0.0.1:{port}")
        self.assertTrue(all(address.startswith("0.0.0.0:") for address in shards), shards)
        self.assertTrue(self.works(f"localhost:{port}"))

    def test_beyond_loopback_both_planes_listen_where_listen_says(self):
        host = subprocess.run(["hostname", "-I"], capture_output=True, text=True).stdout.split()[:1]
        if not host or ":" in host[0]:
            self.skipTest("this machine has no IPv4 address but loopback")
        server = self.enterContext(Server("--shards", "2", "--insecure", "on", listen=f"{host[0]}:0"))
        shards = self.works(server.address, insecure=True)
        self.assertTrue(all(address.startswith(f"{host[0]}:") for address in shards), shards)
        with self.assertRaises(Failed) as caught:
            Worker(server.address, "worker-0")
        self.assertIn("insecure = 1", str(caught.exception))

    def test_the_advertised_host_is_what_others_are_given(self):
        server = self.enterContext(Server("--shards", "2", "--insecure", "on", "--advertise", "localhost",
                                          listen="0.0.0.0:0"))
        self.assertTrue(server.address.startswith("localhost:"), "the port file says it too")
        shards = self.works(server.address)
        self.assertTrue(all(address.startswith("localhost:") for address in shards), shards)

    def test_a_shard_alone_on_all_addresses_must_say_how_it_is_reached(self):
        code, text = refusal("--shards", "1", "--shard", "0", "--coordinator", "127.0.0.1:9", "--insecure", "on", "--listen",
                             "0.0.0.0:0")
        self.assertEqual(code, 2)
        self.assertIn("--advertise", text)

    def test_what_cannot_be_advertised_is_refused(self):
        for bad in ("host:7070", "two hosts", "x" * 80):
            code, text = refusal("--advertise", bad)
            self.assertEqual((code, "advertise" in text), (2, True), text)


class Ports(unittest.TestCase):
    works = Places.works

    def test_shards_take_the_ports_of_the_range_that_are_free(self):
        first = port_range(self, False, True, False, False)
        server = self.enterContext(Server("--shards", "2", "--data-ports", f"{first}-{first + 3}"))
        shards = self.works(server.address)
        ports = {int(address.rpartition(":")[2]) for address in shards}
        self.assertEqual(len(ports), 2)
        self.assertLessEqual(ports, {first, first + 2, first + 3})

    def test_a_range_without_a_free_port_is_named_with_the_reason(self):
        first = port_range(self, True, False)
        code, text = refusal("--shards", "2", "--data-ports", f"{first}-{first + 1}")
        self.assertEqual(code, 2)
        for part in (f"data_ports {first}-{first + 1}", "none is free", "Address already in use"):
            self.assertIn(part, text)
        code, text = refusal("--data-ports", str(first))
        self.assertEqual(code, 2)
        for part in (f"127.0.0.1:{first}", "Address already in use"):
            self.assertIn(part, text)

    def test_what_is_no_range_is_refused(self):
        for bad in ("7100-7000", "70000", "a", "7000-", "-7000", "7000-7001-7002", "0-7"):
            code, text = refusal(f"--data-ports={bad}")
            self.assertEqual((code, "data_ports" in text), (2, True), text)


class Bytes(unittest.TestCase):
    def test_the_queue_is_lowered_to_what_fits_and_that_is_said(self):
        # 3000 floats on 2 shards: 1500 x 4 bytes and no more on one; 8 slots, one of which is the window's.
        server = self.enterContext(Server("--shards", "2", "--optimizer", "sgd", "--queue", "16", "--queue-bytes-max",
                                          "52000"))
        worker = Worker(server.address, "worker-0").bind().offer()
        worker.pull()
        for version in range(1, 30):
            self.assertEqual(VERDICTS[worker.push().verdict], "ADMITTED")
            worker.pull()
        self.assertEqual(json.loads(worker.status())["settings"]["queue"], 7)
        worker.close()
        text = server.lines()
        self.assertRegex(text, r"the queue is lowered from 16 to 7: queue_bytes_max is 52000")
        self.assertTrue(re.search(r"= 8 slots", text), text)
        self.assertEqual(server.close(), 0)

    def test_a_model_of_which_not_one_gradient_fits_is_refused_with_the_numbers(self):
        server = self.enterContext(Server("--shards", "2", "--window", "2", "--queue-bytes-max", "16000"))
        with self.assertRaises(Failed) as caught:
            Worker(server.address, "worker-0").bind()
        self.assertEqual(caught.exception.status, -8)
        for part in ("queue_bytes_max is 16000", "window of 2"):
            self.assertIn(part, str(caught.exception))
        Worker(server.address, "worker-0", sizes=(("w", 100),)).bind().close()


if __name__ == "__main__":
    unittest.main()
