"""The vault inside a task's process: unlocked only by the key from the pipe."""

from __future__ import annotations

from collections.abc import Mapping

from irwm.errors import IrwmError
from storage.vault import Vault
from ui.jobs.reporter import JobReporter

SECRET_NAME = "vault_data_key"
# A task may run for hours; only the browser that started it locks when idle.
_NEVER = float("inf")


def secrets_for(vault: Vault) -> dict[str, str]:
    """The secrets that a task needs to write to the vault, for `ui.jobs.runner.start`.

    Raises:
        VaultLockedError: the vault is locked.
    """
    return {SECRET_NAME: vault.hand_over().hex()}


def vault_of(secrets: Mapping[str, str], report: JobReporter) -> Vault:
    """The vault, unlocked with the key from `secrets_for`.

    Raises:
        IrwmError: the pipe did not deliver a usable key.
        StorageError: see `Vault.take_over`.
    """
    try:
        data_key = bytes.fromhex(secrets[SECRET_NAME])
    except (KeyError, TypeError, ValueError):
        raise IrwmError(
            "the task was started without access to the vault", advice="start the task from its page"
        ) from None
    return Vault.take_over(report.home, data_key, idle_seconds=_NEVER)
