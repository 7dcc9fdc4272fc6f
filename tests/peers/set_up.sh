#!/bin/sh
# Puts the libraries whose files we write and read into DIR/venv and
# DIR/megatron, releases that this version is tested against; what is there
# already stays. PEERS_VENV and PEERS_MEGATRON name other places. pip obeys its
# own settings, PIP_INDEX_URL for a build of torch without CUDA for instance.
# usage: tests/peers/set_up.sh DIR
# SPDX-License-Identifier: Apache-2.0
set -eu
dir="$1"
venv="${PEERS_VENV:-$dir/venv}"
megatron="${PEERS_MEGATRON:-$dir/megatron}"

# The checkout has megatron/training, which is in no wheel.
tag=core_v0.16.1
if [ ! -d "$megatron/megatron/training" ]; then
  rm -rf "$megatron"
  git -c advice.detachedHead=false clone --quiet --depth 1 --branch "$tag" \
    https://github.com/NVIDIA/Megatron-LM.git "$megatron"
fi

[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
if ! "$venv/bin/python" -c "
import importlib.metadata as metadata
for name in ('einops', 'h5py', 'numpy', 'psutil', 'six', 'safetensors', 'torch',
             'transformers', 'typing_extensions'):
    metadata.version(name)
assert metadata.version('megatron-core') == '0.16.1'
" 2>/dev/null; then
  "$venv/bin/pip" install --quiet torch==2.15.0 transformers==5.24.0 \
    safetensors megatron-core==0.16.1 einops h5py numpy psutil six \
    typing_extensions
fi
