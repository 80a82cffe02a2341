"""A vault and its list of jobs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from storage import Jobs, Vault
from tests.jobs.recipients import jobs_of, new_vault


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    return new_vault(tmp_path / "home")


@pytest.fixture
def jobs(vault: Vault) -> Jobs:
    return jobs_of(vault)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A real cluster: a scheduler and two worker processes."""
    import distributed  # here, because it takes a second that the other tests can save

    with (
        quiet(),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, memory_limit=0
        ) as running,
    ):
        yield running


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """The cluster's library warns about things that do not matter here, such as sockets that close late."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
