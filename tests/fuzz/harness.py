"""Run cases in a child process with limits of time and memory, and report failures.

A target and an integer determine a case, so it can be repeated. The child is forked once, after all imports, so a case
has no start-up cost. The harness replaces a child that dies or hangs.
"""

import multiprocessing
import os
import resource
import signal
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random

WALL_SECONDS = 120.0  # limit for a case that waits
MAX_KIB = 2**20  # resident memory above that at the start
MAX_ADDRESS_SPACE = 4 * 2**30  # bytes above those at the start; larger allocations raise MemoryError

Case = Callable[[], object]  # raises an error on a failure; catches documented errors


@dataclass(frozen=True)
class Target:
    """A target: ``make`` makes a case in the current folder and returns it with its description."""

    name: str
    make: Callable[[Random], tuple[str, Case]]
    seconds: float = 5.0  # processor time, which does not depend on other processes


@dataclass(frozen=True)
class Failure:
    """A failed case; ``python -m tests.fuzz --target NAME --case SEED`` repeats it."""

    target: str
    seed: int
    words: str
    reason: str


class TooLongError(BaseException):
    """A case used up its processor time; ``except Exception`` does not catch this."""


def search(target: Target, seeds: Iterable[int], folder: Path, deadline: float) -> Iterator[Failure | None]:
    """Run cases until the deadline of the monotonic clock; yield one result for each."""
    child: tuple[multiprocessing.process.BaseProcess, Connection] | None = None
    for seed in seeds:
        if time.monotonic() > deadline:
            break
        child = child or _start(target, folder)
        process, pipe = child
        pipe.send(seed)
        try:
            result = pipe.recv() if pipe.poll(WALL_SECONDS) else ("", f"no answer after {WALL_SECONDS:g} seconds")
        except EOFError:
            result = ("", "the process died")
        if result is not None and result[1]:
            process.kill()
            process.join()
            child = None
        yield None if result is None else Failure(target.name, seed, *result)
    if child is not None:
        child[0].kill()
        child[0].join()


def check(target: Target, seed: int, max_kib: int) -> tuple[str, str] | None:
    """Run a case in this process; return its description and failure, or None; ``max_kib`` limits its memory."""
    description = "(while it was made)"
    signal.signal(signal.SIGPROF, _raise_too_long)
    start_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        description, case = target.make(Random(f"{target.name} {seed}"))  # noqa: S311 (no secret)
        signal.setitimer(signal.ITIMER_PROF, target.seconds)
        case()
    except TooLongError:
        return description, f"more than {target.seconds:g} seconds\n{traceback.format_exc(limit=-6)}"
    except BaseException:  # noqa: BLE001 (any error is a failure)
        return description, traceback.format_exc(limit=-6)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
    end_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return (description, f"{end_kib / 2**20:.2f} GiB of memory") if end_kib > max(start_kib, max_kib) else None


def _raise_too_long(*_: object) -> None:
    raise TooLongError


def _start(target: Target, folder: Path) -> tuple[multiprocessing.process.BaseProcess, Connection]:
    context = multiprocessing.get_context("fork")
    parent_pipe, child_pipe = context.Pipe()
    process = context.Process(target=_serve, args=(target, folder, child_pipe), daemon=True)
    process.start()
    child_pipe.close()
    return process, parent_pipe


def _serve(target: Target, folder: Path, pipe: Connection) -> None:
    os.chdir(folder)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    max_bytes = pages * resource.getpagesize() + MAX_ADDRESS_SPACE
    resource.setrlimit(resource.RLIMIT_AS, (max_bytes, max_bytes))
    max_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss + MAX_KIB
    while True:
        pipe.send(check(target, pipe.recv(), max_kib))
