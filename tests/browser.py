"""Open pages in headless Chromium, controlled through a pipe, as a person would open them."""

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
    """One page; `complaints` has its errors and log messages."""

    def __init__(self, output: int, input_: int) -> None:
        self._output, self._input = output, input_
        self._last_id, self._buffer, self._session_id = 0, b"", ""
        self.complaints: list[str] = []
        target = self.say("Target.createTarget", url="about:blank")["targetId"]
        self._session_id = self.say("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.say(f"{domain}.enable")

    def say(self, method: str, **parameters: object) -> Any:
        """Send a command of the DevTools protocol and return its result."""
        self._last_id += 1
        message = {"id": self._last_id, "method": method, "params": parameters}
        message |= {"sessionId": self._session_id} if self._session_id else {}
        os.write(self._output, json.dumps(message).encode() + b"\0")
        while True:
            response = self._read()
            if response.get("id") == self._last_id:
                assert "error" not in response, response
                return response["result"]

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            chunk = os.read(self._input, 2**20)
            assert chunk, "the browser ended"
            self._buffer += chunk
        line, self._buffer = self._buffer.split(b"\0", 1)
        message: dict[str, Any] = json.loads(line)
        if message.get("method") in {"Log.entryAdded", "Runtime.exceptionThrown"}:
            self.complaints.append(json.dumps(message["params"]))
        return message

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
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.say("Emulation.setDeviceMetricsOverride", **metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.say("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.say("Page.captureScreenshot")["data"]))


@contextmanager
def open_browser(folder: Path) -> Iterator[Browser]:
    """Start Chromium; skip the test if it is not installed."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip("no Chromium is installed: apt-get install chromium")
    (browser_input, output), (input_, browser_output) = os.pipe(), os.pipe()

    flags = "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --remote-debugging-pipe --no-first-run"
    # Chromium reads from file descriptor 3 and writes to 4
    command = ["bash", "-c", f'exec "$0" "$@" 3<&{browser_input} 4>&{browser_output}', program, *flags.split()]
    process = subprocess.Popen(
        [*command, f"--user-data-dir={folder / 'profile'}"],
        pass_fds=(browser_input, browser_output),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    for descriptor in (browser_input, browser_output):
        os.close(descriptor)
    try:
        yield Browser(output, input_)
    finally:
        process.kill()
        process.wait(SECONDS)
        os.close(output)
        os.close(input_)
