"""Publishes a report: HTML, JSON, PDF and signature are complete before they get their names; no file is replaced."""

from __future__ import annotations

import io
import os
import tempfile
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from irwm import Finding
from irwm.errors import OutputExistsError
from irwm.language import ENGLISH
from irwm.report import schema
from irwm.report.document import ReportError, finding_document, to_json, withheld
from irwm.report.html import render_html
from irwm.report.pdf import set_pages
from irwm.report.signature_file import ENDING, Signer, announced, sign_report
from irwm.report.translation import in_language

# Suffix of the archive for outsiders, which does not say which rows carry the mark.
WITHOUT_ROWS = "-without-rows"
# The earliest time in a ZIP; the same files always give the same archive.
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)


def write_report(
    folder: str | Path, finding: Finding, *, name: str = "report", **particulars: Any
) -> tuple[Path, Path]:
    """Write NAME.html, NAME.json and NAME.pdf into `folder`, which is made if it is missing.

    Only their owner can read the files, because by default they name the marked rows.

    Args:
        folder: where to write.
        finding: what `irwm.detect` returned.
        name: file name without ending.
        particulars: the keyword arguments of `finding_document`.

    Returns:
        The paths of the HTML and of the JSON.

    Raises:
        OutputExistsError: one of the files is there already.
        ReportError: the folder cannot be written, or the name is not a plain file name.
    """
    _check_name(name)  # before anything is computed for it
    return write_document(folder, finding_document(finding, **particulars), name=name)


def write_document(
    folder: str | Path,
    document: schema.Report,
    *,
    name: str = "report",
    signer: Signer | None = None,
    language: str = ENGLISH,
) -> tuple[Path, Path]:
    """Write an existing document, and with a signer its signature, NAME.signature.json; see `write_report`.

    With a signer, the status of the written document says that it is signed and by whom.

    Args:
        language: of HTML and PDF, one of `irwm.language.LANGUAGES`; the JSON is in English.
    """
    _check_name(name)
    folder = Path(folder)
    if signer is None:
        files = report_files(document, name, language)
    else:
        files = signed_files(document, signer, name, language=language)
    publish(folder, {folder / file: content for file, content in files.items()})
    return folder / f"{name}.html", folder / f"{name}.json"


def signed_files(
    document: schema.Report,
    signer: Signer,
    name: str = "report",
    *,
    without: Collection[str] = (),
    language: str = ENGLISH,
) -> dict[str, bytes]:
    """The files of a signed report by name: as `report_files`, and the signature over them.

    Args:
        without: endings of files that are left out.
        language: of HTML and PDF.
    """
    files = report_files(announced(document, signer), name, language)
    files = {file: content for file, content in files.items() if not file.endswith(tuple(without))}
    files[f"{name}{ENDING}"] = sign_report(files, signer)
    return files


def report_files(document: schema.Report, name: str = "report", language: str = ENGLISH) -> dict[str, bytes]:
    """The files of a report by name, from its document alone: JSON, and HTML and PDF in one of the languages."""
    html = in_language(render_html(document, f"{name}.json"), language)
    return {
        f"{name}.json": to_json(document),
        f"{name}.html": html.encode("utf-8"),
        f"{name}.pdf": set_pages(document, html),
    }


def for_outsiders(
    document: schema.Report, signer: Signer, name: str = "report", language: str = ENGLISH
) -> dict[str, bytes]:
    """The report without the marked rows as one signed archive, by its name: JSON, PDF and signature."""
    stem = f"{name}{WITHOUT_ROWS}"
    files = signed_files(withheld(document), signer, stem, without=(".html",), language=language)
    return {f"{stem}.zip": archive(files)}


def archive(files: Mapping[str, bytes]) -> bytes:
    """A report's files as one ZIP, which `irwm.report.received` can read."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, _ZIP_TIME)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o600 << 16
            made.writestr(entry, content, compresslevel=1)
    return stream.getvalue()


def publish(folder: Path, contents: Mapping[Path, bytes]) -> None:
    """Put complete files into a folder: all of them or none.

    Raises:
        OutputExistsError, ReportError: see `write_report`.
    """
    staged: dict[Path, Path] = {}
    published: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, content in contents.items():
            staged[path] = _staged(folder, content)
        for path, temporary in staged.items():
            _publish(temporary, path)
            published.append(path)
        _sync(folder)
    except BaseException as error:
        for path in published:
            path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise ReportError(
                "the report could not be written", file=folder, found=error.strerror or type(error).__name__
            ) from error
        raise
    finally:
        for temporary in staged.values():
            temporary.unlink(missing_ok=True)


def _check_name(name: str) -> None:
    if not name or name.startswith(".") or Path(name).name != name or not name.isprintable():
        raise ReportError("the report's name is not a plain file name", found=name)


def _staged(folder: Path, content: bytes) -> Path:
    """A private file in `folder` that holds `content` on the disk."""
    descriptor, temporary = tempfile.mkstemp(prefix=".report-", suffix=".partial", dir=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return Path(temporary)


def _publish(temporary: Path, path: Path) -> None:
    """Give the file its name unless the name is taken. A link refuses an existing name in one step; if the file system
    has no links, this checks the name and then renames."""
    taken = OutputExistsError("a report with this name already exists; no file was overwritten", file=path)
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise taken from None
    except OSError:
        if path.exists():
            raise taken from None
        os.replace(temporary, path)


def _sync(folder: Path) -> None:
    """Write the names to the disk too; only POSIX can open a folder for that."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
