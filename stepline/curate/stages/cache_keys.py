"""What of a recipe decides each stage's result: exactly the settings that it reads, with the sha256
of named files.

And whether a stage runs a network with it, for which it may ask a GPU.

A change of any other setting leaves a stage's stored results valid. Speed alone decides nothing:
threads of recognition, retries, how many requests are sent together.
"""

from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import JsonValue

from stepline.errors import SettingsError
from stepline.plugins import plugin_identities
from stepline.settings import Settings
from stepline.weights import file_digest

if TYPE_CHECKING:
    from stepline.chat.settings import ChatSettings
    from stepline.curate.stage import Recipe
    from stepline.nasva.settings import AlignerRunSettings, RefineRunSettings
    from stepline.plugins import Kind

# settings that decide no result: of how a model is asked
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
# read where steps are encoded; for speed alone; asked by `ground`
OTHER_VISION_SETTINGS = {"texts", "batch", "witness"}
# of how a network is trained
TRAINING_SETTINGS = {"readers", "device", "save_every"}


def section(path: str, recipe: "Recipe") -> JsonValue:
    """Return what decides a stage that reads one section of a recipe alone, such as "filter"."""
    return _plain(attrgetter(path)(recipe))


def reading(recipe: "Recipe") -> JsonValue:
    """Return what decides `probe`, and whatever reads sound or single pictures: these come from the
    CPU's decoder."""
    return _plain(recipe.steps.media, {"decoder"})


def transcribe(recipe: "Recipe") -> JsonValue:
    """Return what decides `transcribe`."""
    asr = recipe.steps.asr
    is_folder = asr.model is not None and Path(asr.model).is_dir()
    decides = {
        "asr": _plain(asr, {"threads"}),
        "media": reading(recipe),
        "model": file_digest(Path(asr.model or "")) if is_folder else None,
    }
    return decides | _plugin("recognisers", asr.recogniser)


def write(recipe: "Recipe") -> JsonValue:
    """Return what decides `write`; of a language model what it is asked, by its name or file."""
    writing = recipe.steps.writing
    if writing.writer == "extractive":
        return {"writer": "extractive"}
    files = _model_files(writing.llm)
    if writing.llm.prompt_file is not None:
        files["prompt_file"] = file_digest(writing.llm.prompt_file)
    decides = {
        "writer": writing.writer,
        "llm": _plain(writing.llm, ASKING_SETTINGS | {*files, "prompt_file"}),
        **files,
    }
    if writing.second_pass:
        decides["second_pass"] = True
    return decides | _plugin("writers", writing.writer)


def encode(recipe: "Recipe") -> JsonValue:
    """Return what decides `encode`."""
    vision = recipe.steps.vision
    tree = vision.model_dump(mode="json", exclude=OTHER_VISION_SETTINGS | {"path", "dictionary"})
    # `vision.hands` was a setting; its default stays in the key, so that stored results stay valid
    tree["hands"] = False
    decides: dict[str, JsonValue] = {
        "vision": tree,
        "media": _plain(recipe.steps.media),
        "weights": file_digest(vision.path),
    }
    return decides | _plugin("backbones", vision.backbone)


def coarse(recipe: "Recipe") -> JsonValue:
    """Return what decides `coarse`."""
    return {"said": recipe.coarse.said, "coarse": _plain(recipe.steps.nasva.coarse)}


def ground(recipe: "Recipe") -> JsonValue:
    """Return what decides `ground`."""
    vision, nasva = recipe.steps.vision, recipe.steps.nasva
    digests = map(file_digest, (vision.path, vision.texts, vision.dictionary))
    texts: list[JsonValue] = [vision.backbone, vision.text_space, *digests]
    placing: JsonValue = {"ground": _plain(nasva.ground)}
    if nasva.aligner.path is not None:
        placing = {
            "aligner": _plain(nasva.aligner, {"path"}),
            "network": file_digest(nasva.aligner.path),
        }
    decides: dict[str, JsonValue] = {"texts": texts, "tokens": vision.tokens, "placing": placing}
    if vision.witness.named:
        files = _model_files(vision.witness)
        files["projector"] = file_digest(vision.witness.projector)
        question = _plain(vision.witness, ASKING_SETTINGS | {*files, "dry_run"})
        decides["witness"] = {"asked": question, **files}
        decides["media"] = reading(recipe)
    return decides | _plugin("backbones", vision.backbone)


def judge(recipe: "Recipe") -> JsonValue:
    """Return what decides `judge`."""
    settings = recipe.steps.judge
    return {"judge": _plain(settings, {"detector"}), "detector": file_digest(settings.detector)}


def gather(recipe: "Recipe") -> JsonValue:
    """Return what decides `gather`."""
    return {"gather": _plain(recipe.gather), "writer": recipe.steps.writing.writer}


def sieve_swap(recipe: "Recipe") -> JsonValue:
    """Return what decides `sieve-swap`. Raises SettingsError without a text base."""
    if recipe.sieve_swap.base is None:
        cure = "make one with `stepline text-base build`, and name its folder"
        raise SettingsError(f"sieve_swap.base is not set; {cure}")
    base = recipe.sieve_swap.base / "manifest.json"
    return {"sieve_swap": _plain(recipe.sieve_swap, {"base"}), "base": file_digest(base)}


def train(recipe: "Recipe") -> JsonValue:
    """Return what decides `train`."""
    return _training_run(recipe, recipe.train)


def refine(recipe: "Recipe") -> JsonValue:
    """Return what decides `refine`."""
    place = recipe.place
    aligner = _plain(place.aligner, {"path", "batch"})
    placing: list[JsonValue] = [place.calibrate, place.shown_rate, aligner]
    return {**_training_run(recipe, recipe.refine), "place": placing}


def _training_run(
    recipe: "Recipe", settings: "AlignerRunSettings | RefineRunSettings"
) -> dict[str, JsonValue]:
    tree = settings.model_dump(mode="json")
    tree["train"] = _plain(settings.train, TRAINING_SETTINGS)
    return {"run": tree, "threads": recipe.threads, "texts": text_source(recipe)}


def hearing_libraries(recipe: "Recipe") -> tuple[str, ...]:
    """Return the packages whose versions change what `transcribe` recognises."""
    return ("ctranslate2", "faster-whisper") if recipe.steps.asr.recogniser == "whisper" else ()


def writing_libraries(recipe: "Recipe") -> tuple[str, ...]:
    """Return the packages whose versions change what `write` writes by grammar; a server's are its
    own."""
    return ("spacy",) if recipe.steps.writing.writer == "extractive" else ()


def seeing_libraries(recipe: "Recipe") -> tuple[str, ...]:
    """Return the packages whose versions change what `encode` sees."""
    return {"conse": ("onnxruntime",), "precomputed": (), "none": ()}.get(
        recipe.steps.vision.backbone, ("torch",)
    )


def text_libraries(recipe: "Recipe") -> tuple[str, ...]:
    """Return the packages whose versions change the vectors of texts, and what trained networks
    predict."""
    has_torch_backbone = recipe.steps.vision.backbone not in ("conse", "precomputed", "none")
    if has_torch_backbone or places(recipe) or detects(recipe):
        return ("onnxruntime", "torch")
    return ("onnxruntime",)


def always(recipe: "Recipe") -> bool:  # noqa: ARG001
    """Tell that a stage runs a network with every recipe: recognition, or an encoder of many
    texts."""
    return True


def sees(recipe: "Recipe") -> bool:
    """Tell whether `encode` runs a network."""
    return recipe.steps.vision.backbone not in ("precomputed", "none")


def places(recipe: "Recipe") -> bool:
    """Tell whether `ground` runs a trained network."""
    return recipe.steps.nasva.aligner.path is not None


def asks(recipe: "Recipe") -> bool:
    """Tell whether `ground` shows pictures of the video to a vision-language model."""
    return recipe.steps.vision.witness.named


def detects(recipe: "Recipe") -> bool:
    """Tell whether `judge` runs a trained network."""
    return recipe.steps.judge.detector is not None


def export(recipe: "Recipe") -> JsonValue:
    """Return what decides `export`; its card names the stages."""
    return {"export": _plain(recipe.export), "stages": list(recipe.stages)}


def text_source(recipe: "Recipe") -> str:
    """Return the encoder of the steps' vectors, as `text_encoder` takes it: that of the features'
    own space."""
    vision = recipe.steps.vision
    if vision.backbone in ("clip", "internvideo"):
        own = vision.backbone
        return f"{own}:{vision.path}" if vision.path is not None else own
    return vision.text_space if vision.backbone == "conse" else "minilm"


def _model_files(settings: "ChatSettings") -> dict[str, JsonValue]:
    """Return the sha256 of each file that a language model is made of."""
    return {
        "gguf": file_digest(settings.gguf),
        "chat_template": file_digest(settings.chat_template),
    }


def _plugin(kind: "Kind", name: str) -> dict[str, JsonValue]:
    """Return what decides the results of a plugin; nothing for Stepline's own."""
    identities = plugin_identities({kind: name})
    return {"plugin": identities[kind]} if identities else {}


def _plain(settings: Settings, without: set[str] | None = None) -> JsonValue:
    return settings.model_dump(mode="json", exclude=without or set())
