#!/usr/bin/env bash
# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
# Install this checkout beside the torch and vLLM that the image brings, without touching either.
#   install.sh SOURCE_DIR
set -euo pipefail
source_dir=$1
python=${PYTHON:-python3}
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PIP_NO_CACHE_DIR=1

versions() { "$python" -c '
import importlib.metadata as m
for name in ("torch", "vllm"):
    try:
        print(name, m.version(name))
    except m.PackageNotFoundError:
        print(name, "absent")
'; }

before=$(versions)
# torch and vllm are held where they are; a requirement that would move them fails instead.
constraints=$(mktemp)
awk '$2 != "absent" { print $1 "==" $2 }' <<<"$before" >"$constraints"
# What is added has the version of the lock, so that two builds of an image are the same image.
"$python" "$source_dir/tools/missing_requirements.py" --pins "$source_dir/requirements/cpu.lock" >>"$constraints"
missing=$(mktemp)
"$python" "$source_dir/tools/missing_requirements.py" >"$missing"
if [ -s "$missing" ] && ! "$python" -m pip install -q -c "$constraints" -r "$missing"; then
    printf 'install.sh: these requirements cannot be installed beside\n%s\nas they are:\n' "$before" >&2
    cat "$missing" >&2
    exit 1
fi
"$python" -m pip install -q --no-deps "$source_dir"
rm -f "$constraints" "$missing"
after=$(versions)
if [ "$before" != "$after" ]; then
    printf 'install.sh: the installation changed torch or vllm\nbefore:\n%s\nafter:\n%s\n' "$before" "$after" >&2
    exit 1
fi
printf 'install.sh: verl is installed beside\n%s\n' "$after"
