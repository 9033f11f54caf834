"""Random CLIP and SigLIP checkpoints, written by transformers, S3D weights in the released form, and
checkpoints that know colours."""

import numpy as np
from colour_film import COLOURS, LINES, SCENES, draw_picture

WORDS = ["<pad>", "<unk>", "<s>", "</s>", "cut", "the", "banana", "fold", "paper"]
WORDS += ["add", "paint", *COLOURS]
SIZES = {"hidden_size": 16, "intermediate_size": 24}
SIZES |= {"num_hidden_layers": 2, "num_attention_heads": 2}
TEXT = SIZES | {"vocab_size": len(WORDS), "max_position_embeddings": 12}
TEXT |= {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
IMAGE = SIZES | {"image_size": 32, "patch_size": 8}


def write_clip(folder, kind="clip"):
    """Write a whole checkpoint of `kind`, "clip" or "siglip"; vectors are 16 wide."""
    import torch
    import transformers

    torch.manual_seed(1)
    if kind == "clip":
        config = transformers.CLIPConfig(text_config=TEXT, vision_config=IMAGE, projection_dim=16)
        model, images = transformers.CLIPModel(config), transformers.CLIPImageProcessorPil
        processor = images(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    else:
        config = transformers.SiglipConfig(text_config=TEXT, vision_config=IMAGE)
        model, images = transformers.SiglipModel(config), transformers.SiglipImageProcessorPil
        processor = images(size={"height": 32, "width": 32})
    tokenizer = _tokenizer()
    whole = {"clip": transformers.CLIPProcessor, "siglip": transformers.SiglipProcessor}[kind]
    model.eval().save_pretrained(folder)
    whole(image_processor=processor, tokenizer=tokenizer).save_pretrained(folder)
    return folder


def write_s3d(folder, texts):
    """Write S3D weights under their released names, and beside them a dictionary of the words of
    the texts."""
    import numpy as np
    import torch

    from stepline.vision.s3d import TextTower
    from stepline.vision.s3d_network import S3D

    words = sorted({word for text in texts for word in text.split()})
    np.save(folder / "s3d_dict.npy", np.array(words))
    torch.manual_seed(1)
    tower = TextTower(len(words) + 1).state_dict()
    text = {f"text_module.{name}": value for name, value in tower.items()}
    path = folder / "s3d_howto100m.pth"
    torch.save({**S3D().state_dict(), **text}, path)
    return path


def write_internvideo(folder, joint=16, merges=("c u", "cu t</w>")):
    """Write a small InternVideo-MM checkpoint in the released layout, and CLIP's merges beside
    it."""
    import gzip

    import torch

    from stepline.vision.internvideo_network import InternVideoNetwork, NetworkSizes

    text = {"text_width": 64, "text_layers": 2, "max_tokens": 9, "joint_width": joint}
    text["vocabulary"] = 512 + len(merges) + 2
    sizes = NetworkSizes(width=64, patch=8, grid=4, layers=3, global_blocks=2, **text)
    torch.manual_seed(1)
    network = InternVideoNetwork(sizes)
    weights = {}
    for name, value in network.state_dict().items():
        weights[f"clip.{name}"] = value + 0.1 * torch.randn_like(value)
    weights["clip.logit_scale"] = torch.tensor(2.66)
    weights["clip.text_mask_embedding"] = torch.zeros(1, 1, 64)
    weights["caption_decoder.weight"] = torch.zeros(2, 2)
    path = folder / "InternVideo-MM-L-14.ckpt"
    torch.save({"epoch": 3, "state_dict": weights}, path)
    lines = "\n".join(['"version: 0.2"', *merges, "a b"])
    (folder / "bpe_simple_vocab_16e6.txt.gz").write_bytes(gzip.compress(lines.encode()))
    return path


def write_clip_of_colours(folder, kind="clip"):
    """Write a checkpoint of `kind` whose vectors of "add the red paint" and of red pictures agree."""
    import torch

    from stepline.vision import VisionSettings, load_backbone

    backbone = load_backbone(VisionSettings(backbone="clip", path=write_clip(folder, kind)))
    model = backbone._model
    last = model.text_projection if kind == "clip" else model.text_model.head
    inputs = []
    hook = last.register_forward_pre_hook(lambda _, given: inputs.append(given[0]))
    backbone.encode_texts(LINES)
    hook.remove()
    weights = colour_weights(backbone.encode_images, torch.cat(inputs).numpy())
    with torch.no_grad():
        last.weight.copy_(torch.from_numpy(weights.T))
        if last.bias is not None:
            last.bias.zero_()
    model.save_pretrained(folder)
    return folder


def write_internvideo_of_colours(folder):
    """Write an InternVideo-MM checkpoint whose vectors of colours and of their names agree."""
    import torch

    from stepline.vision import VisionSettings, load_backbone

    words = {word for line in LINES for word in line.split()}
    path = write_internvideo(folder, joint=64, merges=merges_of(words))
    backbone = load_backbone(VisionSettings(backbone="internvideo", path=path, unit=False))
    network = backbone._network
    with torch.no_grad():
        network.text_projection.copy_(torch.eye(64))
        weights = colour_weights(
            lambda pictures: unit(backbone.encode_images(pictures)), backbone.encode_texts(LINES)
        )
        network.text_projection.copy_(torch.from_numpy(weights))
    named = {f"clip.{name}": value for name, value in network.state_dict().items()}
    torch.save({"state_dict": named}, path)
    return path


def write_aligner_of_clip(folder, clip):
    """Write a network of NaSVA that knows the colours of pictures and texts by the vectors of a CLIP.
    It is calibrated by how far the best second of a text stands out."""
    import torch

    from stepline.evaluate.calibration import LogisticRegression
    from stepline.files.digests import sha256
    from stepline.models.nasva.calibration import Calibration, calibration_path, write_calibration
    from stepline.models.nasva.checkpoint import write_aligner
    from stepline.models.nasva.model import Aligner
    from stepline.models.nasva.settings import AlignerNetworkSettings
    from stepline.models.training.network import FeatureSpace
    from stepline.vision import VisionSettings, load_backbone

    sizes = {"width": 32, "heads": 2, "encoder_layers": 0, "decoder_layers": 1, "feed_forward": 8}
    network = Aligner(AlignerNetworkSettings(video_width=16, text_width=16, projection=32, **sizes))
    backbone = load_backbone(VisionSettings(backbone="clip", path=clip))
    colours = [*COLOURS.values(), *SCENES.values()]
    pictures = np.stack([draw_picture(colour, n) for n in range(0, 60, 5) for colour in colours])
    rows_of = {network.video_in: backbone.encode_images(pictures)}
    rows_of[network.text_in] = backbone.encode_texts(LINES)
    with torch.no_grad():
        for name, values in network.decoder.named_parameters():
            if "norm" not in name:
                values.zero_()
        for first, rows in rows_of.items():
            number = np.arange(len(rows)) % len(colours)
            targets = np.eye(16)[number]  # of each colour its own direction
            part = torch.from_numpy(np.linalg.lstsq(rows, targets)[0].T)
            # a vector and its opposite: their mean is 0, as LayerNorm makes it
            first[0].weight.copy_(torch.cat([part, -part]))
        for last in (network.video_out, network.text_out):
            last.weight.copy_(torch.eye(32))
    folder.mkdir()
    path = folder / "aligner.safetensors"
    write_aligner(network, path, FeatureSpace("clip", "clip"))
    by_rise = LogisticRegression((0.0,) * 6, (1.0,) * 6, (0.0, 10.0, 0.0, 0.0, 0.0, 0.0), -5.0)
    write_calibration(Calibration(sha256(path), {"step": by_rise}), calibration_path(path))
    return path


def merges_of(words):
    """The merges by which byte-pair encoding makes one token of each word, long words first."""
    merges = []
    for word in sorted(words, key=lambda word: (-len(word), word)):
        joined, *others = [*word[:-1], f"{word[-1]}</w>"]
        for other in others:
            merges.append(f"{joined} {other}")
            joined += other
    return tuple(dict.fromkeys(merges))


def colour_weights(encode_images, text_rows):
    """The last layer (features, D) of a text tower that sends the text of each colour where pictures
    of it, and no other pictures, are.

    encode_images: pictures -> unit rows (N, D). text_rows: (colours, features), inputs of the layer.
    """
    pictures, targets = [], []
    for number, colour in enumerate([*COLOURS.values(), *SCENES.values()]):
        for number_in_scene in range(0, 60, 5):
            pictures.append(draw_picture(colour, number_in_scene))
            targets.append(np.arange(len(COLOURS)) == number)
    rows = encode_images(np.stack(pictures))
    ridge = 1e-4 * np.eye(rows.shape[1])
    vectors = unit(np.linalg.solve(rows.T @ rows + ridge, rows.T @ np.array(targets)).T)
    # All texts are as near to their pictures: the rest of a vector goes where no picture is.
    nearness = np.array(
        [(rows @ vector)[np.array(targets)[:, k]].mean() for k, vector in enumerate(vectors)]
    )
    share = (nearness.min() / nearness)[:, None]
    empty = np.linalg.svd(rows)[2][-1]
    vectors = share * vectors + np.sqrt(1 - share**2) * empty
    return (np.linalg.pinv(text_rows) @ vectors).astype(np.float32)


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def _tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(
        models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="<unk>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 2), ("</s>", 3)]
    )
    names = {"pad": "<pad>", "unk": "<unk>", "bos": "<s>", "eos": "</s>"}
    named = {f"{name}_token": token for name, token in names.items()}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=12, **named)
