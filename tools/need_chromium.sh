#!/bin/sh
# The browser tests drive a real Chromium and are never skipped: install Debian's where none is found.
set -e
command -v chromium >/dev/null 2>&1 && exit 0
if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium
else
    echo "The browser tests need Chromium on the PATH. On Debian: sudo apt-get install chromium" >&2
    exit 1
fi
