"""A CycloneDX ML-BOM of a release: its files with their hashes, its base model, its licence, and its mark's commitment.

The commitment is public and says neither which rows carry the mark nor who received the release. Two calls give the
same bytes: the time is that of the release, and the serial number follows from the hashes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_URL, uuid5

import irwm
from irwm.errors import AttestationError, holds_controls, printable
from irwm.extras import release_libraries
from irwm.release.front_matter import BASE_MODEL, CARD_NAME, front_matter
from irwm.release.manifest import format_manifest, read_manifest

if TYPE_CHECKING:
    from cyclonedx.model.license import License

COMMITMENT, RECIPIENT = "irwm:mark:commitment", "irwm:recipient"
_DIGITS = frozenset("0123456789abcdef")


@dataclass(frozen=True, slots=True)
class BillDetails:
    """Statements of a bill that do not follow from the release's folder.

    Attributes:
        commitment: of the key whose mark the release carries, hex (`Key.commitment`); "" to leave it out.
        base_model: the original's name, if the model card gives none.
        recipient: who received the release; "" to leave it out, as in any bill that more people may read.
    """

    commitment: str = ""
    base_model: str = ""
    recipient: str = ""

    def __post_init__(self) -> None:
        if self.commitment and (len(self.commitment) != 64 or not _DIGITS.issuperset(self.commitment)):
            raise AttestationError(
                "this is not the commitment of a key",
                expected="64 hexadecimal digits, as in the receipt of the release",
                found=printable(self.commitment, 80),
            )
        for text in (self.base_model, self.recipient):
            if holds_controls(text):
                raise AttestationError("a name contains control characters", found=printable(text, 80))


def bill_of_materials(release: str | Path, described: BillDetails = BillDetails()) -> bytes:
    """The bill of a release as JSON, CycloneDX 1.6. The hashes are those in SHA256SUMS; no weights are read.

    Raises:
        NotACheckpointError, CorruptCheckpointError: the folder has no manifest, or the manifest or the model card is
            malformed.
        AttestationError: a file name is not UTF-8.
        MissingExtraError: the extra `release` is not installed.
    """
    with release_libraries():
        from cyclonedx.model import HashAlgorithm, HashType, Property
        from cyclonedx.model.bom import Bom, BomMetaData
        from cyclonedx.model.component import Component, ComponentType, Pedigree
        from cyclonedx.output.json import JsonV1Dot6

    folder = Path(release).resolve()
    manifest = read_manifest(folder)
    for name in (folder.name, *manifest.files):
        if any("\ud800" <= c <= "\udfff" for c in name):
            raise AttestationError("a file name is not UTF-8", file=folder / name, advice="Rename the file")
    card = front_matter(folder / CARD_NAME)
    total = hashlib.sha256(format_manifest(manifest.files)).hexdigest()

    def hashed(digest: str) -> list[HashType]:
        return [HashType(alg=HashAlgorithm.SHA_256, content=digest)]

    def file(name: str, digest: str) -> Component:
        return Component(name=name, type=ComponentType.FILE, bom_ref=f"file:{name}", hashes=hashed(digest))

    bases = _texts(card.get(BASE_MODEL)) or _texts(described.base_model)
    ancestors = [
        Component(name=name, type=ComponentType.MACHINE_LEARNING_MODEL, bom_ref=f"base:{name}") for name in bases
    ]
    stated = {COMMITMENT: described.commitment, RECIPIENT: described.recipient}
    model = Component(
        name=folder.name,
        type=ComponentType.MACHINE_LEARNING_MODEL,
        bom_ref="release",
        hashes=hashed(total),
        licenses=_licences(card),
        pedigree=Pedigree(ancestors=ancestors) if ancestors else None,
        properties=[Property(name=name, value=value) for name, value in stated.items() if value],
    )
    tool = Component(name="irwm", type=ComponentType.APPLICATION, version=irwm.__version__, bom_ref="tool")
    written = datetime.fromtimestamp(int(manifest.path.stat().st_mtime), UTC)
    files = [file(name, digest) for name, digest in sorted(manifest.files.items())]
    bom = Bom(
        serial_number=uuid5(NAMESPACE_URL, f"urn:sha256:{total}"),
        metadata=BomMetaData(timestamp=written, component=model),
        components=files,
    )
    bom.metadata.tools.components.add(tool)
    bom.register_dependency(model, files)
    return (str(JsonV1Dot6(bom).output_as_string(indent=1)) + "\n").encode("utf-8")


def _licences(card: Mapping[str, Any]) -> list[License]:
    """The licences that a card names; hubs write SPDX identifiers in lower case, or "other" and a name."""
    from cyclonedx.contrib.license.factories import LicenseFactory
    from cyclonedx.model import XsUri

    factory = LicenseFactory()
    given = _texts(card.get("license"))
    if given == ["other"]:
        given = _texts(card.get("license_name")) or given
    link = card.get("license_link")
    url = XsUri(link) if isinstance(link, str) and link.startswith(("https://", "http://")) else None
    if len(given) == 1:
        return [factory.make_from_string(given[0], license_url=url)]
    # An expression must be alone.
    return [factory.make_with_name(name) for name in given]


def _texts(value: object) -> list[str]:
    """A value of the front matter as names: one, several, or none."""
    several: Iterable[object] = value if isinstance(value, list) else [value]
    return list(dict.fromkeys(each.strip() for each in several if isinstance(each, str) and each.strip()))
