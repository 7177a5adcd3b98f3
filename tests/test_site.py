"""The site is built without a warning, has no broken links, loads nothing from elsewhere, and fits a phone."""

import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from types import GenericAlias, ModuleType
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from darrm.__main__ import COMMANDS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
LOADING = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "object": "data"}
PHONE = 390  # pixels
NOT_THE_SITE = shutil.ignore_patterns(".*", "build", "results", "shared", "gallery", "__pycache__", "*.egg-info")


class Page(HTMLParser):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.anchors: set[str] = {""}
        self.unnamed: list[str] = []  # pictures without a text
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.add(values["href"])
        if tag == "link" and values.get("rel") not in {"index", "search", "next", "prev", "canonical"}:
            self.loaded.add(values["href"])
        if tag == "img" and not values.get("alt") and "_thumb." not in values.get("src", ""):  # thumbnails have a title
            self.unnamed.append(values.get("src", ""))
        if tag in LOADING and LOADING[tag] in values:
            self.loaded.add(values[LOADING[tag]])


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Build a copy: the gallery writes pages among the sources."""
    source, out = tmp_path / "source", tmp_path / "site"
    shutil.copytree(ROOT, source, ignore=NOT_THE_SITE)
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "--quiet", "-d", str(tmp_path / "doctrees")]
    done = subprocess.run([*command, str(source / "docs"), str(out)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out


@pytest.mark.slow
def test_the_site(site: Path) -> None:
    """One test, because a build takes minutes."""
    pages = {path.resolve(): Page(path) for path in site.rglob("*.html")}
    assert len(pages) > 30
    assert find_broken_links(pages) == []
    assert find_external_urls(pages, site) == []
    assert {path.name: page.unnamed for path, page in pages.items() if page.unnamed} == {}
    assert "<math" in (site / "theory" / "composition.html").read_text(encoding="utf-8")
    assert find_unlinked_keys(site) == []
    index = json.loads((site / "searchindex.js").read_text(encoding="utf-8").removeprefix("Search.setIndex(")[:-1])
    assert {"optimize_table", "PrivacyLedger"} <= {entry[-1] for entry in index["objects"]["darrm"]}
    assert "ledger" in index["terms"]
    for package, names in list_public_names().items():
        missing = [name for name in names if not is_documented(site, name)]
        assert missing == [], package
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("everything else holds; there is no Chromium to render the pages")
    result = render(browser, f"{(site / 'search.html').as_uri()}?q=ledger")
    assert 'href="reference/account.html' in result
    assert "glossary.html#ledger" in result
    assert find_wide_pages(browser, pages, site) == []


def find_broken_links(pages: dict[Path, Page]) -> list[str]:
    broken = []
    for path, page in pages.items():
        for link in page.links | page.loaded:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchors = pages[target].anchors if target in pages else {"", parts.fragment}
            if not target.is_file() or unquote(parts.fragment) not in anchors:
                broken.append(f"{path.name}: {link}")
    return broken


def find_external_urls(pages: dict[Path, Page], site: Path) -> list[str]:
    urls = [url for page in pages.values() for url in page.loaded if re.match("(?!data:)[a-z]*:|//", url)]
    for path in site.rglob("*.css"):
        text = path.read_text(encoding="utf-8")
        urls += re.findall(r"url\(\s*[\"']?((?:https?:)?//[^)]*)", text) + re.findall("@import[^;]*//[^;]*", text)
    return urls


def find_unlinked_keys(site: Path) -> list[str]:
    """Return the keys of sources that theory cites without a link, except in comments of code."""
    keys = re.findall(
        r"^- \*\*(\w+)\*\*:", (DOCS / "reference" / "sources.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    key = re.compile(rf"(?<!>)\[(?:{'|'.join(keys)}), [A-Z][^\]<]*\]")
    texts = [path.read_text(encoding="utf-8").partition("<article")[2] for path in (site / "theory").glob("*.html")]
    prose = [re.sub("<pre>.*?</pre>", "", text.partition("</article>")[0], flags=re.DOTALL) for text in texts]
    return [citation for text in prose for citation in key.findall(text)]


def list_public_names() -> dict[str, list[str]]:
    """Return the names that each package exports, except modules and types that other packages use."""
    packages = [path.parent.name for path in (ROOT / "darrm").glob("*/__init__.py") if "__all__" in path.read_text()]
    modules = {package: import_module(f"darrm.{package}") for package in packages}
    exported = {
        package: [
            name for name in module.__all__ if not isinstance(getattr(module, name, sys), ModuleType | GenericAlias)
        ]
        for package, module in modules.items()
    }
    exported = {package: names for package, names in exported.items() if names}
    return exported | {"": [name for name in import_module("darrm").__all__ if not name.startswith("__")]}


def is_documented(site: Path, name: str) -> bool:
    """Return whether a name has an entry in the reference, not only a line in a table."""
    return any(f'.{name}"' in path.read_text(encoding="utf-8") for path in (site / "reference").glob("*.html"))


def render(browser: str, url: str) -> str:
    command = [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files"]
    words = [*command, "--virtual-time-budget=20000", "--dump-dom", url]
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=300).stdout


def find_wide_pages(browser: str, pages: dict[Path, Page], site: Path) -> list[Any]:
    script = """
        const frame = document.createElement("iframe"), wide = []
        frame.style = "width: PHONEpx; height: 800px; border: 0"
        document.body.append(frame)
        const next = () => {
            if (!pages.length) { document.body.innerHTML = `<pre>${JSON.stringify(wide)}</pre>`; return }
            const page = pages.pop()
            frame.onload = () => {
                const width = frame.contentDocument.documentElement.scrollWidth
                if (width > PHONE) wide.push([page, width])
                next()
            }
            frame.src = page
        }
        next()""".replace("PHONE", str(PHONE))
    names = json.dumps(sorted(path.relative_to(site.resolve()).as_posix() for path in pages))
    wrapper = site / "too_wide.html"
    wrapper.write_text(f"<!doctype html><body><script>const pages = {names};{script}</script>", encoding="utf-8")
    match = re.search(r"<pre>(.*)</pre>", render(browser, wrapper.as_uri()))
    assert match is not None
    return list(json.loads(match[1]))


@pytest.mark.slow
def test_the_first_release_runs_as_printed(tmp_path: Path) -> None:
    text = (DOCS / "index.md").read_text(encoding="utf-8")
    [block] = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert sum(bool(line.strip()) for line in block.splitlines()) <= 10  # as its heading says
    done = subprocess.run([sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert len(re.findall("[01]", done.stdout.partition("]")[0])) == 20
    for line in re.findall(r"^python (-m darrm\..*)$", text, flags=re.MULTILINE):
        subprocess.run([sys.executable, *line.split()], cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "first.json").is_file()


@pytest.mark.slow
def test_the_first_picture_is_what_its_command_draws(tmp_path: Path) -> None:
    image = pytest.importorskip("matplotlib.image")
    [command] = re.findall(r"`python (-m darrm\.optimize [^`]*)`", (DOCS / "index.md").read_text(encoding="utf-8"))
    subprocess.run([sys.executable, *command.split(), "--quiet"], cwd=tmp_path, check=True)
    picture, stored = (image.imread(folder / "first-release.png") for folder in (tmp_path, DOCS / "pictures"))
    assert picture.shape == stored.shape
    assert abs(picture - stored).mean() < 1e-3, "draw docs/pictures/first-release.png again"


def test_every_command_and_package_is_in_the_reference() -> None:
    commands = (DOCS / "reference" / "commands.md").read_text(encoding="utf-8")
    assert re.findall(r"^## darrm (\w+)\n\n```\{help\} \1$", commands, flags=re.MULTILINE) == list(COMMANDS)
    reference = "".join(path.read_text(encoding="utf-8") for path in (DOCS / "reference").glob("*.md"))
    assert {f"darrm.{package}".rstrip(".") for package in list_public_names()} == set(
        re.findall(r"names:: (\S+)", reference)
    )
