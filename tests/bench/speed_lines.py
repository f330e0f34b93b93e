"""The lines that speed.py shows: cases (calls of gradweir-bench), and rows made of what they gave."""
import dataclasses
import typing


@dataclasses.dataclass
class Row:
    what: str
    cases: tuple            # names of the cases that it needs
    value: typing.Callable  # of a round's rows by name; None: not measured
    goal: float = None      # None: told, not judged
    most: bool = False      # the goal is a limit above


@dataclasses.dataclass
class Line:
    cases: dict
    rows: list
    rounds_max: int = None


def key(case, name):
    return lambda cases: cases[case][name]


def over(one, other, name="goodput_gbps"):
    return lambda cases: cases[one][name] / cases[other][name]


def wire_and_step(size):
    """The most that a wire and a step, one after the other, let through."""
    def value(cases):
        push, step = cases[f"push {size}"], cases[f"step {size}"]
        if push["perftest_gbps"] is None:
            return None
        return push["goodput_gbps"] * (1 / push["perftest_gbps"] + 1 / step["goodput_gbps"])
    return value


SIZES = ("1MiB", "16MiB", "64MiB")
LARGE = ("1MiB", "16MiB")
SMALL = "--size 40KB --workers 4 --shards 2 --server-threads one --in-flight 1 --perftest off"
STEP = "step --size 16MiB --stride 1 --decay exp --rounds 1 --seconds 4"


def line_posix_push():
    cases = {size: f"push --transport posix --size {size} --perftest off --rounds 3" for size in SIZES}
    rows = [Row(f"push posix {size} over the floor", (size,), key(size, "floor_ratio"), 0.8) for size in SIZES]
    rows += [Row(f"  GB/s at {size}", (size,), key(size, "goodput_gbps")) for size in SIZES]
    return Line(cases, rows)


def line_tcp():
    cases, rows = {}, []
    for size in SIZES:
        cases[f"push {size}"] = f"push --transport tcp --size {size}"
        cases[f"step {size}"] = f"step --size {size} --optimizer sgd --seconds 0.3"
        cases[f"pull {size}"] = f"pull --transport tcp --size {size}"
        rows += [Row(f"push tcp {size} over 1/(1/perftest + 1/step)", (f"push {size}", f"step {size}"), wire_and_step(size), 0.8),
                 Row(f"pull tcp {size} over perftest am_bw", (f"pull {size}",), key(f"pull {size}", "perftest_ratio"), 0.8),
                 Row(f"server's CPU of a push, s/GB, {size}", (f"push {size}",),
                     key(f"push {size}", "server_cpu_s_per_gb"), 0.7, True)]
    # A step in eight pushes, of the newest gradient alone: landing, and next to nothing else.
    cases["no step"] = "push --transport tcp --size 16MiB --outstanding 8 --stride 8 --window 1 --perftest off"
    rows.append(Row("server's CPU, s/GB, 16MiB, a step in 8 pushes", ("no step",), key("no step", "server_cpu_s_per_gb"), 0.4, True))
    return Line(cases, rows)


def line_posix_pull():
    cases = {size: f"pull --transport posix --size {size}" for size in LARGE}
    rows = [Row(f"pull posix {size} over perftest am_bw", (size,), key(size, "perftest_ratio"), 0.8) for size in LARGE]
    return Line(cases, rows + [Row(f"  GB/s at {size}", (size,), key(size, "goodput_gbps")) for size in LARGE])


def line_small():
    cases, rows = {}, []
    for lanes in ("tcp", "posix"):
        push, exchange = f"push {lanes}", f"exchange {lanes}"
        cases[push] = f"push --transport {lanes} {SMALL}"
        cases[exchange] = f"exchange --transport {lanes} {SMALL}"
        cases[f"{exchange} alone"] = f"exchange --transport {lanes} {SMALL.replace('--workers 4', '--workers 1')}"
        rows += [Row(f"40 KB, 4 workers, {lanes}: pushes applied per second", (push,), key(push, "ops_per_s"), 4000),
                 Row(f"  push to receipt, p50 us, {lanes}", (push,), key(push, "p50_us"), 200, True),
                 Row(f"  push to receipt, p99 us, {lanes}", (push,), key(push, "p99_us")),
                 Row(f"  exchange, p50 us, {lanes}", (exchange,), key(exchange, "p50_us"), 300, True),
                 Row(f"  exchange, p99 us, {lanes}", (exchange,), key(exchange, "p99_us")),
                 Row(f"  exchange of one worker alone, p50 us, {lanes}", (f"{exchange} alone",), key(f"{exchange} alone", "p50_us")),
                 Row(f"  server's CPU us per exchange, {lanes}", (exchange,), key(exchange, "server_cpu_us_per_op")),
                 Row(f"  worker's CPU us per exchange, {lanes}", (exchange,), key(exchange, "worker_cpu_us_per_op"))]
    return Line(cases, rows)


def worst(case, of="steps", name="worst_us"):
    """Of enough steps to have met every turn of the window's schedule."""
    def value(cases):
        row = cases[case]
        return row[name] / row["p50_us"] if row[of] >= row["window"] / 2 else None
    return value


def worst_alone(case):
    """Of steps during which the kernel gave the core to nobody else."""
    return worst(case, "steps_alone", "worst_alone_us")


def line_window():
    cases = {"adam": f"{STEP} --optimizer adam --window 64 --against window=2",
             "sgd": f"{STEP} --optimizer sgd --window 64 --against window=8",
             "direct": f"{STEP} --optimizer sgd --window 2 --against window_algorithm=direct",
             "four": f"{STEP} --optimizer sgd --window 4 --window-algorithm stacks --against window_algorithm=direct",
             "tumbling": "step --size 16MiB --optimizer sgd --window 16 --stride 16 --against window=1,stride=1"}
    return Line(cases, [
        Row("Adam: step of W=64 over W=2", ("adam",), key("adam", "against_ratio"), 1.5, True),
        Row("SGD: step of W=64 over W=8", ("sgd",), key("sgd", "against_ratio"), 1.5, True),
        Row("SGD: step of W=2 over the direct pass, which it is", ("direct",), key("direct", "against_ratio"), 1.2, True),
        Row("  SGD: step of W=4 by stacks over the direct pass, which auto takes", ("four",), key("four", "against_ratio")),
        Row("Adam, W=64: worst step over the median", ("adam",), worst("adam"), 4, True),
        Row("SGD, W=64: worst step over the median", ("sgd",), worst("sgd"), 4, True),
        Row("  of steps that had the core for themselves, Adam", ("adam",), worst_alone("adam")),
        Row("  of steps that had the core for themselves, SGD", ("sgd",), worst_alone("sgd")),
        Row("tumbling W=S=16 over W=S=1, per gradient", ("tumbling",), key("tumbling", "against_gradient_ratio"), 1.2, True)])


def line_triad():
    cases = {f"{n}": f"step --size 16MiB --optimizer adam --window 1 --threads {n} --rounds 3" for n in (1, 2)}
    rows = [Row(f"fused Adam over the triad's traffic, {n} thread{'s' * (n > 1)}", (f"{n}",), key(f"{n}", "triad_ratio"), 0.7)
            for n in (1, 2)]
    return Line(cases, rows + [Row(f"  triad, GB/s, {n}", (f"{n}",), key(f"{n}", "triad_gbps")) for n in (1, 2)])


def line_workers():
    cases, rows = {}, []
    for lanes in ("posix", "tcp"):
        for n in (1, 2, 8):
            cases[f"{lanes} {n}"] = f"push --transport {lanes} --size 16MiB --workers {n} --perftest off"
        rows += [Row(f"{n} workers over 1, {lanes} 16MiB, in sum", (f"{lanes} {n}", f"{lanes} 1"),
                     over(f"{lanes} {n}", f"{lanes} 1"), goal) for n, goal in ((2, 0.8), (8, 0.6))]
    return Line(cases, rows)


def line_codecs():
    cases = {name: f"push --transport tcp --size 16MiB --dtype {name} --perftest off" for name in ("float32", "bfloat16", "int8")}
    learn = "once CartPole"
    cases[learn] = "train 10 --env CartPole-v1 --workers 2 --gradient-dtype int8"
    return Line(cases, [Row("CartPole with int8 and error feedback, solved of 10", (learn,), key(learn, "solved"), 10),
                        *(Row(f"gradients per second, {name} over float32, tcp 16MiB", (name, "float32"),
                            over(name, "float32", "ops_per_s"), goal) for name, goal in (("bfloat16", 1.6), ("int8", 2.5)))])


def line_memory():
    few, many = (f"push --size 1MiB --operations {n} --rounds 1 --perftest off" for n in (100, 10000))
    beyond = lambda case: lambda cases: cases[case]["rss_mib"] - cases[case]["plan_mib"]
    return Line({"few": few, "many": many}, [
        Row("peak RSS beyond the plan, MiB, after 100 pushes of 1 MiB", ("few",), beyond("few"), 64, True),
        Row("peak RSS beyond the plan, MiB, after 10,000", ("many",), beyond("many"), 64, True),
        Row("  growth from 100 to 10,000, MiB", ("few", "many"),
            lambda cases: cases["many"]["rss_mib"] - cases["few"]["rss_mib"], 4, True)], 3)


def line_records():
    cases = {f"{n}": f"records --workers {n} --shards 64" for n in (10, 100, 1000)}
    return Line(cases, [Row("records per second, 1,000 workers, 64 shards", ("1000",), key("1000", "ops_per_s"), 1e5)] +
                [Row(f"  ns per record, {n} workers", (f"{n}",), key(f"{n}", "ns_per_record")) for n in (10, 100, 1000)])


LINES = {1: line_posix_push(), 2: line_tcp(), 3: line_posix_pull(), 4: line_small(), 5: line_window(), 6: line_triad(),
         7: line_workers(), 8: line_codecs(), 9: line_memory(), 10: line_records()}
