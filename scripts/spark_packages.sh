#!/usr/bin/env bash
# Java and pyspark for the tests with Spark: what is there is used, what is missing is installed. Says what it installs;
# fails with the remedy. SPARK=0 leaves both out, and those tests are skipped. Usage: scripts/spark_packages.sh VENV
set -euo pipefail
venv=${1:?usage: scripts/spark_packages.sh VENV}
cd "$(dirname "$0")/.."

say() { printf 'topics setup: %s\n' "$*" >&2; }
fail() { say "$*, or leave the tests with Spark out: SPARK=0 make test"; exit 1; }

[ "${SPARK:-1}" != 0 ] || exit 0

java=java
[ -z "${JAVA_HOME:-}" ] || java=$JAVA_HOME/bin/java
major() { "$java" -version 2>&1 | sed -n 's/.* version "\(1\.\)\{0,1\}\([0-9]*\).*/\2/p' | head -1; }
found=$(major || true)
if [ "${found:-0}" -lt 17 ]; then
    [ -z "${JAVA_HOME:-}" ] || fail "JAVA_HOME is $JAVA_HOME, and Spark needs a Java from 17 on there: set it to one, or unset it"
    package=openjdk-17-jre-headless  # on Ubuntu 22.04 the default is 11; Debian 13 has 21 and not 17
    command -v apt-get >/dev/null || fail "Spark needs Java 17 or newer, and apt-get is not found: install one by hand"
    sudo=
    [ "$(id -u)" = 0 ] || sudo=sudo
    [ -z "$sudo" ] || command -v sudo >/dev/null || fail "not root and no sudo: run 'apt-get install $package' as root"
    export DEBIAN_FRONTEND=noninteractive
    $sudo apt-get update -qq || fail "apt-get update failed: check the network, then run again"
    case "$(LC_ALL=C apt-cache policy "$package" 2>/dev/null)" in
        *"Candidate: ("* | "") package=default-jre-headless ;;
    esac
    say "installing $package for the tests with Spark (SPARK=0 leaves it out)"
    $sudo apt-get install -y -qq --no-install-recommends "$package" >/dev/null \
        || fail "apt-get install $package failed: run it by hand to see why"
fi

if ! "$venv/bin/python" -c 'import pyarrow, pyspark' 2>/dev/null; then
    say "installing pyspark and pyarrow into $venv for the tests with Spark: half a gigabyte (SPARK=0 leaves it out)"
    "$venv/bin/python" -c 'import tomllib
for one in tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["spark"]: print(one)' \
        | "$venv/bin/python" -m pip install -q --disable-pip-version-check -r /dev/stdin \
        || fail "pip install 'topics-log[spark]' failed: the lines above say why"
fi
