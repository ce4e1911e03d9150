#!/usr/bin/env python3
"""Picks the 512 prompts whose answers the last stage of the drafter adds to its text.

    pick_prompts.py PROMPTS.jsonl.zst FOLDER

PROMPTS has a line {"source": …, "prompt": …} each. Open questions and role-play are picked more often than their share
in it, code and sums less: there the first 1,472 answers had little. Writes prompts-0.jsonl and prompts-1.jsonl, the same
every time. Zstandard files are read with the `zstd` program.
"""

import collections
import json
import pathlib
import random
import subprocess
import sys

SHARES = {
    "arena_hard_v0.1": 288,
    "self_instruct_seed": 117,
    "gpteacher_roleplay": 339,
    "gpteacher_codegen": 160,
    "gsm8k_train": 120,
}
LONGEST = 700  # characters
FILES, EACH = 2, 256


def main():
    if len(sys.argv) != 3:
        sys.exit(f"usage: {sys.argv[0]} PROMPTS.jsonl.zst FOLDER")
    path, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    if path.suffix == ".zst":
        text = subprocess.run(["zstd", "-dcq", str(path)], check=True, capture_output=True).stdout
    else:
        text = path.read_bytes()
    by_source = collections.defaultdict(list)
    for line in text.decode().splitlines():
        entry = json.loads(line)
        if len(entry["prompt"]) < LONGEST:
            by_source[entry["source"]].append(entry["prompt"])
    draw = random.Random(7)
    for prompts in by_source.values():
        draw.shuffle(prompts)
    picked = [prompt for source, count in SHARES.items() for prompt in by_source[source][:count]]
    draw.shuffle(picked)
    if len(picked) < FILES * EACH:
        sys.exit(f"{path}: {len(picked)} prompts under {LONGEST} characters of {', '.join(SHARES)}, {FILES * EACH} needed")
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(FILES):
        lines = [json.dumps({"prompt": prompt}) + "\n" for prompt in picked[number * EACH :][:EACH]]
        (folder / f"prompts-{number}.jsonl").write_text("".join(lines))


if __name__ == "__main__":
    main()
