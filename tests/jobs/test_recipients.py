"""Lists of recipients: how they are read, and refusals that name the line and the value."""

from __future__ import annotations

import pytest

from irwm.keys.key import MAX_NAME
from ui.services import recipients
from ui.services.recipients import (
    MOST_RECIPIENTS,
    Recipient,
    RecipientListError,
    checked,
    folder_name,
    read_file,
    read_list,
    same_name,
)

COMMITMENT = "0123456789abcdef" * 4


def names(text: str) -> list[str]:
    return [recipient.name for recipient in read_list(text).require()]


def test_plain_lines_are_names_with_their_commas() -> None:
    assert names('Acme, Inc.\r\n\n  Bolt  Ltd \n"Quoted, ""Co"""\n') == ["Acme, Inc.", "Bolt Ltd", 'Quoted, "Co"']


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_table_is_read_with_every_separator_and_line_end(separator: str, end: str, mark: str) -> None:
    rows = [["ID", "Recipient", "Note"], ["7", f'"Acme{separator} Inc."', "early"], ["8", "Bolt", ""], ["", "", ""]]
    found = read_list(mark + end.join(separator.join(row) for row in rows))
    assert found.require() == (Recipient(f"Acme{separator} Inc.".replace("\t", ""), "early"), Recipient("Bolt", ""))
    assert "notes from “note”" in found.table


def test_name_column_replaces_a_missing_recipient_column() -> None:
    assert names("Name\nAcme, Inc.\n".replace(",", "")) == ["Acme Inc."]
    assert names("name,recipient\nperson,Acme\n") == ["Acme"]


def test_spreadsheet_separator_line_is_skipped() -> None:
    found = read_list("sep=;\r\nrecipient;note\r\nAcme;x\r\nACME;y\r\n")
    assert found.recipients == (Recipient("Acme", "x"),)
    assert found.faults[0].line == 4


@pytest.mark.fault(99)
@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("Acme\nBolt\nACME", 3),
        *((f"{one}\n{same}", 2) for one, same in (
            ("Stra\u00dfe", "STRASSE"), ("Caf\u00e9", "Cafe\u0301"), ("Acme\u00a0Inc", "Acme Inc"),
        )),
        ("recipient,note\nAcme,x\n,who is it", 3),
        ("recipient,note\nAcme, Inc.,x", 2),
        ("ok\n" + "x" * (MAX_NAME + 1), 2),
        ("recipient,note\nAcme," + "x" * 501, 2),
        *((f"Acme\nBolt{invisible}", 2) for invisible in ("\u202e", "\ufeff", "\U000e0041", "\u3164", "\0")),
    ],
)  # fmt: skip
def test_a_faulty_line_is_named(text: str, line: int) -> None:
    found = read_list(text)
    assert (found.faults[0].line, len(found.faults)) == (line, 1)
    assert found.faults[0].text
    with pytest.raises(RecipientListError, match=f"line {line}"):
        found.require()


def test_table_without_headers_is_refused() -> None:
    for text in ("Acme\tx\nBolt\ty", "Acme;x\nBolt;y"):
        with pytest.raises(RecipientListError):
            read_list(text)
    with pytest.raises(RecipientListError):
        read_file(b"Acme,x\nBolt,y\n", "list.csv")
    assert read_file(b"Acme, Inc.\nBolt\n", "list.txt") == "Acme, Inc.\nBolt\n"


@pytest.mark.parametrize(
    ("content", "found"),
    [("Bj\u00f6rk\n".encode("latin-1"), "line 1"), ("Acme\n".encode("utf-16"), "UTF-16"), (b"a\nb\n\xff", "line 3")],
)
def test_another_encoding_is_refused_by_name(content: bytes, found: str) -> None:
    with pytest.raises(RecipientListError) as caught:
        read_file(content, "list.csv")
    assert found in (caught.value.found or "")
    assert caught.value.file == "list.csv"
    assert "CSV UTF-8" in (caught.value.advice or "")


def test_an_empty_list_and_one_too_many_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RecipientListError):
        read_list(" \n\n").require()
    names = [f"Customer {n}" for n in range(MOST_RECIPIENTS)]
    assert MOST_RECIPIENTS >= 100_000
    assert len(read_list("\n".join(names)).require()) == MOST_RECIPIENTS
    monkeypatch.setattr(recipients, "MOST_RECIPIENTS", 500)  # the same limit, reached sooner
    assert len(read_list("\n".join(names[:500])).require()) == 500
    with pytest.raises(RecipientListError):
        read_list("\n".join(names[:501])).require()


def test_a_quote_that_never_ends_does_not_swallow_the_list() -> None:
    with pytest.raises(RecipientListError):
        read_list('recipient,note\n"Acme,x\n' + "\n".join(f"Bolt {n}," for n in range(20)))


def test_pairs_from_a_pipeline_pass_the_same_checks() -> None:
    assert checked([["Acme", "x"], ["Bolt"]]) == (Recipient("Acme", "x"), Recipient("Bolt"))
    with pytest.raises(RecipientListError):
        checked([["Acme", ""], ["ACME", ""]])


def test_folder_name_comes_from_the_key_and_not_the_recipient() -> None:
    assert folder_name(COMMITMENT) == "copy-0123456789ab"


def test_script_joiners_are_kept_but_ignored_in_comparisons() -> None:
    with_joiner = "\u0645\u06cc\u200c\u062e\u0648"
    assert names(with_joiner) == [with_joiner]
    assert same_name(with_joiner) == same_name(with_joiner.replace("\u200c", ""))
