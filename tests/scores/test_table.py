"""Scores read from tables and from evaluated runs, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

from onecurve import OnecurveError
from onecurve.scores.suites import CELERITY7, tasks_of
from onecurve.scores.table import read_scores

GOOD = "name,family,n_params,tokens,accuracy\na,mine,1e8,2e9,0.4\nb,mine,2e8,4e9,0.45\n"


def written(tmp_path, text: str, name: str = "models.csv"):
    path = tmp_path / name
    path.write_text(text)
    return path


def refused(tmp_path, text: str, **options) -> str:
    with pytest.raises(OnecurveError) as error:
        read_scores([written(tmp_path, text)], **options)
    return str(error.value)


def test_a_table_and_the_published_models(tmp_path):
    s = read_scores([written(tmp_path, GOOD)])
    assert len(s) == 12 and s.score == "accuracy" and not s.falling
    assert s.name[:2] == ("a", "b") and s.family[:2] == ("mine", "mine")
    np.testing.assert_allclose(s.error[:2], [0.6, 0.55])
    np.testing.assert_allclose(s.compute[:2], [6 * 1e8 * 2e9, 6 * 2e8 * 4e9])
    assert any("2 of 12 models give no flops" in n for n in s.notes)
    alone = read_scores([written(tmp_path, GOOD)], published=False)
    assert alone.name == ("a", "b") and alone.notes == ()


def test_flops_as_given_or_by_the_rule():
    given, rule = read_scores([]), read_scores([], compute="6nd")
    np.testing.assert_allclose(rule.compute, 6 * given.n_params * given.tokens)
    assert given.compute[4] == 2.89e22 and rule.compute[4] == pytest.approx(2.117e22, rel=1e-3)


def test_the_teacher_is_counted(tmp_path):
    s = read_scores(
        [
            written(
                tmp_path,
                "name,n_params,tokens,flops,teacher_flops,teacher_params,accuracy,distilled\n"
                "a,1e8,2e9,1e18,5e17,,0.4,\nb,1e8,2e9,1e18,,3e9,0.41,\nc,1e8,2e9,1e18,,,0.42,yes\nd,1e8,2e9,1e18,,,0.43,no\n",
            )
        ],
        published=False,
    )
    np.testing.assert_allclose(s.compute, [1.5e18, 1e18 + 2 * 3e9 * 2e9, 1e18, 1e18])
    assert s.distilled.tolist() == [True, True, True, False]
    assert any("lower bound: c" in note for note in s.notes)


def test_the_mean_of_the_seven_tasks_with_its_error(tmp_path):
    columns = [("siqa" if task == "social_iqa" else task) for task in CELERITY7]
    head = ",".join(["name", "flops", *columns, *(f"{c}_stderr" for c in columns)])
    row = ",".join(["a", "1e20", *(str(0.3 + 0.05 * k) for k in range(7)), *["0.07"] * 7])
    s = read_scores([written(tmp_path, f"{head}\n{row}\n")], published=False)
    assert s.score == "accuracy" and s.value[0] == pytest.approx(0.45)
    assert s.stderr[0] == pytest.approx(0.07 / np.sqrt(7))
    assert read_scores([written(tmp_path, f"{head}\n{row}\n")], "social_iqa").value[0] == pytest.approx(0.55)


def test_bits_per_byte_leaves_the_published_models_out(tmp_path):
    s = read_scores([written(tmp_path, "name,flops,bpb,width\na,1e18,2.0,640\nb,1e19,1.7,896\n")])
    assert s.falling and s.error.tolist() == [2.0, 1.7] and len(s) == 2
    assert any("10 of 10 published models have no bits_per_byte" in n for n in s.notes)


def test_any_other_column_when_asked(tmp_path):
    text = "name,flops,accuracy,mmlu,val_loss\na,1e18,0.4,0.26,3.1\nb,1e19,0.5,0.28,2.8\n"
    assert read_scores([written(tmp_path, text)], "mmlu", published=False).value.tolist() == [0.26, 0.28]
    assert read_scores([written(tmp_path, text)], "val_loss", published=False).error.tolist() == [3.1, 2.8]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("0.4\n", "1.2\n", "'accuracy' is 1.2 at row 1; an accuracy lies in [0, 1]"),
        ("0.4\n", "-0.1\n", "'accuracy' is -0.1 at row 1"),
        ("0.4\n", "40\n", "'accuracy' is 40 at row 1; an accuracy lies in [0, 1]; if the table is in per cent, say -"),
        ("0.4\n", "forty\n", "which is not a number"),
        ("0.4\n", "inf\n", "'accuracy' is inf at row 1"),
        ("0.4\n", "\n", "row 1 has no score"),
        ("b,mine", "a,mine", "'a' of family 'mine' is there twice, before it at"),
        ("b,mine,2e8", "b,mine,", "row 2 (b): its compute is not known: it has no n_params and no flops; give f"),
        ("b,mine,2e8,4e9", "b,mine,,", "no n_params and no tokens and no flops"),
        ("2e8", "-2e8", "'n_params' is -2e+08 at row 2; must be above 0"),
        ("b,mine", ",mine", "every model needs a name"),
        ("name,", "which,", "every model needs a name"),
        ("tokens", "teacher_params", "row 1 has teacher_params but no tokens"),
        ("tokens,accuracy", "tokens,D", "columns 'D' and 'tokens' mean the same; drop one"),
    ],
)  # fmt: skip
def test_bad_tables_are_named(tmp_path, old, new, words):
    assert words in refused(tmp_path, GOOD.replace(old, new, 1), published=False)


def test_a_task_under_two_names(tmp_path):
    words = "columns 'siqa' and 'social_iqa' mean the same; drop one"
    assert words in refused(tmp_path, "name,flops,siqa,social_iqa\na,1e18,0.4,0.5\n")


def test_per_cent_is_taken_where_told(tmp_path):
    text = GOOD.replace("0.4\n", "40\n").replace("0.45", "45")
    s = read_scores([written(tmp_path, text)], percent=True, published=False)
    np.testing.assert_allclose(s.value, [0.4, 0.45])
    assert "no accuracy is above 1, which is not per cent" in refused(tmp_path, GOOD, percent=True)
    assert "'accuracy' is 140 at row 1; in per cent lies in [0, 100]" in refused(
        tmp_path, text.replace("40\n", "140\n", 1), percent=True
    )


def test_scores_that_are_not_shared(tmp_path):
    two = "name,flops,piqa,boolq\na,1e18,0.5,0.6\nb,1e19,0.6,0.6\n"
    assert "which score? The models share piqa, boolq" in refused(tmp_path, two)
    assert "no score 'piqe' (did you mean 'piqa'?)" in refused(tmp_path, two, score="piqe", published=False)
    mixed = "name,flops,piqa,boolq\na,1e18,0.5,\nb,1e19,,0.6\n"
    assert "share no score" in refused(tmp_path, mixed)
    with pytest.raises(OnecurveError, match="the published table: no score 'mmlu'"):
        read_scores([], "mmlu")


def test_the_same_name_in_two_families_is_fine(tmp_path):
    other = written(tmp_path, GOOD.replace("mine", "yours"), "other.csv")
    assert len(read_scores([written(tmp_path, GOOD), other], published=False)) == 4


def result(folder, task: str, value: float, **model) -> None:
    told = {"name": folder.name, "family": "", "n_params": 1e6, "tokens": 2e7, "flops": 1.5e14, "weights": "step 10"}
    told |= {key: value for key, value in model.items() if key in told}
    measured = {"shots": 0, "limit": None, "text": None} | {k: v for k, v in model.items() if k not in told}
    content = {
        "chance": measured.pop("chance", None),
        "schema": 1,
        "task": task,
        "value": value,
        "stderr": 0.01,
        "measured": measured,
        "model": told,
    }
    (folder / "scores").mkdir(parents=True, exist_ok=True)
    (folder / "scores" / f"{task}.json").write_text(json.dumps(content))


def test_evaluated_runs(tmp_path):
    for k in range(3):
        result(tmp_path / "ladder" / "runs" / f"r{k}", "bits_per_byte", 2.0 - 0.2 * k, n_params=10.0 ** (6 + k))
    s = read_scores([tmp_path / "ladder" / "runs"])
    assert s.name == ("r0", "r1", "r2") and set(s.family) == {"ladder"} and s.score == "bits_per_byte"
    np.testing.assert_allclose(s.error, [2.0, 1.8, 1.6])
    np.testing.assert_allclose(s.compute, 1.5e14)
    np.testing.assert_allclose(read_scores([tmp_path], compute="6nd").compute, 6 * np.array([1e6, 1e7, 1e8]) * 2e7)
    assert read_scores([tmp_path / "ladder" / "runs" / "r1"]).name == ("r1",)


def test_two_ladders_of_a_folder_are_two_families(tmp_path):
    for kind in ("mup", "standard"):
        result(tmp_path / "out" / kind, "piqa", 0.5, family=kind)
    assert read_scores([tmp_path / "out"], published=False).family == ("out (mup)", "out (standard)")


def test_scores_measured_in_different_ways_are_not_compared(tmp_path):
    for k, folder in enumerate((tmp_path / "a", tmp_path / "b")):
        for task in CELERITY7:
            result(folder, task, 0.5, shots=CELERITY7[task] + 5 * k * (task == "winogrande"))
        result(folder, "bits_per_byte", 1.5, text=f"book {k}")
    assert len(read_scores([tmp_path], "piqa", published=False)) == 2
    with pytest.raises(OnecurveError, match=r"different ways: 5 shots \(.*a\) and 10 shots \(.*b\); evaluate both"):
        read_scores([tmp_path], "winogrande")
    with pytest.raises(OnecurveError, match=r"accuracy was measured in different ways: .*winogrande 10 shots"):
        read_scores([tmp_path])
    with pytest.raises(OnecurveError, match="on book 0"):
        read_scores([tmp_path], "bits_per_byte")
    assert read_scores([tmp_path / "a"], published=False).value.tolist() == [0.5]


def test_models_at_chance_are_named(tmp_path):
    for k in range(3):
        for task in CELERITY7:
            result(tmp_path / "ladder" / f"r{k}", task, 0.25 + 0.015 * k, chance=0.25)
    s = read_scores([tmp_path], "piqa", published=False)
    assert any("no better than chance, so their piqa says nothing of their compute: r0, r1" in n for n in s.notes)
    assert [n for n in read_scores([tmp_path], published=False).notes if "chance" in n and "r0" in n and "r1" not in n]
    assert read_scores([tmp_path / "ladder" / "r2"], "piqa", published=False).notes == ()


def test_bad_results_of_runs(tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(OnecurveError, match="holds no evaluated model; score its runs with"):
        read_scores([tmp_path])
    result(folder, "piqa", 0.5)
    result(folder, "boolq", 0.5, weights="step 20")
    with pytest.raises(OnecurveError, match=r"different weights \(step 20, step 10\)"):
        read_scores([folder], "piqa")
    result(folder, "boolq", 1.5)
    with pytest.raises(OnecurveError, match=r"boolq.json: not a result of onecurve evaluate .*value 1.5"):
        read_scores([folder], "piqa")
    (folder / "scores" / "boolq.json").write_text("[1")
    with pytest.raises(OnecurveError, match="delete it and evaluate again"):
        read_scores([folder], "piqa")
    result(folder, "boolq", 0.5, tokens=None, flops=None)
    with pytest.raises(OnecurveError, match="its compute is not known: it has no tokens and no flops"):
        read_scores([folder], "boolq", published=False)


@pytest.mark.parametrize("names", ["", "piqa,,boolq", "piqa,piqa", "celerity7,piqa", "piqa:many"])
def test_bad_task_lists(names):
    with pytest.raises(OnecurveError, match="--tasks"):
        tasks_of(names)
