"""The stages that recipes list: thin functions around the library's own, each with all that decides its result."""

from functools import partial

from stepline.curate.stage import Stage, StageTable
from stepline.curate.stages import cache_keys, clean, gather, per_video, train
from stepline.curate.stages.cache_keys import section

# fmt: off
_STAGES = (
    Stage("probe", 1, "video", per_video.probe, reads=("media", "about"), settings=cache_keys.reading),
    Stage("transcribe", 1, "video", per_video.transcribe, reads=("speech",), settings=cache_keys.transcribe,
          gpu=cache_keys.always, libraries=cache_keys.hearing_libraries, run_many=per_video.transcribe_many),
    Stage("write", 1, "video", per_video.write, ("transcribe",), settings=cache_keys.write,
          libraries=cache_keys.writing_libraries),
    Stage("filter", 1, "video", per_video.filter_video, ("probe", "transcribe", "write"),
          settings=partial(section, "filter")),
    Stage("encode", 1, "video", per_video.encode, reads=("picture",), settings=cache_keys.encode,
          suffix=".safetensors", gpu=cache_keys.sees, libraries=cache_keys.seeing_libraries),
    Stage("coarse", 1, "video", per_video.coarse, ("probe", "transcribe", "write", "encode"),
          settings=cache_keys.coarse, libraries=cache_keys.text_libraries),
    Stage("ground", 1, "video", per_video.ground, ("coarse", "encode"), settings=cache_keys.ground,
          suffix=".safetensors", gpu=cache_keys.places, reads_media=cache_keys.asks,
          libraries=cache_keys.text_libraries),
    Stage("judge", 1, "video", per_video.judge, ("coarse", "encode", "ground"), settings=cache_keys.judge,
          gpu=cache_keys.detects, libraries=cache_keys.text_libraries),
    Stage("gather", 1, "dataset", gather.gather, ("probe", "transcribe", "encode", "coarse"), reads=("about",),
          settings=cache_keys.gather, takes=("filter", "ground", "judge")),
    Stage("features", 1, "dataset", gather.features, ("encode",)),
    Stage("sieve-swap", 1, "dataset", train.sieve_swap, ("gather",), settings=cache_keys.sieve_swap, resumes=True,
          gpu=cache_keys.always),
    Stage("train", 1, "dataset", train.train, ("gather",), settings=cache_keys.train, takes=("sieve-swap",),
          resumes=True, gpu=cache_keys.always),
    Stage("refine", 1, "dataset", train.refine, ("gather",), settings=cache_keys.refine, takes=("sieve-swap",),
          resumes=True, gpu=cache_keys.always),
    Stage("clean", 1, "dataset", clean.clean, ("gather",), settings=partial(section, "clean"),
          takes=("sieve-swap", "refine"), gpu=cache_keys.always),
    Stage("visible", 1, "dataset", clean.visible, ("gather", "judge"), settings=partial(section, "visible")),
    Stage("export", 2, "dataset", clean.export, ("gather",), reads=("about", "where"), settings=cache_keys.export,
          takes=("sieve-swap", "refine", "clean", "visible")),
)
# fmt: on

STAGES: StageTable = {stage.name: stage for stage in _STAGES}
