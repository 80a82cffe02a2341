"""A vault and its list of jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage import Jobs, Vault
from tests.jobs.recipients import jobs_of, new_vault


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    return new_vault(tmp_path / "home")


@pytest.fixture
def jobs(vault: Vault) -> Jobs:
    return jobs_of(vault)
