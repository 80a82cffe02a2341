#!/bin/sh
# System tools for the tests: a real Chromium, which is required; mkfs.btrfs, for a disk that clones files; pdftoppm, to
# render a report's pages; softhsm2-util, for a PKCS#11 token in software. Missing tools are installed with apt if
# possible. Without Chromium this script fails. Without the other tools their tests are skipped with the reason.
#
#   sh tools/need_tools.sh [chromium] [mkfs.btrfs] [pdftoppm] [softhsm2-util]     all four without arguments
set -e

[ $# -gt 0 ] || set -- chromium mkfs.btrfs pdftoppm softhsm2-util

missing=""
for tool in "$@"; do
    command -v "$tool" >/dev/null 2>&1 || missing="$missing $tool"
done
[ -n "$missing" ] || exit 0

# The Debian package of a tool.
package_of() {
    case "$1" in
        mkfs.btrfs) echo btrfs-progs ;;
        pdftoppm) echo poppler-utils ;;
        softhsm2-util) echo softhsm2 ;;
        *) echo "$1" ;;
    esac
}

if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
    apt-get update -qq || true # a stale list may still do
    for tool in $missing; do
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$(package_of "$tool")" || true
    done
fi

status=0
for tool in $missing; do
    command -v "$tool" >/dev/null 2>&1 && continue
    if [ "$tool" = chromium ]; then
        echo "The browser tests need Chromium on the PATH. On Debian: sudo apt-get install chromium" >&2
        status=1
    else
        echo "Without $tool some tests are skipped. On Debian: sudo apt-get install $(package_of "$tool")" >&2
    fi
done
exit $status
