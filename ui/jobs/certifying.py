"""The utility certificate of a release: when it is measured, and that no protect task ever fails by it.

It is measured after the receipt was filed in the vault: a machine that runs out of memory over it, or a Stop, then
costs a figure and not the record of a release. It is kept in the task's result and, as `FILE_NAME`, in its folder.

The models are run beside the task, which looks for Stop meanwhile: opening a large model, or a single run of it, takes
longer than a task has before it is ended the hard way, and one that is ended so cannot show its receipt.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from irwm.checkpoint import Checkpoint
from irwm.errors import CancelledError
from irwm.evidence.devices import on_device
from storage.errors import StorageError
from ui.jobs.reporter import JobReporter

FILE_NAME = "utility.json"
NEVER, SMALL, ALWAYS = "no", "small", "yes"
# What runs within a minute without a GPU; larger ones on request.
SMALL_BYTES = 1 << 30
# How often Stop is looked for; a task has 1.5 seconds for it (`ui.jobs.runner`).
_LOOK_SECONDS = 0.1


def certificate_of(
    request: Mapping[str, Any], model: Checkpoint, receipt: Mapping[str, Any] | None, device: str, report: JobReporter
) -> dict[str, Any] | None:
    """The certificate as plain JSON; None where none was wanted or there is no release.

    Args:
        request: "utility": "yes", "small" (only a model of less than `SMALL_BYTES`), or "no", which is also meant where
            it says nothing.
        receipt: `ui.jobs.releasing.receipt_of` the release.
    """
    wanted = request.get("utility", NEVER)
    if wanted == NEVER or not receipt:
        return None
    rows, obstacle = receipt["changed_rows"], _obstacle(model, wanted, device)
    if obstacle:
        certificate = _not_measured(rows, obstacle)
    else:
        try:
            certificate = _measured(model, wanted, Path(receipt["path"]), rows, device, report)
        except CancelledError:
            certificate = _not_measured(rows, "the measurement was stopped; the release is whole")
    try:
        report.files.write(FILE_NAME, json.dumps(certificate, indent=2, ensure_ascii=False).encode("utf-8"))
    except StorageError as error:
        report.log(f"{FILE_NAME} could not be written: {error}")
    return certificate


def _measured(
    model: Checkpoint, wanted: str, release: Path, rows: int, device: str, report: JobReporter
) -> dict[str, Any]:
    """The certificate of a model that is to be run; on the processor where the GPU has not the memory.

    Raises:
        CancelledError: Stop was pressed. What runs then goes on to its next step, or until the process is ended.
    """
    step: tuple[int, int, str] = (0, 0, "Measuring what the mark costs the model")
    found: list[dict[str, Any] | Exception] = []
    unwanted = threading.Event()

    def note(*now: Any) -> None:
        nonlocal step
        step = now
        if unwanted.is_set():
            raise CancelledError("stopped on request")

    def measure() -> None:
        try:
            from irwm.running import certify  # transformers takes seconds to load

            def on(place: str) -> dict[str, Any]:
                obstacle = _obstacle(model, wanted, place)
                if obstacle:
                    return _not_measured(rows, obstacle)
                return certify(model.path, release, rows, device=place, progress=note).to_dict()

            measured, _ = on_device(on, device, report.log)
            found.append(measured)
        except Exception as error:
            found.append(error)

    worker = threading.Thread(target=measure, name="utility")
    worker.start()
    try:
        while worker.is_alive():
            report.progress(*step)
            worker.join(_LOOK_SECONDS)
    finally:
        unwanted.set()
    if isinstance(found[0], Exception):
        raise found[0]
    return found[0]


def _not_measured(changed_rows: int, why: str) -> dict[str, Any]:
    return {"changed_rows": changed_rows, "text": None, "text_sha256": None, "utility": None, "why": why}


def _obstacle(model: Checkpoint, wanted: str, device: str) -> str:
    """Why the model is not to be run; empty where it is."""
    size = sum(Path(shard).stat().st_size for shard in model.shards)
    if wanted == SMALL and size >= SMALL_BYTES:
        return "the model is larger than 1 GB; it is measured when you ask for it"
    free = _free_bytes()
    # float32 of a file that may be 16-bit; one model is open at a time.
    if device == "cpu" and free is not None and 2.5 * size > free:
        return "running the model would need more memory than is free on this machine"
    return ""


def _free_bytes() -> int | None:
    """Memory that is free or can be freed; None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, StopIteration):
        return None
