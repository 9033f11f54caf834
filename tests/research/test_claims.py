"""The papers' claims: intervals worked by hand, where differences come from, and the page that
shows them."""

import json
from statistics import mean

import pytest

from benchmarks import claims
from benchmarks.claims import (
    PAGE_MARKS,
    PAGE_PATH,
    gains_of,
    line,
    mean_and_interval,
    table,
    verdict,
)


def test_an_interval_over_seeds_says_what_can_be_told():
    # t of 2 degrees: 4.303
    assert mean_and_interval([1.0, 2.0, 3.0]) == pytest.approx((2.0, -0.484, 4.484), abs=1e-3)
    assert verdict(*mean_and_interval([1.0, 2.0, 3.0])[1:]) == "undecided"
    assert verdict(*mean_and_interval([5.0, 6.0, 5.5])[1:]) == "**reproduces**"
    assert verdict(*mean_and_interval([-5.0, -6.0, -5.5])[1:]) == "**reverses**"
    assert verdict(*mean_and_interval([5.0])[1:]) == "undecided"


@pytest.fixture
def results(tmp_path, monkeypatch):
    """A folder of results in each of their forms."""
    files = {
        "study": {
            "seeds": [0, 1],
            "rows": [
                {"table": "2", "row": "W", "scores": {"R@1": [10.0, 20.0]}},
                {"table": "2", "row": "W + S", "scores": {"R@1": [13.0, 24.0]}},
            ],
            "claims": [{"claim": "W + S above W", "metric": "R@1", "gains": [0.03, 0.04]}],
        },
        "arms": {
            "comparison": [
                {"arm": arm, "world": world, "seed": seed, "scores": {"SODA-D": score}}
                for arm, world, seed, score in [
                    ("A", 2, 0, 5.0),
                    ("A", 2, 1, 7.0),
                    ("B", 2, 0, 4.0),
                    ("B", 3, 0, 9.0),
                ]
            ]
        },
        "moved": {"table": {"prior": {"R@1": [0.01, -0.02, 0.04]}}},
    }
    (tmp_path / "results").mkdir()
    for name, tree in files.items():
        (tmp_path / "results" / f"{name}.json").write_text(json.dumps(tree))
    monkeypatch.setattr(claims, "BENCHMARKS_FOLDER", tmp_path)
    claims.result.cache_clear()
    yield tmp_path
    claims.result.cache_clear()


def test_differences_are_of_the_seeds_that_both_rows_have(results):
    assert gains_of({"file": "study", "claim": "W + S above W", "scale": 100.0}) == pytest.approx(
        [3.0, 4.0]
    )
    assert gains_of({"file": "study", "more": "2: W + S", "less": "2: W", "metric": "R@1"}) == [
        3.0,
        4.0,
    ]
    assert gains_of({"file": "arms", "more": "A", "less": "B", "metric": "SODA-D"}) == [1.0]
    pool = [
        {"file": "arms", "more": "A", "less": "B", "metric": "SODA-D"},
        {"file": "study", "claim": "W + S above W"},
    ]
    assert gains_of({"pool": pool}) == [1.0, 0.03, 0.04]
    assert gains_of({"claim": "W + S above W", "files": ["study", "study"]}) == [
        0.03,
        0.04,
        0.03,
        0.04,
    ]


def test_a_claim_that_no_one_measured_is_an_error(results):
    with pytest.raises(ValueError, match="unpack"):
        gains_of({"file": "study", "claim": "S above W"})
    with pytest.raises(KeyError, match="C"):
        gains_of({"file": "arms", "more": "C", "less": "B", "metric": "SODA-D"})


def test_an_interval_over_videos_is_reported_as_its_benchmark_took_it(results):
    said = line(
        {
            "paper": "P",
            "says": "moved",
            "file": "moved",
            "videos": ["table", "prior", "R@1"],
            "how": "W",
        }
    )
    assert said == "| P | moved | – | +1.0 [-2.0, +4.0] | over videos | undecided |  | W |"


def test_a_difference_of_two_shares_is_bounded_by_their_farthest_ends(results):
    tree = {"before": [0.2, 0.1, 0.3], "after": [0.6, 0.5, 0.65]}
    (results / "results" / "shares.json").write_text(json.dumps(tree))
    claim = {"file": "shares", "shares": [["after"], ["before"]]}
    assert claims.measured(claim)[:3] == pytest.approx((40.0, 20.0, 55.0))
    assert claims.measured(claim)[3] == "20.0 to 60.0"


UNMEASURED = {"paper": "P", "says": "A above B", "published": 0.4, "unmeasured": "no arm"}


def test_what_nothing_measures_is_listed_with_the_reason(results):
    assert line(UNMEASURED) == "| P | A above B | +0.4 | – |  | not measured | no arm | – |"


def test_a_reversal_with_a_known_cause_says_so_and_no_other_verdict(results):
    reversed_claim = {"paper": "P", "says": "S", "how": "W", "file": "moved", "videos": ["low"]}
    (results / "results" / "moved.json").write_text(
        json.dumps({"low": [-0.2, -0.3, -0.1], "wide": [-0.2, -0.3, 0.1]})
    )
    claims.result.cache_clear()
    assert "| **reverses**, by the world |" in line(reversed_claim, ["S"])
    assert "by the world" not in line(reversed_claim, ["another"])
    assert "| undecided |" in line({**reversed_claim, "videos": ["wide"]}, ["S"])


def test_a_row_counts_the_verdicts_of_its_paper(results):
    lines = [
        line(UNMEASURED),
        "| P | a | +1 | +1 [0, 2] | +1 | **reproduces** | why | N |",
        "| P | b | +1 | -1 [-2, 0] | -1 | **reverses**, by the world |  | N |",
    ]
    assert claims.count_row("P", lines) == "| P | 3 | 1 | 1 | 0 | 0 | 1 | 1 |"


def test_networks_that_stopped_in_mid_learning_give_no_verdict(results):
    claim = {"paper": "P", "says": "S", "how": "W", "file": "early", "videos": ["high"]}
    (results / "results" / "early.json").write_text(json.dumps({"high": [0.2, 0.1, 0.3]}))
    claims.result.cache_clear()
    assert "| **reproduces** |" in line(claim)
    assert "| half-trained |" in line(claim, half_trained=["W"])
    assert (
        claims.count_row("P", [line(claim, half_trained=["W"])])
        == "| P | 1 | 0 | 0 | 0 | 1 | 0 | 0 |"
    )


def test_published_claims_stand_apart_from_our_own_questions():
    published, own = table().split("### Our own questions")
    published = published.split("### With a difference")[1]
    count = sum(row.startswith("| ") for row in published.splitlines()) - 1
    assert f"| all with a published difference | {count} |" in table()
    assert "| – | not measured |" not in own
    assert all("| – |" in row for row in own.split("###")[0].splitlines()[4:] if row)


def test_what_the_world_decides_names_claims_that_are_there():
    tree = claims.claim_file()
    said = {claim["says"] for claim in tree["claim"]}
    assert {says for cause in tree["world"] for says in cause["claims"]} <= said


MAX_RISE = 4.0  # points of the validation score, in the last third of a training at a plateau


PLATEAU_HOWS = ("P-plateau", "P-rising", "P-rates", "P-zero")


def test_a_claim_at_a_plateau_rests_on_arms_that_rise_no_more_and_are_at_one_rate():
    from research.procx.arms import option_in, rise_at_end
    from research.procx.comparisons import ARM_COMPARISONS, tuned_as

    rises = {}
    options = {}
    for cell in claims.result("procx_plateau")["comparison"]:
        curve = [tuple(point) for point in cell["validation"]]
        rises.setdefault(cell["arm"], []).append(rise_at_end(curve))
        options.setdefault(cell["arm"], set()).add(option_in(cell))
    arms_of = {claim.statement: (claim.more, claim.less) for claim in ARM_COMPARISONS}
    for claim in claims.claim_file()["claim"]:
        how = claim.get("how")
        if how not in PLATEAU_HOWS:
            continue
        arms = (claim.get("more"), claim.get("less"))
        if "claim" in claim:
            statement, _ = claim["claim"].rsplit(", ", 1)
            arms = arms_of[statement]
        rise = max(mean(rises[arm]) for arm in arms)
        assert (rise > MAX_RISE) == (how == "P-rising"), claim["says"]
        # arms that take the rate of one tuned arm have the same
        tuned_arms = {tuned_as(arm) for arm in arms}
        unlike = len(tuned_arms) == 1 and len(set.union(*(options[arm] for arm in arms))) > 1
        assert unlike == (how == "P-rates"), claim["says"]


def test_the_page_holds_what_the_results_say():
    page = PAGE_PATH.read_text(encoding="utf-8")
    assert page.split(PAGE_MARKS[0])[1].split(PAGE_MARKS[1])[0] == table()
