"""Where the partitions of a release are worked on: here, one after the other, or side by side on a Dask cluster.

A worker that is lost loses nothing but time: the scheduler gives its partition to another one, and may do so while the
first one still works. So what runs here is safe to run twice, also at once.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from darrm.errors import DarrmError, checks
from darrm.system.extras import Untyped, require

Advance = Callable[[int], None]  # is told of rows that were read
_TIMEOUT = "10s"  # to find a scheduler
_SHOWN = 200  # characters of what a cluster says


class Engine:
    """One process, this one: one partition after the other."""

    def check(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function once in every process that will work."""
        function(*arguments)

    def run(self, function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], advance: Advance) -> list[Any]:
        """Call a function for each task and return what it returns, in order; results have ``rows``."""
        return [function(*task, advance) for task in tasks]


class OnCluster(Engine):
    """The workers of a `distributed.Client`, which see the files under the same names as this process."""

    def __init__(self, client: Untyped) -> None:
        self._client = client

    def check(self, function: Callable[..., object], *arguments: object) -> None:
        """Call it on every worker."""
        with _in_a_line():
            if not self._client.run(function, *arguments):
                checks.fail("the cluster", checks.Found("none"), "one with workers", "start some: dask worker ADDRESS")

    def run(self, function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], advance: Advance) -> list[Any]:
        """Hand all tasks to the scheduler and wait; the first error is raised, and what did not begin is dropped."""
        futures: list[Any] = []
        try:
            with _in_a_line():
                futures += [self._client.submit(function, *task, _silent, pure=False) for task in tasks]
                for future in require("distributed").as_completed(futures, loop=self._client.loop):
                    advance(future.result().rows)
                return [future.result() for future in futures]
        finally:
            with suppress(Exception):  # a scheduler that is gone has dropped them
                self._client.cancel(futures)


@contextmanager
def engine_of(cluster: Untyped) -> Iterator[Engine]:
    """Return what works: this process for None, else the workers of a scheduler's address or of a client."""
    if cluster is None:
        yield Engine()
    elif isinstance(cluster, str):
        distributed = require("distributed")
        try:
            client = distributed.Client(cluster, timeout=_TIMEOUT, set_as_default=False)
        except (OSError, ValueError, TypeError) as error:
            advice = "start one, dask scheduler, and say what it prints, like tcp://10.0.0.1:8786"
            checks.fail("--cluster", cluster[:_SHOWN], f"the address of a Dask scheduler ({_said(error)})", advice)
        with client:
            yield OnCluster(client)
    else:
        yield OnCluster(cluster)


def _silent(_: int) -> None:
    """Tell nobody: the client counts what its futures return."""


def _said(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:_SHOWN]


@contextmanager
def _in_a_line() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        advice = "the workers read and write the same folders as this machine, under the same names"
        raise ValueError(f"{str(error.filename)!r} is not there for a worker of the cluster: {advice}") from error
    except (ValueError, OSError, DarrmError):
        raise
    except Exception as error:
        raise ValueError(f"the cluster failed: {type(error).__name__}: {_said(error)}") from error
