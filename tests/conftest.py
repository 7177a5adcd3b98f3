"""How many random examples a property is tried on: few in ``make test``, many in ``make test-full``."""

from hypothesis import settings

settings.register_profile("quick", max_examples=20, deadline=None)  # a busy machine is no failure
settings.register_profile("full", max_examples=200, deadline=None)
settings.load_profile("quick")
