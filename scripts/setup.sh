#!/usr/bin/env bash
# Sets up everything `topics` needs on a Debian machine: system packages if missing, a virtual environment, the
# Python packages. Says what it installs; fails with the remedy. An environment in which an earlier run was cut off
# is made anew. Usage: scripts/setup.sh VENV, or scripts/setup.sh VENV test for the test tools in an environment.
set -euo pipefail
venv=${1:?usage: scripts/setup.sh VENV [test]}
python=${PYTHON:-python3}
cd "$(dirname "$0")/.."

say() { printf 'topics setup: %s\n' "$*" >&2; }
unfinished=$venv/.unfinished  # there while something is installed, and after a run that was cut off
fail() { [ ! -e "$unfinished" ] || rm -f "$unfinished"; say "$*"; exit 1; }
trap 'say "interrupted: the next run begins anew"; exit 130' INT TERM HUP
pip() { "$venv/bin/python" -m pip --disable-pip-version-check "$@"; }
install() { pip install -q "$@" || fail "pip install failed: the lines above say why (is the package index reachable?)"; }
of_project() { "$venv/bin/python" -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']$1, sep='\n')"; }

if [ "${2:-}" = test ]; then
    [ ! -e "$unfinished" ] || bash scripts/setup.sh "$venv"
    say "installing the test tools (mypy, ruff, pytest, pyarrow, ...)"
    touch "$unfinished"
    needed=$(of_project "['optional-dependencies']['test']")
    install -r /dev/stdin <<< "$needed"  # not by a pipe: the subshell would not know that it is interrupted
    rm -f "$unfinished"
    touch "$venv/.ready"
    exit
fi

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

if [ -e "$unfinished" ]; then
    say "an earlier run was cut off: removing $venv"
    rm -rf "$venv"
fi
say "1 of 4: the virtual environment $venv"
has_pip() { [ -x "$venv/bin/python" ] && pip --version >/dev/null 2>&1; }
make_environment() {
    mkdir -p "$venv"
    touch "$unfinished"
    "$python" -m venv "$venv" || fail "could not create $venv: apt-get install python3-venv"
}
has_pip || make_environment  # adds pip where there is none, and keeps the rest
if ! has_pip; then
    say "pip does not work there: removing $venv"
    rm -rf "$venv"
    make_environment
    has_pip || fail "$venv has no pip that works: apt-get install python3-venv"
fi
touch "$unfinished"
say "2 of 4: installing setuptools and cffi"
install "setuptools>=77" wheel "cffi>=1.16"
say "3 of 4: installing Python packages (numpy, httptools, h2, typer, ...)"
needed=$(of_project "['dependencies']")
install -r /dev/stdin <<< "$needed"
say "4 of 4: building the C modules, up to some minutes on a slow machine"
install --no-build-isolation --no-deps -e .
rm -f "$unfinished"
touch "$venv/.base" "$venv/.built"
