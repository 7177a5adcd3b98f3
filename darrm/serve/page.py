"""Pages for people: questions, labels and budget; and the endpoints. No scripts, nothing loaded."""

import time
from collections.abc import Iterable
from html import escape

from darrm.util.files import Json

_STYLE = """
:root { color-scheme: light dark; --line: #8886; --full: #2f6f9f; }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.4rem; } a:focus-visible { outline: 3px solid; outline-offset: 2px; }
meter { width: 100%; height: 1.2rem; } .trouble { border: 2px solid #c33; padding: .5rem; }
article { border-top: 1px solid var(--line); padding: .6rem 0; } article h2 { font-size: 1.05rem; margin: 0; }
article p { margin: .1rem 0; } .label { font-weight: 700; } code { white-space: pre-wrap; }
dt { font-weight: 700; margin-top: .8rem; } dd { margin: 0; }
"""
_STATES = {
    "open": "waits for votes",
    "ready": "is being answered",
    "expired": "expired without a label: votes were missing; nothing was paid",
    "refused": "refused: the budget is spent; nothing was paid",
    "failed": "failed: its votes cannot be answered; nothing was paid",
    "lost": "paid for, and its label is lost",
}


def _page(title: str, body: str) -> str:
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>'
        f"<body><main>{body}</main></body></html>"
    )


def _bar(name: str, left: int, most: int) -> str:
    text = f"{left:,} of {most:,} questions left"
    meter = f'<meter min="0" max="{max(most, 1)}" value="{left}" aria-label="{escape(name)}">{text}</meter>'
    return f"<p>{escape(name)}: {text}<br>{meter}</p>"


def _question(question: dict[str, Json]) -> str:
    nobody = "nobody" if question["state"] in {"open", "expired"} else "all, with the question"
    voted = ", ".join(map(str, question["voted"])) or nobody
    if question["state"] == "answered":
        label = f"answer: {question['label']}" if "label" in question else "answered; the label is its asker's"
        end = f'<span class="label">{escape(label)}</span>'
    else:
        end = escape(_STATES[question["state"]])
    until = ""
    if question["state"] == "open":
        until = f" until {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(question['deadline']))} UTC"
    text = f"<p>{escape(question['text'])}</p>" if question["text"] else ""
    return f"<article><h2>{escape(question['id'])}</h2>{text}<p>{end}{until}</p><p>Voted: {escape(voted)}</p></article>"


def home(questions: list[dict[str, Json]], budget: dict[str, Json], name: str, trouble: str, report: str) -> str:
    answered = sum(question["state"] == "answered" for question in questions)
    bars = _bar("Common budget", budget["left"], budget["left"] + budget["answered"])
    own = [("Your own", budget["client"]), *([("Your project", budget["project"])] if "project" in budget else [])]
    bars += "".join(_bar(title, max(0, row["limit"] - row["used"]), row["limit"]) for title, row in own if row["limit"])
    link = f'<p><a href="{escape(report)}">The auditor\'s report</a></p>' if report else ""
    alarm = '<p class="trouble" role="alert">Nothing is answered just now; what waits is kept.</p>' if trouble else ""
    body = f"<h1>Questions</h1><p>You are {escape(name)}. {len(questions)} shown, {answered} answered.</p>"
    return _page(
        "Questions",
        body + alarm + bars + link + "".join(map(_question, questions)) + '<p><a href="/docs">The endpoints</a></p>',
    )


def docs(endpoints: Iterable[tuple[str, str]]) -> str:
    rows = [f"<dt><code>{escape(name)}</code></dt><dd>{escape(summary)}</dd>" for name, summary in endpoints]
    more = (
        '<p>For programs: <a href="/openapi.json">openapi.json</a>. A token is sent as '
        "<code>Authorization: Bearer TOKEN</code>.</p>"
    )
    return _page("Endpoints", f"<h1>Endpoints</h1>{more}<dl>{''.join(rows)}</dl>")
