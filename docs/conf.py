# ruff: noqa: INP001 (Sphinx reads it by its path)
"""How the site is built: ``make docs`` writes it to build/docs; warnings are errors, and nothing comes from elsewhere.

Sphinx with MyST, because the pages stay Markdown that a code host shows; numpydoc, because the docstrings
are; sphinx-gallery, because a tutorial that is a plain script can be run, tested and read without a notebook.
"""

import hashlib
import re
import shutil
import sys
from contextlib import redirect_stdout, suppress
from importlib import import_module
from io import StringIO
from pathlib import Path
from types import GenericAlias, ModuleType
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from numpy.typing import ArrayLike
from sphinx.application import Sphinx
from sphinx.ext.autosummary import Autosummary
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import stringify_annotation

import darrm
from darrm.__main__ import main as run_darrm
from experiments import layers
from experiments.explorer_data import bundle

HERE = Path(__file__).parent
SOLVER = HERE.parent / "build" / "node_modules" / "highs"  # `make docs` fetches it if npm is installed
# Pages at the root of the repository, and the pages of the site that show them
AT_THE_ROOT = {"README": "index", "CHANGELOG": "changelog", "CONTRIBUTING": "contributing", "SECURITY": "security"}

project = "darrm"
version = release = darrm.__version__
author = "the darrm developers"
sys.path.insert(0, str(HERE))  # for typesetting.py
extensions = [
    "typesetting",
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = [
    "tutorials",
    "explorer",
    "static",
]  # the gallery writes pages from the one, the other is copied as it is
language = "en"

html_theme = "furo"
html_title = "darrm"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"

html_math_renderer = "mathml"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = [("site.js", {"priority": 400})]  # after the options, before the search reads them
html_favicon = "static/favicon.svg"

myst_fence_as_directive = ["math"]
myst_heading_anchors = 4  # a heading is linked by its words, as on a code host

autodoc_member_order = "groupwise"
autodoc_typehints = "signature"
python_maximum_signature_line_length = 88  # else a line for each parameter
python_use_unqualified_type_names = True
default_role = "autolink"  # `Name` in a docstring is a link if there is such a page
numpydoc_show_class_members = False  # autodoc writes them
numpydoc_xref_param_type = False
autosummary_generate = False  # one page a package

sphinx_gallery_conf = {
    "examples_dirs": "tutorials",
    "gallery_dirs": "gallery",  # written when the site is built, and ignored by git
    "filename_pattern": r"\.py$",  # every tutorial is run
    "abort_on_example_error": True,
    "capture_repr": (),  # printed text and pictures, not the value of a last line
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "notebook_extensions": {".py"},  # a notebook to download
    "show_signature": False,
    "write_computation_times": False,
}


def links(app: Sphinx, page: str, source: list[str]) -> None:
    """Turn the links that a code host follows, to files that are no pages, into links that the site can follow.

    A page that shows a file of the root has that file's text.
    """
    text = source[0]
    for name, shown in AT_THE_ROOT.items():
        if shown == page and f"](../{name}.md)" in text:
            app.env.note_dependency(str(HERE.parent / f"{name}.md"))
            text = (HERE.parent / f"{name}.md").read_text(encoding="utf-8")
            text = re.sub(r"\]\((?![a-z]+:|#|docs/)", "](../", text).replace("](docs/", "](")
    up = "../" * (page.count("/") + 1)
    for name, shown in AT_THE_ROOT.items():
        text = text.replace(f"]({up}{name}.md", f"]({up[3:]}{shown}.md")
    text = re.sub(r"\]\(((?:\.\./)*)tutorials/README\.rst\)", r"](\1gallery/index.rst)", text)
    text = re.sub(r"\]\(((?:\.\./)*)tutorials/(\w+)\.py\)", r"](\1gallery/\2.rst)", text)
    source[0] = re.sub(r"\[([^\]]*)\]\(([./]*explorer/index\.html[^)]*)\)", r'<a href="\2">\1</a>', text)


def short_types(_app: Sphinx, *about: Any) -> tuple[str, str] | None:  # noqa: ANN401 (whatever autodoc knows)
    """Write numpy's unions in a signature by their names, and default factories as `...`."""
    if about[-2] is None:
        return None
    parts = []
    for text in about[-2:]:
        named = (text or "").replace(stringify_annotation(ArrayLike, "smart"), "ArrayLike").replace("<factory>", "...")
        parts.append(
            re.sub(r"~numpy\.ndarray\[tuple\[~typing\.Any, \.\.\.\], ~numpy\.dtype\[~?([\w.]+)\]\]", _array, named)
        )
    return parts[0], parts[1]


def _array(found: re.Match[str]) -> str:
    return f"NDArray[{found[1].rpartition('.')[2]}]"


class Names(Autosummary):
    """``.. names:: PACKAGE``: a table of its public names, each with its first line and a link."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """List ``__all__`` but for modules and aliases; names of `darrm` itself are on its page."""
        package = self.arguments[0]
        module = import_module(package)
        names = [
            name
            for name in sorted(module.__all__)
            if not isinstance(getattr(module, name, sys), ModuleType | GenericAlias)
        ]
        names = [name for name in names if not name.startswith("__")]
        self.content = StringList([f"~{'darrm' if name in darrm.__all__ else package}.{name}" for name in names])
        return super().run()


class Help(SphinxDirective):
    """``{help} COMMAND [JOB]``: the ``--help`` of a command of `darrm`, or of a job of it."""

    required_arguments = 1
    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Ask the command."""
        shown = StringIO()
        with redirect_stdout(shown), suppress(SystemExit):
            run_darrm([*self.arguments, "--help"])
        return [nodes.literal_block(text=shown.getvalue(), language="text")]


def of_its_own(app: Sphinx, what: str, name: str, *_rest: object) -> bool | None:
    """Skip names that stand elsewhere: on the page of ``darrm``, or in scikit-learn, which adds them to estimators."""
    again = what == "module" and app.env.docname != "reference/darrm" and name in darrm.__all__
    return True if again or re.fullmatch("set_[a-z]+_request", name) else None


def fresh_gallery(_app: Sphinx) -> None:
    """Delete results of tutorials for other code, so that they are run again; keep those for this code."""
    sources = [path for root in ("darrm", "lp_models") for path in sorted((HERE.parent / root).rglob("*.py"))]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    gallery = HERE / sphinx_gallery_conf["gallery_dirs"]
    note = gallery / "code.sha256"
    if not note.is_file() or note.read_text(encoding="utf-8") != digest:
        shutil.rmtree(gallery, ignore_errors=True)
        gallery.mkdir()
        note.write_text(digest, encoding="utf-8")


def draw_layers(_app: Sphinx) -> None:
    """Draw the packages from their imports."""
    layers.draw(HERE / "pictures" / layers.OUTPUT.name)  # of the copy that is built


def explorer(app: Sphinx, error: Exception | None) -> None:
    """Copy the explorer, with its solver if npm has fetched it."""
    if error is None and app.builder.name == "html":
        bundle(HERE / "explorer", Path(app.outdir) / "explorer", SOLVER)


def setup(app: Sphinx) -> None:
    """Connect the functions above."""
    app.add_directive("names", Names)
    app.add_directive("help", Help)
    app.connect("builder-inited", draw_layers)
    app.connect("builder-inited", fresh_gallery, priority=100)  # before the gallery looks
    app.connect("source-read", links)
    app.connect("autodoc-skip-member", of_its_own)
    app.connect("autodoc-process-signature", short_types)
    app.connect("build-finished", explorer)
