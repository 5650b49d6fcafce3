"""Python imports this by itself where it finds it: puts in the fault that the environment names."""

from __future__ import annotations

import os

_NAME = os.environ.get("INTERCOM_PROOF_MUTANT")
if _NAME:
    import mutants

    mutants.install(_NAME)
