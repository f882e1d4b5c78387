#!/usr/bin/env bash
# Debian packages that only some tests need (power cuts on a real file system: tests/long/powercut). Where they cannot be
# installed, those tests are skipped and say why; nothing here fails.
set -uo pipefail
[ "$(id -u)" = 0 ] && [ -e /dev/fuse ] && [ -e /dev/loop-control ] && command -v apt-get >/dev/null || exit 0
missing=()
[ -e /usr/include/fuse3/fuse.h ] || missing+=(libfuse3-dev)
command -v fusermount3 >/dev/null || missing+=(fuse3)
command -v mkfs.ext4 >/dev/null || missing+=(e2fsprogs)
[ ${#missing[@]} -eq 0 ] && exit 0
printf 'topics setup: installing system packages for the tests of power cuts: %s\n' "${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null \
    || printf 'topics setup: not installed; the tests of power cuts are skipped\n' >&2
exit 0
