#!/bin/sh
# TRL, and what it and the tables import that a CUDA image often lacks, as files in build/peers (15 MB), for a machine that can
# install nothing: PYTHONPATH=src:build/peers python3 benchmarks/gpu.py. PYTHON_VERSION is that machine's (default 3.12).
set -eu
cd "$(dirname "$0")/.."
: "${PYTHON:=python3}" "${PYTHON_VERSION:=3.12}"
rm -rf build/peers
"$PYTHON" -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --target build/peers --only-binary=:all: \
  --python-version "$PYTHON_VERSION" --implementation cp \
  trl==1.16.0 datasets==4.8.5 dill==0.4.1 multiprocess==0.70.19 xxhash==4.1.0 \
  rich==15.0.0 markdown-it-py==4.0.0 mdurl==0.1.2 pygments==2.20.0
rm -rf build/peers/bin
du -sh build/peers
