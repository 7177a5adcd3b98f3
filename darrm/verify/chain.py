"""The claims that heads make about a ledger: that nothing before them was deleted, changed, reordered or merged.

What `darrm.account.head` proves of a head, checked by code of its own: the rows of a copy are read here, and all links
are computed here. A head that does not fit makes the ledger false. Without a head every end of a ledger could have been
cut off, and every entry be written anew: that *cannot be known*, and is said.
"""

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from urllib.parse import quote, unquote

from darrm.verify.signatures import PublicKey, judge_signatures
from darrm.verify.verdicts import CLAIMED, CONSISTENT, FALSE, PROVED, UNKNOWN, Verdict, judged

_LEDGER = "ledger"
HEAD, _RECEIPT = "darrm-head:1:", "darrm-receipt 1"
_WORDS = 8  # of a head's text between its format and its check
_LINKED = 4  # the first version of a ledger that stores links
_SHOW = "show a head or a receipt that was copied later: NAME.receipt.json, or python -m darrm.account --ledger --head"
_KINDS = "SELECT id, cost, what FROM kinds"
_WHOLE = "it is the ledger that it was: no entry deleted, changed, reordered or merged, no other budget or identity"
_MORE = {2: "'', '', ''", 3: "questions, '', ''", _LINKED: "questions, link, seal", 5: "questions, link, seal"}


@dataclass(frozen=True)
class ShownHead:
    """A head as somebody copied it; ``source`` says from where."""

    identity: str
    number: int
    queries: int
    epsilon: str
    delta: str
    kinds: str
    population: str
    link: str
    source: str = "a head"

    def to_text(self) -> str:
        """Write the line that was copied, and that a signature is of."""
        words = (self.identity, self.number, self.queries, self.epsilon, self.delta, self.kinds)
        text = ":".join(map(str, (f"{HEAD}{words[0]}", *words[1:], quote(self.population, safe=""), self.link)))
        return f"{text}:{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def read_head(text: str, source: str = "a head") -> ShownHead:
    """Read a head from its line, from a receipt, or from what ``darrm account --head --format json`` printed.

    Raises
    ------
    ValueError
        If it is none of these, or a word of it was miscopied.

    Examples
    --------
    >>> head = read_head("darrm-head:1:ab12:3:120:2:0.00001:one:ward%207:c0ffee:c2a282e8")
    >>> head.number, head.population
    (3, 'ward 7')
    """
    line = text.strip()
    if line.startswith("{"):
        data = json.loads(line)
        data = data.get("head", data)
        line = data.get("text", "") if isinstance(data, dict) else ""
    head, _, check = str(line).rpartition(":")
    words = head.removeprefix(HEAD).split(":")
    if not head.startswith(HEAD) or len(words) != _WORDS or hashlib.sha256(head.encode()).hexdigest()[:8] != check:
        raise ValueError(f"{source} is no head of a ledger, or was not copied as it was: a line {HEAD}…")
    identity, number, queries, epsilon, delta, kinds, population, link = words
    return ShownHead(identity, int(number), int(queries), epsilon, delta, kinds, unquote(population), link, source)


def is_receipt(content: bytes) -> bool:
    """Whether the bytes of a file are those of a receipt, whose head `read_head` reads."""
    try:
        data = json.loads(content)
    except (ValueError, RecursionError):
        return False
    return isinstance(data, dict) and data.get("format") == _RECEIPT


@dataclass(frozen=True)
class Chain:
    """The links of a copy, computed here: of the ledger itself and of each entry, with the queries up to it."""

    budget: tuple[str, ...]  # ε, δ, kinds
    identity: str
    population: str
    links: Sequence[str]
    queries: Sequence[int]
    stored: bool  # whether the copy stores links, and they are these
    signatures: Sequence[str]  # what stands where each entry's signature does

    def head(self, number: int, source: str = "a head") -> ShownHead:
        """Return the head at an entry, computed here."""
        epsilon, delta, kinds = self.budget
        queries, link = self.queries[number], self.links[number]
        return ShownHead(self.identity, number, queries, epsilon, delta, kinds, self.population, link, source)


def read_chain(path: Path) -> Chain | None:
    """Compute the links of a copied ledger; None for one of version 1, which has none.

    Raises
    ------
    ValueError
        If a link that it stores is another one, or it cannot be read as a ledger.
    """
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True)) as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version not in _MORE:
                return None
            named = "population" if version >= _LINKED else "''"
            budget = f"SELECT epsilon, delta, kinds, created, identity, {named} FROM budget"  # noqa: S608 (words of our own)
            epsilon, delta, kinds, created, identity, population = connection.execute(budget).fetchone()
            links = [_digest("darrm", identity, epsilon, delta, kinds, created, population)]
            seals = {kind: _digest(cost, what) for kind, cost, what in connection.execute(_KINDS)}
            queries, signatures = [0], list[str]()
            for number, kind, *row, stored, signature in connection.execute(_log(version)):
                links.append(_digest(links[-1], number, row[0], seals[kind], *row[1:]))
                queries.append(queries[-1] + row[1])
                signatures.append(str(signature))
                if version >= _LINKED and stored != links[-1]:
                    raise ValueError(f"entry {number} does not carry the digest of itself and of the entry before it")
    except (sqlite3.Error, UnicodeDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"its log cannot be read ({error})") from error
    return Chain((epsilon, delta, kinds), identity, population, links, queries, version >= _LINKED, signatures)


def _log(version: int) -> str:
    """Return the query of all that links are made of; a seal that is stored is not believed, but computed."""
    columns = "id, kind, time, count, note, proof, digest, token, output"
    return f"SELECT {columns}, {_MORE[version]} FROM charges ORDER BY id"  # noqa: S608 (words of our own)


def judge_chain(path: Path, heads: Iterable[ShownHead] = (), keys: Sequence[PublicKey] = ()) -> Iterator[Verdict]:
    """Judge a copied ledger against the heads that are shown of it.

    ``path`` is a copy of the ledger's file, with one of the journal beside it, if any, which is rolled back; ``heads``
    are those that it is said to have had (one of another ledger is *false* here), and ``keys`` are of whoever is said
    to have signed its entries.
    """
    shown, claim = sorted(heads, key=lambda head: head.number), "every entry carries the digest of the one before it"
    try:
        chain = read_chain(path)
    except ValueError as error:
        yield Verdict(_LEDGER, claim, FALSE, str(error))
        return
    if chain is None:
        reason = "a ledger of version 1 has no head" + ("" if shown else ": its next debit gives it one")
        yield Verdict(_LEDGER, _WHOLE, FALSE if shown else UNKNOWN, reason)
        yield from judge_signatures([""], str, keys)
        return
    last = len(chain.links) - 1
    reason = f"{last} links computed here" + ("" if chain.stored else "; this version stores none")
    yield Verdict(_LEDGER, claim, CONSISTENT, f"{reason}; whoever rewrites the file can link it anew")
    if chain.population:
        claim = f"its votes are about the population {chain.population!r}"
        yield Verdict(_LEDGER, claim, CLAIMED, "in the words of whoever made it")
    signed = judge_signatures(chain.signatures, lambda number: chain.head(number).to_text(), keys)
    yield from signed
    if signed and signed[0].verdict == PROVED:
        shown.append(chain.head(last, f"the signature of entry {last}"))
    for head in shown:
        fault = _fault(chain, head)
        claim = f"{_WHOLE}, up to entry {head.number}"
        yield Verdict(_LEDGER, claim, FALSE if fault else PROVED, fault or f"{head.source} has the link computed here")
    covered = max((head.number for head in shown if not _fault(chain, head)), default=None)
    if not shown:
        yield Verdict(_LEDGER, _WHOLE, UNKNOWN, f"no head of it was given: {_SHOW}")
    elif covered is not None:
        claim = f"it is no older copy, and nothing after entry {covered} was deleted or changed"
        yield Verdict(
            _LEDGER, claim, UNKNOWN, f"the latest head that was given is of entry {covered} of {last}: {_SHOW}"
        )


def _fault(chain: Chain, head: ShownHead) -> str:
    last = len(chain.links) - 1
    if head.identity != chain.identity:
        return f"{head.source} is of the ledger {head.identity}, and this is {chain.identity}: another one, or renamed"
    budget = (head.epsilon, head.delta, head.kinds)
    if budget != chain.budget:
        was, now = (f"({epsilon}, {delta}) for {kinds!r} kinds" for epsilon, delta, kinds in (budget, chain.budget))
        return f"{head.source} has the budget {was}, and the ledger {now}"
    if head.population != chain.population:
        return f"{head.source} is about {head.population!r}, and the ledger about {chain.population!r}"
    if head.number > last:
        return (
            f"{head.source} has {head.number} entries, and the ledger {last}: entries are gone, or it is an older copy"
        )
    if (head.link, head.queries) != (chain.links[head.number], chain.queries[head.number]):
        return (
            f"{head.source} has another link at entry {head.number}: an entry up to it was changed, moved or replaced"
        )
    return ""


@dataclass(frozen=True)
class SpentOf:
    """What a ledger spent, for `judge_populations`."""

    name: str
    population: str
    identity: str
    epsilon: float
    delta: float


def judge_copies(pasts: Mapping[str, tuple[str, Sequence[str]]]) -> Iterator[Verdict]:
    """Judge that ledgers of one identity are copies: by name the identity, and the links of all entries in order."""
    for (one, (identity, links)), (other, (same, others)) in combinations(pasts.items(), 2):
        if identity and identity == same:
            apart = [number for number, pair in enumerate(zip(links, others, strict=False), 1) if len(set(pair)) > 1]
            reason = f"entry {apart[0]} is another: one was put back, or written anew" if apart else "links are equal"
            yield judged(_LEDGER, f"{one} and {other} are copies of one ledger", reason, holds=not apart)


def judge_populations(ledgers: Sequence[SpentOf]) -> Iterator[Verdict]:
    """Name ledgers of one population side by side, with the sums of what they spent.

    *Why the sums hold:* each ledger's answers together are (ε, δ)-private, whatever the others answered meanwhile, and
    interactive mechanisms that run side by side compose as others do: their ε and δ add up.
    """
    distinct = {ledger.identity or ledger.name: ledger for ledger in ledgers}.values()  # a copy pays for nothing
    groups: dict[str, list[SpentOf]] = {}
    for ledger in distinct:
        groups.setdefault(ledger.population, []).append(ledger)
    unnamed = groups.pop("", [])
    for population, members in groups.items():
        if len(members) > 1:
            epsilon, delta = sum(ledger.epsilon for ledger in members), sum(ledger.delta for ledger in members)
            names = ", ".join(ledger.name for ledger in members)
            claim = f"{names} are about one population, {population!r}: ({epsilon:.6g}, {delta:.6g}) together"
            yield Verdict(_LEDGER, claim, CLAIMED, "by the name that they carry; what each spent adds up, ε and δ")
    if unnamed and len(distinct) > 1:
        names = ", ".join(ledger.name for ledger in unnamed)
        claim = "no two of these ledgers are about the same people"
        yield Verdict(_LEDGER, claim, UNKNOWN, f"{names}: without a population; if they are, what they spent adds up")


def _digest(*fields: object) -> str:
    return hashlib.sha256("\x1f".join(map(str, fields)).encode()).hexdigest()
