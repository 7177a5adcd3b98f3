"""A substitute for Glyph, the data set of [P] that is not public: 28 × 28 images of 150 characters, from a seed.

[P, Section 5.1] describes Glyph: 150 symbols from over 500,000 fonts. Some classes are five times more frequent than
others, at least a tenth of the labels are wrong, a human cannot distinguish some symbols, and the baseline is 82.2 %.

Here 150 symbols come from 21 text fonts of matplotlib, all scaled to the same length, so that a comma equals an
apostrophe, and "o" equals "O" and "0". They are rotated, sheared, stretched, bent, thickened and covered with noise. A
mislabeled record shows another character, mostly one of `STRANGERS`, which belongs to no class; it is deformed much
more, as in an unusual font, and so are a few correct records. `Style` was chosen for accuracies and an agreement near
those in [P].

A record depends on (seed, stream, teacher) alone, so no shard is stored or sent. Images are equal on all machines whose
Pillow draws the same outlines by FreeType and whose NumPy generator has the same stream.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from darrm.util import checks
from darrm.util.extras import require

SIDE = 28  # pixels
AT_ONCE = 128  # pictures made together, which stay in a processor's cache
CANVAS = 112  # pixels of the atlas, four for each of a picture
KNOTS = 4  # on each side of the grid that bends a picture
LONGEST = 76  # pixels of the canvas that the longer side of a character takes
PLAIN_FONTS = ("cmb10", "cmr10", "cmss10", "cmti10", "cmtt10")  # whose symbols have the code points of others
FONTS = (
    *(f"DejaVuSans{style}" for style in ("", "-Bold", "-BoldOblique", "-Oblique")),
    *(f"DejaVuSansMono{style}" for style in ("", "-Bold", "-BoldOblique", "-Oblique")),
    *(f"DejaVuSerif{style}" for style in ("", "-Bold", "-BoldItalic", "-Italic")),
    *(f"STIXGeneral{style}" for style in ("", "Bol", "BolIta", "Italic")),
    *PLAIN_FONTS,
)
PLAIN = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
CHARACTERS = (
    PLAIN + "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~" + "ΓΔΘΛΞΠΣΦΨΩαβγδεζηθκλμξπρστφχψω" + "¢£¥§©®«¿¡¶±×÷€†‡•æøßçñéðþå"
)
STRANGERS = "♠♣♥♦♪♫★☆☎☺☼♀♂⇒⇔∀∃∇∈∑√∞∩∪∫≈≠≡≤≥⊂⊕⊗⊥⌂◊►◄▲▼■□●○←↑→↓↔½¼¾ªº¤¦¬ÞŁłŒœŠšŽžƒ"


@dataclass(frozen=True)
class Style:
    """How far a picture may be from its font's, each uniformly in ± the number."""

    classes: int = 150
    wrong: float = 0.09  # share of records whose picture shows another character than the label
    strangers: float = 0.8  # share of those that show a character of no class
    imbalance: float = 5.0  # how much more frequent the most frequent class is than the least
    rotation: float = 0.08  # radians
    shear: float = 0.1
    stretch: float = 0.08  # of log width and log height
    shift: float = 0.5  # pixels
    bend: float = 0.5  # pixels that each knot of a grid is displaced
    unusual: float = 0.03  # share of the other records that, like the wrong ones, are as from an unusual font:
    excess: float = 6.0  # times the five numbers above
    weight: float = 0.12  # of the threshold on the blurred outline: thinner or thicker strokes
    noise: float = 0.15  # of a pixel, full scale 1
    unusual_noise: float = 0.7  # the same for unusual fonts and wrong records


@dataclass(frozen=True, eq=False)
class Records:
    """Labeled pictures: (n, 784) in [0, 1], the labels (n,), and which character each shows (strangers from C on)."""

    x: NDArray[np.float32]
    y: NDArray[np.int64]
    shown: NDArray[np.int64]

    @property
    def images(self) -> NDArray[np.float32]:
        """The pictures as (n, 1, 28, 28)."""
        return self.x.reshape(-1, 1, SIDE, SIDE)


@dataclass(frozen=True, eq=False)
class Atlas:
    """The outlines of all characters in all fonts that have them, blurred, and where each character's begin."""

    outlines: NDArray[np.uint8]  # (outlines, CANVAS · CANVAS)
    starts: NDArray[np.int64]  # (characters + 1,)


def frequencies(style: Style) -> NDArray[np.float64]:
    """Return how often each class is a label, (C,): geometric from 1 to the imbalance, in an order without meaning."""
    weights = style.imbalance ** np.linspace(0.0, 1.0, style.classes)
    shuffled = weights[np.random.default_rng(style.classes).permutation(style.classes)]
    return np.asarray(shuffled / shuffled.sum())


def draw_records(style: Style, seed: tuple[int, ...], number: int) -> Records:
    """Make records from a seed; they are the same in every process."""
    rng = np.random.default_rng(seed)
    atlas = load_atlas(CHARACTERS[: style.classes] + STRANGERS)
    y = np.searchsorted(np.cumsum(frequencies(style)), rng.random(number)).clip(max=style.classes - 1)
    wrong = rng.random(number) < style.wrong
    strange = rng.random(number) < style.strangers
    other = (y + rng.integers(1, style.classes, number)) % style.classes
    stranger = style.classes + rng.integers(len(STRANGERS), size=number)
    shown = np.where(wrong, np.where(strange, stranger, other), y)
    first, end = atlas.starts[shown], atlas.starts[shown + 1]
    outline = first + (rng.random(number) * (end - first)).astype(np.int64)
    factor = np.where(wrong | (rng.random(number) < style.unusual), np.float32(style.excess), np.float32(1.0))
    slices = [slice(at, at + AT_ONCE) for at in range(0, number, AT_ONCE)]
    parts = [_pictures(atlas, outline[some], factor[some], style, rng) for some in slices]
    return Records(np.concatenate([*parts, np.empty((0, SIDE * SIDE), np.float32)]), y, shown)


def _pictures(
    atlas: Atlas, outline: NDArray[np.int64], factor: NDArray[np.float32], style: Style, rng: np.random.Generator
) -> NDArray[np.float32]:
    """Return (n, 784) pictures of outlines: deformed pixel by pixel, then thickness and noise."""
    number = len(outline)

    def uniform(width: float | NDArray[np.float32], columns: int) -> NDArray[np.float32]:
        draws = rng.random((number, columns), dtype=np.float32) - np.float32(0.5)
        return np.asarray(np.float32(2.0) * draws * np.asarray(width, dtype=np.float32).reshape(-1, 1))

    angle, shear = uniform(style.rotation * factor, 1), uniform(style.shear * factor, 1)
    wide, high = uniform(style.stretch * factor, 1), uniform(style.stretch * factor, 1)
    # sin a ≈ a, cos a ≈ 1 − a²/2 and the like: the same on every machine
    wide, high, cosine = 1.0 + wide + 0.5 * wide**2, 1.0 + high + 0.5 * high**2, 1.0 - 0.5 * angle**2
    where = []
    for along_row, along_column in ((cosine * high, angle * wide), (shear - angle * high, cosine * wide)):
        affine = np.hstack([along_row, along_column, uniform(style.shift * factor, 1)])
        knots = uniform(style.bend * factor, KNOTS**2)
        pixels = _rounded(affine, 2.0**-15) @ _affine_basis() + _rounded(knots, 2.0**-8) @ _knot_basis()
        where.append(np.clip((pixels + np.float32(SIDE / 2)) * np.float32(CANVAS // SIDE), 0, CANVAS - 1))
    row, column = (one.astype(np.int32) for one in where)
    value = atlas.outlines.reshape(-1)[outline[:, np.newaxis] * CANVAS**2 + (row * CANVAS + column)]
    threshold = np.float32(0.5) + uniform(style.weight, 1)
    ink = np.clip((value * np.float32(1 / 255) - threshold) * np.float32(3.0) + np.float32(0.5), 0.0, 1.0)
    pale = np.float32(1.0) - rng.random((number, 1), dtype=np.float32) * np.float32(0.5)
    noise = np.where(factor > 1.0, np.float32(style.unusual_noise), np.float32(style.noise))
    return np.asarray(np.clip(ink * pale + uniform(noise, SIDE * SIDE), 0.0, 1.0))


def _rounded(values: NDArray[np.float32], unit: float) -> NDArray[np.float32]:
    """Round to multiples of a power of two: products of two such units add up exactly, in whatever order."""
    return np.asarray(np.round(values * np.float32(1.0 / unit)) * np.float32(unit))


@cache
def _affine_basis() -> NDArray[np.float32]:
    """Return (3, 784): row and column of each pixel from the middle, in halves, and 1."""
    at = np.arange(SIDE) - (SIDE - 1) / 2.0
    return np.stack([np.repeat(at, SIDE), np.tile(at, SIDE), np.ones(SIDE**2)]).astype(np.float32)


@cache
def _knot_basis() -> NDArray[np.float32]:
    """Return (KNOTS², 784): how much each pixel moves with each knot of a grid over the picture."""
    at = np.arange(SIDE) - (SIDE - 1) / 2.0
    knots = np.linspace(-0.5 * SIDE, 0.5 * SIDE, KNOTS)
    hats = np.clip(1.0 - np.abs(at[:, np.newaxis] - knots) / (knots[1] - knots[0]), 0.0, None)
    return _rounded(np.kron(hats, hats).T.astype(np.float32), 2.0**-8)


@cache
def load_atlas(characters: str) -> Atlas:
    """Draw every character once in every font that has it; `ValueError` if no font has one."""
    drawn: dict[str, list[NDArray[np.uint8]]] = {character: [] for character in characters}
    for font in FONTS:
        charmap = require("matplotlib.ft2font").FT2Font(str(_path(font))).get_charmap()
        there = "".join(character for character in characters if has(charmap, font, character))
        for character, outline in _outlines(font, there).items():
            drawn[character].append(outline)
    for character, outlines in drawn.items():
        if not outlines:
            checks.fail("characters", character, "in one of the fonts", "take another character")
    starts = np.cumsum([0, *(len(outlines) for outlines in drawn.values())])
    every = [_blurred(np.stack(outlines)) for outlines in drawn.values()]
    return Atlas(np.concatenate(every).reshape(-1, CANVAS**2), starts)


def has(charmap: dict[int, int], font: str, character: str) -> bool:
    """Return whether a font draws a character, not the box for one that it lacks or a symbol of another place."""
    return charmap.get(ord(character), 0) > 0 and (font not in PLAIN_FONTS or character in PLAIN)


def _path(font: str) -> Path:
    return Path(require("matplotlib").get_data_path()) / "fonts" / "ttf" / f"{font}.ttf"


def _outlines(font: str, characters: str) -> dict[str, NDArray[np.uint8]]:
    """Draw characters in the middle of a canvas, the longer side of each as long as every other's."""
    drawing = require("PIL.ImageFont")
    measured = drawing.truetype(str(_path(font)), LONGEST, layout_engine=drawing.Layout.BASIC)
    drawn = {}
    for character in characters:
        left, top, right, bottom = measured.getbbox(character)
        sized = measured.font_variant(size=LONGEST**2 / max(right - left, bottom - top))
        mask = sized.getmask(character, mode="L")
        ink = np.asarray(mask, dtype=np.uint8).reshape(mask.size[::-1])
        height, width = ink.shape
        top, left = (CANVAS - height) // 2, (CANVAS - width) // 2
        drawn[character] = np.zeros((CANVAS, CANVAS), dtype=np.uint8)
        drawn[character][top : top + height, left : left + width] = ink
    return drawn


def _blurred(outlines: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Average (n, CANVAS, CANVAS) outlines over boxes of 5 × 5 pixels, twice, in integers."""
    for axis in (1, 2, 1, 2):
        total = np.zeros(outlines.shape, dtype=np.uint16)
        for step in range(-2, 3):
            total += np.roll(outlines, step, axis)
        outlines = (total // 5).astype(np.uint8)
    return outlines
