"""A key that its owner opened: read from its file for one task, and kept nowhere."""

from __future__ import annotations

from pathlib import Path

import irwm
from irwm.errors import IrwmError

# A key has some hundred bytes; a file that was picked by mistake may be a model.
MOST_BYTES = 1 << 20


def read_key(path: Path) -> irwm.Key:
    """A key that its owner opened, from its file; its bytes are kept nowhere.

    Raises:
        IrwmError: it cannot be read, or is no key.
    """
    try:
        with path.open("rb") as stream:
            return irwm.Key.from_bytes(stream.read(MOST_BYTES))
    except OSError as error:
        raise IrwmError("the key file cannot be read", file=path, found=error.strerror) from error
