"""The stages that recipes list: thin functions around the library's own, each with all that decides its result."""

from stepline.curate.stage import Stage, Stages
from stepline.curate.stages import (
    clean,
    decides,
    export,
    filtering,
    gather,
    picture,
    refine,
    shown,
    speech,
    swap,
    train,
    visible,
)

STAGES: Stages = {
    stage.name: stage
    for stage in (
        Stage("probe", 1, "video", picture.probe, reads=("media", "about"), settings=decides.probe),
        Stage("transcribe", 1, "video", speech.transcribe, reads=("speech",), settings=decides.transcribe, gpu=True),
        Stage("write", 1, "video", speech.write, ("transcribe",), settings=decides.write),
        Stage("filter", 1, "video", filtering.keep, ("probe", "transcribe", "write"), settings=decides.keep),
        Stage(
            "encode",
            1,
            "video",
            picture.encode,
            reads=("picture",),
            settings=decides.encode,
            suffix=".safetensors",
            gpu=True,
        ),
        Stage("coarse", 1, "video", speech.coarse, ("probe", "transcribe", "write", "encode"), settings=decides.coarse),
        Stage("ground", 1, "video", shown.ground, ("coarse", "encode"), settings=decides.ground, suffix=".safetensors"),
        Stage("judge", 1, "video", shown.judge, ("coarse", "encode", "ground"), settings=decides.judge),
        Stage(
            "gather",
            1,
            "dataset",
            gather.gather,
            ("probe", "transcribe", "encode", "coarse"),
            reads=("about",),
            settings=decides.gather,
            takes=("filter", "ground", "judge"),
        ),
        Stage("sieve-swap", 1, "dataset", swap.sieve_swap, ("gather",), settings=decides.sieve_swap, resumes=True),
        Stage(
            "train", 1, "dataset", train.train, ("gather",), settings=decides.train, takes=("sieve-swap",), resumes=True
        ),
        Stage(
            "refine",
            1,
            "dataset",
            refine.refine,
            ("gather",),
            settings=decides.refine,
            takes=("sieve-swap",),
            resumes=True,
        ),
        Stage("clean", 1, "dataset", clean.clean, ("gather",), settings=decides.clean, takes=("sieve-swap", "refine")),
        Stage("visible", 1, "dataset", visible.visible, ("gather", "judge"), settings=decides.visible),
        Stage(
            "export",
            1,
            "dataset",
            export.export,
            ("gather",),
            reads=("about", "where"),
            settings=decides.export,
            takes=("sieve-swap", "refine", "clean", "visible"),
        ),
    )
}
