#!/usr/bin/env python3
"""The ONNX model that onnxruntime-web is measured with, made from the weights of a GGUF file.

    python3 -m venv target/onnx
    target/onnx/bin/pip install onnxruntime-genai==0.18.0 onnx==1.23.2 onnx-ir==1.1.0 onnxruntime==1.32.0 \
        torch==2.15.0 transformers==5.24.0 accelerate gguf==0.19.0
    target/onnx/bin/python web/bench/export_onnx.py MODEL.gguf target/onnx/model

transformers dequantises the file to float32, the model builder of onnxruntime-genai quantises that again: 4 bits in
symmetric blocks of 32, which is its default and what its WebGPU provider is made for; embeddings and output as its
default has them for tied embeddings. Activations, keys and values are float32 (`use_webgpu_fp32`), as software adapters
have no f16. So the weights are near those of the file and not the same, and answers may part.

torch comes with several gigabytes of libraries that are not used here. Nothing is fetched from a hub.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

# Before transformers is imported: a folder or a file that is missing is an error, not a download.
os.environ["HF_HUB_OFFLINE"] = "1"


def dequantise(gguf, folder):
    """Writes the model and its tokenizer as transformers does, in float32 and without what says it was a GGUF file."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    where = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    read = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    config = type(read.config).from_dict(
        {name: value for name, value in read.config.to_dict().items() if name != "quantization_config"}
    )
    # What was read from quantised blocks refuses to be saved; the same tensors in a model of its configuration do not.
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.load_state_dict(read.state_dict())
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(**where).save_pretrained(folder)


# The first prompt of peer.spec.ts.
PROMPT = (
    "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nName three colours.<|im_end|>\n<|im_start|>assistant\n"
)


def greedy(folder, count):
    """Greedy ids of the exported model after PROMPT, on the CPU: what its WebGPU provider should give."""
    import json

    import numpy
    import onnxruntime
    from transformers import AutoTokenizer

    decoder = json.loads((folder / "genai_config.json").read_text())["model"]["decoder"]
    session = onnxruntime.InferenceSession(str(folder / decoder["filename"]), providers=["CPUExecutionProvider"])
    outputs = [output.name for output in session.get_outputs()]
    empty = numpy.zeros((1, decoder["num_key_value_heads"], 0, decoder["head_size"]), numpy.float32)
    past = {node.name: empty for node in session.get_inputs() if node.name.startswith("past")}
    ids = AutoTokenizer.from_pretrained(folder)(PROMPT, add_special_tokens=False)["input_ids"]
    length, answer = 0, []
    while len(answer) < count:
        length += len(ids)
        feeds = {"input_ids": numpy.array([ids]), "attention_mask": numpy.ones((1, length), numpy.int64), **past}
        found = dict(zip(outputs, session.run(None, feeds)))
        ids = [int(found["logits"][0, -1].argmax())]
        answer += ids
        past = {
            name.replace("present", "past_key_values"): value
            for name, value in found.items()
            if name.startswith("present")
        }
    return answer


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=pathlib.Path, help="the GGUF file")
    parser.add_argument("out", type=pathlib.Path, help="the folder to write model.onnx and model.onnx.data to")
    parser.add_argument(
        "--greedy", type=int, metavar="N", help="give N greedy ids of the first prompt of peer.spec.ts; what was exported is kept"
    )
    args = parser.parse_args()
    if not args.model.is_file():
        sys.exit(f"there is no file {args.model}; cargo xtask setup fetches the default model into ~/.cache/redraft/models")
    try:
        import accelerate, gguf, onnx, onnxruntime_genai, torch, transformers  # noqa: F401, E401
    except ImportError as error:
        sys.exit(f"{error}; the commands that install what this needs are at the top of {__file__}")
    if args.greedy and (args.out / "genai_config.json").is_file():
        print(*greedy(args.out, args.greedy))
        return
    with tempfile.TemporaryDirectory() as folder:
        plain = pathlib.Path(folder, "plain")
        dequantise(args.model.resolve(), plain)
        builder = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", str(plain), "-o", str(args.out)]
        options = ["-p", "int4", "-e", "webgpu", "-c", str(pathlib.Path(folder, "cache"))]
        subprocess.run(
            [*builder, *options, "--extra_options", "use_webgpu_fp32=1", "hf_token=false"], check=True
        )
    if args.greedy:
        print(*greedy(args.out, args.greedy))


if __name__ == "__main__":
    main()
