"""Reports of every kind as the app's tasks make them: real models, a real vault, a real timestamping authority."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import irwm
from irwm.attacks.catalogue import ATTACKS
from irwm.ownership import Commitment
from irwm.report.reader_inputs import Brought, opened_keys
from irwm.scheme.parameters import many_recipients
from storage import Vault
from storage.encryption import Cost
from tests.jobs.recipients import averaged, given_out, jobs_of, make_keys, put_in_vault, request, run_here
from tests.ownership.authority import Authority, make_authority
from tools.small_models import DEMO, write_llama
from ui.components.commitment_box import commitment_of
from ui.services.stamps import StampFiles, own_request

SEEN = "2099-01-01T00:00:00+00:00"


class Desk:
    """A vault, its jobs and an authority, in a separate folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        cost = Cost(memory_kib=8, passes=1, lanes=1)
        # On a busy machine the vault is not used for longer than the usual limit.
        self.vault = Vault.create(root / "home", "four unrelated plain words", cost, idle_seconds=math.inf)
        self.jobs = jobs_of(self.vault)
        self.authority: Authority = make_authority(root / "authority")
        # The command's arguments that have all values of a kind of report computed again.
        self.brought: dict[str, list[object]] = {}

    @property
    def identity(self) -> str:
        """The first public key of the signer."""
        return self.vault.identity().first_public_key

    def stamped(self, id: str) -> None:
        """Have the commitment of a key dated."""
        commitment = commitment_of(self.vault, id)
        asked = own_request(commitment.digest)
        answer = self.authority.answer(asked)
        files = StampFiles(commitment.to_bytes(), asked, answer, self.authority.root)
        sent, response, stamp = files.read(commitment)
        document = commitment.to_bytes()
        self.vault.add_timestamp(id, document, sent, response, stamp.time_utc, stamp.authority, stamp.trusted)

    def opened(self, folder: str, keys: Sequence[irwm.Key]) -> Path:
        """A folder of keys as their owners opened them."""
        place = self.root / folder
        place.mkdir()
        for number, key in enumerate(keys):
            (place / f"{number}.key").write_bytes(key.to_bytes())
        return place

    def exported_log(self) -> Path:
        """The audit log, as the page Vault exports it."""
        path = self.root / "audit-log.jsonl"
        path.write_bytes(self.vault.exported_log())
        return path

    def run(self, kind: str, asked: dict[str, Any]) -> Path:
        """A folder with the files of a finished task, as a user gets them."""
        job = run_here(kind, asked, self.vault, self.jobs)
        assert job.state == "done", job.error
        return given_out(self.jobs, job.id, self.root / f"{kind}-{job.id}")

    def traced(self) -> Path:
        """Two of three recipients averaged their copies; the key is dated, and the report has a supporting reading."""
        path = write_llama(self.root / "original", vocab_size=1200, tie_word_embeddings=True)
        model = irwm.open_checkpoint(path)
        keys = make_keys(model, ["Ada", "Ben", "Cleo"])
        for id in put_in_vault(self.vault, keys):
            self.stamped(id)
        copies = [Path(irwm.insert(model, key, self.root / key.recipient).path) for key in keys[:2]]
        averaged(copies, self.root / "mean")
        suspect = shutil.copytree(self.root / "mean", self.root / "mean as examined")
        self._keys = keys
        self.brought["report"] = ["--suspect", suspect, "--original", path, "--key", self.opened("keys", keys)]
        asked = request(
            path, None, suspect=str(self.root / "mean"), statistic="sum", invariant="suspect", seen_utc=SEEN
        )
        (report,) = self.run("investigate", asked).glob("report-mean-??????.json")
        return report

    def sweep(self) -> Path:
        """The same suspect in a folder with one that cannot be read, and one more key without noise."""
        path = self.root / "original"
        model = irwm.open_checkpoint(path)
        plain = irwm.generate_key(model, irwm.Parameters(constraints=5), b"\x03" * 32, "Example Labs")
        put_in_vault(self.vault, [plain])
        folder = self.root / "suspects"
        keys = self.opened("all keys", [*self._keys, plain])
        self.brought["sweep"] = ["--suspect", folder, "--original", path, "--key", keys]
        folder.mkdir()
        (self.root / "mean").rename(folder / "mean")
        (folder / "broken.gguf").write_bytes(b"GGUF" + bytes(30))
        return self.run("sweep", request(path, None, folder=str(folder), resume="")) / "sweep.json"

    def lab(self) -> Path:
        """Trial marks of both kinds under two attacks and a disguise, one of which cannot be carried out."""
        trials = [
            {"attack": name, "value": ATTACKS[name].strengths[0].value} for name in ("prune", "rotate", "shift-tables")
        ]
        marks = {"single": irwm.Parameters(hidden=False).to_dict(), "many": many_recipients(256).to_dict()}
        asked = {
            "original": str(DEMO), "release": "", "key": "", "parameters": marks, "trials": trials, "text": "",
            "tokens": 64, "seed": 0, "device": "cpu", "case_id": "", "case_title": "Before the release", "note": "",
            "resume": "",
        }  # fmt: skip
        self.brought["lab"] = ["--original", DEMO]
        return self.run("lab", asked) / "lab.json"

    def dispute(self) -> Path:
        """Our release, which another claimant calls an original and marks again; both claims are dated."""
        folder = self.root / "dispute"
        original = irwm.open_checkpoint(write_llama(folder / "ours"))
        params = irwm.Parameters(constraints=5)
        key = irwm.generate_key(original, params, b"\x01" * 32, "Example Labs")
        release = irwm.insert(original, key, folder / "release").path
        taken = irwm.open_checkpoint(release)
        his = irwm.generate_key(taken, params, b"\x02" * 32, "Copy Works")
        marked = irwm.insert(taken, his, folder / "marked").path
        (folder / "their.key").write_bytes(his.to_bytes())
        (id,) = put_in_vault(self.vault, [key])
        self.stamped(id)
        models = [each for name in ("ours", "release", "marked") for each in ("--model", folder / name)]
        self.brought["dispute"] = [*models, "--key", self.opened("both keys", [key, his])]
        asked = {
            "case_id": self.vault.add_case("Two claims on one model").id,
            "ours": {"original": str(folder / "ours"), "release": str(release), "key": id},
            "theirs": {
                "name": "Copy Works", "original": str(release), "key_file": str(folder / "their.key"),
                "release": str(marked), "stamp": str(self._their_stamp(his, folder / "stamp")),
            },
            "exhibit": str(marked), "device": "cpu", "roots": str(self._root_file()),
        }  # fmt: skip
        return self.run("dispute", asked) / "dispute.json"

    def _root_file(self) -> Path:
        path = self.root / "authority.pem"
        path.write_bytes(self.authority.root)
        return path

    def _their_stamp(self, key: irwm.Key, folder: Path) -> Path:
        folder.mkdir()
        commitment = Commitment.of(key, "llama")
        asked = own_request(commitment.digest)
        for name, content in (
            ("their.json", commitment.to_bytes()),
            ("their.tsq", asked),
            ("their.tsr", self.authority.answer(asked)),
        ):
            (folder / name).write_bytes(content)
        return folder


def brought_by(desk: Desk, kind: str, log: Path) -> Brought:
    """The arguments of `Desk.brought` as Python objects."""
    options = desk.brought[kind]
    given: dict[str, list[Path]] = {}
    for name, path in zip(options[::2], options[1::2], strict=True):
        given.setdefault(str(name), []).append(Path(str(path)))
    return Brought(
        identity=desk.identity,
        roots_pem=desk.authority.root,
        suspect=given.get("--suspect", [None])[0],
        original=given.get("--original", [None])[0],
        models=tuple(given.get("--model", [])),
        keys=tuple(key for path in given.get("--key", []) for key in opened_keys(path)),
        audit_log=log,
        seen_utc=SEEN,
    )
