#!/usr/bin/env python3
"""
The GPU runtime's protocols as litmus tests under PTX's memory model (ptx.py).

Each protocol is a few threads and the outcome that would be wrong; no execution may have it. Each has variants with
one thing taken away or weakened; of these every one must have it, or a test would show nothing. Names are those of
src/runtime/gpu/sync.cuh and kernels.cu.

    python3 tests/memory_model/check.py
"""
import sys

from ptx import Thread, alias_fence, end, fence, has_race, is_possible, leave, meet, arrive, read, start, write

GPU = dict(scope="gpu")
SYS = dict(scope="sys")


def signal(value=1, order="release", scope="sys", at="signal"):
    return write(at, value, order, scope)


def wait(value=1, order="acquire", scope="sys", at="signal"):
    return read(at, value, order, scope)


def one_if(condition, op):
    return op if condition else []


# ---- signal and wait: what a block wrote before a SIGNAL is there after the WAIT ------------------------------------


def chunk(gpus=(0, 1), scope="sys", store="release", load="acquire", before=True, after=True, look=False):
    """Thread 1 of block a writes; thread 0 signals for the block; thread 0 of block b waits; thread 1 reads."""
    return [
        Thread("a1", gpus[0], 0, write("data", 7), one_if(before, meet("a"))),
        Thread("a0", gpus[0], 0, one_if(before, meet("a")), signal(order=store, scope=scope)),
        Thread("b0", gpus[1], 1, one_if(look, wait(order="relaxed", scope=scope)), wait(order=load, scope=scope),
               one_if(after, meet("b"))),
        Thread("b1", gpus[1], 1, one_if(after, meet("b")), read("data", 0)),
    ]


# ---- a lane's SIGNAL covers what other lanes of its warp have waited for --------------------------------------------


def lanes(syncwarp=True, release="release"):
    warp = meet("warp") if syncwarp else []
    return [
        Thread("a0", 0, 0, write("data", 7), signal(at="to b")),
        Thread("b1", 1, 1, wait(at="to b"), warp),
        Thread("b0", 1, 1, warp, signal(at="to c", order=release)),
        Thread("c0", 2, 2, wait(at="to c"), read("data", 0)),
    ]


# ---- credit: a slot is written again when its reader has given it back ----------------------------------------------


def credit(store="release", load="acquire", before=True, after=True, scope="sys"):
    """The reader must not find what the writer puts there for a later chunk."""
    return [
        Thread("r1", 0, 0, read("slot", 2), one_if(before, meet("r"))),
        Thread("r0", 0, 0, one_if(before, meet("r")), signal(order=store, scope=scope)),
        Thread("w0", 1, 1, wait(order=load, scope=scope), one_if(after, meet("w"))),
        Thread("w1", 1, 1, one_if(after, meet("w")), write("slot", 2)),
    ]


# ---- packets: data and flag are one access of 8 bytes ----------------------------------------------------------------


def packet(whole=True, flag_order="relaxed"):
    """A reader that has seen the launch's flag has its data."""
    if whole:  # (flag, data) together; the wrong outcome is the flag of launch 1 with other data
        return [
            Thread("a", 0, 0, write("packet", (1, 7), "relaxed", **SYS)),
            Thread("b", 1, 1, read("packet", (1, 0), "relaxed", **SYS)),
        ]
    return [
        Thread("a", 0, 0, write("data", 7, "relaxed", **SYS), write("flag", 1, flag_order, **SYS)),
        Thread("b", 1, 1, read("flag", 1, "relaxed", **SYS), read("data", 0, "relaxed", **SYS)),
    ]


# ---- packets two launches later (plan_abi.h: two copies in turn) ------------------------------------------------------


def wrap(kernels=True, fences=False, reader=True, writer=True):
    """Launch 1: the reader's thread polls a packet for flag 1. Launch 2: its rank writes a packet that the writer's
    rank reads. Launch 3: the writer puts flag 3 over the first packet. The reader must not find flag 3: it would wait
    for ever for 1. Every launch is a kernel; threads are other ones each time."""
    middle = [fence("sys")] if fences else []
    if not kernels:  # one persistent kernel, the same threads
        return [
            Thread("r", 0, 0, read("packet", 3, "relaxed", **SYS), middle,
                   write("answer", 2, "relaxed", **SYS)),
            Thread("w", 1, 1, read("answer", 2, "relaxed", **SYS), middle,
                   write("packet", 3, "relaxed", **SYS)),
        ]
    return [
        Thread("r.1", 0, 0, read("packet", 3, "relaxed", **SYS), one_if(reader, end("r"))),
        Thread("r.2", 0, 9, one_if(reader, start("r")), write("answer", 2, "relaxed", **SYS)),
        Thread("w.2", 1, 1, read("answer", 2, "relaxed", **SYS), one_if(writer, end("w"))),
        Thread("w.3", 1, 8, one_if(writer, start("w")), write("packet", 3, "relaxed", **SYS)),
    ]


def cleared(kernels=True):
    """Where numbers start again a rank clears its packets; a peer's packet of a later launch must stay: once it is
    seen, the zero is not."""
    after, before = (end, start) if kernels else (lambda g: [], lambda g: [])
    return [
        Thread("c.1", 0, 0, write("packet", 9, "relaxed", **SYS), after("c")),
        Thread("c.2", 0, 5, before("c"), write("answer", 2, "relaxed", **SYS)),
        Thread("w.2", 1, 1, read("answer", 2, "relaxed", **SYS), after("w")),
        Thread("w.3", 1, 6, before("w"), write("packet", 3, "relaxed", **SYS)),
        Thread("r.3", 0, 7, before("c"), read("packet", 3, "relaxed", **SYS), read("packet", 9, "relaxed", **SYS)),
    ]


# ---- two calls in one kernel: what copse_blocks_meet is to other ranks -------------------------------------------------


def blocks_meet(first, second, gpu=0, before=True, after=True, arrive="release", look="acquire"):
    """Thread r1 of a block does `first`; the block meets another one's; there q1 does `second`. Every thread fences
    before and after; thread 0 arrives for its block and looks for the last one."""
    ahead, behind = one_if(before, [fence("sys")]), one_if(after, [fence("sys")])
    met, r, q = f"met {gpu}", f"r{gpu}", f"q{gpu}"
    return [
        Thread(f"{r}.1", gpu, 10 * gpu, first, ahead, meet(r)),
        Thread(f"{r}.0", gpu, 10 * gpu, ahead, meet(r), write(met, 1, arrive, **GPU)),
        Thread(f"{q}.0", gpu, 10 * gpu + 1, read(met, 1, look, **GPU), meet(q), behind),
        Thread(f"{q}.1", gpu, 10 * gpu + 1, meet(q), behind, second),
    ]


def wrap_in_kernels(reader=True, writer=True, **options):
    """wrap(), where the reader's rank, the writer's or both have their two calls in one kernel."""
    first = [read("packet", 3, "relaxed", **SYS), write("answer", 2, "relaxed", **SYS)]
    second = [read("answer", 2, "relaxed", **SYS), write("packet", 3, "relaxed", **SYS)]
    threads = []
    for gpu, calls, together in ((0, first, reader), (1, second, writer)):
        threads += blocks_meet(*calls, gpu=gpu, **options) if together else [
            Thread(f"k{gpu}.1", gpu, 10 * gpu, calls[0], end(gpu)), Thread(f"k{gpu}.2", gpu, 10 * gpu + 1, start(gpu), calls[1])]
    return threads


def slots_between_calls(**options):
    """shared_slots(): the peer writes a slot when another block of the reader's rank is in the next call."""
    return blocks_meet(read("slot", 2), signal(), **options) + [Thread("w.2", 1, 10, wait(), write("slot", 2))]


def output_between_calls(**options):
    """A peer puts a chunk into the output; another block reads it as the next call's input."""
    return [Thread("p", 1, 10, write("output", 7), signal())] + blocks_meet(wait(), read("output", 0), **options)


# ---- counters of a launch and of the next, also where graphs replay it ------------------------------------------------


def counters(ordered=True):
    """How many signals a block has sent is a plain word; the next launch's block, or a replay's, goes on from it."""
    after, before = (end, start) if ordered else (lambda g: [], lambda g: [])
    return [
        Thread("k.1", 0, 0, write("sent", 1), after("k")),
        Thread("k.2", 0, 3, before("k"), read("sent", 0)),
    ]


# ---- slots that plans share: the next plan's writer waits for the entry of the reader's rank --------------------------


def shared_slots(load="acquire", ordered=True):
    """A block of plan 1 reads a slot; another block of the rank enters plan 2's launch and signals; a peer writes."""
    after, before = (end, start) if ordered else (lambda g: [], lambda g: [])
    return [
        Thread("r.1", 0, 0, read("slot", 2), after("r")),
        Thread("r.2", 0, 4, before("r"), signal()),
        Thread("w.2", 1, 1, wait(order=load), write("slot", 2)),
    ]


# ---- the output is there when the kernel is over ----------------------------------------------------------------------


def done(signals=True):
    """A peer puts a chunk into a rank's output and signals; the rank's block waits; a later kernel reads."""
    return [
        Thread("p", 1, 1, write("output", 7), one_if(signals, signal())),
        Thread("b.1", 0, 0, one_if(signals, wait()), end("b")),
        Thread("b.2", 0, 2, start("b"), read("output", 0)),
    ]


# ---- multicast (NVLink SHARP): what a reduce-load reads, and what a store to a group writes ----------------------------

GROUP = dict(via="multicast")


def reduce_load(writer=True, reader=False, own=True, order="release", load="acquire", scope="sys", before=True):
    """A rank fills its slot by its ordinary address and signals; the root sums all ranks' slots, its own too, by the
    group's address. It must find both. The proxy fence may be at either side of a signal."""
    return [
        Thread("a1", 0, 0, write("slot 0", 7), one_if(before, meet("a"))),
        Thread("a0", 0, 0, one_if(before, meet("a")), one_if(writer, alias_fence()), signal(order=order, scope=scope)),
        Thread("b0", 1, 1, write("slot 1", 7), one_if(own, alias_fence()), wait(order=load, scope=scope),
               one_if(reader, alias_fence()), read("slot 0", 0, **GROUP), read("slot 1", 7, **GROUP)),
    ]


def own_slot(fenced=True):
    """The root's own slot, which no signal is needed for."""
    return [Thread("b0", 1, 1, write("slot 1", 7), one_if(fenced, alias_fence()), read("slot 1", 0, **GROUP))]


def group_store(writer=True, reader=False, order="release", load="acquire", after=True):
    """The root stores a sum to all ranks by the group's address; each reads it by its own."""
    return [
        Thread("b0", 1, 1, write("sum 0", 9, **GROUP), write("sum 1", 9, **GROUP), one_if(writer, alias_fence()),
               signal(order=order)),
        Thread("a0", 0, 0, wait(order=load), one_if(reader, alias_fence()), one_if(after, meet("a"))),
        Thread("a1", 0, 0, one_if(after, meet("a")), read("sum 0", 0)),
    ]


def group_credit(fenced=True, load="acquire"):
    """A rank fills its slot again when the root's reduce-load is done with it."""
    return [
        Thread("b0", 1, 1, read("slot 0", 2, **GROUP), one_if(fenced, alias_fence()), signal()),
        Thread("a0", 0, 0, wait(order=load), write("slot 0", 2)),
    ]


def block_sum(stale="slot 0", fence_at=0, meets=(True, True)):
    """The kernel (copse_move_group): thread a1 fills rank a's slot, b2 the root's own. After a barrier thread b0 fences
    for the block, and after one more b1 sums."""
    return [
        Thread("a1", 0, 0, write("slot 0", 7), meet("a")),
        Thread("a0", 0, 0, meet("a"), one_if(fence_at == 2, alias_fence()), signal()),
        Thread("b2", 1, 1, write("slot 1", 7), one_if(meets[0], meet("b"))),
        Thread("b0", 1, 1, wait(), one_if(fence_at == 1, alias_fence()), one_if(meets[0], meet("b")),
               one_if(fence_at == 0, alias_fence()), one_if(meets[1], meet("b'"))),
        Thread("b1", 1, 1, one_if(meets[1], meet("b'")), read(stale, 0, **GROUP)),
    ]


def block_store(fenced=True, meets=True, order="release"):
    """Thread b1 stores a sum to the group; after a barrier b0 fences and signals for the block; a1 copies it out."""
    return [
        Thread("b1", 1, 1, write("sum 0", 9, **GROUP), one_if(meets, meet("b"))),
        Thread("b0", 1, 1, one_if(meets, meet("b")), one_if(fenced, alias_fence()), signal(order=order)),
        Thread("a0", 0, 0, wait(), meet("a")),
        Thread("a1", 0, 0, meet("a"), read("sum 0", 0)),
    ]


def block_own(fenced=True, meets=(True, True)):
    """The root's own copy of the sum: b1 stores it, b0 fences between two barriers, b2 copies it out."""
    return [
        Thread("b1", 1, 1, write("sum 1", 9, **GROUP), one_if(meets[0], meet("b"))),
        Thread("b0", 1, 1, one_if(meets[0], meet("b")), one_if(fenced, alias_fence()), one_if(meets[1], meet("b'"))),
        Thread("b2", 1, 1, one_if(meets[1], meet("b'")), read("sum 1", 0)),
    ]


def block_credit(fenced=True):
    """Thread a1 fills its slot again when the root's signal says that the sum was read."""
    return [
        Thread("b1", 1, 1, read("slot 0", 2, **GROUP), meet("b")),
        Thread("b0", 1, 1, meet("b"), one_if(fenced, alias_fence()), signal()),
        Thread("a0", 0, 0, wait(), meet("a")),
        Thread("a1", 0, 0, meet("a"), write("slot 0", 2)),
    ]


def group_launches(ordered=True):
    """A rank reads what came by the group's address in a kernel before: no fence of its own."""
    after, before = (end, start) if ordered else (lambda g: [], lambda g: [])
    return [
        Thread("b.1", 1, 1, write("sum 0", 9, **GROUP), signal()),
        Thread("a.1", 0, 0, wait(), after("a")),
        Thread("a.2", 0, 2, before("a"), read("sum 0", 0)),
    ]


PROTOCOLS = [
    # name, right, {what is wrong: variant}
    ("chunk between GPUs", chunk(), {
        "the scope of one GPU": chunk(scope="gpu"),
        "the scope of a block": chunk(scope="cta"),
        "a relaxed signal": chunk(store="relaxed"),
        "a relaxed wait": chunk(load="relaxed"),
        "no barrier before the signal": chunk(before=False),
        "no barrier after the wait": chunk(after=False),
    }),
    ("chunk after relaxed looks", chunk(look=True), {
        "no acquire behind them": chunk(look=True, load="relaxed"),
    }),
    ("chunk between blocks of a GPU", chunk(gpus=(0, 0), scope="gpu"), {
        "the scope of a block": chunk(gpus=(0, 0), scope="cta"),
        "a relaxed signal": chunk(gpus=(0, 0), scope="gpu", store="relaxed"),
        "no barrier before the signal": chunk(gpus=(0, 0), scope="gpu", before=False),
    }),
    ("lanes of a warp", lanes(), {
        "no __syncwarp": lanes(syncwarp=False),
        "a relaxed signal": lanes(release="relaxed"),
    }),
    ("credit for a slot", credit(), {
        "a relaxed credit": credit(store="relaxed"),
        "a relaxed wait": credit(load="relaxed"),
        "no barrier before the credit": credit(before=False),
        "no barrier after the wait": credit(after=False),
        "the scope of one GPU": credit(scope="gpu"),
    }),
    ("packet", packet(), {
        "flag and data in two stores": packet(whole=False),
        "the flag released, but not acquired": packet(whole=False, flag_order="release"),
    }),
    ("packet two launches later", wrap(), {
        "the reader's kernels in no order": wrap(reader=False),
        "the writer's kernels in no order": wrap(writer=False),
        "one kernel for all launches": wrap(kernels=False),
    }),
    ("packet two launches later, in one kernel, fenced", wrap(kernels=False, fences=True), {}),
    ("packets cleared", cleared(), {
        "one kernel for all launches": cleared(kernels=False),
    }),
    ("packet two calls later, both ranks' calls in one kernel", wrap_in_kernels(), {
        "no fence before the blocks meet": wrap_in_kernels(before=False),
        "no fence after": wrap_in_kernels(after=False),
    }),
    ("packet two calls later, the reader's in one kernel", wrap_in_kernels(writer=False), {
        "no fences": wrap_in_kernels(writer=False, before=False, after=False),
    }),
    ("packet two calls later, the writer's in one kernel", wrap_in_kernels(reader=False), {}),
    ("slots from call to call in one kernel", slots_between_calls(), {
        "nothing but relaxed accesses where blocks meet":
            slots_between_calls(before=False, after=False, arrive="relaxed", look="relaxed"),
    }),
    ("output of a call, read by the next in the kernel", output_between_calls(), {
        "a relaxed arrival": output_between_calls(before=False, after=False, arrive="relaxed"),
        "a relaxed look": output_between_calls(before=False, after=False, look="relaxed"),
    }),
    ("counters from launch to launch", counters(), {
        "launches that nobody orders": counters(ordered=False),
    }),
    ("slots that plans share", shared_slots(), {
        "a relaxed wait": shared_slots(load="relaxed"),
        "launches that nobody orders": shared_slots(ordered=False),
    }),
    ("output at the end", done(), {
        "no last signal": done(signals=False),
    }),
    ("reduce-load, fenced by the writers", reduce_load(), {
        "no proxy fence": reduce_load(writer=False),
        "a relaxed signal": reduce_load(order="relaxed"),
        "a relaxed wait": reduce_load(load="relaxed"),
        "the scope of one GPU": reduce_load(scope="gpu"),
        "no barrier before the signal": reduce_load(before=False),
    }),
    ("reduce-load, fenced by the reader", reduce_load(writer=False, reader=True), {}),
    ("reduce-load of the root's own slot", own_slot(), {
        "no proxy fence": own_slot(fenced=False),
    }),
    ("store to a group, fenced by the writer", group_store(), {
        "no proxy fence": group_store(writer=False),
        "a relaxed signal": group_store(order="relaxed"),
        "a relaxed wait": group_store(load="relaxed"),
        "no barrier after the wait": group_store(after=False),
    }),
    ("store to a group, fenced by the readers", group_store(writer=False, reader=True), {}),
    ("credit for a slot of a group", group_credit(), {
        "no proxy fence": group_credit(fenced=False),
        "a relaxed wait": group_credit(load="relaxed"),
    }),
    ("the kernel's sum of a peer's slot", block_sum(), {
        "no proxy fence": block_sum(fence_at=None),
        "no barrier after the fence": block_sum(meets=(True, False)),
    }),
    ("the kernel's sum of the root's slot", block_sum("slot 1"), {
        "no proxy fence": block_sum("slot 1", fence_at=None),
        "a fence before the barrier": block_sum("slot 1", fence_at=1),
        "a fence at the other rank alone": block_sum("slot 1", fence_at=2),
        "no barrier before the fence": block_sum("slot 1", meets=(False, True)),
    }),
    ("the kernel's store to a group", block_store(), {
        "no proxy fence": block_store(fenced=False),
        "no barrier before the fence": block_store(meets=False),
        "a relaxed signal": block_store(order="relaxed"),
    }),
    ("the kernel's store to its own rank", block_own(), {
        "no proxy fence": block_own(fenced=False),
        "no barrier before the fence": block_own(meets=(False, True)),
        "no barrier after the fence": block_own(meets=(True, False)),
    }),
    ("the kernel's credit for a group's slot", block_credit(), {
        "no proxy fence": block_credit(fenced=False),
    }),
    ("store to a group, read by the next kernel", group_launches(), {
        "launches that nobody orders": group_launches(ordered=False),
    }),
]


def classics():
    """The model itself, by the ISA's and the paper's own examples: (name, threads, is it possible)."""
    def store_buffering(kind):
        return [Thread("a", 0, 0, write("x", 1, "relaxed", **GPU), kind, read("y", 0, "relaxed", **GPU)),
                Thread("b", 0, 1, write("y", 1, "relaxed", **GPU), kind, read("x", 0, "relaxed", **GPU))]

    def load_buffering(needs):
        ra, rb = read("x", 1, "relaxed", **GPU), read("y", 1, "relaxed", **GPU)
        return [Thread("a", 0, 0, ra, write("y", 1, "relaxed", **GPU, needs=[ra] if needs else [])),
                Thread("b", 0, 1, rb, write("x", 1, "relaxed", **GPU, needs=[rb] if needs else []))]

    def read_twice(first, second):
        return [Thread("a", 0, 0, write("x", 1, "relaxed", **GPU)),
                Thread("b", 0, 1, read("x", first, "relaxed", **GPU), read("x", second, "relaxed", **GPU))]

    yield "message passing, fenced", [
        Thread("a", 0, 0, write("x", 1), fence("gpu"), write("y", 1, "relaxed", **GPU)),
        Thread("b", 0, 1, read("y", 1, "relaxed", **GPU), fence("gpu"), read("x", 0))], False
    yield "message passing, relaxed", [
        Thread("a", 0, 0, write("x", 1), write("y", 1, "relaxed", **GPU)),
        Thread("b", 0, 1, read("y", 1, "relaxed", **GPU), read("x", 0))], True
    yield "store buffering", store_buffering([]), True
    yield "load buffering", load_buffering(False), True
    yield "load buffering with dependencies", load_buffering(True), False
    yield "a newer value, then an older one", read_twice(1, 0), False
    yield "an older value, then a newer one", read_twice(0, 1), True
    yield "a barrier", [
        Thread("a", 0, 0, write("x", 1), arrive("m"), leave("m")),
        Thread("b", 0, 0, arrive("m"), leave("m"), read("x", 0))], False


def main():
    failed = tried = 0

    def expect(what, found, wanted):
        nonlocal failed, tried
        tried += 1
        if found != wanted:
            failed += 1
            print(f"memory model: {what}: {'allowed' if found else 'forbidden'}, expected the other")

    for name, threads, possible in classics():
        expect(f"the model's own {name}", is_possible(*threads), possible)
    for name, right, variants in PROTOCOLS:
        expect(name, is_possible(*right), False)
        for what, wrong in variants.items():
            expect(f"{name}, {what}", is_possible(*wrong), True)
    # and where nobody reads a stale value, weak accesses are ordered in every execution
    expect("chunk: a race on the data", has_race(*[t for t in fresh(chunk)]), False)
    expect("chunk, no barrier: a race on the data", has_race(*[t for t in fresh(chunk, before=False)]), True)
    print(f"RESULT run={tried} failed={failed}")
    return failed != 0


def fresh(protocol, **options):
    """The protocol's right outcome: the data that were sent."""
    threads = protocol(**options)
    for thread in threads:
        for op in thread.ops:
            if op.kind == "R" and op.at == "data":
                op.value = 7
    return threads


if __name__ == "__main__":
    sys.exit(main())
