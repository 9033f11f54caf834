"""The networks of ProcX's tables and what they lower, as a trial says."""

from stepline.experiments.procx_corpus import ProcxCorpus
from stepline.experiments.procx_trial import Attention, ProcxTrial
from stepline.procx.loss_settings import PDVC, LossSettings
from stepline.procx.model import ProcX
from stepline.procx.model_settings import ModelSettings
from stepline.procx.settings import AttentionSettings
from stepline.procx.text_settings import CaptionerSettings
from stepline.procx.vid2seq import Vid2Seq
from stepline.procx.vid2seq_sequence import Alphabet
from stepline.procx.vid2seq_settings import SMALL_VID2SEQ, Vid2SeqSettings

LONGEST = 32  # tokens of a sentence; what is said has 20


def model_of(trial: ProcxTrial) -> ModelSettings:
    """Return ProcX's network, or PDVC's in full, of the trial's size."""
    size, pdvc = trial.size, trial.system == "pdvc"
    kind = "lstm" if pdvc else trial.captioner
    encoder: Attention = "vanilla" if pdvc else trial.encoder
    decoder: Attention = "vanilla" if pdvc else trial.decoder
    return ModelSettings(
        features=size.features, rows=size.rows, encoder_layers=size.layers, decoder_layers=size.layers,
        attention=AttentionSettings(width=size.width, heads=size.heads, form=encoder), decoder_form=decoder,
        feed_forward=2 * size.width, queries=size.queries, most_steps=size.queries, fuse=not pdvc,
        captioner=CaptionerSettings(
            kind=kind, width=size.width, heads=size.heads, text_layers=1, joint_layers=1,
            feed_forward=2 * size.width, projection=size.width // 2, longest=LONGEST,
        ),
    )  # fmt: skip


def loss_of(trial: ProcxTrial) -> LossSettings:
    """Return what a trial lowers: section E.2's parts and weights, or PDVC's."""
    if trial.system == "pdvc":
        return PDVC
    own: dict[str, object] = {"confidence": trial.confidence}
    if trial.contrast == "none":
        own["contrast_weight"] = 0.0
    else:
        own["contrast"] = trial.contrast
    return LossSettings.model_validate(own)


def vid2seq_of(trial: ProcxTrial) -> Vid2SeqSettings:
    """Return the sequence baseline of the trial's size."""
    size = trial.size
    own = {
        "features": size.features, "rows": size.rows, "width": size.width, "heads": size.heads,
        "video_layers": size.layers, "writer_layers": size.layers, "feed_forward": 2 * size.width,
    }  # fmt: skip
    return SMALL_VID2SEQ.model_copy(update=own)


def fresh(trial: ProcxTrial, corpus: ProcxCorpus) -> ProcX | Vid2Seq:
    """Return the trial's network with weights that mean nothing yet."""
    if trial.system == "vid2seq":
        settings = vid2seq_of(trial)
        return Vid2Seq(settings, len(Alphabet(corpus.vocabulary, settings.bins)))
    return ProcX(model_of(trial), len(corpus.vocabulary))
