"""A charge as text and back: canonical JSON, so that equal charges have equal texts."""

from __future__ import annotations

import json

from darrm.losses.charges import Charge
from darrm.losses.profile import PrivacyProfile
from darrm.losses.renyi import RenyiCurve
from darrm.privacy import PrivacyParams


def charge_to_text(charge: Charge) -> str:
    """Write the cost of one query of a charge (without its words and its count) as canonical JSON.

    Examples
    --------
    >>> charge_to_text(Charge("majority", guarantee=PrivacyParams(0.3, 3e-5), count=7))
    '{"guarantee":["0.3","0.00003"],"profile":null,"renyi":null}'
    """
    params, curve, profile = charge.guarantee, charge.renyi, charge.profile
    document = {
        "guarantee": None if params is None else [params.epsilon_text, params.delta_text],
        # repr of a float reads back as the same float, and so does JSON's Infinity
        "renyi": None if curve is None else [curve.orders.tolist(), curve.values.tolist()],
        "profile": None if profile is None else [list(profile.epsilons), list(profile.deltas)],
    }
    return json.dumps(document, sort_keys=True, separators=(",", ":"))


def charge_from_text(text: str, *, what: str) -> Charge:
    """Read what `charge_to_text` wrote.

    Raises
    ------
    ValueError
        If the text is no charge.
    """
    document = json.loads(text)
    try:
        params, curve, profile = document["guarantee"], document["renyi"], document["profile"]
        return Charge(
            what,
            guarantee=None if params is None else PrivacyParams(*params),
            renyi=None if curve is None else RenyiCurve(*curve),
            profile=None if profile is None else PrivacyProfile(*map(tuple, profile)),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"this is no stored charge: {error}") from error
