from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import onecurve

ROOT = Path(__file__).parents[1]


def python(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True, **options)


def test_the_import_is_light():
    heavy = ["torch", "matplotlib", "plotly", "scipy", "pandas", "polars", "pydantic", "numpy"]
    done = python("-c", f"import sys, onecurve; print([m for m in {heavy} if m in sys.modules])")
    assert done.stdout.strip() == "[]"


def test_a_collapse_needs_no_torch_no_figures_no_pandas(tmp_path):
    heavy = ["torch", "matplotlib", "plotly", "scipy.stats", "pandas", "pyarrow"]
    program = f"""
import sys, onecurve
runs = [onecurve.Run.of(f"{{n}}-{{s}}", n_params=n, x=[1, 2, 3], loss=[3, 2, 1 + n / 9 + s / 99], seed=s)
        for n in (1.0, 2.0, 3.0, 4.0) for s in (0, 1)]
str(onecurve.collapse(onecurve.Ladder(runs)))
print([m for m in {heavy} if m in sys.modules])
"""
    assert python("-c", program).stdout.strip() == "[]"


def test_every_public_name_resolves():
    assert onecurve.__all__ == sorted(onecurve.__all__)
    for name in onecurve.__all__:
        assert getattr(onecurve, name).__name__ == name
    assert set(onecurve.__all__) <= set(dir(onecurve))
    with pytest.raises(AttributeError, match="no attribute 'colapse'"):
        _ = onecurve.colapse


def test_the_version_is_that_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert onecurve.__version__ == project["version"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    python("-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT))
    (file,) = folder.glob("*.whl")
    return file


def test_the_wheel_holds_types_and_recipes_and_no_tests(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert "onecurve/py.typed" in names
    assert "onecurve/plan/recipes/demo.toml" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if name.startswith(("tests", "benchmarks", "docs"))]
    source = {f"onecurve/{p.relative_to(ROOT / 'src' / 'onecurve')}" for p in (ROOT / "src" / "onecurve").rglob("*.py")}
    assert source <= set(names)


def test_the_wheel_installs_and_runs(wheel, tmp_path):
    python("-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(tmp_path), str(wheel))
    environment = {"PYTHONPATH": str(tmp_path), "PATH": ""}
    where = python("-c", "import onecurve; print(onecurve.__file__)", env=environment, cwd=tmp_path).stdout.strip()
    assert Path(where).is_relative_to(tmp_path)
    script = str(tmp_path / "bin" / "onecurve")
    assert python(script, "--version", env=environment, cwd=tmp_path).stdout.strip() == onecurve.__version__
    assert python("-m", "onecurve", "--version", env=environment, cwd=tmp_path).stdout.strip() == onecurve.__version__
