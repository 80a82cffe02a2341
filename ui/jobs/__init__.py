"""Long tasks. Each runs in its own process, so that it survives a reload and can be stopped.

    requests  builds requests of tasks from plain arguments
    runner    starts and stops the processes, on the app's side
    queue     limits the processes that run at once: one for each device
    child     the program of one such process
    task      runs the use case of the task's kind (`ui.services`)
    reporter  reports the progress of a task

Request and result are plain JSON and are stored; secrets (plain JSON too, so bytes as hex) reach the process through a
pipe and are not stored.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of task. Its use case is the module of `ui.services` with its name; of "lab", requests are `LabRequest`.

    Attributes:
        opens_vault: whether it gets the vault's data key.
        resumed: whether its request may name an earlier job under "resume", which it continues.
        light: whether it reads whole files and computes almost nothing, so that it needs no device.
        repeated: whether its request may state under "every" after how many hours it runs again, until it is stopped.
    """

    opens_vault: bool = True
    resumed: bool = False
    light: bool = False
    repeated: bool = False


KINDS = {
    "protect": Kind(),
    "investigate": Kind(),
    "sweep": Kind(resumed=True),
    "item": Kind(light=True),
    "dispute": Kind(),
    "verify": Kind(opens_vault=False),
    "lab": Kind(resumed=True),
    "watch": Kind(repeated=True),
    "descent": Kind(opens_vault=False),
}
