"""A small network of name spaces on one machine, whose lines can be cut both ways or one way only: for test_network.py.

Each place is a name space with one address; all hang on one bridge, in a name space of its own, so nothing of the machine's
own network is touched and nothing stays. A direction is cut by giving the sender a hardware address of nobody: packets
leave and are never heard of again, as on a broken line, with no error."""
import os
import subprocess
import tempfile

import library

NOBODY = "02:00:00:00:ff:ff"


def sh(*words):
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def why_not():
    """A sentence when this machine or user cannot make name spaces, else nothing."""
    try:
        Network(()).close()
        return ""
    except (OSError, subprocess.SubprocessError) as error:
        detail = getattr(error, "stderr", None) or str(error).encode()
        return f"network name spaces cannot be made here ({detail.decode().strip()[-120:]}): run as root, with iproute2"


class Network:
    def __init__(self, places):
        self.holders, self.programs, self.folder = {}, {}, tempfile.TemporaryDirectory()
        try:
            self.hold("hub")
            self.inside("hub", "ip", "link", "add", "bridge0", "type", "bridge")
            self.inside("hub", "ip", "link", "set", "bridge0", "up")
            for number, place in enumerate(places, 1):
                self.add(place, number)
        except BaseException:
            self.close()
            raise

    def hold(self, place):
        """A process that keeps the name space alive."""
        holder = subprocess.Popen(["unshare", "-n", "sleep", "infinity"], stderr=subprocess.PIPE)
        self.holders[place] = holder
        library.until(lambda: holder.poll() is not None or self.apart(holder.pid))
        if holder.poll() is not None:
            raise OSError(holder.stderr.read().decode())
        self.inside(place, "ip", "link", "set", "lo", "up")

    @staticmethod
    def apart(pid):
        try:
            return os.readlink(f"/proc/{pid}/ns/net") != os.readlink("/proc/self/ns/net")
        except OSError:
            return False

    def add(self, place, number, address=None):
        """A new place. Two places may have one address: the others then talk to whom point() says."""
        self.hold(place)
        hardware = f"02:00:00:00:00:{number:02x}"
        self.inside("hub", "ip", "link", "add", f"to{number}", "type", "veth", "peer", "name", "eth0", "address", hardware,
                    "netns", str(self.holders[place].pid))
        self.inside("hub", "ip", "link", "set", f"to{number}", "master", "bridge0", "up")
        self.inside(place, "ip", "address", "add", f"{address or self.address(number)}/24", "dev", "eth0")
        self.inside(place, "ip", "link", "set", "eth0", "up")
        self.programs[place] = (address or self.address(number), hardware)

    @staticmethod
    def address(number):
        return f"10.77.0.{number}"

    def inside(self, place, *words):
        sh("nsenter", "-t", str(self.holders[place].pid), "-n", *words)

    def start(self, place, *words, log):
        """A program there; its errors go to the file log."""
        with open(log, "a") as errors:
            return subprocess.Popen(["nsenter", "-t", str(self.holders[place].pid), "-n", *words], stderr=errors,
                                    stdout=subprocess.DEVNULL, env={**os.environ, "GRADWEIR_BUILD": library.BUILD})

    def output(self, place, *words):
        return subprocess.run(["nsenter", "-t", str(self.holders[place].pid), "-n", *words], capture_output=True, text=True,
                              timeout=library.HANG_S)

    def point(self, sender, receiver, hardware=None):
        """Whatever sender has for receiver's address goes to its hardware, or to another one."""
        address, own = self.programs[receiver]
        self.inside(sender, "ip", "neigh", "replace", address, "lladdr", hardware or own, "dev", "eth0", "nud", "permanent")

    def cut(self, sender, receiver):
        """From sender to receiver only; the other way stays."""
        self.point(sender, receiver, NOBODY)

    def cut_both(self, one, other):
        self.cut(one, other)
        self.cut(other, one)

    def heal(self, one, other):
        self.point(one, other)
        self.point(other, one)

    def close(self):
        for holder in self.holders.values():
            holder.kill()
            holder.wait()
            holder.stderr.close()
        self.folder.cleanup()
