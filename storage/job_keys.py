"""The keys that seal the text of jobs: records of the vault, because the list of jobs is in a separate file.

    jobs key (random, 32 bytes, sealed in the vault) --HKDF-SHA256 with the job's identifier--> the job's own key

Every job names its jobs key. So earlier jobs stay readable when a new passphrase creates a new jobs key, and an
attacker with the vault's old data key cannot read later jobs. The process of a task gets its job's own key, which opens
no other job.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import sqlite_utils

from storage.encryption import KEY_BYTES, Sealer, job_key
from storage.errors import DamagedRecordError, VaultLockedError
from storage.filing import Filing
from storage.records import JobsKeyRecord, build, open_body, open_meta
from storage.schema import JOB_KEYS

# A jobs key is bound to this: new jobs use it only while the vault has the data key under which it was made.
_MADE_UNDER = b"irwm-studio: the data key that a jobs key was made under"


class OpensJobs(Protocol):
    """Seals and opens jobs: all keys of an unlocked vault, or the key of one job."""

    @property
    def newest(self) -> str | None:
        """The identifier of the jobs key that seals new jobs; None if no new job can be sealed."""

    def of(self, job: str, key: str) -> JobKey | None:
        """The own key of a job that names this jobs key; None if it is not here."""


@dataclass(frozen=True, slots=True)
class JobKey:
    """The own key of one job.

    Attributes:
        job: the job's identifier.
        key: the identifier of the jobs key that it is derived from.
        secret: 32 bytes; passed through a pipe to the job's process only.
    """

    job: str
    key: str
    secret: bytes = field(repr=False)

    @property
    def newest(self) -> None:
        """None: the key of one job never seals a new job."""
        return

    def of(self, job: str, key: str) -> JobKey | None:
        """This key, if the job is its own."""
        return self if (job, key) == (self.job, self.key) else None

    def sealer(self) -> Sealer:
        """Seals and opens the text of this job."""
        return Sealer(self.secret, self.key)


@dataclass(frozen=True, slots=True)
class JobsKeys:
    """All jobs keys that a vault holds.

    Attributes:
        secrets: by identifier.
        newest: see `OpensJobs`.
    """

    secrets: Mapping[str, bytes] = field(repr=False)
    newest: str | None

    def of(self, job: str, key: str) -> JobKey | None:
        """See `OpensJobs`."""
        secret = self.secrets.get(key)
        return None if secret is None else JobKey(job, key, job_key(secret, key, job))


class JobKeyring(Filing):
    """A session that keeps the keys of the job list."""

    def jobs_keys(self) -> JobsKeys:
        """The keys that open the jobs of this vault; asking does not count as use.

        Raises:
            VaultLockedError, StorageError
        """
        sealer, stamp = self._peek(), self._file.stamp()
        if sealer is None:
            raise VaultLockedError("the vault is locked", advice="unlock the vault on the Vault page")
        known = self._at_hand.get(JOB_KEYS)
        if known is not None and known[0] == stamp:
            kept: JobsKeys = known[1]
            return kept
        with self._file.reading() as db:
            keys = _read(db, sealer)
        self._keep(sealer, JOB_KEYS, (stamp, keys))
        return keys

    def jobs_keys_to_seal(self) -> JobsKeys:
        """The same, with a key for new jobs, which is made if there is none.

        Raises:
            VaultLockedError, AuditBrokenError, StorageError
        """
        sealer, keys = self._use(), self.jobs_keys()
        if keys.newest is None:
            meta = {"made_under": sealer.tag(_MADE_UNDER).hex()}
            self._add(JOB_KEYS, "key of the job list made", meta, secrets.token_bytes(KEY_BYTES))
            keys = self.jobs_keys()
        return keys


def _read(db: sqlite_utils.Database, sealer: Sealer) -> JobsKeys:
    """The jobs keys; a damaged one is skipped: its jobs stay sealed, and the vault's check names it."""
    found: dict[str, bytes] = {}
    newest = None
    for row in db.query(f"SELECT * FROM {JOB_KEYS} ORDER BY seq"):
        try:
            record: JobsKeyRecord = build(JOB_KEYS, row, open_meta(sealer, JOB_KEYS, row))
            found[record.id] = open_body(sealer, JOB_KEYS, row)
            made_here = sealer.tag_fits(_MADE_UNDER, bytes.fromhex(record.made_under))
        except (DamagedRecordError, ValueError):
            continue
        newest = record.id if made_here else newest
    return JobsKeys(found, newest)
