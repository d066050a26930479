#!/usr/bin/env python3
"""A Llama checkpoint in bf16 as a GGUF file that llama.cpp reads.

  scripts/to_gguf.py FOLDER FILE

For scripts/compare_llama_cpp.sh: it needs no package and reads what that has,
`LlamaForCausalLM` without biases or rope scaling, in one model.safetensors. The
vocabulary is that of tokenizer.model; without one, made-up pieces stand in its
place. Weights stay as they are, norms become float32.
"""

import json
import math
import pathlib
import struct
import sys

ALIGNMENT = 32
F32, BF16 = 0, 30  # types of tensors
MOSTLY_BF16 = 32  # of a file
U32, I32, FLOAT, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9  # types of values
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6  # types of pieces
LAYER = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
OUTSIDE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm",
           "lm_head": "output"}


class Refused(Exception):
    pass


def field(data, at):
    """A field of a protobuf message: (number, value, where the next begins)."""
    def varint(at):
        value = shift = 0
        while True:
            value |= (data[at] & 127) << shift
            at, shift = at + 1, shift + 7
            if data[at - 1] < 128:
                return value, at
    tag, at = varint(at)
    if tag & 7 == 0:
        value, at = varint(at)
        return tag >> 3, value, at
    if tag & 7 == 5:
        return tag >> 3, data[at:at + 4], at + 4
    if tag & 7 != 2:
        raise Refused(f"tokenizer.model has a field of wire type {tag & 7}")
    size, at = varint(at)
    return tag >> 3, data[at:at + size], at + size


def pieces(folder, vocab_size):
    """[(bytes, score, type)] by id."""
    path = folder / "tokenizer.model"
    if not path.exists():
        made_up = [(b"<unk>", 0.0, UNKNOWN), (b"<s>", 0.0, CONTROL),
                   (b"</s>", 0.0, CONTROL)]
        made_up += [(b"<0x%02X>" % i, 0.0, BYTE) for i in range(256)]
        return made_up + [(b"piece%d" % i, -float(i), NORMAL)
                          for i in range(vocab_size - len(made_up))]
    data, at, found = path.read_bytes(), 0, []
    while at < len(data):
        number, message, at = field(data, at)
        if number != 1:
            continue
        text, score, kind, inside = b"", 0.0, NORMAL, 0
        while inside < len(message):
            number, value, inside = field(message, inside)
            if number == 1:
                text = value
            elif number == 2:
                score, = struct.unpack("<f", value)
            elif number == 3:
                kind = value
        found.append((text, score, kind))
    if len(found) != vocab_size:
        raise Refused(f"{path} has {len(found)} pieces, the model {vocab_size}")
    return found


def text(value):
    return struct.pack("<Q", len(value)) + value


def metadata(config, folder):
    """Bytes of each entry."""
    head_dim = config.get("head_dim",
                          config["hidden_size"] // config["num_attention_heads"])
    vocabulary = pieces(folder, config["vocab_size"])
    layouts = {U32: "<I", I32: "<i", FLOAT: "<f", BOOL: "<?"}

    def pack(kind, value):
        return text(value) if kind == STRING else struct.pack(layouts[kind], value)

    def entry(name, kind, value):
        return text(name.encode()) + struct.pack("<I", kind) + pack(kind, value)

    def array(name, kind, values):
        return (text(name.encode()) + struct.pack("<IIQ", ARRAY, kind, len(values))
                + b"".join(pack(kind, value) for value in values))

    return [
        entry("general.architecture", STRING, b"llama"),
        entry("general.file_type", U32, MOSTLY_BF16),
        entry("llama.vocab_size", U32, config["vocab_size"]),
        entry("llama.context_length", U32, config["max_position_embeddings"]),
        entry("llama.embedding_length", U32, config["hidden_size"]),
        entry("llama.block_count", U32, config["num_hidden_layers"]),
        entry("llama.feed_forward_length", U32, config["intermediate_size"]),
        entry("llama.attention.head_count", U32, config["num_attention_heads"]),
        entry("llama.attention.head_count_kv", U32,
              config["num_key_value_heads"]),
        entry("llama.attention.key_length", U32, head_dim),
        entry("llama.attention.value_length", U32, head_dim),
        entry("llama.attention.layer_norm_rms_epsilon", FLOAT,
              config["rms_norm_eps"]),
        entry("llama.rope.dimension_count", U32, head_dim),
        entry("llama.rope.freq_base", FLOAT, config.get("rope_theta", 10000.0)),
        entry("tokenizer.ggml.model", STRING, b"llama"),
        entry("tokenizer.ggml.pre", STRING, b"default"),
        array("tokenizer.ggml.tokens", STRING, [each[0] for each in vocabulary]),
        array("tokenizer.ggml.scores", FLOAT, [each[1] for each in vocabulary]),
        array("tokenizer.ggml.token_type", I32, [each[2] for each in vocabulary]),
        entry("tokenizer.ggml.bos_token_id", U32, config.get("bos_token_id", 1)),
        entry("tokenizer.ggml.eos_token_id", U32, config.get("eos_token_id", 2)),
        entry("tokenizer.ggml.add_bos_token", BOOL, True),
    ]


def gguf_name(name):
    stem = name.removesuffix(".weight")
    if stem in OUTSIDE:
        return OUTSIDE[stem] + ".weight"
    parts = stem.removeprefix("model.layers.").split(".", 1)
    if len(parts) != 2 or parts[1] not in LAYER or not name.endswith(".weight"):
        raise Refused(f"tensor {name} is none of a Llama without biases")
    return f"blk.{parts[0]}.{LAYER[parts[1]]}.weight"


def side_by_side(data, heads, row):
    """Rows of queries or keys: what turns together comes side by side."""
    each = len(data) // heads
    half = each // 2
    return b"".join(data[at:at + row] + data[at + half:at + half + row]
                    for head in range(0, len(data), each)
                    for at in range(head, head + half, row))


def converted(name, data, shape, config):
    """The bytes of a tensor."""
    if len(shape) == 1:
        return b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2))
    heads = {"q_proj": config["num_attention_heads"],
             "k_proj": config["num_key_value_heads"]}.get(name.split(".")[-2])
    return side_by_side(data, heads, 2 * shape[1]) if heads else data


def check(config):
    wanted = {"architectures": ["LlamaForCausalLM"], "rope_scaling": None,
              "attention_bias": False, "mlp_bias": False, "hidden_act": "silu"}
    for key, value in wanted.items():
        if config.get(key, value) != value:
            raise Refused(f"{key} is {config[key]}, not {value}")


def convert(folder, path):
    config = json.loads((folder / "config.json").read_text())
    check(config)
    with open(folder / "model.safetensors", "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        begin = file.tell()
        header.pop("__metadata__", None)
        for name, tensor in header.items():
            if tensor["dtype"] != "BF16":
                raise Refused(f"tensor {name} is {tensor['dtype']}, not BF16")
        entries, infos, offset = metadata(config, folder), [], 0
        for name, tensor in header.items():
            shape = tensor["shape"]
            kind, size = (F32, 4) if len(shape) == 1 else (BF16, 2)
            size *= math.prod(shape)
            infos.append(text(gguf_name(name).encode())
                         + struct.pack(f"<I{len(shape)}Q", len(shape), *shape[::-1])
                         + struct.pack("<IQ", kind, offset))
            offset += size + -size % ALIGNMENT
        partial = path.with_name(path.name + ".partial")
        with open(partial, "wb") as out:
            out.write(struct.pack("<4sIQQ", b"GGUF", 3, len(infos), len(entries)))
            out.write(b"".join(entries + infos))
            out.write(bytes(-out.tell() % ALIGNMENT))
            for name, tensor in header.items():
                first, last = tensor["data_offsets"]
                file.seek(begin + first)
                data = converted(name, file.read(last - first), tensor["shape"],
                                 config)
                out.write(data + bytes(-len(data) % ALIGNMENT))
        partial.rename(path)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    folder, path = map(pathlib.Path, sys.argv[1:])
    try:
        convert(folder, path)
    except (Refused, OSError, KeyError, IndexError, struct.error) as error:
        sys.exit(f"to_gguf: error: {folder}: {error}")


if __name__ == "__main__":
    main()
