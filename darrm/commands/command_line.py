"""The terminal: errors as one line, reports, warnings, encodings, and files that must not be overwritten.

>>> run(lambda: checks.fail("--K", 0, "at least 1"))
2
"""

import codecs
import io
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path

from darrm.errors import DarrmError, DeliveryError
from darrm.util import checks
from darrm.util.extras import require
from darrm.util.files import check_parent, is_same_file

USAGE_STATUS = 2
PAID_STATUS = 3  # a budget is spent, and something failed afterwards
INTERRUPTED_STATUS = 130
UNEXPECTED_STATUS = 70  # of sysexits.h: none of the statuses that commands give a meaning
_OUR_PACKAGES = {"darrm", "lp_models", "experiments", "tests", "__main__"}
# control characters except line breaks, and characters that change the direction of writing
_CONTROL_CHARACTERS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
# possible passwords in messages
_PASSWORD = re.compile(r"(?<=:)[^\s:/@]+(?=@)|(?<=password=)[^\s&'\"]+", re.IGNORECASE)
# characters of our texts, for an output whose encoding lacks them
_ASCII_NAMES = (
    "α:alpha γ:gamma δ:delta Δ:Delta ε:epsilon θ:theta σ:sigma ∞:inf ≤:<= ≥:>= −:- –:- —:- ±:+- ·:* ×:x …:... ’:' é:e"
)
_ASCII_BY_CHARACTER = dict(pair.split(":") for pair in _ASCII_NAMES.split())
_MAX_CHARACTERS = 1000  # the longest line on standard error: typed words and contents of files may be long


def nearest(word: str, words: Iterable[str]) -> str:
    """Return, in parentheses, the words that were probably meant; or nothing.

    >>> nearest("--eps", ["--epsilon", "--each-delta"]), nearest("--k", ["--K", "--m"]), nearest("--xyz", ["--K"])
    (' (did you mean --epsilon?)', ' (did you mean --K?)', '')
    """
    names = {name: name.strip("-").lower() for name in words}
    key = word.strip("-–—").lower()  # a word processor makes dashes of hyphens
    matches = [name for name, folded in names.items() if folded == key]
    matches = matches or [name for name, folded in names.items() if len(key) > 1 and folded.startswith(key)]
    matches = matches or [
        name for name, folded in names.items() if folded in get_close_matches(key, names.values(), cutoff=0.75)
    ]
    return f" (did you mean {' or '.join(matches)}?)" if matches else ""


def check_output_files(files: Mapping[str, Path], force: bool) -> None:
    """Check the files that a command will write: none may be another file, and an existing one needs ``force``."""
    files = dict(files)
    for name in ("output", "plot", "report", "csv"):
        path = files.pop(name, None)
        if path is None:
            continue
        check_parent(path)
        for input_name, input_path in files.items():
            if is_same_file(path, input_path):
                advice = f"it would overwrite {input_name}; name another file"
                checks.fail(f"--{name}", str(path), "another file", advice)
        if path.exists() and not force:
            checks.fail(f"--{name}", str(path), "a new file", "it exists already: --force overwrites it")
        if name == "plot":
            formats = require("matplotlib.backend_bases").FigureCanvasBase.get_supported_filetypes()
            if path.suffix.lower().removeprefix(".") not in formats:
                checks.fail("--plot", str(path), "a file whose name ends in .png, .pdf or .svg")


def harmless(text: str) -> str:
    """Escape control characters, which a terminal would obey, as JSON does: plain data stay the same data."""
    return _CONTROL_CHARACTERS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def run(main: Callable[[], int]) -> int:
    """Return the exit status: 2 for our errors, 3 where a budget is spent already, 70 for unexpected ones."""
    if sys.stdout is None:  # a shell's >&-
        return complain("standard output is closed: send it to a file, or to /dev/null", USAGE_STATUS)
    for output in (sys.stdout, sys.stderr):
        if isinstance(output, io.TextIOWrapper):
            output.reconfigure(errors="darrm")  # missing characters must not stop a report
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning  # type: ignore[assignment]  # the rest of its arguments is not shown
            status = main()
            sys.stdout.flush()
    except BrokenPipeError:  # the reader (head, less) has gone
        _settle_output()
        return 0
    except KeyboardInterrupt:
        return complain("interrupted", INTERRUPTED_STATUS)
    except MemoryError:
        return complain("out of memory: ask for less at once", USAGE_STATUS)
    except Exception as error:
        _settle_output()
        if sys.flags.dev_mode and not _is_expected(error):
            raise
        return complain(*_describe_error(error))
    return status


def _replace_missing(error: UnicodeError) -> tuple[str, int]:
    """Replace characters that an encoding lacks by their names, or escape them."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(_ASCII_BY_CHARACTER.get(character) or ascii(character)[1:-1] for character in lacking), error.end


codecs.register_error("darrm", _replace_missing)


def _is_expected(error: Exception) -> bool:
    """Whether the message of an error is for a user: it is about a file, or our code raised it."""
    if isinstance(error, OSError):
        return True
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    module = "" if trace is None else str(trace.tb_frame.f_globals.get("__name__"))
    return isinstance(error, ValueError | DarrmError | UserWarning) and module.partition(".")[0] in _OUR_PACKAGES


def _describe_error(error: Exception) -> tuple[str, int]:
    if isinstance(error, OSError) and error.filename is not None:
        advice = "check its name, its folder and their permissions"
        return f"{str(error.filename)!r}: {error.strerror}: {advice}", USAGE_STATUS
    if _is_expected(error):
        return str(error), PAID_STATUS if isinstance(error, DeliveryError) else USAGE_STATUS
    advice = "Report it with its traceback: python -X dev -m darrm.… prints it"
    return f"unexpected {type(error).__name__}: {error}. {advice}", UNEXPECTED_STATUS


def complain(message: str, status: int, kind: str = "error") -> int:
    line = harmless(_PASSWORD.sub("...", " ".join(message.split())))
    line = line if len(line) <= _MAX_CHARACTERS else f"{line[: _MAX_CHARACTERS - 1]}…"
    if sys.stderr is not None:
        with suppress(OSError):
            sys.stderr.write(f"{kind}: {line}\n")
    return status


def _show_warning(message: Warning | str, *_: object) -> None:
    complain(str(message), 0, "warning")


def _settle_output() -> None:
    """Redirect a closed output, so that the interpreter flushes it silently."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def format_count(count: int, singular: str, plural: str) -> str:
    return f"{count:,} {singular if count == 1 else plural}"


def spread(count: int, most: int) -> list[int]:
    """Choose at most ``most`` evenly spaced indices of 0 … count − 1, with the first and the last.

    >>> spread(5, 8), spread(100, 4)
    ([0, 1, 2, 3, 4], [0, 33, 66, 99])
    """
    if count <= most:
        return list(range(count))
    return sorted({round(index * (count - 1) / (most - 1)) for index in range(most)})
