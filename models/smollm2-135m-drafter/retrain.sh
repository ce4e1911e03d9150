#!/usr/bin/env bash
# Trains this drafter from scratch: features, three stages, calibration. Stopped at any moment, it goes on where it was when
# it is called again with the same folder.
#
#     cargo build --release -p redraft-train
#     models/smollm2-135m-drafter/retrain.sh MODEL.gguf ANSWERS.jsonl.zst FOLDER
#
# MODEL is SmolLM2-135M-Instruct in Q4_1, ANSWERS what docs/training.md calls text. FOLDER gets 2.7 GB of features and
# checkpoints, and at the end drafter.safetensors. REDRAFT_TRAIN names another program than the one that was built,
# DEVICE=wgpu takes a GPU.
set -euo pipefail
if [ $# -ne 3 ]; then
  echo "usage: $0 MODEL.gguf ANSWERS.jsonl.zst FOLDER" >&2
  exit 2
fi
model=$1 answers=$2 folder=$3
root=$(cd "$(dirname "$0")/../.." && pwd)
train=${REDRAFT_TRAIN:-${CARGO_TARGET_DIR:-$root/target}/release/redraft-train}
if ! command -v "$train" > /dev/null; then
  echo "$train is not there: run \`cargo build --release -p redraft-train\`, or name the program in REDRAFT_TRAIN" >&2
  exit 1
fi
device=${DEVICE:-flex}
mkdir -p "$folder"
corpus=$folder/corpus
stage=(--model "$model" --corpus "$corpus" --steps 4 --batch-tokens 768 --learning-rate 1e-3 --evaluation-samples 24 --device "$device")

"$train" prepare --model "$model" --data "$answers" --out "$corpus" --max-tokens 640 --device "$device"
"$train" run base "${stage[@]}" --out "$folder/first" --texts 704 --epochs 3 --warmup 60 --evaluate-every 120
"$train" run reconsider "${stage[@]}" --out "$folder/first" --texts 704 --epochs 1 --warmup 20 --evaluate-every 75
"$train" run joint "${stage[@]}" --out "$folder/second" --from "$folder/first/reconsider.safetensors" --epochs 2 --warmup 40 \
  --weight-decay 0.05 --second-weight 0.4 --evaluate-every 150
"$train" calibrate --model "$model" --drafter "$folder/second/joint.safetensors" --corpus "$corpus" --blocks q4_0 --texts 24 \
  --out "$folder/drafter.safetensors"
echo "$folder/drafter.safetensors"
