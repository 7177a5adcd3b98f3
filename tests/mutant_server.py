"""Run chosen tests many times, each time in a fork of a process that has imported numpy, scipy and torch already.

``MutantServer(folder)`` starts ``python -m tests.mutant_server`` in a copy of the checkout. Each request is a line of
JSON: the tests, a limit in seconds, and modules to import first. Each answer has the first test that failed. With a
package in the request, the answer also says which lines of it each test runs, and for how long. Only the forks import
darrm.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

OPTIONS = ["-q", "-x", "-m", "not slow", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=no"]
OPTIONS += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # plugins are imported before the fork
OWN_PACKAGES = {"darrm", "lp_models", "experiments", "tests", "__main__", "conftest"}
TIME_LIMIT = "the time limit"


@dataclass(eq=False)
class Recorder:
    """A plugin that keeps the first failure, and the seconds and the coverage context of each test."""

    coverage: Any = None
    failed: str | None = None
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        if self.coverage is not None:
            self.coverage.switch_context(item.nodeid)
        start = time.perf_counter()
        try:
            return (yield)
        finally:
            self.seconds[item.nodeid] += time.perf_counter() - start

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._keep(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._keep(report)

    def _keep(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.failed and self.failed is None:
            self.failed = report.nodeid


def run_tests(tests: Sequence[str], package: str | None) -> dict[str, Any]:
    """Run tests in this process; with a package, also record which lines of it each test runs."""
    if package is None:
        recorder = Recorder()
        status = pytest.main([*OPTIONS, *tests], [recorder])
        return {"failed": recorder.failed, "status": int(status)}
    import coverage

    recorder = Recorder(coverage.Coverage(data_file=None, include=[f"{Path.cwd() / package}*"]))
    with recorder.coverage.collect():
        status = pytest.main([*(option for option in OPTIONS if option != "-x"), *tests], [recorder])
    data = recorder.coverage.get_data()
    lines: dict[str, dict[int, list[str]]] = defaultdict(dict)
    for file in data.measured_files():
        lines[str(Path(file).relative_to(Path.cwd()))] = data.contexts_by_lineno(file)
    modules = [name for name in sys.modules if name.partition(".")[0] not in OWN_PACKAGES]
    return {
        "failed": recorder.failed,
        "status": int(status),
        "seconds": recorder.seconds,
        "lines": lines,
        "modules": modules,
    }


def run_in_fork(request: dict[str, Any]) -> dict[str, Any]:
    """Run the tests of a request in a fork; end the fork and its children at the time limit."""
    with tempfile.TemporaryDirectory() as folder:
        answer_file = Path(folder, "answer.json")
        if (pid := os.fork()) == 0:
            os.setsid()
            with Path(folder, "output").open("w") as output:
                os.dup2(output.fileno(), 1)
                os.dup2(output.fileno(), 2)
            try:
                answer_file.write_text(json.dumps(run_tests(request["tests"], request.get("package"))))
            finally:
                os._exit(0)
        deadline = time.monotonic() + request["seconds"]
        while os.waitpid(pid, os.WNOHANG) == (0, 0):
            if time.monotonic() > deadline:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return {"failed": TIME_LIMIT, "status": 1}
            time.sleep(0.01)
        if not answer_file.exists():
            return {"failed": "the process ended", "status": 1}
        answer: dict[str, Any] = json.loads(answer_file.read_text())
        return {**answer, "output": Path(folder, "output").read_text(errors="replace")[-2000:]}


def serve() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        for name in request.get("modules", ()):
            with contextlib.suppress(Exception):  # a module that cannot be imported alone is imported in each fork
                import_module(name)
        answer = run_in_fork(request) if request["tests"] else {}
        print(json.dumps(answer), flush=True)  # noqa: T201 (the answer)


class MutantServer:
    """A server in its own process and its own copy of the checkout."""

    def __init__(self, folder: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        self.folder = folder
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "tests.mutant_server"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, tests: Sequence[str], seconds: float, **more: object) -> dict[str, Any]:
        """Run tests; return the server's answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"tests": list(tests), "seconds": seconds, **more}) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        self._process.communicate()


if __name__ == "__main__":
    serve()
