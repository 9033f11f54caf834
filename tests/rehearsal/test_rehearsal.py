"""The walk of docs/reproduce.md, typed line by line on files in the official layouts; every score
is worked out twice.

    make rehearsal                  the whole walk, each command a process, METEOR by its own Java program
    pytest tests/rehearsal          its small form: fewer and shorter videos, all commands in one process

What is typed differs from the page only by the `--set` of `SMALLER`: sizes, and thresholds of other
features. MPNet is fetched and used where its weights are already there, else MiniLM.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import official_files
import pytest
import second_opinion as opinion
from click.testing import CliRunner
from option_words import option_words

from stepline.cli import main
from stepline.networks.weights import weights_fetched

ROOT = Path(__file__).resolve().parents[2]
NEAR = 1e-6  # by which two ways to the same number may differ

ALIGNER = (
    "model.width=32 model.heads=4 model.encoder_layers=1 model.decoder_layers=1 "
    "model.projection=16 model.feed_forward=48 train.epochs=2 train.learning_rate=0.003"
).split()
PROCX = (
    "model.rows=16 model.attention.width=16 model.attention.heads=2 model.attention.levels=2 "
    "model.attention.points=2 model.encoder_layers=1 model.decoder_layers=1 "
    "model.feed_forward=24 model.queries=8 model.most_steps=6 model.captioner.width=16 "
    "model.captioner.heads=2 model.captioner.text_layers=1 model.captioner.joint_layers=1 "
    "model.captioner.feed_forward=24 model.captioner.projection=8 model.captioner.longest=16 "
    "vocabulary.size=300 train.epochs=3 train.learning_rate=0.003"
).split()
SMALLER = {
    "train nasva": ALIGNER,
    "train procx": PROCX,
    "train wys2": ("train.epochs=4",),
    # of a network that has hardly learnt, no cosine reaches 0.8; made transcripts hold little else
    # than their recipe
    "refine": (*ALIGNER, "rounds.teacher_epochs=1", "rounds.refine.threshold_kind=quantile"),
    "sieve-swap": ("pairing.validation_iou=0.9",),
}
# in the place of MPNet, where its weights are not there or the walk is the small one
SMALL_ENCODER = ("--set", "text_base.encoder=minilm")


# Lines that cannot do what was meant: a paper's, after its walk, each with what the error says.
REFUSED = {
    "A": (
        (
            "train nasva --preset released --features internvideo --steps howtostep:HowToStep.tar.gz"
            " --narrations narrations --exclude excluded-nasva.txt --out half_trained",
            "its features have another width (text 384, not 768)",
        ),
        (
            "predict htm-align --preset paper --aligner NSVA_narration.pth --features htm_align_text"
            " --texts htm_align_text --reference htm_align/htm_align.json --out of_texts.json",
            "holds features of texts, not of videos",
        ),
        (
            "refine howtostep:HowToStep.tar.gz --preset paper --features step_vectors"
            " --step-vectors step_vectors --out of_texts",
            "holds features of texts, not of videos",
        ),
    ),
    "B": (
        (
            "sieve-swap caption_alone/caption.json --preset paper --text-base recipenlg"
            " --out without_table",
            "put HowTo100M_v1.csv next to it",
        ),
        (
            "sieve-swap howto100m/caption.json --preset paper --text-base recipenlg"
            " --set pairing.longest_video=1 --out without_videos",
            "train.json is empty",
        ),
        (
            "train procx --preset paper --features yc2_s3d --out bare --steps"
            " sieve_and_swap/downstream/yc2/data/captiondata/yc2_train.json",
            "a dataset's own file is NAME:PATH, such as youcook2:sieve_and_swap",
        ),
    ),
    "C": (
        (
            "curate run coin_videos --preset paper --out curated --limit 1",
            "writer llm: no model is here",
        ),
    ),
}


def read_walk(page=ROOT / "docs" / "reproduce.md"):
    """Return the words after `stepline` of each line of a table's block, by the first word of its
    title."""
    blocks = {}
    for block in page.read_text().split("\n### ")[1:]:
        lines = re.findall(r"^    \$ stepline (.*)$", block, re.MULTILINE)
        if lines and re.match(r"[ABC]\d", block):
            blocks[block.partition(".")[0]] = [shlex.split(line) for line in lines]
    return blocks


WALK = read_walk()


def smaller(words):
    """Return the words with what makes a command small."""
    name = next((name for name in SMALLER if words[: len(name.split())] == name.split()), None)
    return [*words, *(part for each in SMALLER.get(name, ()) for part in ("--set", each))]


def given(words):
    """Return the options of a command with their values, where each option has one."""
    return {words[n].removeprefix("--"): words[n + 1] for n in range(2, len(words), 2)}


class Walk:
    """A folder of official files, and what types commands in it."""

    def __init__(self, paper, folder, *, whole):
        self.folder, self.whole, self.scores = folder, whole, []
        official_files.PAPERS[paper](
            folder, official_files.WHOLE if whole else official_files.SMALL
        )

    def type(self, words):
        """Type a command, which must end well, and return what it prints; a score must have its
        second opinion."""
        scored = words[0] == "evaluate"
        typed = [*smaller(words), *(["--json"] if scored else [])]
        if not self._has_mpnet and words[:2] == ["weights", "get"]:
            print(f"not typed: stepline {shlex.join(words)}")
            return
        typed += self._encoder_options(words)
        began = time.perf_counter()
        code, printed, told = self._run(typed)
        assert code == 0, f"stepline {shlex.join(words)}\n{told[-3000:]}"
        print(f"{time.perf_counter() - began:5.1f} s  stepline {shlex.join(words)}")
        if scored:
            self._compare(words, json.loads(printed))
        elif words[:2] == ["predict", "ht-step"] and given(words)["subset"].startswith("test"):
            self._submit(given(words)["out"], given(words)["subset"])

    def refuse(self, words, message):
        """Type a command that must end with exit code 1 and one line that holds the message."""
        code, _, told = self._run([*smaller(words), *self._encoder_options(words)])
        errors = [line for line in told.splitlines() if line.startswith("stepline:")]
        assert (code, len(errors)) == (1, 1), f"stepline {shlex.join(words)}\n{told[-3000:]}"
        assert message in errors[0]
        print(f"         refused: stepline {shlex.join(words)}")

    @property
    def _has_mpnet(self):
        return self.whole and weights_fetched("mpnet")

    def _encoder_options(self, words):
        """What a command gets where MiniLM stands for MPNet."""
        reads_texts = words[0] in ("text-base", "sieve-swap")
        return SMALL_ENCODER if reads_texts and not self._has_mpnet else ()

    def _run(self, words):
        return (self._process if self.whole else self._call)(words)

    def _process(self, words):
        own = {"PYTHONPATH": str(ROOT), "STEPLINE_CONFIG": "", "OMP_NUM_THREADS": "1"}
        environment = {**os.environ, **own}
        command = [sys.executable, "-m", "stepline", *words]
        done = subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout, done.stderr

    def _call(self, words):
        before = Path.cwd()
        os.chdir(self.folder)
        try:
            done = CliRunner().invoke(main, words)
        finally:
            os.chdir(before)
        return done.exit_code, done.stdout, f"{done.stderr}{done.exception or ''}"

    def _submit(self, answer, subset):
        """Do what HT-Step's server does with an answer: check its form, score it by the truth that
        it alone has."""
        asked = opinion.load(self.folder / "htstep" / "htm_test_input_headline.json")
        split = opinion.load(self.folder / "htstep" / "video_splits.json")[subset]
        seconds = opinion.load(self.folder / answer)
        assert sorted(seconds) == sorted(split)
        assert all(len(seconds[id]) == len(asked[id]["step_headline"]) for id in split)
        assert all(isinstance(second, int) for row in seconds.values() for second in row)
        words = option_words(predictions=answer, reference="hidden", subset=subset)
        self.type(["evaluate", "ht-step", *words])

    def _compare(self, words, report):
        options = given(words)
        benchmark, subset = words[1], options.get("subset")
        second = self._opinions()[benchmark, options.get("convention")]
        if "cut" in options:
            second = partial(second, cut=opinion.pdvc_cut)
        if second is None:
            return
        expected = second(
            self.folder / options["predictions"], self.folder / options["reference"], subset
        )
        assert expected, words
        assert not report["missing"], words
        for name, value in expected.items():
            ours = report["metrics"][name]["value"]
            assert ours == pytest.approx(value, abs=NEAR), f"{shlex.join(words)}: {name}"
            self.scores.append((benchmark, name, ours))
            print(f"         {name} {ours:.6f} here, {value:.6f} by the second opinion")

    def _opinions(self):
        meteor = opinion.official_meteor if self.whole else python_meteor
        soda = partial(opinion.soda, meteor=meteor)
        return {
            ("htm-align", "nasva"): partial(opinion.htm_align, rule="nasva"),
            ("htm-align", None): opinion.htm_align,
            ("htm-align", "narration"): opinion.htm_align_narrations,
            ("ht-step", None): opinion.ht_step,
            ("crosstask", "each-all"): opinion.crosstask,
            # it draws its 20 test sets at random, as each paper draws its own
            ("crosstask", None): None,
            ("youcook2", None): soda,
            # how many seconds lie in a span: nothing to work out twice
            ("interactive-cooking", None): None,
            ("tasty", None): soda,
            ("vnd", None): opinion.vnd,
        }


def python_meteor(pairs):
    """Return METEOR of (reference, hypothesis) pairs, which tests/evaluate holds to the jar."""
    from stepline.evaluate.meteor import Meteor

    meteor = Meteor()
    return [meteor.segment([reference], hypothesis) for reference, hypothesis in pairs]


def test_the_page_has_the_walk_of_every_paper():
    assert {name[0] for name in WALK} == set(official_files.PAPERS)
    kinds = {words[1] for lines in WALK.values() for words in lines if words[0] == "evaluate"}
    assert {"htm-align", "ht-step", "crosstask", "youcook2", "tasty", "vnd"} <= kinds


@pytest.mark.parametrize("paper", official_files.PAPERS)
def test_the_commands_of_a_paper_run_on_a_small_corpus(paper, tmp_path, monkeypatch):
    monkeypatch.setattr("stepline.vision.s3d.CLIP_SIDE", 64)
    walk(paper, tmp_path, whole=False)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("paper", official_files.PAPERS)
def test_the_commands_of_a_paper_run_as_its_page_types_them(paper, tmp_path):
    walk(paper, tmp_path, whole=True)


def walk(paper, folder, *, whole):
    """Type the blocks of a paper; each command ends well, each score is what its second opinion
    says."""
    walked = Walk(paper, folder, whole=whole)
    for block, lines in WALK.items():
        for words in lines if block.startswith(paper) else ():
            walked.type(words)
    for line, message in REFUSED[paper]:
        walked.refuse(shlex.split(line), message)
    assert walked.scores
