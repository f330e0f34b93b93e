"""The client library through ctypes, and a server to talk to: for tests of whole processes."""
import ctypes as c
import os
import socket
import subprocess
import tempfile
import time

BUILD = os.environ.get("GRADWEIR_BUILD", "build")
VERDICTS = ["NONE", "ADMITTED", "STALE", "FUTURE", "NOT_FINITE", "MISMATCH", "CANCELLED", "QUEUE_FULL"]
WORKER, READER = 1, 2
HANG_S = 120  # whatever is waited for so long does not come: no machine is busy enough to need a tenth of it
HANG_MS = 1000 * HANG_S


class Options(c.Structure):
    _fields_ = [("size", c.c_size_t), ("address", c.c_char_p), ("identity", c.c_char_p), ("role", c.c_int),
                ("public_key", c.c_char_p), ("secret_key", c.c_char_p), ("server_key", c.c_char_p),
                ("insecure", c.c_int), ("connect_timeout_ms", c.c_uint32), ("outstanding", c.c_uint32),
                ("transport", c.c_char_p), ("devices", c.c_char_p), ("progress", c.c_int), ("keys", c.c_char_p),
                ("group", c.c_char_p), ("rank", c.c_uint32), ("ranks", c.c_uint32),
                ("feedback", c.c_uint32), ("memory", c.c_uint32), ("memory_path", c.c_uint32), ("gpu", c.c_uint32),
                ("staging_bytes", c.c_uint64)]


class Tensor(c.Structure):
    _fields_ = [("name", c.c_char_p), ("dimensions", c.c_uint32), ("shape", c.c_uint64 * 8), ("kind", c.c_int),
                ("group", c.c_uint32), ("parameters", c.c_void_p), ("gradient", c.c_void_p)]


class Number(c.Structure):
    _fields_ = [("name", c.c_char_p), ("value", c.c_double)]


class Receipt(c.Structure):
    _fields_ = [("status", c.c_int), ("verdict", c.c_int), ("version", c.c_uint64), ("sequence", c.c_uint64),
                ("index", c.c_uint64), ("staleness", c.c_uint64), ("weight", c.c_float), ("moved", c.c_uint32),
                ("element", c.c_uint64), ("tensor", c.c_char * 64), ("durable", c.c_uint64)]


lib = c.CDLL(os.path.join(BUILD, "libgradweir.so"))
lib.gradweir_last_error.restype = c.c_char_p
lib.gradweir_status_text.restype = c.c_char_p
lib.gradweir_version.restype = lib.gradweir_digest.restype = c.c_uint64


class Failed(Exception):
    def __init__(self, status):
        self.status = status
        super().__init__(f"{status}: {lib.gradweir_last_error().decode()}")


def check(status):
    if status != 0:
        raise Failed(status)


def until(what, seconds=HANG_S):
    """The first true answer of `what`, asked again and again."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = what()
        if found:
            return found
        time.sleep(0.01)
    raise TimeoutError("it did not happen")


class Port:
    """A port of loopback that nobody else is given while this lives: who is to listen there, again and again, finds it free.
    It is bound and not listened on, and whoever listens has SO_REUSEADDR, as ours do; until then nobody answers there."""

    def __init__(self):
        self.keeper = socket.socket()
        self.keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.keeper.bind(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.keeper.getsockname()[1]}"

    def __enter__(self):
        return self.address

    def __exit__(self, *_):
        self.keeper.close()


def gone(pid):
    """Dead, whether its parent has looked or not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


class Worker:
    """A model of named vectors, all in one worker."""

    def __init__(self, address, identity="", sizes=(("w", 3000),), role=WORKER, timeout_ms=HANG_MS, progress=0,
                 transport="auto", outstanding=1, keys="", insecure=False, feedback=0):
        self.client = c.c_void_p()
        self.names = [name for name, _ in sizes]
        self.parameters = [(c.c_float * size)() for _, size in sizes]
        self.gradients = [(c.c_float * size)() for _, size in sizes]
        options = Options()
        lib.gradweir_options_default_sized(c.byref(options), c.c_size_t(c.sizeof(options)))
        options.address, options.identity = address.encode(), identity.encode()
        options.role, options.connect_timeout_ms = role, timeout_ms
        options.progress, options.transport = progress, transport.encode()
        options.outstanding, options.keys, options.insecure = outstanding, keys.encode(), insecure
        options.feedback = feedback
        check(lib.gradweir_open(c.byref(options), c.byref(self.client)))

    def bind(self):
        tensors = (Tensor * len(self.names))()
        for tensor, name, parameters, gradient in zip(tensors, self.names, self.parameters, self.gradients):
            tensor.name, tensor.dimensions = name.encode(), 1
            tensor.shape[0] = len(parameters)
            tensor.parameters = c.cast(parameters, c.c_void_p)
            tensor.gradient = c.cast(gradient, c.c_void_p)
        check(lib.gradweir_bind(self.client, tensors, c.c_size_t(len(tensors))))
        return self

    def offer(self, timeout_ms=HANG_MS):
        check(lib.gradweir_offer(self.client, timeout_ms))
        return self

    def wait(self, ticket, timeout_ms=HANG_MS):
        receipt = Receipt()
        check(lib.gradweir_wait(self.client, ticket, timeout_ms, c.byref(receipt)))
        return receipt

    def pull(self, timeout_ms=HANG_MS):
        ticket = c.c_uint64()
        check(lib.gradweir_pull(self.client, c.byref(ticket)))
        return self.wait(ticket, timeout_ms).version

    def pull_until(self, version, timeout_s=HANG_S):
        end = time.monotonic() + timeout_s
        while self.pull() < version:
            if time.monotonic() > end:
                raise TimeoutError(f"version {version} did not come within {timeout_s} s")

    def send(self, samples=1):
        ticket = c.c_uint64()
        check(lib.gradweir_push(self.client, c.c_uint64(samples), c.byref(ticket)))
        return ticket

    def push(self, samples=1):
        return self.wait(self.send(samples))

    def accumulate(self, samples):
        check(lib.gradweir_accumulate(self.client, c.c_uint64(samples)))

    def status(self):
        text = c.create_string_buffer(65536)
        check(lib.gradweir_status_json(self.client, HANG_MS, text, c.c_size_t(len(text))))
        return text.value.decode()

    def report(self, **numbers):
        array = (Number * len(numbers))(*[Number(name.encode(), value) for name, value in numbers.items()])
        check(lib.gradweir_report(self.client, array, c.c_size_t(len(numbers))))

    def digest(self):
        return f"{lib.gradweir_digest(self.client):016x}"

    def close(self):
        lib.gradweir_close(self.client)
        self.client = c.c_void_p()


class Server:
    def __init__(self, *arguments, listen="127.0.0.1:0", program="gradweir-server", environment=None):
        supervised = "--supervise" in arguments
        if "--lease" not in arguments:  # whoever stands still for a few seconds on a busy machine is not gone
            arguments += ("--lease", "60s")
        self.folder = tempfile.TemporaryDirectory(dir="/dev/shm" if supervised else None)
        if supervised and "--arena_dir" not in arguments:
            arguments += ("--arena_dir", self.folder.name)  # else what one test leaves, the next goes on in
        port_file = os.path.join(self.folder.name, "port")
        self.log = open(os.path.join(self.folder.name, "log"), "w+")
        self.process = subprocess.Popen([os.path.join(BUILD, program), "--listen", listen, "--port-file",
                                         port_file, *arguments], stdout=subprocess.DEVNULL, stderr=self.log,
                                        env={**os.environ, **(environment or {})})
        end = time.monotonic() + HANG_S
        while not os.path.exists(port_file) and self.process.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        self.address = None
        if os.path.exists(port_file):
            with open(port_file) as file:
                self.address = file.read().strip()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if not self.log.closed:
            self.log.close()
            self.folder.cleanup()

    def lines(self):
        self.log.seek(0)
        return self.log.read()

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(HANG_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        code = self.process.returncode
        self.log.close()
        self.folder.cleanup()
        return code
