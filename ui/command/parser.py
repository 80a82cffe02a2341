"""The arguments. Only argparse and names are imported, so that `--help` answers at once."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from ui.preset_names import TYPED

INIT, PROTECT, INVESTIGATE, TRACE = "init", "protect", "investigate", "trace"
COLLECT, OPEN_KEY, ATTEST, WATCH = "collect", "open-key", "attest", "watch"
COMMANDS = (INIT, PROTECT, INVESTIGATE, TRACE, WATCH, COLLECT, OPEN_KEY, ATTEST)
DEVICES = ("auto", "cpu", "cuda")
PRESETS = tuple(TYPED)
UTILITIES = ("small", "yes", "no")
APIS = ("openai", "chat", "llama.cpp")
ALL, CHOSEN = "all", "chosen"  # of --tokens
RANDOM = "random"  # of --prompts, or CHOSEN

ABOUT = """\
IRWM Studio: marks the weights of language models, and later proves whose copy a checkpoint is.

Without a command it opens the app in the browser. The commands do the same work for release
pipelines: same vault, same jobs, same signed reports. docs/headless.md has examples.
"""
STATUS = """\
exit status:
  0  release written; mark found; recipient named; vault made; answers recorded, or planned;
     key opened; report attested
  1  not found
  2  error: bad usage, bad input, or the task failed
  3  inconclusive: this suspect supports neither answer
  4  stopped: Ctrl-C, SIGTERM, or Stop in the app

The answer is one JSON document on standard output; progress goes to standard error. The vault is
the app's: its folder is IRWM_HOME, by default the same folder as for the app.
"""
PROTECT_ABOUT = """\
Writes a marked copy of MODEL as the new folder OUT, after its key was sealed in the vault.
With --recipients, OUT gets a folder for each recipient who has no copy yet.

  python app.py protect models/base releases/base-7 --owner "Example Labs" --recipient "Early access 7"
"""
INVESTIGATE_ABOUT = """\
Searches SUSPECT for the marks that were put into copies of the original, files a signed report in a
case, and states how strong the evidence is. A folder of several checkpoints is examined one by one.

  python app.py investigate found-online --original models/base --case "Leak of 3 May" --report leak
"""
TRACE_ABOUT = """\
Finds out whose copy SUSPECT is: as investigate, but only with keys that carry noise (preset "many"),
which can identify recipients even in a mixture of several copies. The outcome is "named" if the noise
names someone, and "found" if only the mark is found.

  python app.py trace found-online --original models/base --report leak
"""
INIT_ABOUT = """\
Makes the vault under a new passphrase of at least 12 characters, as the app does when it is first
opened. A passphrase that is easy to guess is refused. No passphrase can be reset: without it the
keys are lost, and the proof with them.

  python app.py init --passphrase-fd 3 3< passphrase.txt
"""
WATCH_ABOUT = """\
Screens all models of the sources that were not screened before: compares them with the originals of the
vault. A SOURCE is a folder, a folder of a bucket (s3://BUCKET/FOLDER), an organisation of the hub
(hf://ORGANISATION), a search there (hf://?search=WORDS, hf://?filter=base_model:ORGANISATION/NAME), or one
model's address. Servers must be allowed first: on the page Settings, or in IRWM_SERVERS.

Keys are tried only on models that resemble an original, no controls are run, and no report is written.
Run investigate on what it finds. A model that resembles no original is not cleared.

  python app.py watch hf://acme --every 6
"""
COLLECT_ABOUT = """\
Asks a served model for log-probabilities and stores them in the new file OUT, as evidence of whose
copy answers (docs/answers.md). With --generate it asks for text, with the log-probability of each
generated token: this is enough to trace a recipient's copy, and most servers give it. Without --send
it sends no request; --plan shows what it would send, and in how many requests. It sends only short
prompts in English, the model's name, and the numbers of tokens if it asks for a few at a time; never
keys or weights. The environment variable IRWM_API_TOKEN may hold a token for the API. After a stop
or a kill, the same command continues where it stopped.

  python app.py collect --endpoint http://127.0.0.1:8000 --model served --original models/base \\
      --out answers.safetensors --plan
  python app.py collect --generate --endpoint http://127.0.0.1:8000 --model served \\
      --original models/base --out answers.jsonl --plan
"""


OPEN_KEY_ABOUT = """\
Writes a key itself as a file into FOLDER, readable by this account alone. Anyone who has it can find the
marked rows, and remove the mark from every copy made with it. Give it only to someone who must examine
again without your vault: an expert, a court. The vault's log records that the key was written.

  python app.py open-key 8afdfb2690dbd4ef for-the-expert
"""


ATTEST_ABOUT = """\
Writes OUT, an in-toto attestation of a report that this vault signed, in a DSSE envelope: the suspect's
files, the verdict, the key's commitment, log10 p, and the report's SHA-256. It is signed with the vault's
identity. No data is sent. Needs the extra "release" (docs/release-engineering.md).

  python app.py attest leak leak.dsse.json --public-key identity.pem
"""


class UsageError(Exception):
    """The arguments are not a command. `text` says what is wrong, `usage` shows the correct form."""

    def __init__(self, text: str, usage: str) -> None:
        self.text, self.usage = text, usage
        super().__init__(text)


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Keeps the lines of the texts above, and puts every command's name and summary on one line."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=26, width=100)


class _Parser(argparse.ArgumentParser):
    """Raises the message that argparse would print, because the answer is JSON."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, formatter_class=_Formatter, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, self.format_usage())


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The parsed arguments; prints the help and exits if it was requested.

    Raises:
        UsageError
    """
    given = _parser().parse_args(arguments)
    if given.command is None:
        raise UsageError(f"a command is missing: {', '.join(COMMANDS)}", _parser().format_usage())
    return given


def command_in(arguments: Sequence[str]) -> str | None:
    """The intended command, even if the rest cannot be parsed."""
    return next((word for word in arguments if word in COMMANDS), None)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python app.py", description=ABOUT, epilog=STATUS)
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND", parser_class=_Parser)

    def command(name: str, summary: str, about: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=summary, description=about, epilog=STATUS)

    init = command(INIT, "make the vault", INIT_ABOUT)
    protect = command(PROTECT, "write a marked copy of a model", PROTECT_ABOUT)
    investigate = command(INVESTIGATE, "look for your marks in a suspect", INVESTIGATE_ABOUT)
    trace = command(TRACE, "find out whose copy a suspect is", TRACE_ABOUT)
    watched = command(WATCH, "look for copies on a hub, in a bucket or in folders", WATCH_ABOUT)
    recorder = command(COLLECT, "record the answers of a served model", COLLECT_ABOUT)
    opened = command(OPEN_KEY, "write a key's own file, for an expert or a court", OPEN_KEY_ABOUT)
    opened.add_argument("key", metavar="KEY", help="its id in the vault, or the first characters of its fingerprint")
    opened.add_argument("folder", metavar="FOLDER", help="an existing folder that no one else can read")
    attested = command(ATTEST, "export a signed report as an in-toto attestation", ATTEST_ABOUT)
    attested.add_argument("report", metavar="REPORT", help="any file of the report, its folder, or its archive")
    attested.add_argument("out", metavar="OUT", help="the new file")
    attested.add_argument(
        "--public-key", metavar="FILE", help="also write the identity's public key into this new file"
    )
    _add_protect(protect)
    _add_collect(recorder)
    _add_watch(watched)
    for each in (investigate, trace):
        _add_investigate(each)
    for each in (init, protect, investigate, trace, watched, recorder, opened, attested):
        _add_common(each, device=each not in (init, recorder, opened, attested))
    return parser


def _add_protect(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="the unmarked model: its folder, or its .safetensors file")
    parser.add_argument("out", metavar="OUT", help="the release's folder; its parent must exist, it must not")
    parser.add_argument("--owner", required=True, metavar="NAME", help="who owns the model; recorded in the key")
    whom = parser.add_mutually_exclusive_group()
    whom.add_argument("--recipient", default="", metavar="NAME", help="who gets this copy")
    whom.add_argument(
        "--recipients",
        metavar="LIST",
        help="a copy for each: a text file with one name per line, or a CSV with the column recipient and perhaps note",
    )
    setting = parser.add_mutually_exclusive_group()
    setting.add_argument(
        "--preset", choices=PRESETS, help="the mark's settings (default: standard; with --recipients many)"
    )
    setting.add_argument("--parameters", metavar="FILE", help="the settings as JSON, copied from the page Explore")
    parser.add_argument("--label", default="", metavar="TEXT", help="your own words, stored with the key in the vault")
    parser.add_argument(
        "--also",
        nargs="+",
        default=[],
        metavar="FILE",
        help="files of the model's folder to include in the release; without it only weights, settings, tokenizer and "
        "texts such as README and LICENSE are copied",
    )
    parser.add_argument(
        "--sign-key", default="", metavar="KEY",
        help="sign each release as model.sig, with a PEM file (EC P-256) or the key of a PKCS#11 URI",
    )  # fmt: skip
    parser.add_argument(
        "--secret-file", default="", metavar="FILE", help="its first line is the password of that file, or the PIN"
    )
    parser.add_argument(
        "--base-model", default="", metavar="NAME", help="name the original in the model card, if the card names none"
    )
    parser.add_argument(
        "--report",
        metavar="DIR",
        help="with --recipients: copy the table of receipts, which names all recipients, into this new or empty folder",
    )
    parser.add_argument(
        "--utility",
        choices=UTILITIES,
        default=UTILITIES[0],
        help="measure what the mark costs the model (default: small, that is if it is under 1 GB)",
    )


def _add_investigate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "suspect", metavar="SUSPECT", help="a model's folder, a weights file, a folder of several, or recorded answers"
    )
    parser.add_argument(
        "--original", metavar="MODEL",
        help="the unmarked model that the releases were made from (default: compare with all originals of the vault)",
    )  # fmt: skip
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--keys", nargs="+", metavar="ID", help="these keys: identifiers, or beginnings of their fingerprints"
    )
    which.add_argument(
        "--matching", default="", metavar="WORDS", help="keys with these words in owner, recipient or note"
    )
    parser.add_argument(
        "--case", default="", metavar="TITLE", help="file it in this case; an existing case with that title is used"
    )
    parser.add_argument("--note", default="", metavar="TEXT", help="your own words, filed with the run")
    parser.add_argument("--seen", default="", metavar="DATE", help="since when the suspect is known, YYYY-MM-DD")
    parser.add_argument("--examiner", default="", metavar="NAME", help="who examines; the report gives this name")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="same seed, same numbers (default: 0)")
    parser.add_argument(
        "--no-fits", dest="fits", action="store_false",
        help="do not fit the original to text if no recipient is named, which takes minutes to days",
    )  # fmt: skip
    parser.add_argument("--report", metavar="DIR", help="copy the report's files into this new or empty folder")


def _add_watch(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sources", nargs="+", metavar="SOURCE", help="a folder or an address, see above")
    parser.add_argument(
        "--original", action="append", metavar="MODEL",
        help="compare only with this, and with those of further --original (default: all originals of the vault)",
    )  # fmt: skip
    parser.add_argument(
        "--matching", default="", metavar="WORDS", help="keys with these words in owner, recipient or note"
    )
    parser.add_argument("--every", type=float, metavar="HOURS", help="again after so many hours, until it is stopped")
    parser.add_argument("--most", type=int, metavar="N", help="suspects in one pass (default: 1000)")
    parser.add_argument(
        "--bytes", type=int, metavar="N", help="bytes of one suspect's embedding on a server (default: 4 GiB)"
    )
    parser.add_argument("--seconds", type=int, metavar="S", help="time for one suspect (default: 600)")


def _add_collect(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--endpoint", required=True, metavar="URL", help="the server, as http://127.0.0.1:8000")
    parser.add_argument("--model", required=True, metavar="NAME", help="the model's name on that server")
    parser.add_argument("--original", required=True, metavar="DIR", help="the unmarked original it may come from")
    parser.add_argument("--out", required=True, metavar="FILE", help="the new file")
    allowed = parser.add_mutually_exclusive_group()
    allowed.add_argument("--send", action="store_true", help="allow this command to send prompts to the server")
    allowed.add_argument("--plan", action="store_true", help="only show what would be sent")
    parser.add_argument(
        "--generate", action="store_true", help="ask for text, with the log-probability of each token if there is one"
    )
    parser.add_argument("--max-tokens", type=int, metavar="N", help="with --generate: of an answer (default: 128)")
    parser.add_argument("--temperature", type=float, metavar="T", help="with --generate: for sampling (default: 1)")
    parser.add_argument(
        "--prompts", choices=(RANDOM, CHOSEN),
        help="with --generate: drawn at random (default), or those of eight times as many whose answers say most, for "
        "which the original is run here",
    )  # fmt: skip
    parser.add_argument(
        "--api", choices=APIS, default=APIS[0], help="the server's dialect (default: openai); chat only with --generate"
    )
    parser.add_argument(
        "--answers", type=int, metavar="N",
        help="how many (default: 1.5 times the original's width; with --generate 64)",
    )  # fmt: skip
    parser.add_argument(
        "--tokens", default=ALL, metavar="all|chosen|FILE",
        help="the whole vocabulary; the tokens that the vault's keys mark, among many others; or a list of token ids",
    )  # fmt: skip
    parser.add_argument("--keys", nargs="+", metavar="ID", help="with --tokens chosen: these keys alone")
    parser.add_argument("--top", type=int, metavar="K", help="log-probabilities to ask for (default: all, then fewer)")
    parser.add_argument(
        "--inside", action="store_true", help="take an answer at every token of a prompt (prompt_logprobs, as of vLLM)"
    )
    parser.add_argument("--rate", type=float, default=2.0, metavar="R", help="requests a second at most (default: 2)")
    parser.add_argument("--timeout", type=float, default=60.0, metavar="S", help="seconds for a request (default: 60)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="same seed, same prompts (default: 0)")


def _add_common(parser: argparse.ArgumentParser, *, device: bool) -> None:
    secret = parser.add_argument_group("passphrase (asked for on a terminal if neither is given)")
    one = secret.add_mutually_exclusive_group()
    one.add_argument("--passphrase-stdin", action="store_true", help="read it as one line from standard input")
    one.add_argument("--passphrase-fd", type=int, metavar="N", help="read it as one line from this file descriptor")
    if device:
        parser.add_argument("--device", choices=DEVICES, help="what to compute on (default: IRWM_DEVICE, else auto)")
    parser.add_argument("--quiet", action="store_true", help="no progress on standard error")
