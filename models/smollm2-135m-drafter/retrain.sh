#!/usr/bin/env bash
# Trains this drafter from scratch: features, three stages, calibration; more text, the last stage once more, calibration.
# Stopped at any moment, it goes on where it was when it is called again with the same folder.
#
#     cargo build --release -p redraft-train
#     models/smollm2-135m-drafter/retrain.sh MODEL.gguf ANSWERS.jsonl.zst PROMPTS.jsonl.zst FOLDER
#
# MODEL is SmolLM2-135M-Instruct in Q4_1, ANSWERS what docs/training.md calls text, PROMPTS what pick_prompts.py reads.
# FOLDER gets 5 GB of features and checkpoints, and at the end drafter.safetensors. REDRAFT_TRAIN names another program
# than the one that was built, DEVICE=wgpu takes a GPU. Python 3 and zstd are needed.
set -euo pipefail
if [ $# -ne 4 ]; then
  echo "usage: $0 MODEL.gguf ANSWERS.jsonl.zst PROMPTS.jsonl.zst FOLDER" >&2
  exit 2
fi
model=$1 answers=$2 prompts=$3 folder=$4
here=$(cd "$(dirname "$0")" && pwd)
train=${REDRAFT_TRAIN:-${CARGO_TARGET_DIR:-$here/../../target}/release/redraft-train}
for needed in "$train" python3 zstd; do
  if ! command -v "$needed" > /dev/null; then
    echo "$needed is not there: run \`cargo build --release -p redraft-train\`, or name the program in REDRAFT_TRAIN; install python3 and zstd" >&2
    exit 1
  fi
done
device=${DEVICE:-flex}
mkdir -p "$folder"
stage=(--model "$model" --steps 4 --batch-tokens 768 --evaluation-samples 24 --device "$device")
calibrate=(calibrate --model "$model" --blocks q4_0 --texts 24)

# The first text.
corpus=$folder/corpus
"$train" prepare --model "$model" --data "$answers" --out "$corpus" --max-tokens 640 --device "$device"
first=("${stage[@]}" --corpus "$corpus" --learning-rate 1e-3)
"$train" run base "${first[@]}" --out "$folder/first" --texts 704 --epochs 3 --warmup 60 --evaluate-every 120
"$train" run reconsider "${first[@]}" --out "$folder/first" --texts 704 --epochs 1 --warmup 20 --evaluate-every 75
"$train" run joint "${first[@]}" --out "$folder/second" --from "$folder/first/reconsider.safetensors" --epochs 2 --warmup 40 \
  --weight-decay 0.05 --second-weight 0.4 --evaluate-every 150
if [ ! -e "$folder/second.safetensors" ]; then
  "$train" "${calibrate[@]}" --drafter "$folder/second/joint.safetensors" --corpus "$corpus" --out "$folder/second.safetensors"
fi

# More text, from other prompts, and the last stage again over all of it.
"$here/pick_prompts.py" "$prompts" "$folder"
for number in 0 1; do
  "$train" generate --model "$model" --prompts "$folder/prompts-$number.jsonl" --out "$folder/answers-$number.jsonl" \
    --temperature 0 --batch 64 --device "$device"
done
corpus=$folder/corpus-all
"$train" prepare --model "$model" --data "$answers" "$folder/answers-0.jsonl" "$folder/answers-1.jsonl" --out "$corpus" \
  --max-tokens 640 --device "$device"
"$train" run joint "${stage[@]}" --corpus "$corpus" --learning-rate 8e-4 --out "$folder/third" --from "$folder/second.safetensors" \
  --epochs 1 --warmup 40 --weight-decay 0.05 --second-weight 0.4 --evaluate-every 120
"$train" "${calibrate[@]}" --drafter "$folder/third/joint.safetensors" --corpus "$corpus" --out "$folder/drafter.safetensors"
echo "$folder/drafter.safetensors"
