"""`--preset paper`: each value beside the place in its paper that prints it, and what a preset
yields to."""

import json

import click
import pytest
from option_words import option_words
from simulated_stores import write_simulated

from stepline.cli import main
from stepline.cli.options import preset_files
from stepline.curate.stage import Recipe, load_recipe
from stepline.errors import SettingsError
from stepline.models.nasva.settings import AlignerRunSettings, RefineRunSettings
from stepline.models.procx.settings import ProcxRunSettings
from stepline.models.wys2.settings import Wys2Settings
from stepline.pipeline.request import StepsSettings
from stepline.settings import load_settings
from stepline.sieve_swap.settings import SieveSwapSettings

# Setting -> (value, where the paper says it and what it says there).
NASVA_TRAINING = {
    "model.width": (256, "supplement 6.1: D is set to 256"),
    "model.heads": (8, "supplement 6.1: 8-head attention"),
    "model.encoder_layers": (3, "supplement 6.1: 3-layer encoder blocks"),
    "model.decoder_layers": (3, "supplement 6.1: 3-layer decoder blocks"),
    "model.projection": (64, "supplement 6.1: d is 64"),
    "model.form": ("paper", "section 3.2: one linear layer, places added to what it gives"),
    "model.feature_scale": ("none", "section 3.2: no scaling is spoken of"),
    "loss.form": ("paper", "section 3.3: the denominator sums over t of one video"),
    "loss.temperature": (0.07, "section 4.2: tau is 0.07"),
    "loss.shuffled": (0.5, "supplement 6.3: <step> with the remaining 50% probability"),
    "loss.drawn": ("sample", "supplement 6.3: the type-token of the training samples"),
    "data.longest": (1200, "supplement 6.1: longer than 1200 seconds is truncated"),
    "data.unlabelled": ("drop", "section 3.1: steps below eps1 are discarded"),
    "train.epochs": (12, "section 4.2: 12 epochs"),
    "train.batch": (8, "supplement 6.1: batch size 8"),
    "train.learning_rate": (1e-4, "section 4.2: initial learning rate 10^-4"),
    "train.warmup": (0.0, "section 4.2: cosine decay"),
}
RELEASED = {
    "model.width": (256, "transformer.py"),
    "model.heads": (8, "transformer.py"),
    "model.encoder_layers": (3, "decoder.py"),
    "model.decoder_layers": (3, "decoder.py"),
    "model.feed_forward": (2048, "transformer.py"),
    "model.projection": (64, "decoder.py: v_sim_proj, t_sim_proj"),
    "model.form": ("released", "decoder.py: Linear + LayerNorm, places at every attention"),
    "model.feature_scale": ("none", "dataset.py: features as they are"),
    "model.dropout": (0.1, "transformer.py"),
    "model.attention_dropout": (0.1, "transformer.py"),
    "loss.form": ("release", "loss.py: rivals of the whole batch"),
    "loss.temperature": (0.07, "decoder.py: compute_all"),
    "loss.shuffled": (0.5, "dataset.py: p = .5"),
    "loss.drawn": ("batch", "dataset.py: drawn per batch"),
    "data.label_rule": ("inclusive", "loss.py: start <= t <= end"),
    "data.longest": (1200, "dataset.py: features[:1200]"),
    "train.epochs": (20, "htm.yaml"),
    "train.batch": (8, "htm.yaml"),
    "train.learning_rate": (1e-4, "htm.yaml"),
    "train.warmup": (0.0, "optimizer.py: CosineAnnealingLR alone"),
    "train.weight_decay": (5e-5, "htm.yaml"),
    "train.clip": (1.0, "train.py"),
    "train.seed": (2023, "htm.yaml"),
}
REFINE = NASVA_TRAINING | {
    "said": ("likeness", "section 3.1: narrations and steps are compared"),
    "coarse.temperature": (0.07, "unsaid: nu; tau is 0.07"),
    "coarse.grow": (0.7, "section 4.2: zeta = 0.7"),
    "coarse.floor": (0.2, "section 4.2: eps1 = 0.20"),
    "rounds.rounds": (1, "section 7: only one round as the default"),
    "rounds.teachers": (1, "section 3.3: the trained model"),
    "rounds.teacher_epochs": (12, "section 4.2: 12 epochs"),
    "rounds.refine.threshold": (0.8, "section 4.2: eps2 = 0.8"),
    "rounds.refine.threshold_kind": ("cosine", "section 3.3: a score of the alignment matrix"),
    "rounds.refine.position": ("start", "section 3.3: the maximum is the start; table 8"),
    "rounds.refine.seconds": (8.0, "table 8: 8 s"),
}
PREDICTION = {
    "nasva.aligner.whole": (5000, "section 3.2: all seconds of a video; decoder.py: 5000 places"),
    "nasva.aligner.compete": (0.0, "section 3.4: each text's best second"),
    "nasva.aligner.order": ("none", "section 3.4: no order is asked for"),
    "nasva.aligner.speech": (0.0, "section 3.4: features and texts alone"),
    "nasva.aligner.spans": ("start", "section 3.3: the maximum is the start"),
    "nasva.aligner.duration": (8.0, "table 8: 8 s"),
    "procx.when": ("speechless", "section 3 (ProcX): only the untrimmed video as input"),
    "procx.caption_weight": (0.0, "appendix D (ProcX): confidence alone"),
}
SIEVE_SWAP = {
    "text_base.encoder": ("mpnet", "section 4.2: MPNet"),
    "pairing.longest_video": (600.0, "section 4.2: at most 10 minutes"),
    "pairing.smallest_category": (5, "section 4.2: five videos a category"),
    "pairing.category": ("Food and Entertaining", "section 4.2: cooking videos of HowTo100M"),
    "pairing.iou": (0.1, "section 4.2: lambda_iou = 0.1"),
    "pairing.recall": (0.3, "section 4.2: lambda_recall = 0.3"),
    "pairing.validation_iou": (0.2, "section 4.2: from 0.2 on validation"),
    "pairing.numerals": (False, "section 4.2: nouns, verbs, adverbs, adjectives"),
    "match.variant": ("swap", "equation 6"),
    "match.scope": ("retained", "section 4.2: all S of R2"),
    "match.method": ("nearest", "equation 6: kappa is the nearest step"),
    "match.sieve": ("similarity", "equation 6"),
    "match.similarity": (0.75, "section 4.2: lambda_sim = 0.75"),
    "match.swap_similarity": (0.0, "equation 6: whatever passes is swapped"),
    "match.merge": ("before", "appendix A.2: transcripts are merged, then replaced"),
    "match.longest_merged": (8.0, "appendix A.2: shorter than 8 seconds"),
    "match.merge_gap": (4.0, "appendix A.2: a gap of less than 4 seconds"),
    "match.candidates": (1, "equation 6"),
    "match.check": (False, "section 4.2: none"),
}
PROCX = {
    "model.rows": (256, "section 6.3: 256 by nearest interpolation"),
    "model.standardise": (False, "section 6.3: no scaling is spoken of"),
    "model.encoder_layers": (4, "section 6.3: four layers"),
    "model.decoder_layers": (4, "section 6.3: four layers"),
    "model.dropout": (0.1, "section E.2: 0.1"),
    "model.fuse": (True, "appendix D: Multi-Scale Fusion"),
    "model.query_form": ("shared", "appendix D: one set of queries"),
    "model.attention.form": ("key-aware", "section 5"),
    "model.captioner.kind": ("transformer", "section 5: Contrastive Transformer"),
    "model.captioner.dropout": (0.1, "section E.2: 0.1"),
    "vocabulary.size": (10_000, "section 6.3: 10K tokens"),
    "loss.confidence": ("varifocal", "equation 13"),
    "loss.count": ("cross_entropy", "below equation 14: the cross-entropy loss"),
    "loss.contrast": ("pair", "appendix D: InfoNCE in fine-tuning"),
    "loss.giou_weight": (4.0, "section E.2"),
    "loss.l1_weight": (0.5, "section E.2"),
    "loss.confidence_weight": (2.0, "section E.2"),
    "loss.count_weight": (0.5, "section E.2"),
    "loss.caption_weight": (5.0, "section E.2"),
    "loss.contrast_weight": (0.8, "section E.2"),
    "loss.label_smoothing": (0.2, "section E.2"),
    "train.epochs": (20, "section E.2: 20 epochs for YouCook2"),
    "train.batch": (8, "section E.2: mini-batches of 8"),
    "train.learning_rate": (1e-4, "section E.2"),
    "train.warmup": (0.1, "section E.2: warm-up, its length unsaid"),
    "train.weight_decay": (1e-3, "section E.2"),
    "train.clip": (0.1, "section E.2"),
}
PRETRAINING = PROCX | {
    "loss.contrast": ("multiple", "appendix D: MIL-InfoNCE in pre-training"),
    "train.epochs": (10, "section E.2: 10 epochs"),
    "train.batch": (64, "section E.2: 64 over 4 GPUs"),
}
BEST_PROCX = {"model.query_form": ("roles", "docs/procx.md: queries by role")}
WYS2 = {
    "clips.seconds": (3.0, "section 4: 3 s"),
    "clips.resolve": (True, "section 3.1: coreferences are resolved"),
    "labels.kind": ("ss", "section 4.1: SS in all further results"),
    "labels.similarity": (0.5, "section 4: c = 0.5"),
    "detector.video": ("s3d", "section 3.2: S3D, which is learned"),
    "detector.text": ("frozen", "section 3.2: the sentence encoder is frozen"),
    "detector.score": ("dot", "section 3.2: a dot product"),
    "contrast.objective": ("nce", "section 3.2: NCE"),
    "contrast.negatives": (4, "section 4: 4 negatives a positive"),
    "pseudo.rounds": (1, "section 3.1"),
    "train.batch": (128, "section 4: 128"),
    "train.learning_rate": (1e-5, "section 4: 10^-5"),
    "train.weight_decay": (0.0, "section 4: Adam"),
}
PDVC = {
    "model.rows": (256, "ProcX section 6.3: 256 rows; PDVC's own are 200"),
    "model.standardise": (False, "no scaling"),
    "model.encoder_layers": (2, "yc2_tsn_pdvcl.yml: enc_layers"),
    "model.decoder_layers": (2, "yc2_tsn_pdvcl.yml: dec_layers"),
    "model.dropout": (0.1, "yc2_tsn_pdvcl.yml: transformer_dropout_prob"),
    "model.fuse": (False, "the LSTM attends to the levels"),
    "model.attention.form": ("vanilla", "ms_deform_attn.py"),
    "model.captioner.kind": ("lstm", "LSTM_DSA.py"),
    "model.captioner.dropout": (0.5, "opts.py: drop_prob"),
    "model.captioner.longest": (30, "opts.py: max_caption_len"),
    "vocabulary.size": (10_000, "ProcX section 6.3: 10K tokens"),
    "loss.confidence": ("focal", "criterion.py"),
    "loss.count": ("pdvc", "criterion.py: counter_loss"),
    "loss.text_layers": ("every", "pdvc.py: the captions of each layer"),
    "loss.giou_weight": (4.0, "yc2_tsn_pdvcl.yml: giou_loss_coef"),
    "loss.l1_weight": (0.0, "yc2_tsn_pdvcl.yml: bbox_loss_coef"),
    "loss.confidence_weight": (2.0, "yc2_tsn_pdvcl.yml: cls_loss_coef"),
    "loss.count_weight": (0.5, "yc2_tsn_pdvcl.yml: count_loss_coef"),
    "loss.caption_weight": (2.0, "yc2_tsn_pdvcl.yml: caption_loss_coef"),
    "loss.contrast_weight": (0.0, "there is none"),
    "loss.caption_mean": ("captions", "LSTM_DSA.py: build_loss, a mean over captions"),
    "loss.label_smoothing": (0.0, "LSTM_DSA.py: none"),
    "train.epochs": (20, "ProcX section E.2: 20 epochs"),
    "train.batch": (8, "ProcX section E.2"),
    "train.learning_rate": (1e-4, "ProcX section E.2"),
    "train.warmup": (0.1, "ProcX section E.2: warm-up, its length unsaid"),
    "train.weight_decay": (1e-3, "ProcX section E.2"),
    "train.clip": (0.1, "ProcX section E.2"),
}
PDVC_PREDICTION = {
    "procx.when": ("speechless", "the video alone"),
    "procx.least": (1, "pdvc.py: at least one"),
    "procx.caption_weight": (1.0, "yc2 configurations: ec_alpha"),
}


def below(section, table):
    """Return a table of values as those of a section."""
    return {f"{section}.{key}": value for key, value in table.items()}


# what a recipe has from its base, and what its source chooses by
ELSEWHERE = {"text_base.encoder", "pairing.category"}
CURATION = {
    "steps.writing.writer": ("llm", "NaSVA section 3.1: an LLM"),
    "steps.writing.llm.form": ("nasva", "NaSVA table 6, third row"),
    "filter.longest": (1200.0, "NaSVA supplement 6.1: 1200 s"),
    "coarse.said": ("likeness", "NaSVA section 3.1: the similarity matrix"),
    "train.data.step_place": ("said", "NaSVA section 3.1: Step-ASR"),
    "place.calibrate": (False, "NaSVA section 3.3: a step with a label is shown"),
    **below("train", NASVA_TRAINING),
    **below("refine", {key: row for key, row in REFINE.items() if "coarse." not in key}),
    "refine.said": ("given", "as the stage `coarse` has found it"),
    **below("steps.nasva", {key: row for key, row in REFINE.items() if "coarse." in key}),
    **{
        key.replace("nasva.", "place."): row
        for key, row in PREDICTION.items()
        if key.startswith("nasva.aligner")
    },
    **below("sieve_swap", {key: row for key, row in SIEVE_SWAP.items() if key not in ELSEWHERE}),
}
PRESETS = {
    ("curate run", "paper"): (Recipe, CURATION),
    ("train procx", "pdvc"): (ProcxRunSettings, PDVC),
    ("predict", "pdvc"): (StepsSettings, PDVC_PREDICTION),
    ("train nasva", "paper"): (AlignerRunSettings, NASVA_TRAINING),
    ("train nasva", "released"): (AlignerRunSettings, RELEASED),
    ("refine", "paper"): (RefineRunSettings, REFINE),
    ("predict", "paper"): (StepsSettings, PREDICTION),
    ("sieve-swap", "paper"): (SieveSwapSettings, SIEVE_SWAP),
    ("train procx", "paper"): (ProcxRunSettings, PROCX),
    ("train procx", "paper-pretraining"): (ProcxRunSettings, PRETRAINING),
    ("train procx", "best"): (ProcxRunSettings, BEST_PROCX),
    ("train wys2", "paper"): (Wys2Settings, WYS2),
}
NAMES = ["-".join(names).replace(" ", "-") for names in PRESETS]


def leaves(tree, prefix=""):
    """Return section.key -> value of a settings tree."""
    found = {}
    for name, value in tree.items():
        key = f"{prefix}{name}"
        found |= leaves(value, f"{key}.") if isinstance(value, dict) else {key: value}
    return found


@pytest.mark.parametrize(("names", "table"), PRESETS.items(), ids=NAMES)
def test_a_preset_holds_what_the_paper_prints_and_nothing_else(names, table):
    kind, values = table
    settings = leaves(load_settings(kind, preset=preset_files(names[0])[names[1]]).model_dump())
    expected = {key: value for key, (value, _) in values.items()}
    assert {key: settings[key] for key in expected} == expected
    defaults = leaves(kind().model_dump())
    others = {key: value for key, value in defaults.items() if key not in expected}
    assert {key: settings[key] for key in others} == others


def test_no_preset_is_without_its_table():
    for command in {names[0] for names in PRESETS}:
        for name in preset_files(command):
            assert (command, name) in PRESETS


@pytest.mark.parametrize("names", PRESETS, ids=NAMES)
def test_every_line_says_its_source_and_where_the_default_departs_why(names):
    from docs.generate import preset_lines

    kind, path = PRESETS[names][0], preset_files(names[0])[names[1]]
    chosen, defaults = (
        leaves(settings.model_dump()) for settings in (load_settings(kind, preset=path), kind())
    )
    for key, _, comment in preset_lines(path):
        source, _, why = comment.partition("; ")
        assert source, key
        assert why or chosen[key] == defaults[key], f"{key}: say why the default is another"


def commands(group, path=()):
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        elif any(option.name == "preset" for option in command.params):
            yield " ".join((*path, name))


NEEDED = {
    "train nasva": ("--features", "f", "--out", "o"),
    "train procx": ("--features", "f", "--steps", "s", "--out", "o"),
    "train wys2": ("--features", "f", "--key-steps", "s", "--out", "o"),
    "refine": ("records", "--features", "f", "--out", "o"),
    "curate run": ("videos", "--out", "o"),
    "predict": ("youcook2", "--model", "m", "--features", ".", "--reference", "r", "--out", "o"),
    "train calibrate": ("ht-step", "--aligner", "a", "--features", "f", "--reference", "r"),
    "sieve-swap": ("records", "--text-base", "b", "--out", "o"),
    "text-base build": ("recipes.json", "--out", "b"),
}


@pytest.mark.parametrize("command", sorted(NEEDED))
def test_every_command_with_a_preset_reads_it(command, stepline, monkeypatch):
    read = {}

    def load(kind, path=None, overrides=(), *, preset=None):
        read.update(preset=preset, overrides=overrides)
        raise SettingsError("read")

    for module in ("stepline.settings", "stepline.curate.stage"):
        monkeypatch.setattr(f"{module}.load_settings", load)
    preset = ("--preset", "paper", "--set", "train.epochs=3")
    done = stepline(*command.split(), *NEEDED[command], *preset)
    assert "stepline: read" in done.stderr, done.output
    assert read["preset"].name == "paper.toml"
    assert list(read["overrides"])[:1] == ["train.epochs=3"]
    assert set(commands(main)) == set(NEEDED)


def test_a_preset_is_above_the_users_own_settings_and_below_what_the_command_gives(
    tmp_path, monkeypatch
):
    paper = preset_files("train procx")["paper"]
    monkeypatch.setenv("STEPLINE_TRAIN__BATCH", "2")
    monkeypatch.setenv("STEPLINE_DATA__SLACK", "9")
    settings = load_settings(ProcxRunSettings, preset=paper)
    assert (settings.train.batch, settings.data.slack) == (8, 9.0)
    (tmp_path / "mine.toml").write_text("[train]\nbatch = 4\nepochs = 30\n")
    given = (tmp_path / "mine.toml", ["train.epochs=31"])
    train = load_settings(ProcxRunSettings, *given, preset=paper).train
    assert (train.batch, train.epochs, train.weight_decay) == (4, 31, 1e-3)


def test_recipes_take_the_papers_values_but_what_they_set_themselves():
    preset = preset_files("curate run")["paper"]
    howtostep = load_recipe("howtostep", preset=preset)
    assert (howtostep.steps.writing.writer, howtostep.refine.rounds.teachers) == ("llm", 1)
    assert howtostep.refine.said == "given"
    one = load_recipe("howtostep", ["refine.rounds.teachers=3"], preset=preset)
    assert one.refine.rounds.teachers == 3
    swap = load_recipe("sieve_swap", preset=preset)
    assert (swap.filter.longest, swap.steps.writing.writer) == (600.0, "extractive")
    assert load_recipe("howtostep").refine.rounds.teachers == 2


def test_an_unknown_preset_is_wrong_usage(stepline):
    done = stepline("train", "nasva", "--features", "f", "--out", "o", "--preset", "papper")
    assert done.exit_code == 2
    assert "'paper', 'released'" in done.stderr


def test_a_run_with_a_preset_reports_all_its_values(stepline, tmp_path):
    write_simulated(tmp_path, 4)
    small = "width=32 heads=2 encoder_layers=1 decoder_layers=1 projection=8".split()
    values = [*(f"model.{size}" for size in small), "train.epochs=1"]
    given = option_words(out=tmp_path / "run", preset="paper", set=values)
    sources = ("--features", tmp_path / "features", "--steps", tmp_path / "records.parquet")
    vectors = ("--step-vectors", tmp_path / "steps")
    done = stepline("train", "nasva", *sources, *vectors, *given)
    assert done.exit_code == 0, done.output
    told = json.loads((tmp_path / "run" / "run.json").read_text())
    assert json.dumps(told).count('"form": "paper"') == 2  # of the network, of the loss
    assert '"unlabelled": "drop"' in json.dumps(told)
    assert '"epochs": 1' in json.dumps(told)
