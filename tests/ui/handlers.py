"""The app's pages built in this process, with a vault, and their handlers called as Gradio calls them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gradio as gr
from gradio.helpers import EventData, special_args

from storage.encryption import Cost
from storage.job_keys import JobsKeys
from storage.jobs import Jobs
from storage.vault import Vault
from ui.context import Context

PASSPHRASE = "four unrelated plain words"
CHEAP = Cost(memory_kib=8, passes=1, lanes=1)
SESSION = "hash:tests"
# For a list of jobs without a vault.
JOBS_KEYS = JobsKeys({"0" * 16: b"\x07" * 32}, "0" * 16)


@dataclass
class Pages:
    """The pages and the browser that views them."""

    context: Context
    blocks: gr.Blocks
    root: Path

    @property
    def vault(self) -> Vault:
        return self.context.sessions.vault(SESSION)

    @property
    def jobs(self) -> Jobs:
        """The job list as this unlocked browser opens it."""
        return self.context.jobs.opened(self.vault.jobs_keys_to_seal())

    def lock(self) -> None:
        self.context.sessions.lock(SESSION)

    @property
    def request(self) -> Any:
        """The request of the unlocked browser, as handlers get it."""
        return SimpleNamespace(session_hash="tests", request=None)

    def find(self, element: str) -> Any:
        """The component with this id."""
        (component,) = [each for each in self.blocks.blocks.values() if getattr(each, "elem_id", None) == element]
        return component

    def handler(self, name: str, output: str | None = None) -> Any:
        """The event's function with this name, or the one of them that gives a value to the element."""
        named = [each for each in self.blocks.fns.values() if each.name == name]
        return next(each for each in named if output is None or self.find(output) in each.outputs)

    def call(
        self, element: str, event: str, *values: Any, data: dict[str, Any] | None = None, named: str | None = None
    ) -> dict[str, Any]:
        """A handler's return values, by their outputs' element ids, or by position for outputs without one.

        Args:
            element: id of the component with the event.
            values: values of its inputs, in order.
            data: the event's data.
            named: the handler's name, if the event has several.
        """
        component = self.find(element)
        # Without those that run only in the browser.
        functions = [each for each in self.blocks.fns.values() if (component._id, event) in each.targets and each.fn]
        (function,) = [each for each in functions if named in (None, each.name)]
        inputs, *_ = special_args(function.fn, list(values), self.request, EventData(None, data or {}))  # type: ignore[arg-type]
        found = function.fn(*inputs)
        outputs = function.outputs
        if not outputs:
            assert found is None, function.name
            return {}
        found = (found,) if len(outputs) == 1 else found
        assert len(found) == len(outputs), function.name
        names = [output.elem_id or str(place) for place, output in enumerate(outputs)]
        return dict(zip(names, found, strict=True))


def told(out: dict[str, Any]) -> list[str]:
    """The places that show an error, by their ids."""
    return [name for name, part in out.items() if "notice-fault" in str(value(part))]


def value(part: Any) -> Any:
    """The value that an update sets."""
    return part.value if isinstance(part, gr.components.Component) else part


def hidden(part: Any) -> bool:
    """Whether an update hides its component."""
    visible = part.get("visible") if isinstance(part, dict) else getattr(part, "visible", None)
    return visible is False
