"""The page at / in Chromium: wide and narrow, light and dark, by keyboard, without loading anything."""

from pathlib import Path

import pytest

from tests.browser import open_browser
from tests.serve.endpoints import Endpoint

LUMINANCE = """(() => { const shade = (color) => { const [r, g, b] = color.match(/[0-9.]+/g).map(Number);
  return (0.2126 * r + 0.7152 * g + 0.0722 * b) / 255; };
  const probe = document.createElement('p'); document.body.append(probe);
  const text = shade(getComputedStyle(probe).color); probe.style.color = 'Canvas';
  const back = shade(getComputedStyle(probe).color); probe.remove(); return [text, back]; })()"""


@pytest.mark.slow
def test_the_page_is_readable_wide_and_narrow_light_and_dark_and_by_keyboard(tmp_path: Path) -> None:
    server = Endpoint(tmp_path)
    try:
        server.service._report = "/docs#report"
        server.call("study", "POST", "/questions", {"id": "ward 4", "text": "more than ten?", "seconds": 3600})
        server.call("voter2", "PUT", "/questions/ward 4/vote", {"vote": 1})
        server.call("study", "POST", "/ask", [{"id": "x" * 100, "votes": [1, 1, 1]}])
        with open_browser(tmp_path) as browser:
            for width, dark in ((1280, False), (390, False), (390, True)):
                browser.screen(width, 900, dark=dark)
                browser.open(f"http://study:{server.tokens['study']}@127.0.0.1:{server.port}/")
                assert browser.run("document.title") == "Questions"
                assert browser.run("document.documentElement.scrollWidth") <= width
                assert "Voted: voter2" in browser.run("document.body.innerText")
                assert browser.run("document.querySelectorAll('article').length") == 2
                assert browser.run("document.querySelector('meter').value") == 99
                text, back = browser.run(LUMINANCE)
                assert (text > 0.7 and back < 0.3) if dark else (text < 0.3 and back > 0.7)
            for link in ("The auditor's report", "The endpoints"):
                browser.press("Tab")
                assert browser.run("document.activeElement.textContent") == link
                assert browser.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"
            assert browser.run("performance.getEntriesByType('resource').map((entry) => entry.name)") == []
            assert [line for line in browser.complaints if "favicon" not in line] == []
    finally:
        server.close()
