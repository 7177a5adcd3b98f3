"""Whether slow tests that repeat random trials run all of them: ``DARRM_EXHAUSTIVE=1 make test-full``."""

import os

EXHAUSTIVE = os.environ.get("DARRM_EXHAUSTIVE", "") not in {"", "0"}
