"""The same work for programs: endpoints under stable names, for `gradio_client` and other clients of its protocol.

The page shows none of them. A program gives the passphrase as a browser does, and is identified by its session hash
(`ui.sessions`), which `gradio_client` draws at random for each `Client`. Anyone who can reach the port may call, so
every handler checks its own values and uses only the folders that the pages may use. docs/headless.md describes values
and answers.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr
from gradio import events

import irwm
from irwm.errors import IrwmError, printable, shown_path
from storage.vault import Vault
from ui.components.browsing import BrowsingLimits, new_folder, use_path
from ui.components.uploads import offer
from ui.context import Context
from ui.explore_settings import ExploreSettings
from ui.jobs import orphans, requests, runner
from ui.jobs.requests import Asked
from ui.jobs.results import error_of, files_of, outcome_of, result_of, state_of
from ui.preset_names import TYPED as PRESETS
from ui.presets import preset_parameters
from ui.services.recipients import Recipient, checked
from ui.settings import without_home

NAMES = ("unlock", "lock", "protect", "investigate", "trace", "job", "jobs", "stop", "report")
MOST_JOBS = 200
# Gradio shows programs this type of an answer; docs/headless.md describes the fields.
Reply = dict[str, Any]


def build(context: Context) -> None:
    """Adds the endpoints to the open document."""
    endpoints = Endpoints(context)
    # The browser does not build components that are not visible.
    with gr.Column(visible=False):
        for name in NAMES:
            # The same limit as in the gate: each derivation uses much memory on purpose.
            slow: dict[str, Any] = {"concurrency_limit": 1, "concurrency_id": "passphrase"} if name == "unlock" else {}
            events.api(_answering(getattr(endpoints, name), context.settings.home), api_name=name, **slow)


@dataclass(frozen=True, slots=True)
class Endpoints:
    """What each of `NAMES` does; Gradio reads names, types and defaults of the values from the signatures."""

    context: Context

    def unlock(self, request: gr.Request, passphrase: str) -> Reply:
        """Opens the vault for this program; the app's other windows stay as they are."""
        self.context.sessions.unlock(self.context.session(request), _text("passphrase", passphrase, strip=False))
        orphans.sweep_left(self.context.jobs_of(request))
        return {"unlocked": True}

    def lock(self, request: gr.Request) -> Reply:
        """Locks the vault for this program. Running jobs continue."""
        self.context.require(request)
        self.context.sessions.lock(self.context.session(request))
        return {"unlocked": False}

    def protect(
        self,
        request: gr.Request,
        model: str,
        out: str,
        owner: str,
        recipient: str = "",
        recipients: list[Any] | None = None,
        preset: str = "",
        parameters: dict[str, Any] | None = None,
        label: str = "",
        utility: str = "small",
        also: list[Any] | None = None,
    ) -> Reply:
        """Starts the job that writes a marked copy of `model` as the new folder `out`; answers with the job."""
        vault = self.context.require(request)
        limits = BrowsingLimits.of(self.context.settings)
        source, place = use_path(_text("model", model), limits), Path(_text("out", out))
        people = _people(recipients)
        asked = requests.protect(
            vault,
            source,
            new_folder(shown_path(place.parent), place.name, limits),
            owner=_text("owner", owner),
            parameters=_parameters(_text("preset", preset), parameters, people is not None, source),
            recipient=_text("recipient", recipient),
            recipients=people,
            label=_text("label", label),
            device=self.context.settings.device,
            utility=_text("utility", utility),
            also=[_text("also", name) for name in also or []],
        )
        return self._started(asked, vault, request)

    def investigate(
        self,
        request: gr.Request,
        suspect: str,
        original: str = "",
        keys: list[str] | None = None,
        matching: str = "",
        case: str = "",
        note: str = "",
        seen: str = "",
        examiner: str = "",
        seed: int = 0,
        fits: bool = True,
    ) -> Reply:
        """Starts the job that looks for marks in `suspect`, or in each suspect of a folder; answers with the job."""
        settings = (keys, matching, case, note, seen, examiner, seed, fits)
        return self._examine(requests.investigate, request, suspect, original, *settings)

    def trace(
        self,
        request: gr.Request,
        suspect: str,
        original: str = "",
        keys: list[str] | None = None,
        matching: str = "",
        case: str = "",
        note: str = "",
        seen: str = "",
        examiner: str = "",
        seed: int = 0,
        fits: bool = True,
    ) -> Reply:
        """Like investigate, but only with keys that carry noise: whose copy is it?"""
        settings = (keys, matching, case, note, seen, examiner, seed, fits)
        return self._examine(requests.trace, request, suspect, original, *settings)

    def job(self, request: gr.Request, id: str) -> Reply:
        """The current state and progress of a job, and its result when it is over."""
        self.context.require(request)
        return self._told(_text("id", id), request)

    def jobs(self, request: gr.Request, limit: int = 20) -> list[Reply]:
        """The newest jobs of the app and of every program, newest first."""
        self.context.require(request)
        jobs = self.context.jobs_of(request).recent(_whole("limit", limit, MOST_JOBS))
        newest: list[Reply] = self._cleaned([state_of(each) for each in jobs])
        return newest

    def stop(self, request: gr.Request, id: str) -> Reply:
        """Ends a job and all processes that it started; a job that is over does not change."""
        self.context.require(request)
        return self._told(runner.stop(_text("id", id), self.context.jobs).id, request)

    def report(self, request: gr.Request, id: str) -> list[Reply]:
        """The files that a job wrote for people, which `gradio_client` fetches: the signed report, or the receipts."""
        self.context.require(request)
        jobs = self.context.jobs_of(request)
        over = jobs.get(_text("id", id))
        if not over.is_over:
            raise IrwmError("this job has not finished", found=over.state, advice="Try again when the job has finished")
        return [_file(name, content) for name, content in files_of(over, jobs).items()]

    def _examine(
        self, ask: Callable[..., Asked], request: gr.Request, suspect: str, original: str, *rest: Any
    ) -> Reply:
        vault = self.context.require(request)
        keys, matching, case, note, seen, examiner, seed, fits = rest
        limits = BrowsingLimits.of(self.context.settings)
        received = use_path(_text("suspect", suspect), limits, addresses=True)
        base = use_path(named, limits) if (named := _text("original", original)) else None
        asked = ask(
            vault,
            self.context.jobs_of(request),
            received,
            base,
            irwm.open_checkpoint(base).fingerprint if base is not None else "",
            allowed=limits.allow,
            keys=None if keys is None else [_text("key", key) for key in _list("keys", keys)],
            matching=_text("matching", matching),
            case=_text("case", case),
            note=_text("note", note),
            seen=_text("seen", seen),
            examiner=_text("examiner", examiner),
            seed=_whole("seed", seed, requests.LARGEST_SEED),
            fits=_flag("fits", fits),
            device=self.context.settings.device,
            scheduler=self.context.settings.scheduler,
        )
        return self._started(asked, vault, request)

    def _started(self, asked: Asked, vault: Vault, request: gr.Request) -> Reply:
        return self._told(self.context.start(asked, vault).id, request)

    def _told(self, id: str, request: gr.Request) -> Reply:
        job = self.context.jobs_of(request).get(id)
        ahead = len(self.context.jobs.ahead(job.id))
        progress = {"done": job.done, "total": job.total, "what": job.what, "ahead": ahead}
        answer = {"outcome": outcome_of(job), "result": result_of(job), "error": error_of(job)}
        said: Reply = self._cleaned(state_of(job) | {"progress": progress} | answer)
        return said

    def _cleaned(self, answer: Any) -> Any:
        return without(answer, self.context.settings.home)


def without(answer: Any, home: Path) -> Any:
    """The answer, with the app's own folder replaced by its variable in every text."""
    if isinstance(answer, str):
        return without_home(answer, home)
    if isinstance(answer, dict):
        return {name: without(value, home) for name, value in answer.items()}
    return [without(value, home) for value in answer] if isinstance(answer, list) else answer


def _answering(handler: Callable[..., Any], home: Path) -> Callable[..., Any]:
    """The handler, with every `IrwmError` turned into an exception in the calling program."""

    @functools.wraps(handler)  # Gradio reads names, types and defaults from the signature
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return handler(*args, **kwargs)
        except IrwmError as error:
            text = printable(without_home(str(error), home), 2000)
            raise gr.Error(text, title=type(error).__name__, print_exception=False) from error

    return wrapper


def _file(name: str, content: bytes) -> Reply:
    """A file that a program may fetch, in the form that `gradio_client` knows."""
    return {"path": offer(content, name), "orig_name": name, "meta": {"_type": "gradio.FileData"}}


def _people(recipients: Any) -> tuple[Recipient, ...] | None:
    if recipients is None:
        return None
    pairs = [(each, "") if isinstance(each, str) else each for each in _list("recipients", recipients)]
    for pair in pairs:
        if not isinstance(pair, (list, tuple)) or not 1 <= len(pair) <= 2:
            raise _wrong("recipients", "names, or pairs of a name and a note", pair)
    return checked([[_text("recipient", part) for part in pair] for pair in pairs])


def _parameters(preset: str, given: Any, several: bool, model: Path) -> irwm.Parameters:
    if given is not None:
        if preset:
            raise IrwmError("both a preset and parameters were provided", advice="Provide only one of them")
        if not isinstance(given, dict):
            raise _wrong("parameters", "a JSON object with settings, as copied from the Explore page", given)
        return ExploreSettings.from_json(json.dumps(given)).parameters
    name = preset or ("many" if several else "standard")
    if name not in PRESETS:
        raise _wrong("preset", ", ".join(PRESETS), preset)
    return preset_parameters(PRESETS[name], irwm.open_checkpoint(model).hidden_size)


def _text(name: str, value: Any, *, strip: bool = True) -> str:
    if not isinstance(value, str):
        raise _wrong(name, "text", value if name != "passphrase" else None)
    return value.strip() if strip else value


def _whole(name: str, value: Any, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise _wrong(name, f"a whole number from 0 to {most}", value)
    return value


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _wrong(name, "true or false", value)
    return value


def _list(name: str, value: Any) -> Sequence[Any]:
    if not isinstance(value, list):
        raise _wrong(name, "a list", value)
    return value


def _wrong(name: str, expected: str, value: Any) -> IrwmError:
    return IrwmError(f"invalid value for {name}", expected=expected, found=printable(repr(value), 80))
