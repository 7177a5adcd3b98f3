"""Run cases in a warm child process, within limits of time and memory, and say what is wrong with them.

A case is a target and a whole number: it is made again from the two. The child is forked once, with everything
imported, so a case costs as much as what it calls; a child that dies or hangs is replaced.
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

WALL_SECONDS = 120.0  # for what waits instead of working
MOST_KIB = 2**20  # resident, beyond what is there at the start: 1 GiB
ADDRESS_SPACE = 4 * 2**30  # beyond what is there at the start, so that what asks for more gets a MemoryError

Case = Callable[[], object]  # raises on a failure; what is documented is caught inside


@dataclass(frozen=True)
class Target:
    """What is fuzzed: a name, and how a case is made, with words that describe it, in the current folder."""

    name: str
    make: Callable[[Random], tuple[str, Case]]
    seconds: float = 5.0  # of processor time, so that a busy machine is no failure


@dataclass(frozen=True)
class Failure:
    """A case that failed: ``python -m tests.fuzz --target NAME --case SEED`` runs it again."""

    target: str
    seed: int
    words: str
    reason: str


class TooLongError(BaseException):
    """A case took its processor time; no handler of exceptions swallows it."""


def search(target: Target, seeds: Iterable[int], folder: Path, until: float) -> Iterator[Failure | None]:
    """Run one case after the other until the clock says ``until``; one result each."""
    child: tuple[multiprocessing.process.BaseProcess, Connection] | None = None
    for seed in seeds:
        if time.monotonic() > until:
            break
        child = child or _start(target, folder)
        process, pipe = child
        pipe.send(seed)
        try:
            found = pipe.recv() if pipe.poll(WALL_SECONDS) else ("", f"no answer after {WALL_SECONDS:g} seconds")
        except EOFError:
            found = ("", "the process died")
        if found is not None and found[1]:
            process.kill()
            process.join()
            child = None
        yield None if found is None else Failure(target.name, seed, *found)
    if child is not None:
        child[0].kill()
        child[0].join()


def check(target: Target, seed: int, most_kib: int) -> tuple[str, str] | None:
    """Run a case here; return its words and what is wrong, or None: more than ``most_kib`` resident is, too."""
    words = "(while it was made)"
    signal.signal(signal.SIGPROF, _too_long)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        words, case = target.make(Random(f"{target.name} {seed}"))  # noqa: S311 (no secret)
        signal.setitimer(signal.ITIMER_PROF, target.seconds)
        case()
    except TooLongError:
        return words, f"more than {target.seconds:g} seconds\n{traceback.format_exc(limit=-6)}"
    except BaseException:  # noqa: BLE001 (whatever comes out is the finding)
        return words, traceback.format_exc(limit=-6)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return (words, f"{after / 2**20:.2f} GiB of memory") if after > max(before, most_kib) else None


def _too_long(*_: object) -> None:
    raise TooLongError


def _start(target: Target, folder: Path) -> tuple[multiprocessing.process.BaseProcess, Connection]:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(target, folder, theirs), daemon=True)
    process.start()
    theirs.close()
    return process, ours


def _serve(target: Target, folder: Path, pipe: Connection) -> None:
    os.chdir(folder)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + ADDRESS_SPACE
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    most_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss + MOST_KIB
    while True:
        pipe.send(check(target, pipe.recv(), most_kib))
