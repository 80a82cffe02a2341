"""Which disks' times of change are this machine's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from irwm.checkpoint import mounts
from irwm.checkpoint.mounts import boot_id, keeps_change_times

MOUNTS = """\
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
22 27 0:21 / /proc rw,relatime - proc proc rw
40 27 7:0 / /evidence rw,relatime - squashfs /dev/loop0 ro,errors=continue
41 27 7:1 / /seized ro,relatime shared:5 - ext4 /dev/sdb1 rw
42 27 7:2 / /seized/again rw,relatime - ext4 /dev/sdb2 ro
43 27 0:30 / /tmp rw - tmpfs tmpfs rw
44 27 0:31 / /home/a\\040b rw shared:9 master:1 - btrfs /dev/sdc rw,subvol=/x
45 27 0:32 / /remote rw - nfs4 server:/x rw
46 27 0:33 / /over rw - ext4 /dev/sdd rw
47 46 0:34 / /over rw - fuse.sshfs peer:/x rw
half a line
"""


@pytest.mark.parametrize(
    ("file", "kept"),
    [
        ("/models/a.safetensors", True),
        ("/evidence/a", False),
        ("/evidences/a", True),
        ("/seized/a", False),
        ("/seized/again/a", False),
        ("/tmp/a", False),
        ("/home/a b/c", True),
        ("/remote/a", False),
        ("/over/a", False),
    ],
)
def test_only_own_disks_that_are_mounted_for_writing(file: str, kept: bool) -> None:
    assert keeps_change_times(file, MOUNTS) == kept


def test_a_link_is_followed_to_the_disk_that_holds_the_file(tmp_path: Path) -> None:
    where = tmp_path.resolve()
    (where / "there").mkdir()
    (where / "link").symlink_to(where / "there")
    text = f"1 0 1:1 / / rw - tmpfs x rw\n2 1 1:2 / {where / 'there'} rw - xfs /dev/x rw\n"
    assert keeps_change_times(where / "link" / "a", text)
    assert not keeps_change_times(where / "a", text)


def test_a_system_that_says_nothing_is_not_believed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(mounts, "_MOUNTS", tmp_path / "none")
    monkeypatch.setattr(mounts, "_BOOT", tmp_path / "none")
    boot_id.cache_clear()
    assert not keeps_change_times(tmp_path)
    assert boot_id() == ""
    boot_id.cache_clear()
