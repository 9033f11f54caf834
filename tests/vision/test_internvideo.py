"""InternVideo-MM: its checkpoint's layout, its towers against CLIP's of transformers and against the
written-out read-out, its tokens, and a video's rows."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from checkpoints import write_internvideo
from small_video import encode_video
from vision_samples import frame

from stepline.errors import ModelError, SettingsError
from stepline.vision import VisionSettings, load_backbone
from stepline.vision.internvideo import prepare, read_internvideo, read_tokenizer, text_tokens
from stepline.vision.internvideo_network import GlobalBlock


# names of the released checkpoint, after its "clip."; N: a number
def block(prefix, norms):
    """The names of a transformer's layer: attention, norms and a perceptron, each with a bias."""
    parts = [f"ln_{number}" for number in range(1, norms + 1)]
    parts = ["attn.in_proj_", "attn.out_proj", *parts, "mlp.c_fc", "mlp.c_proj"]
    dotted = [part if part.endswith("_") else f"{part}." for part in parts]
    return [f"{prefix}.{part}{kind}" for part in dotted for kind in ("weight", "bias")]


LAYOUT = [
    *(f"visual.{name}" for name in "conv1.weight class_embedding positional_embedding".split()),
    *("visual.ln_pre.weight", "visual.ln_pre.bias"),
    *("visual.transformer.temporal_cls_token", "visual.transformer.balance"),
    *block("visual.transformer.resblocks.N", 2),
    *("visual.transformer.dpe.N.weight", "visual.transformer.dpe.N.bias"),
    *block("visual.transformer.dec.N", 3),
    *("visual_ln_post.weight", "visual_ln_post.bias", "visual_proj"),
    *block("transformer.resblocks.N", 2),
    *"token_embedding.weight positional_embedding ln_final.weight ln_final.bias".split(),
    "text_projection",
]
COUNTS = {f"visual.transformer.{name}": n for name, n in (("resblocks", 3), ("dpe", 2), ("dec", 2))}
COUNTS["transformer.resblocks"] = 2


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return write_internvideo(tmp_path_factory.mktemp("internvideo"))


@pytest.fixture(scope="module")
def network(checkpoint):
    return read_internvideo(checkpoint)


def test_the_weights_have_the_names_of_the_released_checkpoint(network):
    expected = set()
    for name in LAYOUT:
        prefix = name.split(".N.")[0]
        expected.update(name.replace(".N.", f".{n}.") for n in range(COUNTS.get(prefix, 1)))
    assert set(network.state_dict()) == expected
    assert tuple(network.visual.conv1.weight.shape) == (64, 3, 1, 8, 8)
    assert tuple(network.visual.transformer.temporal_cls_token.shape) == (1, 1, 64)
    assert tuple(network.visual.transformer.dpe[0].weight.shape) == (64, 1, 3, 3, 3)


def clip_names(state, blocks):
    """The weights of a tower under the names that transformers gives CLIP's."""
    renamed = {}
    for name, value in state.items():
        if not name.startswith("resblocks."):
            continue
        _, number, rest = name.split(".", 2)
        start = f"{blocks}.layers.{number}."
        if rest.startswith("attn.in_proj_"):
            for part, piece in zip("qkv", value.chunk(3), strict=True):
                renamed[f"{start}self_attn.{part}_proj.{rest.rpartition('_')[2]}"] = piece
            continue
        others = "self_attn.out_proj layer_norm1 layer_norm2 mlp.fc1 mlp.fc2".split()
        owns = "attn.out_proj ln_1 ln_2 mlp.c_fc mlp.c_proj".split()
        for own, other in zip(owns, others, strict=True):
            if rest.startswith(own):
                renamed[start + other + rest.removeprefix(own)] = value
    return renamed


def load_named(module, weights):
    """Load weights by the end of their name, all that the module has but the numbers of places."""
    own = module.state_dict()
    for name in own:
        if not name.endswith("position_ids"):
            (key,) = [key for key in weights if name.endswith(key)]
            own[name] = weights[key].detach()
    module.load_state_dict(own)
    return module.eval()


def test_the_text_tower_is_clip_s(network):
    transformers = pytest.importorskip("transformers")
    sizes = network.sizes
    own = {"hidden_size": 64, "intermediate_size": 256, "projection_dim": sizes.joint_width}
    own |= {"num_hidden_layers": 2, "num_attention_heads": 1, "vocab_size": sizes.vocabulary}
    own |= {"eos_token_id": sizes.vocabulary - 1, "bos_token_id": sizes.vocabulary - 2}
    config = transformers.CLIPTextConfig(max_position_embeddings=sizes.max_tokens, **own)
    weights = clip_names(network.transformer.state_dict(), "encoder")
    weights |= {
        "embeddings.token_embedding.weight": network.token_embedding.weight,
        "embeddings.position_embedding.weight": network.positional_embedding,
        "final_layer_norm.weight": network.ln_final.weight,
        "final_layer_norm.bias": network.ln_final.bias,
        "text_projection.weight": network.text_projection.T,
    }
    other = load_named(transformers.CLIPTextModelWithProjection(config), weights)
    tokens = torch.tensor([[514, 5, 9, 515, 0, 0, 0, 0, 0], [514, 1, 2, 3, 4, 5, 6, 7, 515]])
    with torch.inference_mode():
        assert torch.allclose(
            network.encode_texts(tokens), other(input_ids=tokens).text_embeds, atol=1e-5
        )


def test_without_the_read_out_a_clip_is_the_mean_of_clip_s_pictures(network):
    transformers = pytest.importorskip("transformers")
    own = {"hidden_size": 64, "intermediate_size": 256, "image_size": 32, "patch_size": 8}
    config = transformers.CLIPVisionConfig(num_hidden_layers=3, num_attention_heads=1, **own)
    visual = network.visual
    weights = clip_names(visual.transformer.state_dict(), "encoder")
    weights |= {
        "embeddings.class_embedding": visual.class_embedding,
        "embeddings.patch_embedding.weight": visual.conv1.weight[:, :, 0],
        "embeddings.position_embedding.weight": visual.positional_embedding,
        "pre_layrnorm.weight": visual.ln_pre.weight,
        "pre_layrnorm.bias": visual.ln_pre.bias,
        "post_layernorm.weight": torch.ones(64),
        "post_layernorm.bias": torch.zeros(64),
    }
    other = load_named(transformers.CLIPVisionModel(config), weights)
    clips = torch.randn(2, 3, 5, 32, 32)
    balance = visual.transformer.balance.detach().clone()
    with torch.inference_mode():
        pictures = clips.transpose(1, 2).flatten(0, 1)
        classes = other(pixel_values=pictures).last_hidden_state[:, 0].view(2, 5, 64).mean(1)
        visual.transformer.balance.fill_(100.0)
        ours = visual(clips)
        visual.transformer.balance.copy_(balance)
        assert torch.allclose(ours, classes, atol=1e-4)


def test_a_global_block_is_its_formula():
    torch.manual_seed(0)
    block = GlobalBlock(128).eval()
    query, patches = torch.randn(1, 1, 128), torch.randn(1, 7, 128)
    with torch.inference_mode():
        ours = block(query, block.ln_3(patches))
        weight, bias = block.attn.in_proj_weight, block.attn.in_proj_bias
        keys = block.ln_3(patches)[0]
        q = (block.ln_1(query)[0] @ weight[:128].T + bias[:128]).view(2, 64)
        k = (keys @ weight[128:256].T + bias[128:256]).view(7, 2, 64)
        v = (keys @ weight[256:].T + bias[256:]).view(7, 2, 64)
        scores = torch.einsum("hd,nhd->hn", q, k) / 8.0
        read = torch.einsum("hn,nhd->hd", scores.softmax(1), v).reshape(128)
        hidden = query[0, 0] + block.attn.out_proj(read)
        inside = block.mlp.c_fc(block.ln_2(hidden))
        expected = hidden + block.mlp.c_proj(inside * torch.sigmoid(1.702 * inside))
    assert torch.allclose(ours[0, 0], expected, atol=1e-5)


def test_the_read_out_sees_the_order_of_pictures_and_no_other_clip(network):
    clips = torch.randn(2, 3, 4, 32, 32)
    with torch.inference_mode():
        both = network.encode_clips(clips)
        assert torch.allclose(network.encode_clips(clips[1:]), both[1:], atol=1e-5)
        assert not torch.allclose(network.encode_clips(clips.flip(2)), both, atol=1e-3)


def test_tokens_are_merged_from_bytes_in_the_order_of_the_file(checkpoint):
    tokenizer = read_tokenizer(checkpoint.parent / "bpe_simple_vocab_16e6.txt.gz", 516)
    # "!" is token 0, so "c" is 66; a letter that ends a word comes 256 later; "cut" is merge 1
    rows = text_tokens(
        ["Cut  CUBE", "it&#39;s", "cut cut cut cut cut cut cut cut cut"], tokenizer, 9
    )
    assert rows[0].tolist() == [514, 513, 512, 65, 68 + 256, 515, 0, 0, 0]
    assert rows[1].tolist() == [514, 72, 83 + 256, 6, 82 + 256, 515, 0, 0, 0]
    assert rows[2].tolist() == [514, *[513] * 7, 515]


def test_a_clip_is_its_middle_square_scaled_as_clip_s_pictures():
    """NaSVA, supplement 6.1: first cut to the shorter side, then resized to 224."""
    clips = torch.full((1, 2, 256, 320, 3), 255, dtype=torch.uint8)
    clips[:, :, :, :32] = clips[:, :, :, -32:] = 0  # the square is 256 of 320 px wide
    inputs = prepare(clips, 224)
    assert tuple(inputs.shape) == (1, 3, 2, 224, 224)
    white = [(1 - 0.48145466) / 0.26862954, (1 - 0.4578275) / 0.26130258]
    assert inputs[0, :2, 0, 0, 0].tolist() == pytest.approx(white, abs=1e-5)
    clips[:, :, :8] = 0  # the first rows are seen, unlike by S3D
    assert prepare(clips, 224)[0, 0, 0, 0, 0] < 0


def test_a_video_s_rows_keep_their_lengths_where_asked_and_texts_share_their_space(checkpoint):
    frames = [frame(n / 8, 10 * n) for n in range(24)]
    settings = VisionSettings(backbone="internvideo", path=checkpoint)
    backbone = load_backbone(settings)
    rows = encode_video(frames, backbone)
    assert rows.backbone == "internvideo"
    assert rows.values.shape == (3, 16)
    assert np.linalg.norm(rows.values, axis=1) == pytest.approx([1.0] * 3, abs=1e-5)
    assert backbone.encode_texts(["cut", "cube"]).shape == (2, 16)
    assert backbone.encode_texts([]).shape == (0, 16)
    plain = load_backbone(settings.model_copy(update={"unit": False}))
    lengths = np.linalg.norm(encode_video(frames, plain).values, axis=1)
    assert not np.allclose(lengths, 1.0, atol=0.05)
    texts = plain.encode_texts(["cut"])
    unit = F.normalize(torch.from_numpy(texts), dim=1).numpy()
    assert np.allclose(unit, backbone.encode_texts(["cut"]), atol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.pop("clip.visual_proj"), "visual_proj is missing"),
        (
            lambda state: state.update({"clip.visual.more": torch.zeros(1)}),
            "visual.more is unknown",
        ),
        (lambda state: state.pop("clip.visual.conv1.weight"), "no weights of InternVideo-MM"),
        (lambda state: state["clip.ln_final.bias"].fill_(torch.nan), "ln_final.bias holds NaN"),
    ],
    ids=["missing", "unknown", "other", "nan"],
)
def test_other_weights_are_refused_by_name(tmp_path, change, message):
    path = write_internvideo(tmp_path)
    state = torch.load(path)["state_dict"]
    change(state)
    torch.save({"state_dict": state}, path)
    with pytest.raises(ModelError, match=message):
        load_backbone(VisionSettings(backbone="internvideo", path=path))


def test_what_is_missing_next_to_the_weights_is_said(tmp_path, checkpoint):
    with pytest.raises(SettingsError, match="needs vision.path=InternVideo-MM-L-14.ckpt"):
        load_backbone(VisionSettings(backbone="internvideo"))
    elsewhere = tmp_path / "merges.txt"
    settings = VisionSettings(backbone="internvideo", path=checkpoint, dictionary=elsewhere)
    with pytest.raises(ModelError, match="no file of merges"):
        load_backbone(settings)
    elsewhere.write_text("version\nc u\n")
    with pytest.raises(ModelError, match="not 2 merges, which the weights ask for"):
        load_backbone(settings)
