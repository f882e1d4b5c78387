#!/usr/bin/env bash
# Sets up everything `topics` needs on a Debian machine: system packages if missing, a virtual environment, the
# Python packages. Says what it installs; fails with the remedy. Usage: scripts/setup.sh VENV
set -euo pipefail
venv=${1:?usage: scripts/setup.sh VENV}
python=${PYTHON:-python3}
cd "$(dirname "$0")/.."

say() { printf 'topics setup: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

command -v "$python" >/dev/null || fail "no $python found: apt-get install python3 python3-venv python3-dev"
version=$("$python" -V 2>&1) || fail "$python does not run (set PYTHON=python3.11): $version"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail "$version is too old: Python 3.11 or newer is needed (set PYTHON=python3.11)"

missing=()
command -v cc >/dev/null || command -v gcc >/dev/null || missing+=(gcc libc6-dev)
has_header() { [ -e "/usr/include/$1" ] || echo "#include <$1>" | cc -fsyntax-only -x c - 2>/dev/null; }
has_header liburing.h || missing+=(liburing-dev)
has_header xxhash.h || missing+=(libxxhash-dev)
"$python" -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
"$python" -c 'import os, sysconfig, sys; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' || missing+=(python3-dev)
if [ ${#missing[@]} -gt 0 ]; then
    say "installing system packages: ${missing[*]}"
    command -v apt-get >/dev/null || fail "apt-get not found: install the equivalents of ${missing[*]} by hand"
    sudo=
    [ "$(id -u)" = 0 ] || sudo=sudo
    [ -z "$sudo" ] || command -v sudo >/dev/null || fail "not root and no sudo: run 'apt-get install ${missing[*]}' as root"
    DEBIAN_FRONTEND=noninteractive $sudo apt-get update -qq || fail "apt-get update failed: check the network, then run again"
    DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null \
        || fail "apt-get install ${missing[*]} failed: run it by hand to see why"
fi

if [ ! -x "$venv/bin/python" ]; then
    say "creating the virtual environment $venv"
    "$python" -m venv "$venv" || fail "could not create $venv: apt-get install python3-venv"
fi
say "installing Python packages into $venv (cffi, numpy, httptools, ... and the test tools) and building the C modules"
"$venv/bin/python" -m pip install -q --disable-pip-version-check "setuptools>=77" wheel "cffi>=1.16" \
    || fail "pip could not reach its package index: check the network or pip's configuration"
"$venv/bin/python" -m pip install -q --disable-pip-version-check --no-build-isolation -e '.[test]' \
    || fail "pip install failed: the lines above say why"
touch "$venv/.ready" "$venv/.built"
