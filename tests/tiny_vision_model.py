"""A language model and a projector of a few thousand random weights, as GGUF files that llama.cpp
loads: it sees, and answers nonsense.
"""

import numpy as np

WIDTH, INNER, SIDE, PATCH, LAYERS = 32, 64, 28, 14, 2
BYTES = 256  # tokens of the vocabulary, one a byte
TEMPLATE = "{% for m in messages %}{{ m.content }}\n{% endfor %}"


def write_tiny_model(folder):
    """Write a Llama of one layer and a LLaVA projector on a ViT of two; return their paths."""
    import gguf

    rng = np.random.default_rng(0)
    ones, zeros = np.ones(WIDTH, np.float32), np.zeros(WIDTH, np.float32)

    def weights(*shape):
        return (0.5 * rng.standard_normal(shape)).astype(np.float32)

    def written(writer):
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()

    model, projector = folder / "tiny.gguf", folder / "tiny-mmproj.gguf"
    text = gguf.GGUFWriter(model, "llama")
    text.add_context_length(4096)
    text.add_embedding_length(WIDTH)
    text.add_block_count(1)
    text.add_feed_forward_length(INNER)
    text.add_head_count(2)
    text.add_layer_norm_rms_eps(1e-5)
    text.add_rope_dimension_count(WIDTH // 2)
    text.add_tokenizer_model("llama")
    text.add_token_list(["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(BYTES))])
    text.add_token_scores([0.0] * (3 + BYTES))
    kinds = gguf.TokenType
    text.add_token_types([kinds.UNKNOWN, kinds.CONTROL, kinds.CONTROL, *[kinds.BYTE] * BYTES])
    text.add_bos_token_id(1)
    text.add_eos_token_id(2)
    text.add_unk_token_id(0)
    text.add_add_space_prefix(False)
    text.add_chat_template(TEMPLATE)
    for name in ("token_embd", "output"):
        text.add_tensor(f"{name}.weight", weights(3 + BYTES, WIDTH))
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        text.add_tensor(f"{name}.weight", ones)
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        text.add_tensor(f"blk.0.{name}.weight", weights(WIDTH, WIDTH))
    shapes = {"gate": (INNER, WIDTH), "up": (INNER, WIDTH), "down": (WIDTH, INNER)}
    for name, shape in shapes.items():
        text.add_tensor(f"blk.0.ffn_{name}.weight", weights(*shape))
    written(text)

    eyes = gguf.GGUFWriter(projector, "clip")
    eyes.add_type("mmproj")
    eyes.add_bool("clip.has_vision_encoder", True)
    eyes.add_string("clip.projector_type", "mlp")
    eyes.add_bool("clip.use_gelu", True)
    sizes = {
        "projection_dim": WIDTH,
        "image_size": SIDE,
        "patch_size": PATCH,
        "embedding_length": WIDTH,
        "feed_forward_length": INNER,
        "block_count": LAYERS,
        "attention.head_count": 2,
    }
    for name, size in sizes.items():
        eyes.add_uint32(f"clip.vision.{name}", size)
    eyes.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-5)
    eyes.add_array("clip.vision.image_mean", [0.5] * 3)
    eyes.add_array("clip.vision.image_std", [0.5] * 3)
    eyes.add_tensor("v.patch_embd.weight", weights(WIDTH, 3, PATCH, PATCH))
    eyes.add_tensor("v.position_embd.weight", weights((SIDE // PATCH) ** 2 + 1, WIDTH))
    eyes.add_tensor("v.class_embd", weights(WIDTH))
    shapes = {"attn_q": WIDTH, "attn_k": WIDTH, "attn_v": WIDTH, "attn_out": WIDTH, "ffn_up": INNER}
    norms = [f"v.blk.{layer}.{name}" for layer in range(LAYERS) for name in ("ln1", "ln2")]
    for place in ("v.pre_ln", "v.post_ln", *norms):
        eyes.add_tensor(f"{place}.weight", ones)
        eyes.add_tensor(f"{place}.bias", zeros)
    for layer in range(LAYERS):
        for name, rows in shapes.items():
            eyes.add_tensor(f"v.blk.{layer}.{name}.weight", weights(rows, WIDTH))
            eyes.add_tensor(f"v.blk.{layer}.{name}.bias", np.zeros(rows, np.float32))
        eyes.add_tensor(f"v.blk.{layer}.ffn_down.weight", weights(WIDTH, INNER))
        eyes.add_tensor(f"v.blk.{layer}.ffn_down.bias", zeros)
    for name in ("mm.0", "mm.2"):
        eyes.add_tensor(f"{name}.weight", weights(WIDTH, WIDTH))
        eyes.add_tensor(f"{name}.bias", zeros)
    written(eyes)
    return model, projector
