"""`python app.py collect`: asks a served model for answers, if --send allows it, and writes the file."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import irwm
from irwm.errors import IrwmError, printable
from irwm.inference.text import default_text
from irwm.keys.queried_tokens import tokens_asked
from storage.vault import Vault
from ui.command import output
from ui.command.argument_paths import absolute, content, existing
from ui.command.parser import ALL, CHOSEN, COLLECT
from ui.command.progress import Progress
from ui.command.stop import Stopped
from ui.command.streams import say
from ui.jobs.requests import chosen_keys
from ui.recording import tokens as choosing
from ui.recording.errors import RecordingError
from ui.recording.generation import Generated, Generation, generate, generation
from ui.recording.journal import Journal, journal_of
from ui.recording.plan import Plan, plan
from ui.recording.recorder import Recorded, output_exists, record
from ui.recording.sending import Pace, Permission, Sender, host_of, token_for
from ui.services.outcomes import STOPPED


def collect(given: Namespace, open_vault: Callable[[], Vault]) -> output.Answer:
    """The answer of the command.

    Args:
        open_vault: asks for the passphrase; called if the keys determine the tokens.

    Raises:
        IrwmError: an argument cannot be used, the server fails, or sending is not allowed.
    """
    out = absolute(given.out)
    if os.path.lexists(out):
        raise output_exists(out)
    if not out.parent.is_dir():
        raise IrwmError("the folder of this file does not exist", file=out, advice="Make it, or use another --out")
    original = irwm.open_checkpoint(existing(given.original))
    planned = _generation(given, original) if given.generate else _vectors(given, original, open_vault)
    kept = _kept(out, planned)
    say(printable(planned.words(kept).replace("\u00a0", " "), 2000))
    if given.plan:
        return output.document(COLLECT, output.PLANNED, result=planned.document(kept))
    progress = Progress(sys.stderr, given.quiet)
    permission = Permission(planned.url) if given.send else None
    try:
        with (
            Sender(permission, planned.pace, most_bytes=planned.most_bytes, token=token_for(planned.url),
                   pause=time.sleep, note=say) as sender,
            Journal(out, planned.settings) as journal,
        ):  # fmt: skip
            recorded: Recorded | Generated
            if isinstance(planned, Generation):
                recorded = generate(planned, sender, journal, out, progress.step)
            else:
                recorded = record(planned, sender, journal, out, progress.step)
    except Stopped:
        return output.document(COLLECT, STOPPED, result={"answers_kept": _kept(out, planned)})
    finally:
        progress.end()
    return output.document(COLLECT, output.RECORDED, result=_result(planned, recorded), files=[str(recorded.file)])


def _vectors(given: Namespace, original: irwm.Checkpoint, open_vault: Callable[[], Vault]) -> Plan:
    """The plan for complete log-probabilities."""
    _refuse(given, "max_tokens", "temperature", "prompts", only="with")
    return plan(
        original, endpoint=given.endpoint, model=given.model, api=given.api, answers=given.answers,
        tokens=_tokens(given, original, open_vault), text=default_text(), seed=given.seed, top=given.top,
        inside=given.inside, pace=Pace(rate=given.rate, timeout=given.timeout),
    )  # fmt: skip


def _generation(given: Namespace, original: irwm.Checkpoint) -> Generation:
    """The plan for generated text."""
    _refuse(given, "tokens", "keys", "top", "inside", only="without")
    return generation(
        original, endpoint=given.endpoint, model=given.model, api=given.api, answers=given.answers,
        max_tokens=given.max_tokens, temperature=given.temperature, text=default_text(), seed=given.seed,
        choose=given.prompts == CHOSEN, pace=Pace(rate=given.rate, timeout=given.timeout),
    )  # fmt: skip


def _refuse(given: Namespace, *names: str, only: str) -> None:
    """Rejects options of the other kind of recording."""
    for name in names:
        if getattr(given, name) not in (None, False, ALL):
            raise RecordingError(
                f"--{name.replace('_', '-')} cannot be used here", expected=f"this option {only} --generate"
            )


def _tokens(given: Namespace, original: irwm.Checkpoint, open_vault: Callable[[], Vault]) -> NDArray[np.int64] | None:
    if given.tokens == ALL:
        return None
    if given.tokens != CHOSEN:
        path = existing(given.tokens)
        listed = content(path, choosing.MOST_BYTES + 1)
        if len(listed) > choosing.MOST_BYTES:
            raise RecordingError("this list of tokens is too large", file=path,
                                 expected=f"at most {choosing.MOST_BYTES} bytes")  # fmt: skip
        return choosing.of_text(listed.decode("utf-8", "replace"), original)
    vault = open_vault()
    try:
        chosen, _ = chosen_keys(vault, original.fingerprint, given.keys)
        ids = vault.key_ids(model_fingerprint=original.fingerprint) if chosen is None else chosen
        keys = [irwm.Key.from_bytes(data) for _, data in vault.keys_bytes(ids)]
    finally:
        vault.lock()
    return tokens_asked(keys, original)


def _kept(out: Path, planned: Plan | Generation) -> int:
    """Number of answers from an earlier run."""
    if not os.path.lexists(journal_of(out)):
        return 0
    with Journal(out, planned.settings) as journal:
        return planned.kept(journal)


def _result(planned: Plan | Generation, recorded: Recorded | Generated) -> dict[str, object]:
    with recorded.file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return {
        "file": str(recorded.file),
        "sha256": digest,
        "bytes": recorded.file.stat().st_size,
        **recorded.document,
        "host": host_of(planned.url),
        "model": planned.model,
        "prompt_seed": planned.prompts.seed,
    }
