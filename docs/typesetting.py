# ruff: noqa: INP001 (conf.py reads it from this folder)
"""Set formulas as MathML, which browsers draw, and keys of sources as links.

A formula on a line of its own is LaTeX in a block of the language math, which code hosts draw as well; a line that
ends in a double backslash is one line of it. In running text α_l and e^{lε} are set with a lower and a raised part. A
key such as [D, Lemma 3.4] leads to D in the list of sources, and an arXiv number there to arXiv.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util.typing import ExtensionMetadata
from sphinx.writers.html5 import HTML5Translator

SOURCES = "reference/sources"
_LISTED = re.compile(r"^- \*\*(\w+)\*\*:", re.MULTILINE)
_KEY = re.compile(r"\[(?P<key>[A-Z][A-Za-z]*\d*)(?:,\s[^\[\]]+)?\]")
_ARXIV = re.compile(r"arXiv:(?P<number>\d{4}\.\d{4,5}(?:v\d+)?)")
# one letter, or what closes a bracket; then parts in braces, a word below, or a letter or number above
_BASE = r"(?:\b(?:max|min|sup)|(?<![A-Za-z_])[^\W\d_]|(?<=\w)′|[)\]₊∫])"
# below a Latin letter at most two signs, or one constant's name: n_jobs and max_iter are Python's
_BELOW = r"const\b|[^\W_]{1,2}(?!\w)|(?<=[^\x00-\x7f]_)[^\W_]+"
_SCRIPT = r"_(?:{braced}|{below})|\^(?:{braced}|\*|∞|\d+|[^\W\d_]′?)".format(
    below=_BELOW, braced=r"\{(?:[^{}]|\{[^{}]*\})*\}"
)
_SHIFTED = re.compile(rf"(?P<base>{_BASE})(?P<scripts>(?:{_SCRIPT})+)")
_VERBATIM = (
    *(nodes.literal, nodes.literal_block, nodes.doctest_block, nodes.math, nodes.math_block, nodes.raw),
    nodes.reference,
)


def formula(latex: str) -> str:
    """Write LaTeX as MathML, a formula a line."""
    lines = (convert(line).replace("<math ", '<math displaystyle="true" ', 1) for line in latex.strip().split("\\\\\n"))
    return "".join(f"<div>{line}</div>" for line in lines)


def visit_block(translator: HTML5Translator, node: nodes.math_block) -> None:
    """Write a displayed formula."""
    translator.body.append(f'<div class="formula">{formula(node.astext())}</div>\n')
    raise nodes.SkipNode


def visit_inline(translator: HTML5Translator, node: nodes.math) -> None:
    """Write a formula in a line of text."""
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def shifted(text: str) -> Iterator[nodes.Node]:
    """Split text into parts on the line, below and above it.

    >>> [node.astext() for node in shifted("e^{x_i} − α_l")]
    ['e', 'xi', ' − α', 'l']
    >>> [node.astext() for node in shifted("γ_Sub, p_hi, n_jobs")]
    ['γ', 'Sub', ', p', 'hi', ', n_jobs']
    """
    place = 0
    for match in _SHIFTED.finditer(text):
        yield nodes.Text(text[place : match.end("base")])
        for script in re.compile(_SCRIPT).findall(text, *match.span("scripts")):
            kind = nodes.superscript if script[0] == "^" else nodes.subscript
            yield kind("", "", *shifted(script[1:].removeprefix("{").removesuffix("}")))
        place = match.end()
    if place < len(text):
        yield nodes.Text(text[place:])


def linked(text: str, pattern: re.Pattern[str], address: Callable[[re.Match[str]], str | None]) -> Iterator[nodes.Node]:
    """Split text into words, and links for matches with an address."""
    place = 0
    for match in pattern.finditer(text):
        target = address(match)
        if target is not None:
            yield nodes.Text(text[place : match.start()])
            yield nodes.reference("", match[0], refuri=target, internal=True)
            place = match.end()
    if place < len(text):
        yield nodes.Text(text[place:])


def typeset(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Apply the functions above to the text of a page."""
    keys = set(_LISTED.findall((Path(app.srcdir) / f"{SOURCES}.md").read_text(encoding="utf-8")))
    if page == SOURCES:
        for item in doctree.findall(nodes.list_item):
            item["ids"].append(f"source-{next(item.findall(nodes.strong)).astext()}")

    def source(match: re.Match[str]) -> str | None:
        here = "" if page == SOURCES else app.builder.get_relative_uri(page, SOURCES)
        return f"{here}#source-{match['key']}" if match["key"] in keys else None

    def arxiv(match: re.Match[str]) -> str | None:
        return f"https://arxiv.org/abs/{match['number']}" if page == SOURCES else None

    splits = partial(linked, pattern=_KEY, address=source), partial(linked, pattern=_ARXIV, address=arxiv), shifted
    for parent in list(doctree.findall(nodes.TextElement)):
        # of "lang" is what the gallery makes of a block of code
        if not any(isinstance(above, _VERBATIM) or "lang" in above.attributes for above in _with_above(parent)):
            parent.children = [new for part in _joined(parent.children) for new in _split(part, splits)]
            for child in parent.children:
                parent.setup_child(child)


def _split(part: nodes.Node, splits: Sequence[Callable[[str], Iterator[nodes.Node]]]) -> list[nodes.Node]:
    """Split a piece of text, and what comes of that, in every way in turn."""
    parts = [part]
    for split in splits:
        parts = [new for old in parts for new in (split(old.astext()) if isinstance(old, nodes.Text) else [old])]
    return parts


def _joined(children: Sequence[nodes.Node]) -> Iterator[nodes.Node]:
    """Join texts that follow one another, such as the lines of a paragraph."""
    for is_text, group in groupby(children, key=lambda child: isinstance(child, nodes.Text)):
        run = list(group)
        yield from [nodes.Text("".join(child.astext() for child in run))] if is_text else run


def _with_above(node: nodes.Element | None) -> Iterator[nodes.Element]:
    while node is not None:
        yield node
        node = node.parent


def setup(app: Sphinx) -> ExtensionMetadata:
    """Connect the functions above."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    app.connect("doctree-resolved", typeset)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
