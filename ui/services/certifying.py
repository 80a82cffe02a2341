"""The utility certificate of a release: when it is measured, so that no protect task fails because of it.

It is measured after the receipt was filed in the vault. If the machine runs out of memory, or Stop is pressed, only a
figure is lost and not the record of a release. It is stored in the result and, as `FILE_NAME`, among
the files of the work.

The models run in a thread while the task checks for Stop: opening a large model, or running it once, takes longer than
the time before a task is killed, and a killed task cannot show its receipt.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from irwm.checkpoint import Checkpoint
from irwm.checkpoint.platform import free_memory
from irwm.errors import CancelledError
from irwm.evidence.devices import on_device
from storage.errors import StorageError
from storage.records import CopyFacts
from ui.services.request import NEVER, SMALL
from ui.services.work import Work

if TYPE_CHECKING:
    from irwm.inference.certificate import CertificateJson

FILE_NAME = "utility.json"
# Models below this size run within a minute without a GPU; larger ones are measured only on request.
SMALL_BYTES = 1 << 30
# Interval of checks for Stop; a task has 1.5 seconds to end (`ui.jobs.runner`).
_LOOK_SECONDS = 0.1


def certificate_of(
    wanted: str, model: Checkpoint, receipt: CopyFacts | None, device: str, work: Work
) -> CertificateJson | None:
    """The certificate as plain JSON; None if none was requested or there is no release.

    Args:
        wanted: "yes", "small" (only a model of less than `SMALL_BYTES`), or "no".
        receipt: `ui.services.releasing.receipt_of` the release.
    """
    if wanted == NEVER or not receipt:
        return None
    rows, obstacle = receipt["changed_rows"], _obstacle(model, wanted, device)
    if obstacle:
        certificate = _not_measured(rows, obstacle)
    else:
        try:
            certificate = _measured(model, wanted, Path(receipt["path"]), rows, device, work)
        except CancelledError:
            certificate = _not_measured(rows, "the measurement was stopped; the release is complete")
    try:
        work.files.write(FILE_NAME, json.dumps(certificate, indent=2, ensure_ascii=False).encode("utf-8"))
    except StorageError as error:
        work.log(f"{FILE_NAME} could not be written: {error}")
    return certificate


def _measured(model: Checkpoint, wanted: str, release: Path, rows: int, device: str, work: Work) -> CertificateJson:
    """The certificate of a model that will be run; on the processor if the GPU has too little memory.

    Raises:
        CancelledError: Stop was pressed. The thread continues to its next step, or until the process ends.
    """
    step: tuple[int, int, str] = (0, 0, "Measuring the cost of the mark")
    found: list[CertificateJson | Exception] = []
    unwanted = threading.Event()

    def note(*now: Any) -> None:
        nonlocal step
        step = now
        if unwanted.is_set():
            raise CancelledError("stopped on request")

    def measure() -> None:
        try:
            from irwm.inference import certify  # transformers takes seconds to load

            def on(place: str) -> CertificateJson:
                obstacle = _obstacle(model, wanted, place)
                if obstacle:
                    return _not_measured(rows, obstacle)
                return certify(model.path, release, rows, device=place, progress=note).to_dict()

            measured, _ = on_device(on, device, work.log)
            found.append(measured)
        except Exception as error:
            found.append(error)

    worker = threading.Thread(target=measure, name="utility")
    worker.start()
    try:
        while worker.is_alive():
            work.progress(*step)
            worker.join(_LOOK_SECONDS)
    finally:
        unwanted.set()
    if isinstance(found[0], Exception):
        raise found[0]
    return found[0]


def _not_measured(changed_rows: int, why: str) -> CertificateJson:
    return {"changed_rows": changed_rows, "text": None, "text_sha256": None, "utility": None, "why": why}


def _obstacle(model: Checkpoint, wanted: str, device: str) -> str:
    """The reason not to run the model; empty if it will be run."""
    size = sum(Path(shard).stat().st_size for shard in model.shards)
    if wanted == SMALL and size >= SMALL_BYTES:
        return "the model is larger than 1 GB and is measured only on request"
    free = free_memory()
    # float32 of a file that may be 16-bit; one model is open at a time.
    if device == "cpu" and free is not None and 2.5 * size > free:
        return "running the model would need more memory than this machine has available"
    return ""
