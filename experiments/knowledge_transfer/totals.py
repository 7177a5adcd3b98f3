"""What Q labels cost in total: the paper's sums, for fresh randomness, and what is proved for its teachers."""

from darrm.account.accountant import PrivacyAccountant
from darrm.loss.composition import compose_general
from darrm.privacy import PrivacyParams
from darrm.problem import Voters
from darrm.table.cost import charge_of
from darrm.table.release import Release
from experiments.composition_tables import DELTA_PRIME, PRINTED_TOTALS, K
from experiments.knowledge_transfer import settings
from experiments.knowledge_transfer.labels import Way, per_query, ways
from experiments.knowledge_transfer.settings import Setup
from experiments.pages import Row


def total_rows(data: str, setup: Setup, allowances: tuple[int, ...]) -> list[Row]:
    """Compute Tables 2, 5, 7 and 9 of [D], and beside them the best sum and the best proved bound at the same δ."""
    rows = []
    for m in allowances:
        query = per_query(setup.each, m)
        every = ways(setup.each, m)
        for queries in setup.queries:
            general = compose_general(query, queries, DELTA_PRIME)
            known = PRINTED_TOTALS.get(data, {}).get(m, {}).get(queries)
            rows.append(
                {
                    "m": m,
                    "queries": queries,
                    "per_query": {"epsilon": query.epsilon, "delta": query.delta},
                    "printed": None if known is None else {"epsilon": known[0], "delta": known[1]},
                    "general": {"epsilon": general.epsilon, "delta": general.delta},
                    "best": {way.name: best_bound(way, setup.each, queries, general.delta) for way in every},
                }
            )
    return rows


def best_bound(way: Way, each: PrivacyParams, queries: int, delta: float) -> Row:
    """Ask the accountant for the smallest ε at ``delta``.

    Private teachers are models trained once on disjoint shards. For labels by DaRRM ``epsilon`` is a sum, which holds
    for voters with fresh randomness and not for these; ``with_private_models`` is what is proved.
    """
    if way.name == settings.PLAIN_MAJORITY:
        return {"epsilon": None, "delta": delta, "bound": "no privacy"}
    if way.aggregator is None:
        return {"epsilon": each.epsilon, "delta": each.delta, "bound": "private models, disjoint shards"}
    charge = way.aggregator.privacy_cost(queries)
    alone = PrivacyAccountant(charges=[charge]).spent(delta)
    result = {"epsilon": alone.epsilon, "delta": delta, "bound": alone.bound}
    if isinstance(way.aggregator, Release):  # of the private teachers' votes
        voters = Voters(K, each, overlap=1, models=True)
        capped = PrivacyAccountant(charges=[charge_of(way.aggregator.table, queries, voters=voters)]).spent(delta)
        result["with_private_models"] = {"epsilon": capped.epsilon, "bound": capped.bound}
    return result
