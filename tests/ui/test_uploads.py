"""Uploads as a handler receives them, on a small app served as the real one is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.ui.test_serving import call
from tools.running_app import RunningApp, start_app
from ui.components.uploads import offer
from ui.guard import OFFERED


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningApp]:
    with start_app(tmp_path_factory.mktemp("uploads"), ("-m", "tests.ui.upload_app")) as app:
        (app.home / "vault.sqlite3").write_text("sealed")
        yield app


@pytest.fixture
def client(app: RunningApp) -> Iterator[httpx.Client]:
    (app.home / "reached").unlink(missing_ok=True)
    with app.client() as client:
        yield client


def post(client: httpx.Client, file: Any) -> dict[str, Any]:
    return call(client, "take", [file])


@pytest.mark.fault(62)
@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "{home}/vault.sqlite3", "../../../../etc/passwd", "pyproject.toml", "{home}/../home/vault.sqlite3"],
)
@pytest.mark.parametrize("more", [{}, {"meta": {"_type": "gradio.FileData"}}, {"url": "file:///etc/passwd", "size": 1}])
def test_a_posted_path_that_was_not_uploaded_reaches_no_handler(
    app: RunningApp, client: httpx.Client, path: str, more: dict[str, Any]
) -> None:
    answer = post(client, {"path": path.format(home=app.home), **more})
    assert not answer["success"]
    assert not (app.home / "reached").exists()
    assert "root:" not in json.dumps(answer)


def test_posted_url_is_not_fetched(app: RunningApp, client: httpx.Client) -> None:
    for more in ({}, {"url": "https://example.com/x"}):
        answer = post(client, {"path": "https://example.com/x", "meta": {"_type": "gradio.FileData"}, **more})
        assert not answer["success"]
        assert "Addresses are not fetched" in json.dumps(answer)
    assert not (app.home / "reached").exists()


def test_an_uploaded_file_reaches_the_handler(app: RunningApp, client: httpx.Client) -> None:
    uploaded = client.post("/gradio_api/upload", files={"files": ("a.txt", b"my suspect")}).json()
    answer = post(client, {"path": uploaded[0], "meta": {"_type": "gradio.FileData"}})
    assert answer["output"]["data"] == ["my suspect"], "the refusals above could have had another cause"
    assert (app.home / "reached").read_text().endswith("a.txt")
    folder = next(parent for parent in Path(uploaded[0]).parents if parent.name.startswith("irwm-uploads-"))
    assert folder.stat().st_mode & 0o077 == 0, "no other user of this computer can read it"


def test_a_name_with_a_path_in_it_stays_in_the_upload_folder(client: httpx.Client) -> None:
    uploaded = client.post("/gradio_api/upload", files={"files": ("../../../evil.txt", b"x")}).json()
    assert Path(uploaded[0]).name == "evil.txt"
    assert Path(uploaded[0]).parent.parent.name.startswith("irwm-uploads-")


def test_a_file_is_offered_once_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path / "uploads"))
    report = b"one"
    first = [offer(report, "report.html") for _ in range(3)]
    assert (len(set(first)), len(offer(report, "other.html").split("/"))) == (1, len(first[0].split("/")))
    assert Path(first[0]).read_text() == "one"
    assert Path(first[0]).is_relative_to(tmp_path / "uploads" / OFFERED)
    assert Path(first[0]).parent.stat().st_mode & 0o077 == 0
    Path(first[0]).unlink()  # for its age
    assert offer(report, "report.html") == first[0]
    report = b"another"
    second = offer(report, "report.html")
    assert (second != first[0], Path(second).read_text(), Path(first[0]).read_text()) == (True, "another", "one")
    assert len(list((tmp_path / "uploads").rglob("*.html"))) == 3
