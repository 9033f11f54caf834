"""The settings that decide the result of each stage, with the sha256 of named files.

Keys of stored results are made of these settings. A change of any other setting keeps the stored
results valid, such as threads, retries or concurrency. Also here: the libraries whose versions
count, and whether a stage uses a GPU.
"""

from pathlib import Path

from pydantic import JsonValue

from stepline.curate.stage import Recipe
from stepline.errors import SettingsError
from stepline.files.digests import file_digest
from stepline.llm.settings import ChatSettings
from stepline.models.nasva.settings import AlignerRunSettings, RefineRunSettings
from stepline.plugins import Kind, plugin_identities
from stepline.settings import Settings

# Settings that decide no result: of how a model is asked.
ASKING_SETTINGS = {
    "concurrency",
    "retries",
    "pause",
    "timeout",
    "deadline",
    "threads",
    "cache",
    "api_key_variable",
    "base_url",
}
# Read where steps are encoded, for speed alone, and asked by `ground`.
OTHER_VISION_SETTINGS = {"texts", "batch", "vlm"}
# Of how a network is trained.
TRAINING_SETTINGS = {"readers", "device", "save_every"}
NO_NETWORK_BACKBONES = ("precomputed", "none")

CacheKeyInputs = dict[str, JsonValue]  # settings and digests that decide a stage's result


def section_settings(section: str, recipe: Recipe) -> JsonValue:
    """Return the settings of one section of a recipe, for a stage that reads no other section.

    Args:
        section: name of the section, such as "filter".
        recipe: the recipe.
    """
    return _dump_settings(getattr(recipe, section))


def probe_settings(recipe: Recipe) -> JsonValue:
    """Return the settings that decide the result of the stage `probe`.

    The decoder is not one of them, since sound and single frames are always decoded on the CPU.
    """
    return _dump_settings(recipe.steps.media, {"decoder"})


def transcribe_settings(recipe: Recipe) -> JsonValue:
    """Return the settings that decide the result of the stage `transcribe`."""
    asr = recipe.steps.asr
    # A model in a folder counts by its files, a named one by its name.
    model = Path(asr.model or "")
    is_folder = bool(asr.model) and model.is_dir()
    key_inputs = {
        "asr": _dump_settings(asr, {"threads"}),
        "media": probe_settings(recipe),
        "model": file_digest(model) if is_folder else None,
    }
    return key_inputs | _plugin_identity("recognisers", asr.recogniser)


def write_settings(recipe: Recipe) -> JsonValue:
    """Return the settings that decide the result of the stage `write`.

    For a language model: its prompt, its sampling, and the name or files of the model.
    """
    writing = recipe.steps.writing
    if writing.writer == "extractive":
        return {"writer": "extractive"}
    llm = writing.llm
    # Files count by content, so their paths do not.
    files = _model_file_digests(llm)
    # How a model is asked decides nothing of what it answers.
    question = _dump_settings(llm, ASKING_SETTINGS | {*files})
    key_inputs = {"writer": writing.writer, "llm": question, **files}
    return key_inputs | _plugin_identity("writers", writing.writer)


def encode_settings(recipe: Recipe) -> JsonValue:
    """Return the settings that decide the result of the stage `encode`."""
    vision = recipe.steps.vision
    tree = vision.model_dump(mode="json", exclude=OTHER_VISION_SETTINGS | {"path", "dictionary"})
    # `vision.hands` was a setting. Its default stays in the key, so that stored results stay valid.
    tree["hands"] = False
    key_inputs: CacheKeyInputs = {
        "vision": tree,
        "media": _dump_settings(recipe.steps.media),
        "weights": file_digest(vision.path),
        **vision.crop,
    }
    return key_inputs | _plugin_identity("backbones", vision.backbone)


def coarse_settings(recipe: Recipe) -> JsonValue:
    """Return the settings that decide the result of the stage `coarse`."""
    coarse = recipe.steps.nasva.coarse
    key_inputs: CacheKeyInputs = {"said": recipe.coarse.said, "coarse": _dump_settings(coarse)}
    if coarse.encoder == "backbone":
        vision = recipe.steps.vision
        files = (vision.path, vision.dictionary)
        key_inputs["texts"] = [vision.text_space, vision.tokens, *map(file_digest, files)]
    return key_inputs


def ground_settings(recipe: Recipe) -> JsonValue:
    """Return the settings that decide the result of the stage `ground`."""
    vision = recipe.steps.vision
    nasva = recipe.steps.nasva
    # The space of texts and pictures.
    files = (vision.path, vision.texts, vision.dictionary)
    texts: list[JsonValue] = [vision.backbone, vision.text_space, *map(file_digest, files)]
    # A trained network, or the default placing.
    placing: JsonValue = {"ground": _dump_settings(nasva.ground)}
    aligner = nasva.aligner
    if aligner.path is not None:
        placing = {
            "aligner": _dump_settings(aligner, {"path"}),
            "network": file_digest(aligner.path),
        }
    key_inputs: CacheKeyInputs = {"texts": texts, "tokens": vision.tokens, "placing": placing}
    # A vision-language model.
    vlm = vision.vlm
    if vlm.named:
        digests = _model_file_digests(vlm) | {"projector": file_digest(vlm.projector)}
        question = _dump_settings(vlm, ASKING_SETTINGS | {*digests, "dry_run"})
        key_inputs["witness"] = {"asked": question, **digests}
        key_inputs["media"] = probe_settings(recipe)
    return key_inputs | _plugin_identity("backbones", vision.backbone)


def judge_settings(recipe: Recipe) -> JsonValue:
    """Return the settings that decide the result of the stage `judge`."""
    settings = recipe.steps.judge
    return {
        "judge": _dump_settings(settings, {"detector"}),
        "detector": file_digest(settings.detector),
    }


def gather_settings(recipe: Recipe) -> JsonValue:
    """Return the settings that decide the result of the stage `gather`."""
    return {"gather": _dump_settings(recipe.gather), "writer": recipe.steps.writing.writer}


def sieve_swap_settings(recipe: Recipe) -> JsonValue:
    """Return the settings that decide the result of the stage `sieve-swap`.

    Raises SettingsError without a text base.
    """
    settings = recipe.sieve_swap
    if settings.base is None:
        raise SettingsError(
            "sieve_swap.base is not set; make one with `stepline text-base build`, and name its folder"
        )
    # The manifest names every part of the base with its digest.
    digest = file_digest(settings.base / "manifest.json")
    return {"sieve_swap": _dump_settings(settings, {"base"}), "base": digest}


def train_settings(recipe: Recipe) -> JsonValue:
    """Return the settings that decide the result of the stage `train`."""
    return _training_settings(recipe, recipe.train)


def refine_settings(recipe: Recipe) -> JsonValue:
    """Return the settings that decide the result of the stage `refine`."""
    # The path of the network is within the run, so it decides nothing.
    placing = recipe.place
    aligner = _dump_settings(placing.aligner, {"path", "batch"})
    key_inputs = _training_settings(recipe, recipe.refine)
    key_inputs["place"] = [placing.calibrate, placing.shown_rate, aligner]
    return key_inputs


def _training_settings(
    recipe: Recipe, settings: "AlignerRunSettings | RefineRunSettings"
) -> CacheKeyInputs:
    tree = settings.model_dump(mode="json")
    tree["train"] = _dump_settings(settings.train, TRAINING_SETTINGS)
    return {"run": tree, "threads": recipe.threads, "texts": text_encoder_name(recipe)}


def transcribe_libraries(recipe: Recipe) -> tuple[str, ...]:
    """Return the packages whose versions change the recognised speech."""
    if recipe.steps.asr.recogniser == "whisper":
        return ("ctranslate2", "faster-whisper")
    return ()


def writer_libraries(recipe: Recipe) -> tuple[str, ...]:
    """Return the packages whose versions change the steps of the extractive writer."""
    return ("spacy",) if recipe.steps.writing.writer == "extractive" else ()


def backbone_libraries(recipe: Recipe) -> tuple[str, ...]:
    """Return the packages whose versions change the visual features."""
    backbone = recipe.steps.vision.backbone
    if backbone in NO_NETWORK_BACKBONES:
        return ()
    if backbone == "conse":
        return ("onnxruntime",)
    return ("torch",)


def text_encoder_libraries(recipe: Recipe) -> tuple[str, ...]:
    """Return the packages whose versions change text vectors and the predictions of trained
    networks."""
    # A network in torch makes vectors or scores, next to the encoder that ONNX runs.
    has_torch_backbone = "torch" in backbone_libraries(recipe)
    if has_torch_backbone or ground_uses_gpu(recipe) or judge_uses_gpu(recipe):
        return ("onnxruntime", "torch")
    return ("onnxruntime",)


def encode_uses_gpu(recipe: Recipe) -> bool:
    """Return whether the stage `encode` runs a network in torch. ONNX Runtime uses the CPU."""
    return "torch" in backbone_libraries(recipe)


def ground_uses_gpu(recipe: Recipe) -> bool:
    """Return whether the stage `ground` runs a trained network."""
    return recipe.steps.nasva.aligner.path is not None


def ground_uses_vlm(recipe: Recipe) -> bool:
    """Return whether the stage `ground` shows pictures of the video to a vision-language model."""
    return recipe.steps.vision.vlm.named


def judge_uses_gpu(recipe: Recipe) -> bool:
    """Return whether the stage `judge` runs a trained network."""
    return recipe.steps.judge.detector is not None


def export_settings(recipe: Recipe) -> JsonValue:
    """Return the settings that decide the result of the stage `export`.

    The names of the stages are part of it, since the dataset card lists them.
    """
    return {"export": _dump_settings(recipe.export), "stages": list(recipe.stages)}


def text_encoder_name(recipe: Recipe) -> str:
    """Return the name of the text encoder that shares an embedding space with the visual features."""
    vision = recipe.steps.vision
    backbone = vision.backbone
    if backbone == "conse":
        return vision.text_space
    if backbone not in ("clip", "internvideo"):
        return "minilm"
    if vision.path is None:
        return backbone
    return f"{backbone}:{vision.path}"


def _model_file_digests(settings: ChatSettings) -> CacheKeyInputs:
    """Return setting -> sha256 of the named file of a language model, None without a file."""
    return {
        "gguf": file_digest(settings.gguf),
        "chat_template": file_digest(settings.chat_template),
    }


def _plugin_identity(kind: Kind, name: str) -> CacheKeyInputs:
    """Return {"plugin": name and version} of a plugin, {} for parts of Stepline.

    Args:
        kind: kind of plugin, such as "writers".
        name: name that the recipe gives.
    """
    identities = plugin_identities({kind: name})
    return {"plugin": identities[kind]} if identities else {}


def _dump_settings(settings: Settings, without: set[str] | None = None) -> JsonValue:
    return settings.model_dump(mode="json", exclude=without or set())
