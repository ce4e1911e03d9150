#!/usr/bin/env python3
"""Tokens a round (tau) of one drafter as a chain, in llama.cpp and in redraft, on the same prompts.

    python3 -m venv target/llama && target/llama/bin/pip install xllamacpp==2026.10.11549
    cargo build --release
    target/llama/bin/python tests/interop/llama_cpp.py --model MODEL.gguf --drafter FILE \
        --prompts ../shared/data/eval/*.jsonl --limit 8

or, with nothing trained, on a tiny model in f32 whose drafter was fitted to be right now and then:

    cargo run --release -p redraft-testing --example fitted_drafter -- target/fitted
    target/llama/bin/python tests/interop/llama_cpp.py --model target/fitted/target.gguf \
        --drafter target/fitted/drafter.safetensors --prompts target/fitted/prompts.jsonl --limit 30 --f32

The drafter is exported with `redraft drafter export --to gguf`, in the types of its weights and with the model's
tokenizer. redraft renders each prompt and says its token ids; llama.cpp, on the CPU, gets these ids. Both decode
greedily, draft D tokens ahead in a chain and verify them.

tau is (accepted + rounds) / rounds over all prompts of a file, the target's own token included. llama.cpp counts drafted
and accepted tokens and no rounds: of n tokens the first comes from the prompt and each round gives its accepted ones and
one more, so there are n - 1 - accepted rounds. Its arithmetic differs from redraft's in the last bits (it rounds
activations to 8 bits where weights are quantised), so that some answers part at a close call and go on differently;
"same" counts those that do not, and the second pair of columns is over them alone. Both engines cut the last round at
the limit of tokens in their own way, which is worth one token an answer.

It needs a built redraft and a package from the index, takes minutes, and is no part of CI.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="the target, a GGUF file")
    parser.add_argument("--drafter", required=True, help="a drafter of redraft")
    parser.add_argument("--prompts", required=True, nargs="+", help='JSON lines with "prompt", "turns" or "ids"')
    parser.add_argument("--limit", type=int, default=8, help="prompts of each file (default 8)")
    parser.add_argument("--depth", type=int, default=3, help="tokens drafted ahead (default 3)")
    parser.add_argument("--tokens", type=int, default=64, help="longest answer (default 64)")
    parser.add_argument("--context", type=int, default=512, help="tokens of context of llama.cpp (default 512)")
    parser.add_argument("--threads", type=int, default=2, help="threads of llama.cpp (default 2)")
    parser.add_argument("--f32", action="store_true", help="keys and values in f32, in both engines")
    parser.add_argument("--redraft", default="target/release/redraft", help="the command")
    return parser.parse_args()


def redraft(args, *command):
    """What the command writes to standard output."""
    run = subprocess.run([args.redraft, *command], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"redraft {' '.join(command)}\n{run.stderr}")
    return run.stdout


def prompts(file, limit):
    """The first prompts of a file as arguments of redraft: of a conversation the first turn."""
    for line in pathlib.Path(file).read_text().splitlines()[:limit]:
        value = json.loads(line)
        if "ids" in value:
            yield ["--ids", ",".join(map(str, value["ids"]))]
        else:
            yield ["--", value["prompt"] if "prompt" in value else value["turns"][0]]


def llama_cpp(args, drafter):
    """A server of llama.cpp in this process, which listens to nobody else."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = args.model
    params.n_ctx = args.context
    params.n_parallel = 1
    params.warmup = False
    params.verbosity = 0
    params.hostnames = ["127.0.0.1"]
    params.cpuparams.n_threads = args.threads
    params.speculative.types = [xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_EAGLE3]
    draft = params.speculative.draft
    draft.mparams.path = drafter
    draft.n_max = args.depth
    draft.p_min = 0.0  # always drafts to the full depth
    draft.cpuparams.n_threads = args.threads
    if args.f32:
        for cache in (params, draft):
            cache.cache_type_k = cache.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    return xllamacpp.Server(params)


class Tally:
    """Rounds and accepted tokens of both engines."""

    def __init__(self):
        self.answers = 0
        self.rounds = [0, 0]
        self.accepted = [0, 0]

    def add(self, rounds, accepted):
        self.answers += 1
        for engine in range(2):
            self.rounds[engine] += rounds[engine]
            self.accepted[engine] += accepted[engine]

    def tau(self, engine):
        rounds = self.rounds[engine]
        return f"{(rounds + self.accepted[engine]) / rounds:.3f}" if rounds else "-"


def answer(args, server, prompt):
    """Rounds and accepted tokens of llama.cpp and of redraft, and whether the answers are the same."""
    ours = json.loads(redraft(
        args, "generate", "--model", args.model, "--drafter", args.drafter, "--speculate", "chain",
        "--nodes", str(args.depth), "--depth", str(args.depth), "-n", str(args.tokens), "--ignore-eos", "--json",
        "--kv", "f32" if args.f32 else "f16", *prompt,
    ))
    theirs = server.handle_completions({
        "prompt": ours["prompt_ids"], "n_predict": args.tokens, "temperature": 0, "ignore_eos": True,
        "cache_prompt": False,
    })
    if "timings" not in theirs:
        sys.exit(f"llama.cpp gave no answer: {theirs}")
    timings, stats = theirs["timings"], ours["speculation"]
    accepted = timings.get("draft_n_accepted", 0)
    rounds = timings["predicted_n"] - 1 - accepted
    same = theirs["choices"][0]["text"] == ours["text"]
    return (rounds, stats["rounds"]), (accepted, stats["accepted"]), same


def main():
    args = arguments()
    with tempfile.TemporaryDirectory() as folder:
        exported = str(pathlib.Path(folder) / "drafter.gguf")
        redraft(args, "drafter", "export", args.drafter, "--to", "gguf", "--target", args.model, "--out", exported)
        server = llama_cpp(args, exported)
        print(f"chain of {args.depth}, {args.tokens} tokens an answer, greedy")
        print(f"{'prompts':<16} {'n':>4} {'llama.cpp':>10} {'redraft':>10} {'same':>6} {'llama.cpp':>10} {'redraft':>10}")
        for file in args.prompts:
            every, equal = Tally(), Tally()
            for prompt in prompts(file, args.limit):
                rounds, accepted, same = answer(args, server, prompt)
                every.add(rounds, accepted)
                if same:
                    equal.add(rounds, accepted)
            print(
                f"{pathlib.Path(file).stem:<16} {every.answers:>4} {every.tau(0):>10} {every.tau(1):>10} "
                f"{equal.answers:>6} {equal.tau(0):>10} {equal.tau(1):>10}",
                flush=True,
            )


if __name__ == "__main__":
    main()
