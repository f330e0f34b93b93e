"""The floors of the house, and which file may include which. This table is the order; README.md shows it in words."""
import fnmatch

# First match counts. A file includes from lower floors, and from its own floor within its own folder.
FLOORS = ["public", "leaves", "seams", "backends", "cores", "shells", "programs"]
PATTERNS = [
    ("client/include/gradweir/*", "public"),
    ("common/transport.h", "seams"),
    ("common/device.h", "seams"),
    # The trainer's seam to what computes, and the headers it is written in: an engine of gpu/ stands on these.
    ("client/trainer/engine.h", "seams"),
    ("client/trainer/rollout.h", "seams"),
    ("client/trainer/blas.h", "seams"),
    ("client/trainer/chance.h", "seams"),
    ("client/trainer/environment*.h", "seams"),
    ("client/trainer/loss.h", "seams"),
    ("client/trainer/network*.h", "seams"),
    ("client/trainer/statistics.h", "seams"),
    ("client/trainer/vector_math.h", "seams"),
    ("common/collective.h", "seams"),
    # The table of a seam knows all its backends, and so stands among them.
    ("common/transport*", "backends"),
    ("common/device*", "backends"),
    ("common/collective*", "backends"),
    ("common/*", "leaves"),
    ("gpu/*", "backends"),
    ("server/coordinator/*", "cores"),
    ("server/shard/*", "cores"),
    ("client/session*", "cores"),
    ("server/main*", "programs"),
    ("server/*", "shells"),
    ("client/tool*", "programs"),
    ("client/examples/*", "programs"),
    ("client/trainer/*", "programs"),
    ("client/*", "shells"),
    ("tests/*", "programs"),
]

# An outside header is known by these files alone.
OUTSIDE = [
    ("isa-l*", ["common/checksum.c"]),
    ("xxhash.h", ["common/checksum.c"]),
    ("msgpack*", ["common/wire*"]),
    ("zmq*", ["common/control*", "tests/unit/test_control*"]),
    ("uc[pst]/*", ["common/transport_ucx*", "tests/integration/ucx_far.c"]),
    ("cblas*", ["client/trainer/blas.c", "client/examples/transformer_matrix.c"]),
    ("cuda*", ["gpu/*", "tests/gpu/device_memory_cuda.c", "tests/gpu/far_memory_cuda.c", "tests/gpu/runtime_host.h"]),
    ("cublas*", ["gpu/cublas_link.h"]),
    ("nccl*", ["gpu/*"]),
    ("gloo/*", ["common/collective_gloo*", "gpu/*"]),
    ("criterion/*", ["tests/*"]),
]

# The trainer is a user of the library like any other, with one exception: what it computes for one element is defined where
# nvcc reads it too, or the CPU's trainer and the GPU's kernels would be two definitions. These headers hold pure functions.
ELEMENTS = ["common/element_*.h", "common/arithmetic_element.h"]


def matches(path, patterns):
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)


def floor_of(path):
    for pattern, floor in PATTERNS:
        if fnmatch.fnmatchcase(path, pattern):
            return FLOORS.index(floor)
    return None


def folder_of(path):
    return path.rpartition("/")[0]


def as_path(include, quoted):
    """Where an include leads in this repository; None when outside."""
    if quoted:
        return include
    if include.startswith("gradweir/"):
        return "client/include/" + include
    return None


def side_of(path):
    return path.split("/")[0]


def refuse_side(source, target):
    """The rules that hold whatever the floors say."""
    public = target.startswith("client/include/")
    if side_of(target) == "gpu" and side_of(source) != "gpu" and not source.startswith("tests/gpu/"):
        return "gpu/ is included by its own tests alone: it enters through the tables of the seams"
    if source.startswith("client/trainer/") and not public and not target.startswith("client/trainer/") \
            and not matches(target, ELEMENTS):
        return "the trainer sees the public header, its own files and the headers of per-element functions"
    if source.startswith("client/examples/") and not public and not target.startswith("client/examples/"):
        return "an example sees <gradweir/...> and its own files only"
    if {side_of(source), side_of(target)} == {"server", "client"} and not public:
        return "server/ and client/ never include each other"
    if side_of(target) == "tests" and side_of(source) != "tests":
        return "nothing outside tests/ includes from tests/"
    return None


def refuse(source, include, quoted):
    """Why `source` may not include `include`, or None."""
    target = as_path(include, quoted)
    if target is None:
        for pattern, allowed in OUTSIDE:
            if fnmatch.fnmatchcase(include, pattern) and not matches(source, allowed):
                return "<%s> is known by %s alone" % (include, ", ".join(allowed))
        return None
    if ".." in target.split("/") or (quoted and "/" not in include):
        return "write includes from the repository's root: folder/file.h, not %s" % include
    low, high = floor_of(target), floor_of(source)
    if low is None or high is None:
        return "%s has no floor: add it to tests/tidy/floors.py" % (target if low is None else source)
    reason = refuse_side(source, target)
    if reason:
        return reason
    if side_of(source) == "tests" or low < high or (low == high and folder_of(source) == folder_of(target)):
        return None
    return "%s (%s) may not include %s (%s): includes go down" % (source, FLOORS[high], target, FLOORS[low])
