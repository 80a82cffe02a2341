"""A key's own file, for a repeated examination or for the other side of a dispute: an expert, a court."""

from __future__ import annotations

import os
from pathlib import Path

from irwm.errors import IrwmError, OutputExistsError
from storage.files import new_private_file, sync_folder
from storage.vault import Vault
from ui.file_names import plain_name


def write_key(vault: Vault, id: str, folder: Path) -> Path:
    """Write a key of the vault into `folder`, readable by its owner only; the log entry is written first.

    Raises:
        OutputExistsError: it was written there before.
        IrwmError: the folder cannot be written.
        RecordNotFoundError, DamagedRecordError, VaultLockedError, StorageError
    """
    (record,) = vault.key_records([id])
    data = vault.key_bytes(id)
    whose = plain_name("key", record.model_name, record.recipient or record.owner)
    file = folder / f"{whose}-{record.commitment[:16]}.irwm-key"
    vault.log("key opened", {"commitment": record.commitment, "file": str(file)})
    try:
        with os.fdopen(new_private_file(file), "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        sync_folder(folder)
    except FileExistsError:
        raise OutputExistsError("a file with this name already exists and was not overwritten", file=file) from None
    except OSError as error:
        file.unlink(missing_ok=True)
        raise IrwmError("the key file cannot be written", file=file, found=error.strerror) from error
    return file
