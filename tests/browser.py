"""Chromium without a window, told what to do over a pipe: pages opened by tests as people open them."""

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
SECONDS = 60.0


class Browser:
    """One page; what it complained of is in `complaints`."""

    def __init__(self, to: int, back: int) -> None:
        self._to, self._back = to, back
        self._number, self._rest, self._session = 0, b"", ""
        self.complaints: list[str] = []
        target = self.say("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.say("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.say(f"{domain}.enable")

    def say(self, method: str, **words: object) -> Any:
        """Send a command of the DevTools protocol, return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": words}
        message |= {"sessionId": self._session} if self._session else {}
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            piece = os.read(self._back, 2**20)
            assert piece, "the browser ended"
            self._rest += piece
        line, self._rest = self._rest.split(b"\0", 1)
        answer: dict[str, Any] = json.loads(line)
        if answer.get("method") in {"Log.entryAdded", "Runtime.exceptionThrown"}:
            self.complaints.append(json.dumps(answer["params"]))
        return answer

    def open(self, url: str) -> None:
        self.say("Page.navigate", url=url)
        while self.run("document.readyState") != "complete" or self.run("location.href") == "about:blank":
            pass

    def run(self, script: str) -> Any:
        result = self.say("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self.say("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode={"Tab": 9}[key])

    def screen(self, width: int, height: int, *, dark: bool) -> None:
        phone = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.say("Emulation.setDeviceMetricsOverride", **phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.say("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.say("Page.captureScreenshot")["data"]))


@contextmanager
def browsing(folder: Path) -> Iterator[Browser]:
    """Start Chromium; skip the test where there is none."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip("no Chromium is installed: apt-get install chromium")
    (from_us, to), (back, from_it) = os.pipe(), os.pipe()

    flags = "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --remote-debugging-pipe --no-first-run"
    # it reads from its third pipe and writes to its fourth
    command = ["bash", "-c", f'exec "$0" "$@" 3<&{from_us} 4>&{from_it}', program, *flags.split()]
    process = subprocess.Popen(
        [*command, f"--user-data-dir={folder / 'profile'}"],
        pass_fds=(from_us, from_it),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    for end in (from_us, from_it):
        os.close(end)
    try:
        yield Browser(to, back)
    finally:
        process.kill()
        process.wait(SECONDS)
        os.close(to)
        os.close(back)
